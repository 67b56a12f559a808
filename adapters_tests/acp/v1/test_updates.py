"""Updates of v2 as a v1 client sees them. Whatever comes out is judged against closed v1."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.acp.v1.terminals import LONGEST
from adapters.acp.v1.updates import Abilities, Renderer
from adapters_tests.v1_schema import closed, sdk, validate_update

Json = dict[str, Any]

ALL = Abilities(terminals=True, notices=True, compaction=True, plans=True, boolean_options=True)
NONE = Abilities()


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def item(words: str) -> Json:
    return {"type": "content", "content": text(words)}


def data(words: str) -> str:
    return base64.b64encode(words.encode()).decode()


class Screen:
    """A client: applies what it is sent, and judges it."""

    def __init__(self, can: Abilities = NONE, *, working: bool = True) -> None:
        self.renderer = Renderer(can)
        self.sent: list[Json] = []
        self.show({"sessionUpdate": "state_update", "state": "running" if working else "idle"})

    def show(self, *updates: Json) -> list[Json]:
        """What is sent for these updates."""
        sent = [line for update in updates for line in self.renderer.render(update)]
        self._take(sent)
        return sent

    def _take(self, sent: list[Json]) -> None:
        for line in sent:
            validate_update(line)
        self.sent += json.loads(json.dumps(sent))

    def ask(self, *args: Any, **more: Any) -> Json:
        """The tool call of a question."""
        asked = self.renderer.ask(*args, **more)
        self._take(list(asked.updates))
        closed(sdk.ToolCallUpdate, asked.tool_call)
        return asked.tool_call

    def cards(self) -> dict[str, Json]:
        cards: dict[str, Json] = {}
        for line in self.sent:
            if line["sessionUpdate"] in ("tool_call", "tool_call_update"):
                known = line["toolCallId"] in cards
                assert known == (line["sessionUpdate"] == "tool_call_update"), "a tool_call once, and first"
                cards.setdefault(line["toolCallId"], {}).update(line)
        return cards

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(line["content"]["text"] for line in self.sent if line["sessionUpdate"] == kind)


def call(call_id: str = "t", **fields: Any) -> Json:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **fields}


def chunk(words: str, call_id: str = "t") -> Json:
    return {"sessionUpdate": "tool_call_content_chunk", "toolCallId": call_id, "content": item(words)}


# --- messages ----------------------------------------------------------------------------------------------------------


def test_a_message_is_sent_once_however_it_comes() -> None:
    """V1-UPD-1: in pieces, then whole; whole, then whole again."""
    screen = Screen()
    for words in ("Hel", "lo"):
        screen.show({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text(words)})
    assert screen.show({"sessionUpdate": "agent_message", "messageId": "m", "content": [text("Hello")]}) == []
    whole = {"sessionUpdate": "agent_thought", "messageId": "n", "content": [text("a"), text("b")]}
    assert [line["content"]["text"] for line in screen.show(whole, whole)] == ["a", "b"]
    assert (screen.said(), screen.said("agent_thought_chunk")) == ("Hello", "ab")


def test_a_whole_message_brings_the_end_that_is_missing() -> None:
    screen = Screen()
    screen.show({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text("Hel")})
    screen.show({"sessionUpdate": "agent_message", "messageId": "m", "content": [text("Hello")]})
    assert screen.said() == "Hello"
    screen.show({"sessionUpdate": "agent_message", "messageId": "m", "content": [text("Good day to you")]})
    assert screen.said() == "Hello"


def test_what_comes_after_a_cleared_message_is_another_one() -> None:
    """A stream that is tried again: v1 cannot take back what it showed."""
    screen = Screen()
    piece = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text("half")}
    screen.show(piece, {"sessionUpdate": "agent_message", "messageId": "m", "content": []}, piece)
    assert [line["messageId"] for line in screen.sent] == ["m", "m-2"]


@pytest.mark.parametrize("content", [[text("hi")], []])
def test_a_clients_own_message_is_not_shown_to_it(content: list[Any]) -> None:
    """V1-PR-7."""
    assert Screen().show({"sessionUpdate": "user_message", "messageId": "u", "content": content}) == []


def test_history_shows_what_the_user_wrote() -> None:
    """V1-SES-3: until the state that follows it."""
    screen = Screen()
    screen.renderer.begin_replay()
    message = {"sessionUpdate": "user_message", "messageId": "u", "content": [text("a"), {"type": "_later", "x": 1}]}
    assert screen.show(message) == [
        {"sessionUpdate": "user_message_chunk", "messageId": "u", "content": text("a")},
    ]
    screen.show({"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"})
    assert screen.show({**message, "messageId": "u2"}) == []


def test_blocks_have_the_fields_of_v1() -> None:
    blocks: list[Any] = [
        {"type": "image", "data": "AA==", "mimeType": "image/png", "uri": "file:///a", "later": 1},
        {"type": "resource_link", "name": "a", "uri": "file:///a", "icons": [{"src": "https://x"}], "size": 3},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "x", "later": 1}},
        {**text("x"), "annotations": {"audience": ["user", "_robot"], "priority": 0.5, "later": 1}},
    ]
    sent = Screen().show({"sessionUpdate": "agent_message", "messageId": "m", "content": blocks})
    assert [line["content"]["type"] for line in sent] == ["image", "resource_link", "resource", "text"]
    assert sent[-1]["content"]["annotations"] == {"audience": ["user"], "priority": 0.5}


# --- tool calls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("pending", "pending"),
        ("in_progress", "in_progress"),
        ("paused", "in_progress"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("cancelled", "failed"),
        ("_later", "pending"),
    ],
)
def test_every_status_is_one_of_v1(status: str, shown: str) -> None:
    """V1-UPD-2."""
    [line] = Screen().show(call(title="T", status=status, kind="_mine", name="bash", capabilities={"cancel": {}}))
    assert line == {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T", "status": shown, "kind": "other"}


def test_a_call_needs_a_title_at_once_and_takes_a_better_one_later() -> None:
    screen = Screen()
    assert screen.show(call(status="pending"))[0]["title"] == "Tool call"
    [line] = screen.show(call(title="Read a.py", locations=None, rawInput=None))
    assert line == {"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Read a.py", "locations": []}
    assert screen.show(call()) == []


def test_pieces_of_content_come_as_the_whole_of_it() -> None:
    screen = Screen()
    screen.show(call(title="T"), chunk("```\none\n```"), chunk("```\ntwo\n```"), chunk("words"), chunk("```sh\nx\n```"))
    assert screen.cards()["t"]["content"] == [item("```\none\ntwo\n```"), item("words"), item("```sh\nx\n```")]


def test_a_fence_inside_a_fence_stays_inside() -> None:
    screen = Screen()
    screen.show(call(title="T"), chunk("````\n```\n````"), chunk("```\nb\n```"))
    assert screen.cards()["t"]["content"] == [item("````\n```\nb\n````")]


def test_content_that_grows_for_long_costs_no_more_than_a_few_times_its_size() -> None:
    """And all of it is there at the end of the call, or of the work."""
    screen = Screen()
    screen.show(call(title="T"))
    line = "x" * 100
    for _ in range(20_000):
        screen.show(chunk(f"```\n{line}\n```"))
    size = 20_000 * 101
    assert sum(len(json.dumps(sent)) for sent in screen.sent) < 5 * size
    assert screen.show(chunk("```\nlast\n```")) == []
    screen.show({"sessionUpdate": "state_update", "state": "idle"})
    assert screen.cards()["t"]["content"] == [item("```\n" + f"{line}\n" * 20_000 + "last\n```")]
    assert len(screen.show(call(status="completed"))[0]) == 3


def test_the_same_content_is_not_sent_twice() -> None:
    screen = Screen()
    screen.show(call(title="T", content=[item("a")]))
    assert "content" not in screen.show(call(status="completed", content=[item("a")]))[0]


def test_control_characters_are_shown_as_a_terminal_would() -> None:
    screen = Screen()
    screen.show(call(title="T", content=[item("```\n\x1b[31mred\x1b[0m\n10%\r100%\n```")]))
    assert screen.cards()["t"]["content"] == [item("```\nred\n100%\n```")]


def test_late_news_make_no_card() -> None:
    """V1-UPD-2: while no work goes on, a call that was never shown stays unheard, and one that was is updated."""
    screen = Screen()
    screen.show(call("known", title="T"), {"sessionUpdate": "state_update", "state": "idle"})
    assert screen.show(call("new", title="N"), chunk("x", "newer")) == []
    assert [line["sessionUpdate"] for line in screen.show(call("known", status="completed"))] == ["tool_call_update"]


def test_a_call_is_told_again_when_history_is() -> None:
    screen = Screen()
    screen.show(call(title="T"))
    screen.renderer.begin_replay()
    assert [line["sessionUpdate"] for line in screen.show(call(title="T"))] == ["tool_call"]


# --- terminals ---------------------------------------------------------------------------------------------------------


def terminal(terminal_id: str = "term", **fields: Any) -> Json:
    return {"sessionUpdate": "terminal_update", "terminalId": terminal_id, **fields}


def printed(words: bytes, terminal_id: str = "term") -> Json:
    encoded = base64.b64encode(words).decode()
    return {"sessionUpdate": "terminal_output_chunk", "terminalId": terminal_id, "data": encoded}


SHOWN: list[Any] = [{"type": "terminal", "terminalId": "term"}]


def test_a_client_that_draws_terminals_gets_their_output_as_it_comes() -> None:
    """V1-UPD-3: the client's own terminals are never named."""
    screen = Screen(ALL)
    sent = screen.show(
        terminal(cwd="/w", command="x"),
        call(title="x", kind="execute", content=SHOWN),
        printed("caf\u00e9"[:4].encode()[:4]),
        printed("caf\u00e9".encode()[4:] + b"\x1b[31m!\n"),
        terminal(exitStatus={"exitCode": 3}),
        call(status="failed"),
    )
    assert [line.get("_meta") for line in sent] == [
        {"terminal_info": {"terminal_id": "term", "cwd": "/w"}},
        {"terminal_output": {"terminal_id": "term", "data": "caf"}},
        {"terminal_output": {"terminal_id": "term", "data": "\u00e9\x1b[31m!\n"}},
        {"terminal_exit": {"terminal_id": "term", "exit_code": 3, "signal": None}},
        None,
    ]
    assert sent[0]["content"] == SHOWN


def test_a_command_that_gets_its_terminal_later_has_one_announced() -> None:
    """Editors make a terminal when `tool_call` comes, and only then."""
    screen = Screen(ALL)
    first, second, third = screen.show(call(title="x", kind="execute"), call(content=SHOWN), printed(b"a"))
    assert first["_meta"] == {"terminal_info": {"terminal_id": "t"}}
    assert second["content"] == [{"type": "terminal", "terminalId": "t"}]
    assert third["_meta"] == {"terminal_output": {"terminal_id": "t", "data": "a"}}


def test_history_of_a_command_has_output_and_end_in_one() -> None:
    screen = Screen(ALL)
    screen.renderer.begin_replay()
    sent = screen.show(
        terminal(output={"data": data("a\n")}, exitStatus={"exitCode": 0}),
        call(title="x", kind="execute", status="completed", content=SHOWN),
    )
    assert [set(line["_meta"]) for line in sent] == [{"terminal_info"}, {"terminal_output", "terminal_exit"}]


def test_output_as_a_whole_brings_only_what_is_missing() -> None:
    screen = Screen(ALL)
    screen.show(call(title="x", content=SHOWN), printed(b"ab"))
    [line] = screen.show(terminal(output={"data": data("abcd")}))
    assert line["_meta"]["terminal_output"]["data"] == "cd"
    assert screen.show(terminal(output={"data": data("abcd")})) == []


def test_every_other_client_gets_one_readable_text_at_the_end() -> None:
    screen = Screen()
    sent = screen.show(
        call(title="x", kind="execute", status="in_progress", content=SHOWN),
        printed(b"\x1b[31mred\x1b[0m\r\n10%\r"),
        printed(b"100%\n"),
    )
    assert [line.get("content", []) for line in sent] == [[]]
    screen.show(terminal(exitStatus={"exitCode": 3}), call(status="failed"))
    assert screen.cards()["t"]["content"] == [item("```\nred\n100%\n```\n\nExit code 3.")]
    assert all("_meta" not in line for line in screen.sent)


@pytest.mark.parametrize("order", ["exit first", "status first", "no exit"])
def test_the_text_comes_whatever_tells_the_end(order: str) -> None:
    screen = Screen()
    screen.show(call(title="x", content=SHOWN), printed(b"out\n"))
    ends = [terminal(exitStatus={"exitCode": 0}), call(status="completed")]
    screen.show(*{"exit first": ends, "status first": ends[::-1], "no exit": ends[1:]}[order])
    assert screen.cards()["t"]["content"] == [item("```\nout\n```")]


def test_a_command_in_the_background_is_shown_when_it_ends() -> None:
    screen = Screen()
    screen.show(
        call(title="x", content=SHOWN), call(status="completed"), {"sessionUpdate": "state_update", "state": "idle"}
    )
    screen.show(printed(b"later\n"), terminal(exitStatus={"exitCode": 0}))
    assert screen.cards()["t"]["content"] == [item("```\nlater\n```")]


def test_of_very_long_output_the_end_is_shown() -> None:
    screen = Screen()
    screen.show(call(title="x", content=SHOWN))
    for number in range(5 * LONGEST // 1000):
        screen.show(printed(f"{number:0>999}\n".encode()))
    screen.show(call(status="completed"))
    [shown] = screen.cards()["t"]["content"]
    whole = shown["content"]["text"]
    assert LONGEST * 0.9 < len(whole) < LONGEST * 1.1
    assert whole.startswith("```\n(The output before this is left out.)\n0")
    assert whole.endswith(f"{number}\n```")


def test_of_calls_that_are_over_nothing_is_kept_but_that_they_are_known() -> None:
    """A long session is loaded through it."""
    for screen in (Screen(), Screen(ALL)):
        screen.renderer.begin_replay()
        text_of = "x" * 10_000
        for number in range(300):
            name = f"term-{number}"
            screen.show(
                terminal(name, output={"data": data(text_of)}, exitStatus={"exitCode": 0}),
                call(f"t{number}", title="x", status="completed", content=[{"type": "terminal", "terminalId": name}]),
                call(f"u{number}", title="x", status="completed", content=[item(text_of)]),
            )
        assert len(screen.cards()) == 600
        screen.sent.clear()
        assert len(pickle.dumps(screen.renderer._calls)) < 200_000
        assert sum(len(known._bytes) for known in screen.renderer._terminals.values()) == 0
        assert screen.show(chunk("late", "u1")) == []
        assert screen.show(call("t1", content=[{"type": "terminal", "terminalId": "term-1"}])) == []
        assert screen.show(call("u1", content=[item("other")]))[0]["content"] == [item("other")]


def test_a_signal_is_said() -> None:
    screen = Screen()
    screen.show(call(title="x", content=SHOWN), terminal(exitStatus={"signal": "SIGKILL"}))
    assert screen.cards()["t"]["content"] == [item("Ended by signal SIGKILL.")]


# --- the rest ----------------------------------------------------------------------------------------------------------


def plan(plan_id: str, *entries: Json) -> Json:
    return {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": plan_id, "entries": list(entries)}}


def test_plans_are_one_plan() -> None:
    """V1-UPD-4."""
    screen = Screen()
    step = {"content": "a", "priority": "high", "status": "in_progress"}
    screen.show(plan("1", step, {**step, "content": "b", "status": "cancelled"}))
    [line] = screen.show(plan("2", {"content": "c", "priority": "_top", "status": "_later"}))
    assert line["entries"] == [step, {"content": "c", "priority": "medium", "status": "pending"}]


def test_a_plan_that_is_text_goes_to_a_client_that_knows_such() -> None:
    markdown = {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "p", "content": "# P"}}
    assert Screen().show(markdown) == []
    assert Screen(ALL).show(markdown) == [markdown]


@pytest.mark.parametrize("severity", ["info", "warning", "error", "_later"])
def test_a_notice_is_a_notice_or_a_line(severity: str) -> None:
    notice = {"sessionUpdate": "notice", "severity": severity, "title": "T", "description": "D"}
    assert Screen(ALL).show(notice)[0]["severity"] in ("info", "warning", "error")
    words = {"info": "Note", "warning": "Warning", "error": "Error", "_later": "Note"}[severity]
    first, second = Screen().show(notice, notice)
    assert first["content"]["text"] == f"**{words}:** T: D\n\n"
    assert first["messageId"] != second["messageId"]


def test_a_compaction_is_one_or_a_card() -> None:
    updates: list[Json] = [
        {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress"},
        {"sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": text("so far")},
        {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "cancelled", "error": "stopped"},
    ]
    assert [line["sessionUpdate"] for line in Screen(ALL).show(*updates)] == [
        "compaction_update",
        "compaction_summary_chunk",
        "compaction_update",
    ]
    screen = Screen()
    screen.show(*updates[:2])
    [card] = screen.cards().values()
    assert (card["kind"], card["status"], card["content"]) == ("think", "in_progress", [item("so far")])
    screen.show(updates[2])
    [card] = screen.cards().values()
    assert (card["status"], card["content"]) == ("failed", [item("stopped")])


def test_commands_usage_and_title() -> None:
    """V1-UPD-5."""
    rows: list[Any] = [
        {"type": "command", "name": "a", "description": "A", "input": {"type": "text", "hint": "what"}},
        {"type": "command", "name": "b", "description": "B", "input": {"type": "_form"}},
        {"type": "_later", "name": "c", "description": "C"},
    ]
    commands, usage, info, options = Screen().show(
        {"sessionUpdate": "available_commands_update", "availableCommands": rows},
        {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 0.5, "currency": "USD", "x": 1}},
        {"sessionUpdate": "session_info_update", "title": None, "updatedAt": "2026-01-01T00:00:00Z", "x": 1},
        {
            "sessionUpdate": "config_option_update",
            "configOptions": [{"type": "boolean", "configId": "b", "name": "B", "currentValue": True}],
        },
    )
    assert commands["availableCommands"] == [
        {"name": "a", "description": "A", "input": {"hint": "what"}},
        {"name": "b", "description": "B"},
    ]
    assert usage["cost"] == {"amount": 0.5, "currency": "USD"}
    assert info == {"sessionUpdate": "session_info_update", "title": None, "updatedAt": "2026-01-01T00:00:00Z"}
    assert options["configOptions"] == []


@pytest.mark.parametrize("kind", ["state_update", "plan_removed", "subagent_update", "session_message", "_mine", "x"])
def test_what_v1_does_not_have_is_not_sent(kind: str) -> None:
    assert Screen().show({"sessionUpdate": kind, "state": "requires_action", "planId": "p"}) == []


# --- questions ---------------------------------------------------------------------------------------------------------


def test_a_question_tells_of_an_unknown_call_first() -> None:
    """V1-PERM-1, V1-UPD-2."""
    screen = Screen()
    asked = screen.ask("q", "May I?", tool_call={"toolCallId": "t", "kind": "edit", "status": "paused"})
    assert asked == {"toolCallId": "t", "kind": "edit", "status": "in_progress", "title": "May I?"}
    assert [line["sessionUpdate"] for line in screen.sent] == ["tool_call"]


def test_a_question_says_all_that_is_known_of_its_call_and_gives_the_title_back() -> None:
    screen = Screen()
    screen.show(call(title="Edit a.py", kind="edit", rawInput={"a": 1}, content=[item("what it does")]))
    asked = screen.ask("q", "Edit: /w/a.py", tool_call={"toolCallId": "t"}, description="Read this.")
    assert asked == {
        "toolCallId": "t",
        "title": "Edit: /w/a.py",
        "status": "pending",
        "kind": "edit",
        "rawInput": {"a": 1},
        "content": [item("Read this."), item("what it does")],
    }
    [line] = screen.show(call(status="completed"))
    assert (line["title"], line["content"]) == ("Edit a.py", [item("what it does")])


# --- anything ----------------------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b"])
STATUS = st.sampled_from(["pending", "in_progress", "paused", "completed", "failed", "cancelled", "_x"])
BLOCKS = st.sampled_from(
    [
        text("a"),
        text("```\nb\n```"),
        text("\x1b[1mc"),
        {"type": "_x"},
        {"type": "image"} | {"data": "", "mimeType": "image/png"},
    ]
)
CONTENT = st.one_of(
    BLOCKS.map(lambda block: {"type": "content", "content": block}),
    IDS.map(lambda name: {"type": "terminal", "terminalId": name}),
    st.just({"type": "diff", "changes": [{"operation": "add", "path": "/a"}]}),
    st.just({"type": "_x"}),
)
UPDATES = st.one_of(
    st.builds(
        lambda kind, name, block: {"sessionUpdate": kind, "messageId": name, "content": block},
        st.sampled_from(["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"]),
        IDS,
        BLOCKS,
    ),
    st.builds(
        lambda kind, name, blocks: {"sessionUpdate": kind, "messageId": name, "content": blocks},
        st.sampled_from(["user_message", "agent_message", "agent_thought"]),
        IDS,
        st.one_of(st.none(), st.lists(BLOCKS, max_size=2)),
    ),
    st.builds(lambda name, status: call(name, status=status), IDS, STATUS),
    st.builds(lambda name, title: call(name, title=title, kind="execute"), IDS, st.one_of(st.none(), st.just("T"))),
    st.builds(
        lambda name, content: call(name, content=content), IDS, st.one_of(st.none(), st.lists(CONTENT, max_size=2))
    ),
    st.builds(
        lambda name, content: {"sessionUpdate": "tool_call_content_chunk", "toolCallId": name, "content": content},
        IDS,
        CONTENT,
    ),
    st.builds(lambda name: printed(b"x\xc3", name), IDS),
    st.builds(lambda name: terminal(name, output={"data": data("xyz")}), IDS),
    st.builds(lambda name: terminal(name, exitStatus={"exitCode": 1}), IDS),
    st.builds(
        lambda name, status: {"sessionUpdate": "compaction_update", "compactionId": name, "status": status}, IDS, STATUS
    ),
    st.builds(
        lambda name, block: {"sessionUpdate": "compaction_summary_chunk", "compactionId": name, "content": block},
        IDS,
        st.just(text("s")),
    ),
    st.sampled_from(["idle", "running", "requires_action"]).map(
        lambda state: {"sessionUpdate": "state_update", "state": state}
    ),
    st.sampled_from(["ask", "replay"]),
)


@given(st.lists(UPDATES, max_size=12), st.sampled_from([ALL, NONE]))
def test_whatever_comes_is_valid_and_a_card_begins_with_its_tool_call(updates: list[Any], can: Abilities) -> None:
    screen = Screen(can)
    for number, update in enumerate(updates):
        if update == "ask":
            screen.ask(f"q{number}", "Q?", tool_call={"toolCallId": "a"} if number % 2 else None)
        elif update == "replay":
            screen.cards()
            screen.renderer.begin_replay()
            screen.sent.clear()
        else:
            screen.show(update)
    for card in screen.cards().values():
        named = [entry["terminalId"] for entry in card.get("content", ()) if entry["type"] == "terminal"]
        assert can.terminals or not named
    assert all("\\u001b" not in json.dumps(line.get("content")) for line in screen.sent if "toolCallId" in line)
