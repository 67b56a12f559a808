"""The scripted model as a process of its own."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from adapters.scripted.__main__ import main
from adapters_tests.scripted.wire import ask, connect, conversation

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
async def test_another_process_serves_counts_and_ends(tmp_path: Path, end: signal.Signals) -> None:
    script = tmp_path / "s.json"
    script.write_text('{"default": ["from another process"]}')
    command = [sys.executable, "-m", "adapters.scripted", str(script), "--home", str(tmp_path / "home")]
    with anyio.fail_after(20):
        async with await anyio.open_process(command, stderr=None, cwd=Path(__file__).parents[2]) as process:
            try:
                assert process.stdout is not None
                hello = json.loads(await TextReceiveStream(process.stdout).receive())
                assert hello["environment"]["ANTHROPIC_BASE_URL"] == hello["baseUrl"]
                config = Path(hello["environment"]["CODEX_HOME"]) / "config.toml"
                assert hello["baseUrl"] in config.read_text(encoding="utf-8")
                port = int(hello["baseUrl"].rpartition(":")[2])
                assert (await ask(port, conversation("p"))).text == "from another process"
                wire = await connect(port)
                async with wire.stream:
                    await wire.send(b"GET /__calls HTTP/1.1\r\nhost: x\r\n\r\n")
                    assert (await wire.reply()).json["prompts"] == {"p": 1}
                process.send_signal(end)
                assert await process.wait() == 0
            finally:
                if process.returncode is None:
                    process.kill()


def test_an_unusable_script_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "s.json"
    script.write_text('{"x": 1}')
    assert main([str(script)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_taken_port_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # a process of its own: in this one, fixtures of a whole session may keep an event loop open
        command = [sys.executable, "-m", "adapters.scripted", "--port", str(taken.getsockname()[1])]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[2]
        )
    assert ended.returncode == 2
    assert ended.stderr.startswith("acp-adapters: cannot listen on 127.0.0.1 port")
    assert ended.stderr.count("\n") == 1
