"""File names are UTF-8 in every locale: those of folders, of arguments and of what the runtime is told."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from adapters.scripted.home import work_folder
from adapters.scripted.script import Answer, Shell, say
from adapters_tests.e2e.rig import Rig

pytestmark = pytest.mark.anyio

NOT_UTF8 = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture(scope="session")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Latin-1 locale, which hardly any machine has installed."""
    program = shutil.which("localedef")
    folder = tmp_path_factory.mktemp("locales")
    make = [program or "", "-i", "en_US", "-f", "ISO-8859-1", str(folder / "latin")]
    if program is None or subprocess.run(make, capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("no locale can be made here")
    return folder


@pytest.mark.parametrize("locale", ["C", "POSIX", "latin"])
async def test_a_session_works_in_a_folder_that_the_locale_cannot_spell(
    rig: Rig, text: str, locale: str, request: pytest.FixtureRequest
) -> None:
    """Here and after a restart; a tool runs there, and sees the user's own environment."""
    folder = work_folder(rig.root / "wörk 日本")
    more = rig.root / "möre"
    more.mkdir()
    seen = folder / "sëen"
    rig.answer(text, Answer((Shell(f"echo \"$LC_ALL $PYTHONUTF8\" > '{seen}'"),)), say("Döne."))
    env = {**NOT_UTF8, "LC_ALL": locale}
    if locale == "latin":
        env["LOCPATH"] = str(request.getfixturevalue("locales"))
    asked = [sys.executable, "-c", "import sys; print(sys.getfilesystemencoding())"]
    assert (await anyio.run_process(asked, env={**rig.env, **env})).stdout != b"utf-8\n"
    async with rig.agent(**env) as link:
        session = await link.client.new(str(folder), additionalDirectories=[str(more)])
        message_id = await link.turn(session, text, "key of the locale")
        assert seen.read_text().split() == [locale, "0"]
    async with rig.agent(**env) as link:
        [row] = [row for row in await link.client.list() if row["sessionId"] == session]
        assert row["cwd"] == str(folder)
        await link.client.resume(session, str(folder), replay=True)
        assert message_id in link.user_messages(session)
        assert await (await link.prompt(session, text, "key of the locale")).message_id() == message_id
    assert rig.model.in_conversation(text) == 1
