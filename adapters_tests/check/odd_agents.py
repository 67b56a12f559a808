"""Programs that are no good agents, for tests of what the check says about them. Run as `python odd_agents.py KIND`."""

# ruff: noqa: T201 - stdout is what they are about
from __future__ import annotations

import json
import os
import signal
import sys
import time


def answer(line: str, **outcome: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line).get("id"), **outcome}), flush=True)


def hang() -> None:
    sys.stdin.read()
    time.sleep(3600)


def crash() -> None:
    sys.stdin.readline()
    print("Error: no such module\nfatal: giving up", file=sys.stderr)
    sys.exit(3)


def banner() -> None:
    print("Welcome to the agent!", flush=True)
    serve(2)


def version_1() -> None:
    serve(1)


def no_sessions() -> None:
    serve(2, {"code": -32000, "message": "Log in first."})


def sessions() -> None:
    for line in sys.stdin:
        info = {"name": "odd", "version": "0"}
        answer(line, result={"protocolVersion": 2, "info": info, "sessionId": f"s{json.loads(line)['id']}"})


def glued() -> None:
    """Prints something before its first answer, in the same line."""
    print("Loading... ", end="")
    serve(2)


def mute() -> None:
    """Answers initialize alone."""
    for line in sys.stdin:
        if '"initialize"' in line:
            info = {"name": "odd", "version": "0"}
            answer(line, result={"protocolVersion": 2, "info": info, "capabilities": {"session": {}}})


def deaf() -> None:
    """Answers initialize, and then neither answers nor ends when it is asked to."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    answer(sys.stdin.readline(), result={"protocolVersion": 2, "info": {"name": "odd", "version": "0"}})
    while True:
        time.sleep(3600)


def one_answer() -> None:
    """Answers initialize and then closes its output, but lives on."""
    answer(sys.stdin.readline(), result={"protocolVersion": 2, "info": {"name": "odd", "version": "0"}})
    os.close(1)  # `sys.stdout.close` leaves it open
    sys.stdin.read()


def serve(version: int, error: object = None) -> None:
    for line in sys.stdin:
        try:
            method = json.loads(line)["method"]
        except (ValueError, KeyError, TypeError):
            continue
        if method == "initialize":
            info = {"name": "odd", "version": "0"}
            answer(line, result={"protocolVersion": version, "info": info, "capabilities": {"session": {}}})
        elif error is not None:
            answer(line, error=error)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
