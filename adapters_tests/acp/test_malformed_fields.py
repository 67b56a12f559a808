"""The models read malformed fields as the marks of the published schema say, field by field.

Driven by the schema file: for each of its definitions that has a model, each property is given values that the property's own
schema refuses, and the model must drop the field, drop the item, take it as empty, or refuse the whole, as marked.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, ValidationError

from adapters.acp import content, options, requests, results, tools, updates
from adapters.acp.model import dump
from adapters_tests.schema import DRAFT, schema

TEXT = {"type": "text", "text": "t"}
CHOICE = {"value": "v", "name": "n"}

MODELS: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    # content
    "Annotations": (content.Annotations, {}),
    "TextContent": (content.TextBlock, TEXT),
    "ImageContent": (content.ImageBlock, {"type": "image", "data": "", "mimeType": "m"}),
    "AudioContent": (content.AudioBlock, {"type": "audio", "data": "", "mimeType": "m"}),
    "Icon": (content.Icon, {"src": "https://x"}),
    "ResourceLink": (content.ResourceLinkBlock, {"type": "resource_link", "name": "n", "uri": "u"}),
    "TextResourceContents": (content.TextResource, {"text": "t", "uri": "u"}),
    "BlobResourceContents": (content.BlobResource, {"blob": "", "uri": "u"}),
    "EmbeddedResource": (content.ResourceBlock, {"type": "resource", "resource": {"text": "t", "uri": "u"}}),
    # tools
    "Content": (tools.ContentItem, {"type": "content", "content": TEXT}),
    "Diff": (tools.DiffItem, {"type": "diff", "changes": []}),
    "DiffPathChange": (tools.AddChange, {"operation": "add", "path": "/a"}),
    "DiffPathPairChange": (tools.MoveChange, {"operation": "move", "path": "/a", "oldPath": "/b"}),
    "DiffChange": (tools.AddChange, {"operation": "add", "path": "/a"}),
    "DiffPatch": (tools.DiffPatch, {"format": "git_patch", "text": ""}),
    "Terminal": (tools.TerminalItem, {"type": "terminal", "terminalId": "t"}),
    "ToolCallLocation": (tools.ToolCallLocation, {"path": "/a"}),
    "ToolCallCapabilities": (tools.CancelCapability, {}),
    "ToolCallUpdate": (updates.ToolCallUpdate, {"sessionUpdate": "tool_call_update", "toolCallId": "t"}),
    "TerminalCapabilities": (tools.CancelCapability, {}),
    "TerminalOutput": (tools.TerminalOutput, {"data": ""}),
    "TerminalExitStatus": (tools.TerminalExitStatus, {}),
    "TerminalSize": (tools.TerminalSize, {"cols": 1, "rows": 1}),
    # updates
    "UserMessage": (updates.UserMessage, {"sessionUpdate": "user_message", "messageId": "m"}),
    "AgentMessage": (updates.AgentMessage, {"sessionUpdate": "agent_message", "messageId": "m"}),
    "AgentThought": (updates.AgentThought, {"sessionUpdate": "agent_thought", "messageId": "m"}),
    "ContentChunk": (
        updates.AgentMessageChunk,
        {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": TEXT},
    ),
    "RunningStateUpdate": (updates.StateUpdate, {"sessionUpdate": "state_update", "state": "running"}),
    "RequiresActionStateUpdate": (updates.StateUpdate, {"sessionUpdate": "state_update", "state": "requires_action"}),
    "IdleStateUpdate": (updates.StateUpdate, {"sessionUpdate": "state_update", "state": "idle"}),
    "ErrorStopReason": (updates.StateUpdate, {"sessionUpdate": "state_update", "state": "idle", "stopReason": "error"}),
    "BackgroundTerminal": (updates.BackgroundTerminal, {"type": "terminal", "terminalId": "t"}),
    "BackgroundToolCall": (updates.BackgroundToolCall, {"type": "tool_call", "toolCallId": "t"}),
    "ToolCallContentChunk": (
        updates.ToolCallContentChunk,
        {
            "sessionUpdate": "tool_call_content_chunk",
            "toolCallId": "t",
            "content": {"type": "terminal", "terminalId": "t"},
        },
    ),
    "TerminalUpdate": (updates.TerminalUpdate, {"sessionUpdate": "terminal_update", "terminalId": "t"}),
    "TerminalOutputChunk": (
        updates.TerminalOutputChunk,
        {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": ""},
    ),
    "PlanEntry": (updates.PlanEntry, {"content": "c", "priority": "high", "status": "pending"}),
    "PlanItems": (updates.PlanItems, {"type": "items", "planId": "p", "entries": []}),
    "PlanUpdate": (
        updates.PlanUpdate,
        {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p", "entries": []}},
    ),
    "AvailableCommandsUpdate": (
        updates.AvailableCommandsUpdate,
        {"sessionUpdate": "available_commands_update", "availableCommands": []},
    ),
    "ConfigOptionUpdate": (updates.ConfigOptionUpdate, {"sessionUpdate": "config_option_update", "configOptions": []}),
    "SessionInfoUpdate": (updates.SessionInfoUpdate, {"sessionUpdate": "session_info_update"}),
    "Cost": (updates.Cost, {"amount": 1.5, "currency": "USD"}),
    "UsageUpdate": (updates.UsageUpdate, {"sessionUpdate": "usage_update", "used": 1, "size": 2}),
    "Notice": (updates.Notice, {"sessionUpdate": "notice", "severity": "info", "title": "t"}),
    "CompactionUpdate": (
        updates.CompactionUpdate,
        {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed"},
    ),
    "CompactionSummaryChunk": (
        updates.CompactionSummaryChunk,
        {"sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": TEXT},
    ),
    "UpdateSessionNotification": (
        updates.SessionNotification,
        {"sessionId": "s", "update": {"sessionUpdate": "session_info_update"}},
    ),
    "Error": (updates.ErrorInfo, {"code": -32603, "message": "m"}),
    # options
    "TextCommandInput": (options.CommandInput, {"type": "text", "hint": "h"}),
    "Command": (options.AvailableCommand, {"type": "command", "name": "n", "description": "d"}),
    "SessionConfigSelectOption": (options.ConfigChoice, CHOICE),
    "SessionConfigSelectGroup": (options.ConfigGroup, {"groupId": "g", "name": "n", "options": [CHOICE]}),
    "SessionConfigSelect": (
        options.ConfigSelect,
        {"type": "select", "configId": "c", "name": "n", "currentValue": "v", "options": [CHOICE]},
    ),
    "SessionConfigBoolean": (
        options.ConfigBoolean,
        {"type": "boolean", "configId": "c", "name": "n", "currentValue": True},
    ),
    "SessionConfigOption": (
        options.ConfigBoolean,
        {"type": "boolean", "configId": "c", "name": "n", "currentValue": True},
    ),
    "EnvVariable": (options.EnvVariable, {"name": "n", "value": "v"}),
    "HttpHeader": (options.HttpHeader, {"name": "n", "value": "v"}),
    "McpServerStdio": (options.McpServerStdio, {"type": "stdio", "name": "n", "command": "/c"}),
    "McpServerHttp": (options.McpServerHttp, {"type": "http", "name": "n", "url": "u"}),
    # requests
    "LoginAuthRequest": (requests.Login, {"methodId": "m"}),
    "LogoutAuthRequest": (requests.Logout, {}),
    "NewSessionRequest": (requests.NewSession, {"cwd": "/"}),
    "ResumeSessionRequest": (requests.ResumeSession, {"cwd": "/", "sessionId": "s"}),
    "ReplayFromStart": (requests.ReplayFromStart, {"type": "start"}),
    "ListSessionsRequest": (requests.ListSessions, {}),
    "CloseSessionRequest": (requests.CloseSession, {"sessionId": "s"}),
    "DeleteSessionRequest": (requests.DeleteSession, {"sessionId": "s"}),
    "CancelSessionNotification": (requests.CancelSession, {"sessionId": "s"}),
    "SetSessionConfigOptionRequest": (
        requests.SetConfigOption,
        {"sessionId": "s", "configId": "c", "type": "id", "value": "v"},
    ),
    "PromptRequest": (requests.Prompt, {"sessionId": "s", "prompt": [TEXT]}),
    "CancelToolCallRequest": (requests.CancelToolCall, {"sessionId": "s", "toolCallId": "t"}),
    "CancelTerminalRequest": (requests.CancelTerminal, {"sessionId": "s", "terminalId": "t"}),
    "ToolCallPermissionSubject": (requests.ToolCallSubject, {"type": "tool_call", "toolCall": {"toolCallId": "t"}}),
    "CommandPermissionSubject": (requests.CommandSubject, {"type": "command", "command": "c", "cwd": "/"}),
    "PermissionOption": (requests.PermissionOption, {"optionId": "o", "name": "n", "kind": "allow_once"}),
    "RequestPermissionRequest": (
        requests.RequestPermission,
        {"sessionId": "s", "title": "t", "options": [{"optionId": "o", "name": "n", "kind": "allow_once"}]},
    ),
    "ElicitationSessionScope": (
        requests.CreateElicitation,
        {"sessionId": "s", "message": "m", "mode": "_x"},
    ),
    "CreateElicitationRequest": (requests.CreateElicitation, {"requestId": 1, "message": "m", "mode": "_x"}),
    "CompleteElicitationNotification": (requests.CompleteElicitation, {"elicitationId": "e"}),
    # results
    "Implementation": (results.Implementation, {"name": "n", "version": "v"}),
    "PromptCapabilities": (results.PromptCapabilities, {}),
    "McpCapabilities": (results.McpCapabilities, {}),
    "SessionCapabilities": (results.SessionCapabilities, {}),
    "AgentCapabilities": (results.AgentCapabilities, {}),
    "AuthMethodAgent": (results.AuthMethodAgent, {"type": "agent", "methodId": "m", "name": "n"}),
    "AuthMethodTerminal": (results.AuthMethodTerminal, {"type": "terminal", "methodId": "m", "name": "n"}),
    "InitializeResponse": (
        results.InitializeResult,
        {"protocolVersion": 2, "info": {"name": "n", "version": "v"}},
    ),
    "NewSessionResponse": (results.NewSessionResult, {"sessionId": "s"}),
    "ResumeSessionResponse": (results.ResumeSessionResult, {}),
    "SessionInfo": (results.SessionInfo, {"sessionId": "s", "cwd": "/"}),
    "ListSessionsResponse": (results.ListSessionsResult, {"sessions": []}),
    "SetSessionConfigOptionResponse": (results.SetConfigOptionResult, {"configOptions": []}),
    "PromptResponse": (results.PromptResult, {"messageId": "m"}),
    "CloseSessionResponse": (results.Empty, {}),
    "SelectedPermissionOutcome": (results.SelectedOutcome, {"outcome": "selected", "optionId": "o"}),
    "CancelledPermissionOutcome": (results.CancelledOutcome, {"outcome": "cancelled"}),
    "RequestPermissionResponse": (results.PermissionResult, {"outcome": {"outcome": "cancelled"}}),
    "ElicitationAcceptAction": (results.ElicitationResult, {"action": "accept"}),
    "CreateElicitationResponse": (results.ElicitationResult, {"action": "accept"}),
}
"""Definition of the schema -> its model and the least value it takes."""

ALIASES = {
    **dict.fromkeys(
        (
            "AgentAuthCapabilities",
            "McpHttpCapabilities",
            "McpStdioCapabilities",
            "PromptAudioCapabilities",
            "PromptEmbeddedContextCapabilities",
            "PromptImageCapabilities",
            "SessionAdditionalDirectoriesCapabilities",
            "SessionDeleteCapabilities",
            "TerminalCancelCapabilities",
            "ToolCallCancelCapabilities",
        ),
        (tools.Marker, {}),
    ),
    **dict.fromkeys(
        (
            "CancelTerminalResponse",
            "CancelToolCallResponse",
            "DeleteSessionResponse",
            "LoginAuthResponse",
            "LogoutAuthResponse",
        ),
        (results.Empty, {}),
    ),
}

WITHOUT_MODEL = {
    "read by handshake.py": {
        "InitializeRequest",
        "ClientCapabilities",
        "ClientAuthCapabilities",
        "TerminalAuthCapabilities",
        "ElicitationCapabilities",
        "ElicitationFormCapabilities",
        "ElicitationUrlCapabilities",
    },
    "read by rpc.py and errors.py": {
        "CancelRequestNotification",
        "UnsupportedProtocolVersionErrorData",
        "SessionNotFoundErrorData",
    },
    "written by an agent that asks; passed on unread": {
        "ElicitationSchema",
        "EnumOption",
        "StringPropertySchema",
        "NumberPropertySchema",
        "IntegerPropertySchema",
        "BooleanPropertySchema",
        "StringMultiSelectItems",
        "TitledMultiSelectItems",
        "MultiSelectPropertySchema",
        "ElicitationFormMode",
        "ElicitationUrlMode",
        "ElicitationRequestScope",
    },
    "envelopes": {
        "AgentRequest",
        "AgentNotification",
        "ClientRequest",
        "ClientNotification",
        "AgentResponse",
        "ClientResponse",
    },
}

STRICTER = {
    ("NewSessionRequest", "cwd"): "SETUP-1: absolute",
    ("ResumeSessionRequest", "cwd"): "SETUP-1: absolute",
    ("ListSessionsRequest", "cwd"): "LIST-2: absolute",
    ("McpServerStdio", "command"): "SETUP-4: absolute",
    ("NewSessionRequest", "additionalDirectories"): "SETUP-7: absolute",
    ("ResumeSessionRequest", "additionalDirectories"): "SETUP-7: absolute",
    ("NewSessionRequest", "mcpServers"): "SETUP-4: known transports only",
    ("ResumeSessionRequest", "mcpServers"): "SETUP-4: known transports only",
    ("PromptRequest", "prompt"): "PROMPT-13: known blocks only",
    ("ResumeSessionRequest", "replayFrom"): "RESUME-3: known cursors only",
    ("SessionConfigSelectGroup", "options"): "an empty group is kept",
}
"""Where the model differs from the schema on purpose -> why. All but the last refuse more."""

PROBES: list[Any] = [None, True, 0, -1, 1.5, "", "text", [], [5], [None], {}, {"type": 5}, [{}], {"x": "y"}]


class Case(NamedTuple):
    definition: str
    name: str
    node: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.definition}.{self.name}"

    @property
    def model(self) -> type[BaseModel]:
        return (MODELS | ALIASES)[self.definition][0]

    @property
    def least(self) -> dict[str, Any]:
        return (MODELS | ALIASES)[self.definition][1]

    def refuses(self, value: Any, node: dict[str, Any] | None = None) -> bool:
        validator = DRAFT({**(self.node if node is None else node), "$defs": schema()["$defs"]})
        return next(validator.iter_errors(value), None) is not None

    def read(self, value: Any) -> BaseModel | None:
        try:
            return self.model.model_validate({**self.least, self.name: value}, by_alias=True, by_name=False)
        except ValidationError:
            return None


def cases() -> Iterator[Case]:
    for definition in {**MODELS, **ALIASES}:
        body = schema()["$defs"][definition]
        for name, node in body.get("properties", {}).items():
            yield Case(definition, name, node)


def differs(case: Case) -> bool:
    return (case.definition, case.name) in STRICTER


def test_every_definition_has_a_model_or_a_reason() -> None:
    named = set(MODELS) | set(ALIASES) | set().union(*WITHOUT_MODEL.values())
    objects = {name for name, body in schema()["$defs"].items() if "properties" in body}
    assert objects <= named
    assert named <= set(schema()["$defs"])


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_a_malformed_field_is_read_as_its_mark_says(case: Case) -> None:
    """MAL-1, and the marks: default-on-error, skip-invalid-items, default-on-null, or strict."""
    required = case.name in schema()["$defs"][case.definition].get("required", ())
    probed = 0
    for probe in PROBES:
        if not case.refuses(probe):
            continue
        probed += 1
        read = case.read(probe)
        if case.node.get("x-deserialize-skip-invalid-items") and isinstance(probe, list):
            kept = [item for item in probe if not case.refuses(item, case.node["items"])]
            assert read is not None, probe
            assert dump(read).get(case.name) == kept, probe
        elif case.node.get("x-deserialize-default-on-error"):
            assert read is not None, probe
            expected = {**case.least, **({case.name: []} if required else {})}
            assert dump(read) == dump(expected_model(case, expected)), probe
            assert required or case.name not in dump(read), probe
        elif case.node.get("x-deserialize-default-on-null") and probe is None:
            assert read is not None
            assert dump(read)[case.name] == []
        else:
            assert read is None or differs(case), (probe, read)
    anything = case.name in ("rawInput", "rawOutput", "data", "value")
    assert probed or anything


def expected_model(case: Case, value: dict[str, Any]) -> BaseModel:
    return case.model.model_validate(value, by_alias=True, by_name=False)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_a_well_formed_field_is_kept(case: Case) -> None:
    """EXT-7: null included, where the schema knows it."""
    for probe in PROBES:
        if case.refuses(probe) or differs(case):
            continue
        read = case.read(probe)
        assert read is not None, probe
        kept = dump(read).get(case.name, "absent")
        assert kept == probe or (isinstance(probe, dict) and kept == {}), probe  # unknown members are ignored (EXT-1)


@pytest.mark.parametrize("definition", [*MODELS, *ALIASES])
def test_a_missing_required_field_is_malformed(definition: str) -> None:
    """MAL-1: salvage never invents one."""
    model, least = (MODELS | ALIASES)[definition]
    for name in schema()["$defs"][definition].get("required", ()):
        with pytest.raises(ValidationError):
            model.model_validate({k: v for k, v in least.items() if k != name}, by_alias=True, by_name=False)


@pytest.mark.parametrize("definition", [*MODELS, *ALIASES])
def test_the_models_have_no_field_that_the_schema_lacks(definition: str) -> None:
    """EXT-1: so none can be sent."""
    model, _ = (MODELS | ALIASES)[definition]
    wire = {field.serialization_alias or field.alias or name for name, field in model.model_fields.items()}
    known = {name for part in related(definition) for name in properties(schema()["$defs"][part])}
    assert wire <= known | {
        "idempotencyKey",
        "sessionUpdate",
        "type",
        "operation",
        "outcome",
        "action",
        "state",
        "mode",
    }


def properties(node: dict[str, Any]) -> set[str]:
    found = set(node.get("properties", {}))
    for combined in ("anyOf", "allOf", "oneOf"):
        for branch in node.get(combined, ()):
            found |= properties(branch)
            if "$ref" in branch:
                found |= properties(schema()["$defs"][branch["$ref"].rpartition("/")[2]])
    return found


def related(definition: str) -> set[str]:
    """The definition, and those that lend it fields."""
    extra = {
        "RunningStateUpdate": {"IdleStateUpdate"},
        "RequiresActionStateUpdate": {"IdleStateUpdate"},
        "ErrorStopReason": {"IdleStateUpdate"},
        "DiffPathChange": {"DiffChange"},
        "DiffPathPairChange": {"DiffChange"},
        "SessionConfigSelect": {"SessionConfigOption"},
        "SessionConfigBoolean": {"SessionConfigOption"},
        "ElicitationSessionScope": {"CreateElicitationRequest"},
        "ElicitationAcceptAction": {"CreateElicitationResponse"},
        "SetSessionConfigOptionRequest": set(),
    }
    return {definition, *extra.get(definition, ())}
