"""Live frames as updates: streaming, healing, results without frames, and whatever shape a frame may have."""

import copy
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.acp.framing import encode
from adapters.acp.schema import SessionUpdate, dump
from adapters.claude.show.live import Translator
from adapters.client.view import SessionView
from adapters_tests import schema
from adapters_tests.claude.recorded import NAMES, Scenario

Frame = dict[str, Any]


def wires(updates: Iterable[SessionUpdate]) -> list[dict[str, Any]]:
    """The updates as they travel, each judged by the published schema."""
    found = [dump(update) for update in updates]
    for update in found:
        params = {"sessionId": "s", "update": update}
        schema.validate_agent_message({"jsonrpc": "2.0", "method": "session/update", "params": params})
    return found


def run(*frames: Frame) -> list[dict[str, Any]]:
    translator = Translator("/project")
    return wires(update for frame in frames for update in translator.feed(frame))


def picture(*frames: Frame) -> list[tuple[str, str, str]]:
    """Kind, id and text of what the frames show."""
    return [(item.kind, item.item_id, item.text) for item in SessionView.of(run(*frames)).items() if item.text]


# --- frames as the runtime prints them -------------------------------------------------------------------------------


def event(kind: str, **fields: Any) -> Frame:
    return {"type": "stream_event", "event": {"type": kind, **fields}, "parent_tool_use_id": None}


def start(message_id: str | None) -> Frame:
    message = {"role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 3}}
    return event("message_start", message=message | ({"id": message_id} if message_id else {}))


def delta(text: str, index: int = 0, kind: str = "text") -> Frame:
    return event("content_block_delta", index=index, delta={"type": f"{kind}_delta", kind: text})


def stop(reason: str = "end_turn") -> Frame:
    return event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 4})


def whole(message_id: str | None, *blocks: Any, uuid: str = "f1", model: str = "m", **fields: Any) -> Frame:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    message = {"role": "assistant", "model": model, "content": content} | ({"id": message_id} if message_id else {})
    return {"type": "assistant", "uuid": uuid, "message": message, "parent_tool_use_id": None, **fields}


def tool_use(call_id: str = "t1", name: str = "Bash", **given_input: Any) -> Frame:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given_input}


def tool_result(call_id: str = "t1", content: Any = "out", structured: Any = None) -> Frame:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {"type": "user", "uuid": "r1", "message": {"content": [block]}, "tool_use_result": structured}


def result(text: str = "", **fields: Any) -> Frame:
    return {"type": "result", "uuid": "res", "subtype": "success", "is_error": False, "result": text, **fields}


# --- each text once ---------------------------------------------------------------------------------------------------


def test_streamed_text_is_sent_as_chunks_and_not_again() -> None:
    """UPD-5: the whole block that repeats what was streamed brings nothing."""
    assert run(start("m1"), delta("Hel"), delta("lo"), whole("m1", "Hello"), stop(), result("Hello")) == [
        {"sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": {"type": "text", "text": "Hel"}},
        {"sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": {"type": "text", "text": "lo"}},
    ]


def test_a_differing_whole_block_heals_the_message() -> None:
    """UPD-2: what the runtime stored replaces what was streamed; blocks before it stay."""
    frames = [start("m1"), delta("one "), whole("m1", "one ", uuid="a"), delta("tw", 1), whole("m1", "two!", uuid="b")]
    assert run(*frames)[-1] == {
        "sessionUpdate": "agent_message",
        "messageId": "m1",
        "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two!"}],
    }
    assert picture(*frames) == [("agent", "m1", "one two!")]


@pytest.mark.parametrize("activation", [True, False])
def test_deltas_without_id_then_the_copy_with_id(activation: bool) -> None:
    """Known fault: text rendered twice. Deltas of a message without id wait for the whole block."""
    between = [{"type": "system", "subtype": "init", "session_id": "s"}] if activation else []
    assert picture(start(None), delta("Hel"), *between, delta("lo"), whole("m1", "Hello"), result("Hello")) == [
        ("agent", "m1", "Hello")
    ]


def test_a_message_without_any_id_goes_by_its_entry() -> None:
    """REPLAY-3: the entry's uuid is what a replay finds again."""
    assert picture(start(None), delta("Hello"), whole(None, "Hello", uuid="e1"), result("Hello")) == [
        ("agent", "e1", "Hello")
    ]


def test_the_id_may_stand_in_the_frame() -> None:
    assert picture({**start(None), "api_message_id": "m1"}, delta("Hello"), whole("m1", "Hello")) == [
        ("agent", "m1", "Hello")
    ]


def test_the_copy_under_another_id_takes_the_place() -> None:
    """Known fault: text rendered twice. The same text under a second id is shown under that one only."""
    assert picture(start("m1"), delta("Hello"), stop(), whole("m2", "Hello"), result("Hello")) == [
        ("agent", "m2", "Hello")
    ]


def test_discarded_answers_are_taken_back() -> None:
    """A cut stream is not stored: its text goes when the next answer begins, its calls are cancelled."""
    cut = [start("m1"), delta("Part"), event("content_block_start", index=1, content_block=tool_use("t1"))]
    updates = run(*cut, start("m2"), delta("Whole"), whole("m2", "Whole"))
    assert {"sessionUpdate": "agent_message", "messageId": "m1", "content": []} in updates
    assert {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "cancelled"} in updates
    assert picture(*cut, start("m2"), delta("Whole"), whole("m2", "Whole")) == [("agent", "m2", "Whole")]
    assert picture(*cut, whole("m3", "In one piece")) == [("agent", "m3", "In one piece")]


def test_complete_blocks_of_a_cut_answer_stay() -> None:
    frames = [start("m1"), delta("Kept."), whole("m1", "Kept."), delta("Lost", 1), start("m2"), delta("On.")]
    assert picture(*frames) == [("agent", "m1", "Kept."), ("agent", "m2", "On.")]


def test_text_that_was_streamed_to_its_end_stays() -> None:
    """An answer with its stop reason is no discarded one, even when its whole blocks never come."""
    assert picture(start("m1"), delta("One."), stop(), start("m2"), delta("Two."), stop(), result("Two.")) == [
        ("agent", "m1", "One."),
        ("agent", "m2", "Two."),
    ]


def test_an_interrupted_answer_keeps_its_part() -> None:
    """The runtime stores the part that came; it repeats it in a whole frame."""
    assert picture(start("m1"), delta("Par"), whole("m1", "Par"), result(is_error=True)) == [("agent", "m1", "Par")]


def test_without_streaming_each_block_is_shown() -> None:
    assert picture(whole("m1", "One ", uuid="a"), whole("m1", "two", uuid="b"), whole("m1", "two", uuid="b")) == [
        ("agent", "m1", "One two")
    ]


def test_thoughts_have_their_own_messages() -> None:
    """PROMPT-6: same id, another space; empty and hidden thoughts are not shown."""
    thinking = {"type": "thinking", "thinking": "Hmm.", "signature": "s"}
    assert picture(
        start("m1"),
        event("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""}),
        delta("Hm", kind="thinking"),
        delta("m.", kind="thinking"),
        event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "s"}),
        whole("m1", thinking, uuid="a"),
        delta("Yes.", 1),
        whole("m1", "Yes.", uuid="b"),
        whole("m2", {"type": "thinking", "thinking": ""}, {"type": "redacted_thinking", "data": "x"}, uuid="c"),
    ) == [("thought", "m1", "Hmm."), ("agent", "m1", "Yes.")]


# --- answers without frames of their own -------------------------------------------------------------------------------


def test_an_answer_that_comes_only_in_the_result() -> None:
    """Known fault: the client gets nothing."""
    assert picture(result("3")) == [("agent", "res", "3")]
    assert picture(whole("m1", "First."), tool_result(), result("3")) == [
        ("agent", "m1", "First."),
        ("agent", "res", "3"),
    ]


@pytest.mark.parametrize(
    "frames",
    [
        [whole("m1", "Hello"), result("Hello")],
        [result("API Error", is_error=True)],
        [result("")],
        [whole(None, "API Error: 500", uuid="e", model="<synthetic>"), result("API Error: 500", is_error=True)],
    ],
)
def test_a_result_repeats_nothing(frames: list[Frame]) -> None:
    """The result's text is shown only when nothing else has shown it; failures are not answers."""
    assert all(item[1] != "res" for item in picture(*frames))


# --- what is not the conversation's -------------------------------------------------------------------------------------


def test_user_texts_are_not_echoed() -> None:
    """Known fault: user content echoed back. Echoes, markers and notes of the runtime bring nothing."""

    def user(content: Any, **fields: Any) -> Frame:
        return {"type": "user", "uuid": "u", "message": {"role": "user", "content": content}, **fields}

    frames = [
        user("hello", isReplay=True),
        user([{"type": "text", "text": "hello"}], isReplay=True),
        user([{"type": "text", "text": "[Request interrupted by user]"}]),
        user("<local-command-caveat>x</local-command-caveat>", isSynthetic=True),
        user("Your response above was cut off mid-stream.", isSynthetic=True),
        user("<command-name>/usage</command-name>\n<command-message>usage</command-message>", isReplay=True),
        user("<local-command-stdout>Set model to `opus`</local-command-stdout>", isReplay=True),
        user("<local-command-stdout>(no content)</local-command-stdout>", isReplay=True),
    ]
    assert run(*frames) == []


def test_output_of_commands_is_an_agents_message() -> None:
    """Both ways in which the runtime prints it, under the id of the stored entry, without terminal colours."""
    printed = "<local-command-stdout>\x1b[1mCompacted\x1b[0m </local-command-stdout>"
    frame = {"type": "user", "uuid": "o1", "isReplay": True, "message": {"content": printed}}
    assert picture(frame) == [("agent", "o1", "Compacted")]
    frame = whole("random", "Cost: 0", uuid="o2", model="<synthetic>", local_command_source=printed)
    assert picture(frame, result("Compacted")) == [("agent", "o2", "Compacted")]


def test_subagents_stay_inside_their_call() -> None:
    """Frames of a subagent show nothing; its progress is the content of its call."""
    inner = {"parent_tool_use_id": "t1"}
    progress = {"type": "system", "subtype": "task_progress", "tool_use_id": "t1", "description": "Running ls"}
    frames = [
        whole("m1", tool_use("t1", "Agent", description="Job")),
        {**start("m2"), **inner},
        {**delta("inner"), **inner},
        {**whole("m2", "inner", tool_use("t2")), **inner},
        {**tool_result("t2"), **inner},
        progress,
    ]
    updates = run(*frames)
    assert {update["toolCallId"] for update in updates} == {"t1"}
    assert updates[-1]["content"][0]["content"]["text"] == "Running ls"


def test_empty_stand_ins_are_no_answer() -> None:
    assert picture(whole("x", "No response requested.", model="<synthetic>")) == []


# --- tools, permissions ---------------------------------------------------------------------------------------------


def test_a_call_is_reported_as_soon_as_it_is_named() -> None:
    """TOOL-1, TOOL-2, TOOL-10."""
    block = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    updates = run(
        start("m1"),
        event("content_block_start", index=0, content_block=block),
        whole("m1", tool_use("t1", command="ls")),
        stop("tool_use"),
        tool_result("t1", "out", {"stdout": "out", "stderr": ""}),
    )
    assert [(u["toolCallId"], u.get("title"), u["status"]) for u in updates] == [
        ("t1", "Bash", "pending"),
        ("t1", "ls", "in_progress"),
        ("t1", None, "completed"),
    ]


def test_permission_requests_agree_with_the_call() -> None:
    """PERM-1: the same call, waiting; when it is allowed, it runs."""
    translator = Translator("/project")
    (reported,) = wires(translator.feed(whole("m1", tool_use("t1", command="ls"))))
    asked = dump(translator.tool_call_of("Bash", "t1", {"command": "ls"}))
    assert asked == {**reported, "status": "pending"}
    assert list(translator.open_calls) == ["t1"]
    assert wires(translator.running("t1")) == [
        {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "in_progress"}
    ]
    assert wires(translator.finish("cancelled"))[0]["status"] == "cancelled"
    assert translator.running("t1") == translator.finish("failed") == []


def test_plans() -> None:
    """PLAN-1: a to-do list that was accepted is the plan."""
    todos = [{"content": "A", "status": "in_progress", "activeForm": "Doing A"}]
    updates = run(whole("m1", tool_use("t1", "TodoWrite", todos=todos)), tool_result("t1", "ok"))
    assert updates[-1]["plan"]["entries"] == [{"content": "A", "priority": "medium", "status": "in_progress"}]


def test_tools_that_the_api_runs() -> None:
    """Server tools come and end inside the assistant's message."""
    call = {"type": "server_tool_use", "id": "t1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "t1", "content": [{"type": "web_search_result"}]}
    updates = run(whole("m1", call, found))
    assert [update["status"] for update in updates] == ["in_progress", "completed"]


# --- usage, notices, compaction -------------------------------------------------------------------------------------


def test_no_usage_while_the_size_is_unknown() -> None:
    """USAGE-1: tokens of the last call with cached ones, the window that the runtime reports."""
    translator = Translator("/project")
    opening = start("m1")
    opening["event"]["message"]["usage"] = {
        "input_tokens": 1,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 10,
        "output_tokens": 1,
    }
    for frame in (opening, delta("x"), whole("m1", "x"), stop()):
        assert not [one for one in translator.feed(frame) if dump(one)["sessionUpdate"] == "usage_update"]
    assert translator.usage is None
    models = {"m": {"contextWindow": 200_000}, "helper": {"contextWindow": 1000}}
    (update,) = wires(translator.feed(result("x", modelUsage=models, total_cost_usd=0.5)))
    assert update == {
        "sessionUpdate": "usage_update",
        "used": 115,
        "size": 200_000,
        "cost": {"amount": 0.5, "currency": "USD"},
    }
    assert translator.usage is not None
    assert wires(translator.feed(result("x", modelUsage=models, total_cost_usd=0.5))) == [
        {"sessionUpdate": "agent_message", "messageId": "res", "content": [{"type": "text", "text": "x"}]}
    ]
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "compact_metadata": {"post_tokens": 50}}
    assert wires(translator.feed(boundary))[-1]["used"] == 50


@pytest.mark.parametrize(
    ("models", "size"),
    [
        ({"m[1m]": {"contextWindow": 7}, "x": {"contextWindow": 9}}, 7),
        ({"other": {"contextWindow": 9}}, 9),
        ({"a": {"contextWindow": 9}, "b": {"contextWindow": 8}}, None),
        ({"m": {"contextWindow": 0}}, None),
        ({"m": {"contextWindow": -5}}, None),
        ({"m": "odd"}, None),
        ("odd", None),
    ],
)
def test_the_size_is_the_models_own(models: Any, size: int | None) -> None:
    """USAGE-1: no size is guessed."""
    translator = Translator("/project")
    for frame in (start("m1"), stop(), result(modelUsage=models)):
        translator.feed(frame)
    assert (translator.usage.size if translator.usage else None) == size


def test_retries_are_notices() -> None:
    """NOTE-1."""
    frame = {"type": "system", "subtype": "api_retry", "attempt": 2, "max_retries": 10, "error_status": 529}
    (notice,) = run(frame)
    assert (notice["severity"], notice["title"]) == ("warning", "The model's API failed (HTTP 529); retry 2 of 10.")
    assert run({"type": "system", "subtype": "informational", "content": "Blocked by a hook.", "level": "warning"}) == [
        {"sessionUpdate": "notice", "severity": "warning", "title": "Blocked by a hook."}
    ]
    assert run({"type": "system", "subtype": "informational", "content": " ", "level": ["x"]}) == []


@pytest.mark.parametrize(
    ("frame", "severity", "title"),
    [
        ({"subtype": "model_fallback", "content": "Switched to other."}, "warning", "Switched to other."),
        ({"subtype": "model_refusal_fallback"}, "warning", "The model was replaced by another one."),
        (
            {"subtype": "session_writes_lost", "lost": ["transcript"], "error_code": "ENOSPC"},
            "error",
            "Parts of the session could not be saved (ENOSPC): resuming it will miss them.",
        ),
    ],
)
def test_events_to_hear_of(frame: Frame, severity: str, title: str) -> None:
    """NOTE-1: what a user should know, once."""
    (notice,) = run({"type": "system", **frame})
    assert (notice["severity"], notice["title"]) == (severity, title)
    assert run({"type": "system", "subtype": "session_writes_lost", "lost": ["global_config"]}) == []


def test_usage_limits() -> None:
    """A limit is told with the time of its end, where that is known."""
    (notice,) = run({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1_800_000_000}})
    assert (notice["title"], notice["description"]) == (
        "The account's usage limit is reached.",
        "The limit resets at 2027-01-15T08:00+00:00.",
    )
    for resets_at in (None, 10**30, "x"):
        info = {"status": "allowed_warning", "resetsAt": resets_at}
        assert "description" not in run({"type": "rate_limit_event", "rate_limit_info": info})[0]
    assert run({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}}) == []


def test_the_title_of_a_session() -> None:
    """INFO-1."""
    assert run({"type": "system", "subtype": "session_title_changed", "title": "New name"}) == [
        {"sessionUpdate": "session_info_update", "title": "New name"}
    ]


def test_messages_that_the_runtime_removes() -> None:
    """What was taken out of the conversation is not shown any longer."""
    frames = [whole("m1", "Kept. ", uuid="a"), whole("m1", "Gone.", uuid="b")]
    assert picture(*frames, {"type": "tombstone", "message": {"uuid": "b"}}) == [("agent", "m1", "Kept. ")]
    fallback = {"type": "system", "subtype": "model_refusal_fallback", "retracted_message_uuids": ["a", "b", 5, "x"]}
    assert picture(*frames, fallback) == []
    assert picture(*frames, {"type": "tombstone", "message": {"uuid": ""}}) == [("agent", "m1", "Kept. Gone.")]


def test_compaction() -> None:
    """COMP-1, COMP-2, COMP-3: one item under the boundary's id, its summary after it."""
    summary = (
        "This session is being continued.\n<system-reminder>x</system-reminder>\nSummary:\nAll said.\n\nIf you need "
    )
    summary += "specific details from before compaction, read the file."
    updates = run(
        {"type": "system", "subtype": "status", "status": "compacting"},
        {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "compact_metadata": {}},
        {"type": "user", "isSynthetic": True, "message": {"content": summary}},
    )
    assert updates[1:] == [
        {"sessionUpdate": "compaction_update", "compactionId": "c1", "status": "completed"},
        {
            "sessionUpdate": "compaction_update",
            "compactionId": "c1",
            "status": "completed",
            "summary": [{"type": "text", "text": "All said."}],
        },
    ]
    assert updates[0]["sessionUpdate"] == "notice"
    (failed,) = run({"type": "system", "subtype": "status", "compact_result": "failed", "compact_error": "too long"})
    assert (failed["severity"], failed["description"]) == ("warning", "too long")


# --- any shape ---------------------------------------------------------------------------------------------------------

KEYS = ["type", "subtype", "event", "message", "content", "id", "uuid", "index", "delta", "text", "usage", "result"]
KEYS += ["tool_use_id", "name", "input", "is_error", "modelUsage", "tool_use_result", "content_block", "status"]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["text", "tool_use", "x", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
TYPES = ["stream_event", "assistant", "user", "result", "system", "new"]
RECORDED = [frame for name in NAMES for frame in Scenario.load(name).frames]


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5), max_size=6), st.lists(st.sampled_from(TYPES)))
def test_any_frames_are_taken(frames: list[Frame], types: list[str]) -> None:
    """D11: arbitrary objects never raise, and what comes of them is well formed."""
    for frame, kind in zip(frames, types, strict=False):
        frame["type"] = kind
    run(*frames)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [path]
    if isinstance(value, dict):
        for name, member in value.items():
            found += paths(member, (*path, name))
    elif isinstance(value, list):
        for number, member in enumerate(value):
            found += paths(member, (*path, number))
    return found


@given(st.integers(0, max(0, len(RECORDED) - 12)), st.data())
@settings(max_examples=150, deadline=None)
def test_mutated_recorded_frames_are_taken(position: int, data: st.DataObject) -> None:
    """D11: real frames with a wrong value in any place cost at most what that place stood for."""
    frames = [copy.deepcopy(frame) for frame in RECORDED[position : position + 12]]
    for _ in range(data.draw(st.integers(1, 4))):
        frame = data.draw(st.sampled_from(frames))
        *holder, name = data.draw(st.sampled_from(paths(frame)[1:] or [("type",)]))
        inner: Any = frame
        for step in holder:
            inner = inner[step]
        inner[name] = data.draw(JSON)
    for update in run(*frames):
        encode({"update": update})


def test_frames_that_show_nothing() -> None:
    """D11: unknown types and fields are passed over."""
    assert run({}, {"type": "brand_new", "text": "x"}, {"type": None}, {"type": "system", "subtype": "new"}) == []
    (chunk,) = run(start("m1"), {**delta("x"), "unknown": {"a": 1}})
    assert chunk["content"] == {"type": "text", "text": "x"}
    assert run(start("m1"), event("content_block_delta", index=0, delta={"type": "new_delta", "text": "x"})) == []
