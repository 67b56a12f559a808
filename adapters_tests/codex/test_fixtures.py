"""The driver's machinery on what the real Codex wrote and stored (see `fixtures/README.md`): live, replayed, looked up, asked."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.acp.framing import decode, encode
from adapters.acp.schema import dump
from adapters.codex import questions
from adapters.codex.outcomes import error_of
from adapters.codex.server import shared, signals
from adapters.codex.show import items
from adapters.codex.show.live import Translator
from adapters.codex.thread.history import History
from adapters.core.port import PromptFailed, PromptInserted, PromptLiveOnly, PromptTaken, WorkEnded, WorkStarted
from adapters_tests.codex.recorded import NAMES, Json, Live, Scenario, json_lines, live_updates, load, view
from adapters_tests.schema import validate_agent_message

PAGINATED = [name for name in NAMES if name != "legacy"]

OF_THE_SESSION = {"mcpServer/startupStatus/updated", "serverRequest/resolved", "thread/settings/updated"}
"""Notifications that the session itself reads: for `/status`, and for questions that were settled elsewhere."""

OF_THE_HOST = {"configWarning"}
"""Of no thread; `/status` tells it."""

PASSED_OVER = {
    "account/rateLimits/updated": "of the account: limits are told when they end a turn",
    "deprecationNotice": "meant for the author of a host",
    "item/reasoning/summaryPartAdded": "the index of each delta says the same",
    "thread/started": "the answer of the request says the same",
    "thread/status/changed": "turns and items say more",
}

LIVE_ONLY = {
    "approvals": 3,  # commands that were refused: they never ran
    "failures": 1,  # what an answer had said before its stream failed
    "interrupt": 1,  # what an answer had said before it was stopped
    "killed": 1,  # the command that the kill ended
    "retry": 1,  # what the last try had said
}
"""Scenario -> how many items Codex does not store (0.163.0): the client keeps what it has seen, a replay does not show it."""


@pytest.fixture(params=NAMES)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return load(request.param)


@pytest.fixture(params=PAGINATED)
def paginated(request: pytest.FixtureRequest) -> Scenario:
    return load(request.param)


def live(name: str) -> Live:
    return Live(load(name))


def items_in(scenario: Scenario) -> list[Json]:
    found = [message["params"]["item"] for message in scenario.got if "item" in message.get("params", {})]
    rows = scenario.stored.get("thread/items/list", {"data": []})["data"]
    turns = scenario.stored.get("thread/read", {"thread": {"turns": []}})["thread"]["turns"]
    return [*found, *(row["item"] for row in rows), *(item for turn in turns for item in turn["items"])]


# --- what Codex says ---------------------------------------------------------------------------------------------------


def test_every_notification_is_understood_or_knowingly_passed_over() -> None:
    """D11 is for the future: of what this version says nothing is overlooked."""
    recorded = {m["method"] for name in NAMES for m in load(name).got if "method" in m and "id" not in m}
    translator = Translator("/", is_ours=lambda _: False)
    understood = {*signals._READERS, *translator._readers, *OF_THE_SESSION, *OF_THE_HOST}
    assert recorded - understood == {*PASSED_OVER, *shared._NOT_WANTED}
    assert not understood & {*PASSED_OVER, *shared._NOT_WANTED}
    assert understood - recorded == {  # not provoked here
        *("reaperWarning", "item/fileChange/patchUpdated", "item/mcpToolCall/progress", "model/rerouted"),
        *("turn/plan/updated",),
    }


def test_every_request_is_one_that_a_user_can_answer() -> None:
    recorded = {m["method"] for name in NAMES for m in load(name).got if "method" in m and "id" in m}
    assert {*questions._SHOWN} - recorded == {"item/permissions/requestApproval"}  # not provoked here
    assert recorded <= {*questions._SHOWN}


def test_every_item_has_a_picture_and_a_known_status() -> None:
    """TOOL-5: kinds and statuses are those of the protocol."""
    recorded = [item for name in NAMES for item in items_in(load(name))]
    said = {signals.USER_MESSAGE, signals.COMPACTION, *signals.MODEL_OUTPUT}
    kinds = {item["type"] for item in recorded}
    assert kinds - said <= {*items._PICTURES}
    assert kinds - said <= signals.TOOLS
    assert len(kinds) == 11
    assert {item["status"] for item in recorded if "status" in item} <= {*items._STATUSES}


# --- prompts and turns -------------------------------------------------------------------------------------------------


def test_every_prompt_has_one_outcome_and_it_is_what_is_stored(scenario: Scenario) -> None:
    """PROMPT-9, PROMPT-10, KEY-14, ADP-4, ADP-5: `item/completed` is told of those that a look-up finds, and of no other."""
    inserted: list[str] = []
    failed: list[str] = []
    for thread in scenario.threads:
        lived = Live(scenario, thread)
        inserted += [event.message_id for event in lived.of(PromptInserted)]
        failed += [event.message_id for event in lived.of(PromptFailed)]
        assert lived.turns.open is None
        taken = [event.message_id for event in lived.of(PromptTaken) if event.message_id in scenario.prompts]
        assert taken == [event.message_id for event in lived.of(PromptInserted)]
    assert sorted(inserted + failed) == sorted(scenario.prompts)
    assert [message_id for message_id in scenario.prompts if message_id not in failed] == inserted
    assert scenario.ids() == set(inserted)


def test_a_steer_that_an_interrupt_dropped_is_no_error_and_not_stored() -> None:
    """CANCEL-4, KEY-14: accepted by Codex, told of by nobody; the look into the store says that it was withdrawn."""
    lived = live("interrupt")
    (failed,) = lived.of(PromptFailed)
    assert failed.error is None
    assert lived.scenario.prompts[failed.message_id][0]["text"] == "dropped"


def test_a_compaction_that_was_asked_for_leaves_no_message() -> None:
    """CMD-4, COMP-1: its turn is its insertion."""
    (event,) = live("compaction").of(PromptLiveOnly)
    assert event.by_design


ENDS = {
    "approvals": ["end_turn"] * 4 + ["cancelled"] + ["end_turn"] * 2 + ["cancelled"],
    "failures": ["error"] * 5 + ["max_tokens", "end_turn"],
    "interrupt": ["cancelled"] * 3 + ["end_turn"],
    "killed": ["end_turn", "error"],
    "retry": ["end_turn", "end_turn", "error", "end_turn"],
}
"""Scenario -> stop reasons; in all others every turn ends well."""


def test_work_is_bracketed_and_says_how_it_ended(paginated: Scenario) -> None:
    """STATE-1, STATE-3, STOP-1, STOP-2, STOP-3: one end for each beginning; an error only where it is the reason."""
    lived = Live(paginated)
    work = lived.of(WorkStarted, WorkEnded)
    assert [type(event) for event in work] == [WorkStarted, WorkEnded] * (len(work) // 2)
    ended = lived.of(WorkEnded)
    assert [event.stop_reason for event in ended] == ENDS.get(paginated.name, ["end_turn"] * len(ended))
    assert all((event.error is not None) == (event.stop_reason == "error") for event in ended)


def test_an_error_says_what_is_wrong_and_what_to_do() -> None:
    """STOP-5, AUTH-5: codes of the protocol; Codex calls a refused key a failed connection."""
    errors = [event.error for event in live("failures").of(WorkEnded) if event.error]
    assert [(error["code"], error["data"]["category"]) for error in errors] == [
        (-32000, "authentication_failed"),
        (-32603, "other"),
        (-32603, "server_error"),
        (-32603, "rate_limit"),
        (-32603, "context_window"),
    ]
    assert [error["data"].get("status") for error in errors] == [401, None, None, 429, None]
    assert "codex login" in errors[0]["message"]
    assert errors[1]["message"] == "bad thing"
    assert "/compact" in errors[4]["message"]


def test_every_recorded_error_has_words() -> None:
    for name in NAMES:
        for params in (m["params"] for m in load(name).got if m.get("method") == "error"):
            assert error_of(params["error"])["message"]


# --- live and replayed ---------------------------------------------------------------------------------------------------


def stays(shown: list[Json], replayed: list[Json]) -> list[Json]:
    """What a replay shows of what was shown live."""
    kept = {(item["is"], item["id"]) for item in replayed}
    return [item for item in shown if (item["is"], item["id"]) in kept]


def test_same_picture(paginated: Scenario) -> None:
    """REPLAY-2, REPLAY-3, REPLAY-7, PROMPT-21: same messages, thoughts, calls, compactions; ids, texts, statuses, order."""
    shown = view(live_updates(paginated)).snapshot()
    replayed = view(paginated.replayed()).snapshot()
    assert stays(shown, replayed) == replayed
    assert len(shown) - len(replayed) == LIVE_ONLY.get(paginated.name, 0)


def test_replaying_twice_changes_nothing(scenario: Scenario) -> None:
    """REPLAY-4: every update of a replay is whole."""
    once, twice = (view([update for _ in range(times) for update in scenario.replayed()]) for times in (1, 2))
    assert once.snapshot() == twice.snapshot()


def test_a_replay_over_what_was_shown_changes_nothing(paginated: Scenario) -> None:
    """REPLAY-4, REPLAY-5: the ids are those that the client has."""
    shown = live_updates(paginated)
    assert view([*shown, *paginated.replayed()]).snapshot() == view(shown).snapshot()


def test_each_text_once(scenario: Scenario) -> None:
    """UPD-5: no text of the assistant appears twice, in whatever pieces it came."""
    stored = [item for item in items_in(scenario) if item["type"] == "agentMessage" and item["text"]]
    said = {item["id"]: item["text"] for item in stored if not item["id"].startswith("item-")}
    for item in view(live_updates(scenario)).items("agent"):
        assert item.text == said.get(item.item_id, item.text)
    shown = Counter(item.text for item in view(scenario.replayed()).items("agent"))
    assert shown <= Counter(item.text for item in view(live_updates(scenario)).items("agent"))


def test_every_prompt_is_shown_once_with_its_id(scenario: Scenario) -> None:
    """PROMPT-4, PROMPT-7, REPLAY-3: live and replayed, in the order of insertion."""
    found = scenario.ids()
    inserted = [message_id for message_id in scenario.prompts if message_id in found]
    assert [item.item_id for item in view(live_updates(scenario)).items("user")] == inserted
    assert [item.item_id for item in view(scenario.replayed()).items("user")] == inserted


def test_no_call_stays_open(scenario: Scenario) -> None:
    """REPLAY-7, STOP-4: every call ends, live and replayed."""
    for shown in (live_updates(scenario), scenario.replayed()):
        for item in view(shown).items("tool_call"):
            assert item.fields["status"] in ("completed", "failed", "cancelled")


def test_a_call_is_named_at_once_and_runs_before_it_ends(scenario: Scenario) -> None:
    """TOOL-1, TOOL-2, TOOL-10: the first report creates it with title and name; pending only while it is asked about."""
    reports: dict[str, list[Json]] = {}
    for update in map(dump, live_updates(scenario)):
        if update["sessionUpdate"] == "tool_call_update":
            reports.setdefault(update["toolCallId"], []).append(update)
    for first, *later in reports.values():
        assert (first["status"], bool(first["title"]), bool(first["name"])) == ("in_progress", True, True)
        assert all(report.get("status") not in ("completed", "failed", "cancelled") for report in later[:-1])


def test_updates_are_well_formed(scenario: Scenario) -> None:
    """UPD-7, UPD-1, UPD-4: everything sent is valid by the published schema, and survives the wire."""
    for update in [*live_updates(scenario), *scenario.replayed()]:
        params = {"sessionId": "s", "update": dump(update)}
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        validate_agent_message(message)
        assert decode(encode(message).rstrip(b"\n")) == message


def test_notices_and_usage_are_live_only(scenario: Scenario) -> None:
    """NOTE-2: no notice and no usage is replayed."""
    replayed = view(scenario.replayed())
    assert (replayed.notices, replayed.usage) == ([], {})


# --- legacy threads ----------------------------------------------------------------------------------------------------


def test_a_legacy_history_has_no_commands() -> None:
    """Codex stores them in a paginated one only: a replay of a thread that an older Codex made lacks them (0.163.0)."""
    scenario = load("legacy")
    calls = [
        [call.fields["name"] for call in view(u).items("tool_call")]
        for u in (live_updates(scenario), scenario.replayed())
    ]
    assert set(calls[0]) == {"exec_command", "view_image", "apply_patch"}
    assert calls[1] == ["apply_patch"] * 3


def test_messages_of_a_legacy_thread_keep_their_ids_in_the_process_that_showed_them() -> None:
    """REPLAY-3: Codex numbers them anew when it reads the file; by turn and kind they are the same."""
    lived = live("legacy")
    shown = {item.item_id: item.text for item in view(lived.updates).items("agent")}
    for item in view(lived.scenario.replayed(lived.shown_ids)).items("agent"):
        assert shown[item.item_id] == item.text
    assert {item.item_id for item in view(lived.scenario.replayed()).items("agent")}.isdisjoint(shown)


def test_thoughts_of_a_legacy_thread_keep_their_ids_in_the_process_that_showed_them() -> None:
    """REPLAY-3."""
    lived = live("legacy")
    shown = {item.item_id: item.text for item in view(lived.updates).items("thought")}
    for item in view(lived.scenario.replayed(lived.shown_ids)).items("thought"):
        assert shown[item.item_id] == item.text


@pytest.mark.xfail(reason="a legacy history joins the texts of a prompt; ours are not read apart again")
def test_blocks_of_a_prompt_in_a_legacy_thread_come_back_as_they_were_sent() -> None:
    """PROMPT-20, REPLAY-3."""
    scenario = load("legacy")
    sent = [item.fields["content"] for item in view(live_updates(scenario)).items("user")]
    assert [item.fields["content"] for item in view(scenario.replayed()).items("user")] == sent


# --- the thread's file ---------------------------------------------------------------------------------------------------


def ids_in_file(scenario: Scenario) -> list[str]:
    """The host's ids in the thread's file, by a reader of its own."""
    found: list[str] = []
    for entry in json_lines(scenario.rollout):
        payload = entry["payload"]
        item = payload["item"] if payload.get("type") == "item_completed" else payload
        if item.get("type") in ("UserMessage", "user_message") and item.get("client_id"):
            found.append(item["client_id"])
    return found


def test_the_file_holds_what_was_inserted(scenario: Scenario) -> None:
    """PROMPT-2: what `item/completed` says is in the file. A fork's holds its own turns only: never read it as the record."""
    found = ids_in_file(scenario)
    assert len(found) == len(set(found))
    if scenario.name == "fork":
        assert set(found) < scenario.ids()
        assert len(found) == 1
    else:
        assert set(found) == scenario.ids()


def test_the_end_of_the_file_shows_what_was_just_stored(scenario: Scenario) -> None:
    """What `History.is_in_file` looks for stands in the files of both kinds of threads."""
    history = History(scenario.thread, Path("nowhere"), path=str(scenario.rollout))
    for message_id in scenario.prompts:
        assert anyio.run(history.is_in_file, message_id) is (message_id in ids_in_file(scenario))


# --- what the scenarios show -------------------------------------------------------------------------------------------


CHUNKS = ("agent_message_chunk", "agent_thought_chunk")


def shown(name: str, kind: str) -> list[str]:
    return [item.text for item in view(load(name).replayed()).items(kind)]


def test_blocks_of_a_prompt_come_back_as_they_were_sent() -> None:
    """PROMPT-20, REPLAY-3: links, embedded resources, images, and text that looks like our markup."""
    _, blocks, odd = view(load("text").replayed()).items("user")
    assert [block["type"] for block in blocks.fields["content"]] == [
        *("text", "resource_link", "resource", "resource", "image", "text", "text"),
    ]
    assert blocks.fields["content"][5]["text"] == '<resource_link name="typed" uri="by:hand"/>'
    assert odd.text == "odd \U0001f600 \u2028 characters"


def test_steered_prompts_take_their_place() -> None:
    """PROMPT-16, PROMPT-19: after the tool they waited for; what they cut short is taken back."""
    assert shown("steer", "user") == [
        "run slowly",
        "and also",
        "answer slowly",
        "cut in",
        "think slowly",
        "think otherwise",
    ]
    lived = view(live("steer").updates)
    assert [item.text for item in lived.items("agent") if item.text] == shown("steer", "agent")
    chunks = [update for update in map(dump, live("steer").updates) if update["sessionUpdate"] in CHUNKS]
    begun = [update["content"]["text"] for update in chunks]
    assert "A sl" in begun
    assert "ow t" in begun
    assert [item.text for item in lived.items("thought") if item.text] == shown("steer", "thought") == []


def test_thoughts_are_summaries_or_raw() -> None:
    """PROMPT-6: thoughts are messages of their own."""
    assert shown("reasoning", "thought") == [
        *(
            "Let me think.",
            "Done thinking.",
            "Raw thoughts first.\n\nAnd more.",
            "**A summary** of it.\n\nIn two parts.",
        ),
    ]
    ids = [{item.item_id for item in view(load("reasoning").replayed()).items(kind)} for kind in ("thought", "agent")]
    assert ids[0].isdisjoint(ids[1])


def test_tools_have_names_kinds_titles_and_places() -> None:
    """TOOL-2, TOOL-5, TOOL-7: what the client's icons and links are made of."""
    calls = [item.fields for item in view(load("tools").replayed()).items("tool_call")]
    assert [(call["name"], call["kind"], call["status"], call["title"].split("\n")[0][:16]) for call in calls] == [
        ("exec_command", "read", "completed", "cat f.txt"),
        ("exec_command", "execute", "completed", "ls *.txt | head "),
        ("exec_command", "execute", "failed", "printf 'out\\n'; "),
        ("exec_command", "execute", "completed", "true"),
        ("exec_command", "execute", "completed", "for i in 1 2 3; "),
        ("exec_command", "execute", "completed", "pwd"),
        ("apply_patch", "edit", "completed", "Edit f.txt"),
        ("apply_patch", "edit", "completed", "Edit new é.txt, "),
        ("apply_patch", "move", "completed", "Move f.txt to g."),
        ("view_image", "read", "completed", "Look at p.png"),
        ("exec_command", "execute", "completed", calls[10]["title"]),
        ("exec_command", "execute", "completed", calls[11]["title"]),
    ]
    assert {calls[10]["title"], calls[11]["title"]} == {"echo one", "echo two"}
    assert calls[2]["rawOutput"] == {"exitCode": 3}
    places = [place["path"] for call in calls for place in call.get("locations", [])]
    assert places
    assert all(path.startswith("/fixture/project/") for path in places)


def test_output_of_a_command_is_complete_at_its_end() -> None:
    """TOOL-4, UPD-2: the deltas lack the first line here; the end replaces them."""
    name = "for i in 1 2 3"
    (call,) = [item for item in view(live("tools").updates).items("tool_call") if item.fields["title"].startswith(name)]
    assert call.fields["content"][0]["content"]["text"] == "```\nline 1\nline 2\nline 3\nno newline\n```"


def test_git_applies_the_patches(tmp_path: Path) -> None:
    """DIFF-1, DIFF-2, DIFF-3: the recorded changes, on the recorded files."""
    (tmp_path / "f.txt").write_text("a\nb\nc\n", encoding="utf-8")
    (tmp_path / "old.txt").write_text("x\n", encoding="utf-8")
    changes: list[list[tuple[str, str]]] = []
    for call in view(load("tools").replayed()).items("tool_call"):
        for content in call.fields.get("content", []):
            if content["type"] == "diff":
                patch = content["patch"]["text"].replace("/fixture/project/", "").encode()
                subprocess.run(
                    ["git", "apply", "--unidiff-zero", "-p0"], cwd=tmp_path, input=patch, check=True, timeout=30
                )
                changes.append([(change["operation"], Path(change["path"]).name) for change in content["changes"]])
    assert changes == [[("modify", "f.txt")], [("add", "new é.txt"), ("delete", "old.txt")], [("move", "g.txt")]]
    left = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert left == {"g.txt": "a\nb\nBB\nc\n", "new é.txt": "one\ntwo\n"}


def test_searches_are_tool_calls() -> None:
    titles = [item.fields["title"] for item in view(load("web_search").replayed()).items("tool_call")]
    assert titles[0] == "Search the web for agent client protocol"
    assert titles[1] == "Open https://agentclientprotocol.com/"


def test_history_before_a_compaction_is_replayed() -> None:
    """COMP-1, COMP-2, COMP-3: each compaction is one completed item, where it took place; nothing before it is lost."""
    for shown_items in (view(live("compaction").updates).items(), view(load("compaction").replayed()).items()):
        kinds = [item.kind for item in shown_items]
        assert kinds.count("compaction") == 3
        assert kinds.count("user") == 4
        assert all(item.fields["status"] == "completed" for item in shown_items if item.kind == "compaction")
    started = Counter(
        update["compactionId"]
        for update in map(dump, live("compaction").updates)
        if update["sessionUpdate"] == "compaction_update"
    )
    assert set(started.values()) == {2}  # in progress, completed


def test_subagents_do_not_speak_in_the_conversation() -> None:
    """Text and tools of a sub-agent are of its own thread; the call names the task."""
    lived = view(live("subagent").updates)
    assert [item.text for item in lived.items("agent")] == ["Delegated.", "Hello."]
    (call,) = lived.items("tool_call")
    assert call.fields["title"] == "Start an agent: do the sub job"
    children = [child for item in items_in(load("subagent")) for child in signals.children_of(item)]
    assert set(children) == {
        thread for m in load("subagent").got if (thread := signals.thread_of(m.get("params", {})))
    } - {load("subagent").thread}


def test_a_plan_that_is_proposed_is_a_message_and_a_new_name_is_told() -> None:
    """PLAN-1, INFO-1: text with a plan in it is no list of entries; it is shown as the text it is."""
    lived = view(live("question").updates)
    assert [item.text for item in lived.items("agent")] == ["Chosen.", "This is it.\n", "# Plan\n\n- one\n- two\n"]
    assert lived.info["title"] == "Questions and plans"


def test_a_command_that_runs_on_ends_when_it_ends() -> None:
    """TOOL-10: the turn is over, its command is not; the end comes late and is shown."""
    lived = live("background")
    reports = [update for update in map(dump, lived.updates) if update["sessionUpdate"] == "tool_call_update"]
    assert reports[-1]["status"] == "completed"
    assert "late" in str(reports[-1]["content"])
    assert [event.stop_reason for event in lived.of(WorkEnded)] == ["end_turn", "end_turn"]


def test_the_usage_is_that_of_the_last_call() -> None:
    """USAGE-1: whole numbers, the size that Codex reports, none while it is unknown."""
    usages = [update for update in map(dump, live("compaction").updates) if update["sessionUpdate"] == "usage_update"]
    assert {usage["size"] for usage in usages} == {258_400}
    assert usages[0]["used"] == 15
    assert max(usage["used"] for usage in usages) == 300_005
    assert usages[-1]["used"] == 15


def test_retries_are_notices_and_warnings_are_told_once() -> None:
    """NOTE-1, STOP-6: extra to what the work says of its end; a model that Codex does not know is no news every turn."""
    notices = [update["title"] for update in map(dump, live("retry").updates) if update["sessionUpdate"] == "notice"]
    assert sum("metadata" in title for title in notices) == 1
    assert [title for title in notices if "metadata" not in title] == ["Reconnecting... 1/1"]  # three times the same
    assert live("retry").of(WorkEnded)[0].stop_reason == "end_turn"


# --- questions -----------------------------------------------------------------------------------------------------------


TITLES = {
    "approvals": [
        *("Run echo asked", "Run echo refused", "Run echo for the session", "Run echo stopped", "Run touch always"),
        *("Run echo asked",),
    ],
    "file_approvals": ["Change f.txt", "Change f.txt"],
    "question": ["Which colour?"],
}


@pytest.mark.parametrize("name", ["approvals", "file_approvals", "mcp", "question"])
def test_a_question_is_shown_and_what_was_answered_is_a_choice(name: str) -> None:
    """PERM-1, PERM-2, PERM-7: a title, the running call, and every answer that the real Codex took."""
    asked = live(name).asks
    assert len(asked) == len(TITLES.get(name, asked))
    for number, (ask, answer) in enumerate(asked):
        assert isinstance(ask, questions.Ask)
        assert name not in TITLES or ask.title == TITLES[name][number]
        assert json.loads(json.dumps(answer)) in [json.loads(json.dumps(choice)) for choice in ask.answers.values()]
        assert bool(ask.item_id) == (name != "question")


def test_a_call_waits_while_it_is_asked_about() -> None:
    """TOOL-10, PERM-1: pending, then in progress when it was approved, failed when it was not."""
    reports: dict[str, list[str]] = {}
    for update in map(dump, live("approvals").updates):
        if update["sessionUpdate"] == "tool_call_update" and "status" in update:
            reports.setdefault(update["toolCallId"], []).append(update["status"])
    assert list(reports.values()) == [
        ["in_progress", "pending", "in_progress", "completed"],
        ["in_progress", "pending", "failed"],
        ["in_progress", "pending", "in_progress", "completed"],
        ["in_progress", "completed"],  # accepted for the session
        ["in_progress", "pending", "failed"],
        ["in_progress", "pending", "in_progress", "completed"],
        ["in_progress", "pending", "in_progress", "completed"],
        ["in_progress", "pending", "cancelled"],
    ]
