"""`python -m adapters.scripted [SCRIPT] [--port N] [--home DIR]`: a scripted model as a process of its own.

Prints one JSON line when it accepts connections (`baseUrl`, with --home also `environment`), then serves until SIGINT or SIGTERM.
On the same port, `GET /__calls` lists the calls and `POST /__gates/NAME` opens a gate.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

import anyio

from adapters.log import log_to_stderr
from adapters.scripted.home import isolated_claude_home, isolated_codex_home
from adapters.scripted.model import ScriptedModel
from adapters.scripted.script import Script, ScriptError
from adapters.scripted.script_file import load_script
from adapters.streams import write_stderr


async def _run(script: Script, port: int, home: Path | None) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with ScriptedModel(script, port=port) as model:
            line: dict[str, object] = {"baseUrl": model.base_url}
            if home is not None:
                runtimes = (
                    isolated_claude_home,
                    isolated_codex_home,
                )  # what they add to the common part never collides
                line["environment"] = {
                    key: text for make in runtimes for key, text in make(home, model.base_url).items()
                }
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
            async for _ in signals:
                return


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 2 for an unusable script or port."""
    parser = argparse.ArgumentParser(
        prog="python -m adapters.scripted", description="Serve a scripted model on 127.0.0.1."
    )
    parser.add_argument(
        "script", nargs="?", type=Path, help="a script file (default: answers every prompt with one sentence)"
    )
    parser.add_argument("--port", type=int, default=0, help="the port (default: a free one)")
    parser.add_argument("--home", type=Path, help="also make an isolated home there and print its environment")
    options = parser.parse_args(arguments)
    log_to_stderr()
    try:
        script = Script() if options.script is None else load_script(options.script)
        anyio.run(_run, script, options.port, options.home)
    except ScriptError as error:
        write_stderr(f"acp-adapters: {error}\n")
        return 2
    except OSError as error:
        write_stderr(f"acp-adapters: cannot listen on 127.0.0.1 port {options.port} ({error.strerror})\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
