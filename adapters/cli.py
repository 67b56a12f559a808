"""The command `acp-adapters`: one agent per runtime (`plugins`), and the commands for people.

Owns the commands, their exit statuses and the texts for people. Each command imports what it needs when it runs, so that an agent
answers `initialize` before its models, its runtime's package or anything else heavy is loaded (D10).

Exit status: 0 done; 1 the command cannot work here (one line says why and what to do); 2 the arguments are wrong.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from adapters import __version__, plugins
from adapters.command_line import PROGRAM, Command, Grammar, Invocation, Option, UsageError
from adapters.streams import OutputLostError, abandon_output, people, reserve, write_stderr

if TYPE_CHECKING:
    from adapters.core.front import Server
    from adapters.core.peer import Dialect
    from adapters.core.port import Runtime
    from adapters.plugins import Plugin

_AGENT_OPTIONS: Final = (
    Option(
        "--scripted",
        "answer from the script in FILE instead of a model: no account, no network, an isolated home",
        "FILE",
    ),
    Option("--home", "with --scripted: keep the isolated home in DIR (default: a temporary folder)", "DIR"),
)

_PROTOCOL: Final = "ACP_ADAPTERS_PROTOCOL"
"""Which versions of ACP an agent speaks."""


def _agent_command(name: str, title: str) -> Command:
    return Command(
        name,
        f"serve {title} to an ACP client over stdin and stdout",
        "An ACP client starts this command. stdin and stdout carry the protocol only; log lines go to stderr. The command"
        f"\nends when stdin ends, or on SIGTERM or SIGINT. {title} inherits all environment variables.",
        _AGENT_OPTIONS,
    )


_COMMANDS: Final = (
    Command(
        "demo",
        "show, offline and without an account, that a prompt sent twice is inserted once",
        "Starts the real runtime with a scripted model on 127.0.0.1 and a temporary home.",
        takes_runtime=True,
    ),
    Command(
        "doctor",
        "check which runtime an agent would start here, and what is missing",
        "Starts no session, sends nothing, leaves no file behind and prints no secret. Exit status 1: an agent would not work.",
        (Option("--json", "print the report as JSON"),),
        takes_runtime=True,
    ),
    Command(
        "check",
        "check any ACP v2 agent against the rules of the protocol, and show where it breaks them",
        "Starts the command after -- about forty times and sometimes kills it; leaves no process running. Without --scripted"
        "\nor --prompts no prompt is sent, and only rules that need none are checked. Exit status 1: a rule is broken."
        "\nDetails: docs/check.md.",
        (
            Option("--scripted", "give the command a scripted model and an isolated home for this runtime", "RUNTIME"),
            Option("--prompts", "send about a hundred short prompts to the model that the command uses"),
            Option("--rule", "check only this rule, or all rules of a group (KEY-4, KEY, TRACE)", "ID", many=True),
            Option("--json", "print the result as JSON"),
            Option("--list", "print the rules and check nothing"),
            Option("--cwd", "the working folder of the sessions (default: a temporary folder)", "DIR"),
            Option("--timeout", "the longest wait for one answer (default: 20)", "SECONDS"),
        ),
        takes_rest=True,
    ),
)


class CannotStartError(Exception):
    """The command cannot work here. The message is one sentence that says what to do."""


def grammar(runtimes: Sequence[str]) -> Grammar:
    """The commands with these runtimes."""
    return Grammar(
        "Agents for clients of the Agent Client Protocol (ACP). A prompt sent twice with one key is inserted once.",
        (*(_agent_command(name, _title(name)) for name in runtimes), *_COMMANDS),
        runtimes,
        "Client set-up, environment variables and limits: see README.md and docs/ of the project.",
    )


def _title(name: str) -> str:
    try:
        return plugins.load(name).title
    except Exception as error:  # noqa: BLE001 - another author's package is broken; the commands of all others work
        _complain(f"the runtime {name!r} cannot be loaded ({type(error).__name__})", 0)
        return name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status. Raises nothing but `SystemExit`."""
    reserve()
    if arguments is None:
        _read_paths_as_utf8()
        if reconfigure := getattr(sys.stdout, "reconfigure", None):
            reconfigure(errors="backslashreplace")  # a name that PYTHONIOENCODING cannot spell is no failure
    try:
        words = sys.argv[1:] if arguments is None else arguments
        known = grammar(tuple(plugins.OWN) if words and words[0] in plugins.OWN else plugins.names())
        status = _run(known.parse(words), known, people())
        if sys.stdout is not None:
            people().flush()  # what is written at the end of the process fails in silence
        return status
    except UsageError as error:
        return _complain(str(error), 2)
    except CannotStartError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        return 130
    except OutputLostError as lost:
        abandon_output()
        return 1 if lost.reader_left else _complain(str(lost), 1)
    except OSError as error:  # of the system, and not of this program: a full disk, a folder that is gone
        place = f" ({error.filename})" if error.filename else ""
        return _complain(
            f"stopped by the operating system: {error.strerror or type(error).__name__}{place}; correct that and try again",
            1,
        )
    except Exception as error:  # noqa: BLE001 - a traceback helps no user; kind and place do for a report
        from adapters.stdio_server import where

        return _complain(f"internal error {' '.join(where(error).values())}; please report it", 1)


def _read_paths_as_utf8() -> None:
    """Start again in Python's UTF-8 mode where the locale has file names in another encoding.

    ACP's paths are Unicode, and both runtimes read file names as UTF-8 in every locale. Python does not in a Latin-1 locale,
    nor in C where PYTHONUTF8=0 forbids it. The environment stays as it is: the runtime and its tools see the user's locale.
    """
    if sys.getfilesystemencoding() == "utf-8":
        return
    reason = "there is no interpreter to start again"
    if sys.executable:
        try:
            os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - ourselves
        except OSError as error:
            reason = error.strerror
    encoding = sys.getfilesystemencoding()
    _complain(f"file names are read as {encoding}, not as UTF-8 ({reason}): set PYTHONUTF8=1 or a UTF-8 locale", 0)


def _run(asked: Invocation, known: Grammar, out: TextIO) -> int:
    match asked.command:
        case "version":
            from adapters.sources import fingerprint

            print(f"{PROGRAM} {__version__} (code {fingerprint()})", file=out)
            return 0
        case "help":
            print(known.help(asked.topic), end="", file=out)
            return 0
        case "demo":
            return _demo(_installed(out) if asked.runtime is None else [asked.runtime], out)
        case "doctor":
            from adapters.doctor import run_doctor

            runtimes, named = (plugins.names(), False) if asked.runtime is None else ([asked.runtime], True)
            return run_doctor(runtimes, out, as_json="json" in asked.options, named=named)
        case "check":
            return _check(asked, out)
        case name:
            return _serve(_load(name), name, asked.options)


def _installed(out: TextIO) -> Sequence[str]:
    """The runtimes that can be started here. Raises `CannotStartError` for the first one when there is none."""
    problems: list[CannotStartError] = []
    found: list[str] = []
    for name in plugins.names():
        try:
            _check_installed(_load(name))
        except CannotStartError as problem:
            problems.append(problem)
        else:
            found.append(name)
    if not found:
        raise problems[0]
    for problem in problems:
        print(f"Skipped: {problem}\n", file=out)
    return found


def _demo(runtimes: Sequence[str], out: TextIO) -> int:
    from adapters.demo import run_demo
    from adapters.stdio_server import run_for_people

    for name in runtimes:
        _check_installed(_load(name))
    return run_for_people(run_demo, runtimes, out)


def _check(asked: Invocation, out: TextIO) -> int:
    import shutil

    from adapters.check.command import BOUND, Request, choose, list_rules, run_check
    from adapters.stdio_server import run_for_people

    options, command, runtime = asked.options, asked.rest, asked.options.get("scripted")
    if "list" in options:
        return list_rules(out)
    if not command:
        raise UsageError(f"check needs a command: {PROGRAM} check [OPTIONS] -- COMMAND ...")
    found = shutil.which(command[0])
    if found is None:
        where = f"a relative path starts from {Path.cwd()}" if "/" in command[0] else "it is not on the PATH"
        raise UsageError(f"cannot find the command {command[0]!r}: {where}")
    if runtime is not None and runtime not in plugins.names():
        raise UsageError(f"--scripted: unknown runtime {runtime!r}: choose {' or '.join(plugins.names())}")
    if runtime is not None and "prompts" in options:
        raise UsageError(
            "--prompts and --scripted exclude each other: leave out --prompts, --scripted always sends prompts"
        )
    folder = options.get("cwd")
    if folder is not None and not Path(folder).is_dir():
        raise UsageError(f"--cwd: {folder} is not a folder: name an existing one")
    try:
        bound = float(options.get("timeout", BOUND))
    except ValueError:
        bound = 0.0
    if not 0 < bound <= 3600:  # noqa: PLR2004 - an hour
        raise UsageError(f"--timeout: {options['timeout']!r} must be a number of seconds, above 0 and at most 3600")
    try:
        chosen = choose(options["rule"]) if "rule" in options else None
    except ValueError as error:
        raise UsageError(f"--rule: {error}") from None
    request = Request(
        command=(os.path.abspath(found), *command[1:]),  # noqa: PTH100 - it is started in another folder; no link is followed
        scripted=None if runtime is None else _load(runtime),
        prompts="prompts" in options,
        cwd=None if folder is None else Path(folder),
        bound=bound,
        chosen=chosen,
        as_json="json" in options,
    )
    return run_for_people(run_check, request, out, write_stderr)


def _serve(plugin: Plugin, name: str, options: Mapping[str, str]) -> int:
    script, home = options.get("scripted"), options.get("home")
    if home is not None and script is None:
        raise UsageError("--home needs --scripted FILE")
    _dialects()  # an error before anything is started
    _check_installed(plugin)
    if script is None:
        _check_folder(plugin)
    if sys.stdin is not None and sys.stdin.isatty():
        text = (
            f"{name}: waiting for an ACP client on stdin (Ctrl-C ends it); try  {PROGRAM} demo {name}  for a first look"
        )
        _complain(text, 0)
    from adapters.stdio_server import leave, run

    return leave(
        run(lambda: _open(plugin, os.environ)) if script is None else _serve_scripted(plugin, Path(script), home)
    )


def _load(name: str) -> Plugin:
    """Raises `CannotStartError` where another author's package is broken."""
    try:
        return plugins.load(name)
    except Exception as error:
        text = f"the runtime {name!r} cannot be loaded ({type(error).__name__}): reinstall the package that brings it"
        raise CannotStartError(text) from error


def _check_installed(plugin: Plugin) -> None:
    if reason := plugin.missing(os.environ):
        raise CannotStartError(reason)


def _check_folder(plugin: Plugin) -> None:
    from adapters.acp.errors import AcpError

    try:
        plugin.check_folder(os.environ)
    except AcpError as error:
        raise CannotStartError(error.message) from None


@asynccontextmanager
async def _open(plugin: Plugin, environ: Mapping[str, str]) -> AsyncGenerator[Server]:
    import anyio

    from adapters.core.front import AgentInfo, serve
    from adapters.reaper import Reaper

    info = AgentInfo(PROGRAM, plugin.title, __version__)
    reaper = Reaper()
    try:
        async with anyio.create_task_group() as tasks:  # the driver's: leaving `serve` has closed it
            load, prepare = plugin.driver(tasks, reaper.environment(environ))

            def load_guarded() -> Runtime:
                # Other packages' plugins for pydantic would be looked for, and would read every prompt. Not for our children.
                os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
                tasks.start_soon(reaper.watch)
                with _no_garbage():
                    return load()

            dialects = _dialects()
            variable = _PROTOCOL if len(dialects) == 1 else ""
            async with serve(
                load_guarded, plugin.features(), info, prepare, dialects=dialects, restricted_by=variable
            ) as server:
                yield server
            tasks.cancel_scope.cancel()
    finally:
        await reaper.end()


def _dialects() -> Mapping[int, Dialect]:
    """The versions of ACP that are spoken. Raises `CannotStartError` where the environment asks for one that there is not."""
    from adapters.core.peer import OWN
    from adapters.dialects.v1 import V1Dialect

    spoken: Mapping[str, Mapping[int, Dialect]] = {"auto": {1: V1Dialect(), **OWN}, "v1": {1: V1Dialect()}, "v2": OWN}
    asked = os.environ.get(_PROTOCOL) or "auto"
    if asked not in spoken:
        raise CannotStartError(f"{_PROTOCOL} is {asked!r}: set it to {', '.join(spoken)}, or unset it")
    return spoken[asked]


@contextmanager
def _no_garbage() -> Generator[None]:
    """No garbage collection while importing, then freeze: scanning the imported modules costs 10 ms now and 50 ms at exit."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _serve_scripted(plugin: Plugin, file: Path, home: str | None) -> int:
    import tempfile

    from adapters.scripted import Script, ScriptError, load_script
    from adapters.stdio_server import run

    try:
        script: Script = load_script(file)
    except ScriptError as error:
        raise UsageError(f"--scripted: {error}") from None

    @asynccontextmanager
    async def open_scripted(folder: Path) -> AsyncGenerator[Server]:
        async with plugin.model(script) as model, _open(plugin, plugin.isolated(folder, model.base_url)) as server:
            yield server

    if home is not None:
        try:
            Path(home).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CannotStartError(f"--home {home} cannot be used ({error.strerror}): name another folder") from None
        return run(lambda: open_scripted(Path(home)))
    with tempfile.TemporaryDirectory(prefix=f"{PROGRAM}-", ignore_cleanup_errors=True) as folder:
        return run(lambda: open_scripted(Path(folder)))


def _complain(text: str, status: int) -> int:
    write_stderr(f"{PROGRAM}: {text}\n")
    return status
