"""Scripted models on loopback for the real runtimes: to try a client without an account, and for tests.

`docs/scripted-model.md` has the script format. Nothing here knows the agent or the protocol.
"""

from adapters.scripted.calls import Call
from adapters.scripted.gates import Gate
from adapters.scripted.home import isolated_claude_home, isolated_codex_home, scrubbed
from adapters.scripted.model import ScriptedModel, serve
from adapters.scripted.script import (
    Answer,
    Block,
    Drop,
    GateOpening,
    HttpFailure,
    Rule,
    Script,
    ScriptError,
    Shell,
    Spread,
    StreamFailure,
    Text,
    Thinking,
    ToolUse,
    Usage,
    say,
)
from adapters.scripted.script_file import load_script, parse_script

__all__ = [
    "Answer",
    "Block",
    "Call",
    "Drop",
    "Gate",
    "GateOpening",
    "HttpFailure",
    "Rule",
    "Script",
    "ScriptError",
    "ScriptedModel",
    "Shell",
    "Spread",
    "StreamFailure",
    "Text",
    "Thinking",
    "ToolUse",
    "Usage",
    "isolated_claude_home",
    "isolated_codex_home",
    "load_script",
    "parse_script",
    "say",
    "scrubbed",
    "serve",
]
