"""Scripted models on loopback that the real runtimes talk to: for trying an editor without an account, and for tests.

See `docs/scripted-model.md` for the script format. Nothing here knows the agent or the protocol.
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
