"""Isolated homes: folders and environments in which a runtime reaches only a scripted model. Owns what a runtime inherits.

Source: measurements of the runtimes with an empty environment. Started in such a home, a runtime touches no file of the user.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_FOREIGN = ("ANTHROPIC", "CLAUDE", "OPENAI", "CODEX")
"""Name prefixes that point a runtime at an account, a model or a host session of the user's."""

_INHERITED = ("PATH", "LANG")

DUMMY_KEY = "scripted-no-account"
"""The key that the runtimes send; the scripted model ignores it."""


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without any variable of a runtime (`ANTHROPIC*`, `CLAUDE*`, `OPENAI*`, `CODEX*`), in any case."""
    return {name: value for name, value in environ.items() if not name.upper().startswith(_FOREIGN)}


def base_environment(root: Path) -> dict[str, str]:
    """The environment of every runtime in an isolated home: search path, language, and a home and temp folder inside `root`."""
    environ = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environ.setdefault("PATH", os.defpath)
    environ.setdefault("LANG", "C.UTF-8")
    home, temp = _folder(root), _folder(root / "tmp")
    loopback = "127.0.0.1,localhost"
    return {**environ, "HOME": str(home), "TMPDIR": str(temp), "NO_PROXY": loopback, "no_proxy": loopback}


def isolated_claude_home(root: Path, base_url: str) -> dict[str, str]:
    """Make a home for Claude Code in `root` and return the whole environment to start it with.

    `base_url` is the scripted model, `http://127.0.0.1:PORT`. Folders are made with mode 0700; an existing home is used
    again, with its sessions. Raises `OSError` when a folder cannot be made. Keep the path of `root` below 80 bytes: Claude
    Code puts its socket elsewhere in the system's temp folder when the name in `root` is too long for one.
    """
    root = root.absolute()
    environ = {
        **base_environment(root),
        "CLAUDE_CONFIG_DIR": str(_folder(root / "claude")),
        "CLAUDE_CODE_TMPDIR": str(root / "tmp"),
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": DUMMY_KEY,
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        environ["IS_SANDBOX"] = "1"  # without it Claude Code refuses bypassPermissions to the root user
    return environ


def work_folder(path: Path) -> Path:
    """Make a folder to work in that is a git repository of its own, without a commit; an existing one becomes one.

    Runtimes look for a repository in the folders above: Claude Code writes a rule that is allowed for ever into the
    `.claude/settings.local.json` of the one that it finds. Raises `OSError`.
    """
    for name in ("objects", "refs"):
        (path / ".git" / name).mkdir(parents=True, exist_ok=True)
    (path / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="ascii")  # git itself needs no more
    return path


_CODEX_KEY = "SCRIPTED_MODEL_KEY"
"""The variable in which Codex finds its key: a name that no filter for the runtimes' own variables drops."""

_CODEX_CONFIG = """\
model = "scripted"
model_provider = "scripted"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false # otherwise Codex asks GitHub for them at every start

[model_providers.scripted]
name = "scripted"
base_url = {base_url}
wire_api = "responses"
env_key = {key}
request_max_retries = 1
stream_max_retries = 1
supports_websockets = false
"""


def isolated_codex_home(root: Path, base_url: str, trusted: Iterable[Path] = ()) -> dict[str, str]:
    """Make a home for Codex in `root` and return the whole environment to start it with.

    `base_url` is the scripted model, `http://127.0.0.1:PORT`; `trusted` are project folders that Codex shall trust. An
    existing home is used again with its threads, its `config.toml` is written anew. Folders have mode 0700, the file 0600.
    Raises `OSError` when one cannot be made and `ValueError` for a trusted folder whose name is not UTF-8. Codex 0.163.0
    complains about a home below the temp folder that `TMPDIR` names; here that is a folder beside the home.
    """
    root = root.absolute()
    environ = base_environment(root)
    home = _folder(root / "codex")
    lines = [_CODEX_CONFIG.format(base_url=_toml(f"{base_url}/v1"), key=_toml(_CODEX_KEY))]
    lines += [f'\n[projects.{_toml(str(folder.absolute()))}]\ntrust_level = "trusted"\n' for folder in trusted]
    config = home / "config.toml"
    config.touch(mode=0o600)
    config.chmod(0o600)
    config.write_text("".join(lines), encoding="utf-8")
    return {**environ, "CODEX_HOME": str(home), _CODEX_KEY: DUMMY_KEY}


def _toml(text: str) -> str:
    """A TOML string: JSON's but for surrogate pairs, which TOML does not know, and the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _folder(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
