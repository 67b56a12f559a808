"""The judge itself: right histories pass, and each kind of wrong one is called what it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from adapters.client.record import Record
from adapters_tests.reliability.history import (
    Attempt,
    History,
    Listing,
    Look,
    Opening,
    Reply,
    Stored,
    attempts_of,
    faults_of,
    named,
)

S = "a-session"


def ok(sent: float, at: float, text: str = "one", message_id: str | None = None, **more: object) -> Attempt:
    key, connection = str(more.get("key", text)), int(str(more.get("connection", 0)))
    session = str(more.get("session", S))
    return Attempt(session, key, text, connection, sent, [Reply(at, message_id or f"id of {text}")])


def failed(sent: float, at: float, text: str = "one", connection: int = 0, inserted: bool | None = False) -> Attempt:
    return Attempt(S, text, text, connection, sent, [Reply(at, None, -32603, inserted)])


def withdrawn(sent: float, at: float, *asked: float, text: str = "one") -> Attempt:
    return Attempt(S, text, text, 0, sent, [Reply(at, None, -32800)], withdrawn=list(asked))


def lost(sent: float, text: str = "one", connection: int = 0) -> Attempt:
    return Attempt(S, text, text, connection, sent, lost=True)


def look(at: float, *texts: str, replayed: tuple[str, ...] | None = None) -> Look:
    return Look(at, S, tuple(Stored(f"id of {text}", text) for text in texts), replayed)


def right() -> History:
    """A history with everything in it that is allowed."""
    return History(
        attempts=[
            ok(1, 2),
            ok(1.5, 2),  # joined
            ok(3, 3.1),  # a retry
            lost(4, "two"),
            ok(6, 7, "two", connection=1),
            failed(8, 9, "three", connection=1),
            lost(10, "four", connection=1),
            failed(11, 12, "five", connection=1),
            ok(11.5, 13, "five", connection=1),  # waited behind the withdrawal of the first
            failed(14, 15, "one", connection=1, inserted=None),  # its look-up failed
            Attempt(S, None, "no key", 1, 16, [Reply(17, "a random id")]),
        ],
        looks=[
            look(5, "one", "own"),
            Look(
                20, S, (*look(0, "one", "own", "two", "five").stored, Stored("a random id", "no key")),
                ("id of one", "id of own", "id of two", "id of five", "a random id"),
            ),
        ],
        own=Counter({"own": 1}),
        calls={"one": 1, "two": 2, "three": 1, "five": 1},
        in_context={"one": 1, "two": 1, "three": 0, "four": 0, "five": 1, "no key": 1},
    )  # fmt: skip


def test_a_right_history_passes() -> None:
    assert faults_of(right()) == []


def test_an_empty_history_passes() -> None:
    assert faults_of(History()) == []


def stored_instead(*texts: str) -> Callable[[History], None]:
    def change(history: History) -> None:
        history.looks[-1] = look(20, *texts)
        history.attempts = [attempt for attempt in history.attempts if attempt.key is not None]

    return change


def an_answer_too_many(history: History) -> None:
    history.attempts[0].replies.append(history.attempts[0].replies[0])


def no_answer(history: History) -> None:
    history.attempts.append(Attempt(S, "six", "six", 1, 18))


def an_answer_that_says_nothing(history: History) -> None:
    history.attempts.append(Attempt(S, "six", "six", 1, 18, [Reply(19, None)]))


def two_ids(history: History) -> None:
    history.attempts[2].replies = [Reply(3.1, "another id")]


def one_id_for_two(history: History) -> None:
    """The same key in another session; what is stored there is not looked at here."""
    history.attempts.append(ok(18, 19, "elsewhere", "id of one", key="one", session="another session"))


def an_id_twice(history: History) -> None:
    history.looks[-1] = replace(history.looks[-1], stored=(*history.looks[-1].stored, Stored("id of one", "?")))


def a_double_under_two_ids(history: History) -> None:
    history.looks[-1] = replace(
        history.looks[-1], stored=(*history.looks[-1].stored, Stored("other", "two")), replayed=None
    )


def another_text_under_the_id(history: History) -> None:
    history.looks[0] = Look(5, S, (Stored("id of one", "something else"),))
    history.own["something else"] = 1


def lost_in_between(history: History) -> None:
    """There at the end, but not at the look after its answer: it was not stored when it was acknowledged."""
    history.looks[0] = look(5, "own")


def a_replay_without_a_message(history: History) -> None:
    history.looks[-1] = replace(history.looks[-1], replayed=("id of one", "id of two", "id of five", "a random id"))


def a_replay_in_another_order(history: History) -> None:
    shown = history.looks[-1].replayed or ()
    history.looks[-1] = replace(history.looks[-1], replayed=tuple(reversed(shown)))


def a_refusal_of_what_was_acknowledged(history: History) -> None:
    history.attempts.append(failed(18, 19, connection=1))


def a_refusal_of_a_second_attempt(history: History) -> None:
    history.attempts[1] = failed(1.5, 1.7)


def work_done_twice(history: History) -> None:
    history.calls = {"one": 3}  # one more is spared: an attempt of it met a store that could not be read


def seen_twice(history: History) -> None:
    history.in_context = {**(history.in_context or {}), "one": 2}


def not_seen(history: History) -> None:
    history.in_context = {**(history.in_context or {}), "one": 0}


def a_stranger(history: History) -> None:
    history.own["own"] = 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (an_answer_too_many, "was answered 2 times"),
        (no_answer, "was never answered"),
        (an_answer_that_says_nothing, "neither a message id nor an error"),
        (two_ids, "has 2 ids"),
        (one_id_for_two, "have one id"),
        (an_id_twice, "the id of 'one' is stored 2 times"),
        (a_double_under_two_ids, "'two' is stored 2 times"),
        (another_text_under_the_id, "is stored with another text"),
        (lost_in_between, "'one' was acknowledged and is not stored"),
        (stored_instead("own", "two", "five"), "'one' was acknowledged and is not stored"),
        (stored_instead("one", "own", "two", "three", "five"), "'three' has only errors"),
        (
            stored_instead("two", "own", "one", "five"),
            "'two' was sent after 'one' was acknowledged and stands before it",
        ),
        (a_replay_without_a_message, "a replay lacks ['own']"),
        (a_replay_in_another_order, "another order than the store"),
        (a_refusal_of_what_was_acknowledged, "refused as not inserted after it had been acknowledged"),
        (a_refusal_of_a_second_attempt, "the second attempt failed although the first was inserted"),
        (work_done_twice, "the model was asked 3 times for 'one'"),
        (seen_twice, "the model sees 'one' 2 times"),
        (not_seen, "the model sees 'one' 0 times"),
        (a_stranger, "'own' is stored 1 times and was sent 0 times"),
    ],
)
def test_a_wrong_history_is_called_what_it_is(change: Callable[[History], None], says: str) -> None:
    history = right()
    change(history)
    assert any(says in fault for fault in faults_of(history)), faults_of(history)


def test_prompts_in_flight_together_keep_the_order_in_which_they_were_sent() -> None:
    history = History([ok(1, 5), ok(2, 4, "two")], [look(9, "two", "one")])
    assert faults_of(history) == ["'two' was sent after 'one' and stands before it"]
    history.attempts[1].connection = 1  # two clients at once: any order
    assert faults_of(history) == []


def test_what_only_a_refused_attempt_can_have_inserted_is_out_of_order() -> None:
    """Both are acknowledged in the end, and stored once."""
    history = History([withdrawn(1, 2, 1.5), ok(3, 4, "two"), ok(5, 6)], [look(9, "one", "two")])
    assert faults_of(history) == ["'one' was sent after 'two' was acknowledged and stands before it"]
    history.attempts[0] = lost(1, connection=1)  # this one may have been inserted
    assert faults_of(history) == []


def test_attempts_that_wait_together_are_withdrawn_together() -> None:
    history = History([withdrawn(1, 4, 3), ok(2, 5)], [look(9, "one")])
    fault = "'one' on connection 0 was sent twice: one attempt was withdrawn, the other was inserted"
    assert faults_of(history) == [fault]
    history.attempts[1].withdrawn, history.attempts[0].withdrawn = [3], []  # it is all the same which one was named
    assert faults_of(history) == [fault]
    history.attempts = [ok(1, 5), withdrawn(2, 4, 3)]
    assert fault in faults_of(history)


def test_attempts_that_wait_together_are_withdrawn_at_one_time() -> None:
    """The answers stand side by side on the wire: who has heard anything else after the first one misses the second."""
    for attempts in ([withdrawn(1, 4, 3), lost(2)], [lost(1), withdrawn(2, 4, 3)]):
        history = History(attempts)
        assert faults_of(history) == []
        for attempt in attempts:
            attempt.heard = 4  # the connection was lost between the two
        assert faults_of(history) == []
        for attempt in attempts:
            attempt.heard = 5
        fault = "'one' on connection 0 was sent twice: one attempt was withdrawn, the other was left waiting"
        assert faults_of(history) == [fault]


def test_an_attempt_that_comes_behind_a_withdrawal_is_one_of_its_own() -> None:
    history = History([withdrawn(1, 4, 1.5, 3), ok(2, 5)], [look(9, "one")])
    assert faults_of(history) == []
    history = History([withdrawn(1, 4, 1.5), ok(5, 6)], [look(9, "one")])
    assert faults_of(history) == []


def test_who_came_first_is_answered_first() -> None:
    history = History([ok(1, 5), ok(2, 4)], [look(9, "one")])
    fault = "'one' on connection 0 was sent twice: the second attempt was answered, the first was left waiting"
    assert faults_of(history) == [fault]
    history.attempts[0] = withdrawn(1, 5)
    assert faults_of(history) == [fault]
    history.attempts[0] = lost(1)
    assert faults_of(history) == [fault]
    history.attempts[1].connection = 1  # nothing orders two connections
    assert faults_of(history) == []


def test_a_history_that_goes_on_may_still_be_answered() -> None:
    history = History([Attempt(S, "one", "one", 0, 1), failed(2, 3)], [look(4, "one")], calls={"one": 3}, in_context={})
    assert "'one' on connection 0 was never answered" in faults_of(history)
    assert faults_of(history, so_far=True) == []
    assert [attempt.outcome for attempt in history.attempts] == ["open", "failed"]
    history.looks.append(look(5, "one", "one"))
    assert "'one' is stored 2 times" in faults_of(history, so_far=True)


def test_a_torn_insertion_is_counted_and_not_blamed() -> None:
    history = History([lost(1), ok(2, 3, connection=1)], [look(4, "one")], in_context={"one": 2})
    assert faults_of(history) == ["the model sees 'one' 2 times"]
    history.torn["one"] = 1
    assert faults_of(history) == []


def test_a_killed_runtime_may_begin_the_work_again() -> None:
    history = History([ok(1, 2)], [look(4, "one")], calls={"one": 2})
    assert faults_of(history) == ["the model was asked 2 times for 'one'"]
    history.kills = 1
    assert faults_of(history) == []


def test_what_was_told_to_be_live_only_need_not_be_stored() -> None:
    history = History([ok(1, 2), ok(1.5, 2)], [look(3)])
    assert "'one' was acknowledged and is not stored" in faults_of(history)
    for attempt in history.attempts:
        attempt.unstored = True
    assert faults_of(history) == []
    assert [attempt.outcome for attempt in history.attempts] == ["live", "live"]


def test_what_was_told_to_be_live_only_is_stored_once_at_most() -> None:
    live = ok(1, 2)
    live.unstored = True
    history = History([live], [look(3, "one")])
    assert faults_of(history) == []
    history.looks = [look(3, "one", "one")]
    assert "'one' is stored 2 times" in faults_of(history)
    history.looks = [Look(3, S, (Stored("id of one", "other words"),))]
    assert "the id that 'one' was answered with is stored with another text" in faults_of(history)


def test_a_replay_may_show_what_is_live_only() -> None:
    live = ok(3, 4, "two")
    history = History([ok(1, 2), live], [look(5, "one", replayed=("id of one", "id of two"))])
    assert any("shows 1 unknown ids" in fault for fault in faults_of(history))
    live.unstored = True
    assert faults_of(history) == []
    history.looks = [look(5, "one", "two", replayed=("id of two", "id of one"))]
    assert any("another order" in fault for fault in faults_of(history)), "it came to be stored after all"


def test_a_replay_may_lack_what_it_says_to_be_missing() -> None:
    history = History([ok(1, 2), ok(3, 4, "two")], [look(5, "one", "two", replayed=("id of two",))])
    assert any("lacks ['one'] and tells of 0" in fault for fault in faults_of(history))
    history.looks = [replace(history.looks[0], told=1)]
    assert faults_of(history) == []
    history.looks = [replace(history.looks[0], replayed=(), told=1)]
    assert any("lacks ['one', 'two'] and tells of 1" in fault for fault in faults_of(history))
    history.looks = [replace(history.looks[0], replayed=("id of two", "id of one"), told=0)]
    assert any("another order" in fault for fault in faults_of(history))


def test_what_was_live_only_and_is_sent_again_is_promised_then() -> None:
    live = ok(1, 2)
    live.unstored = True
    history = History([live, ok(5, 6, connection=1)], [look(3), look(7, "one")], calls={"one": 2})
    assert faults_of(history) == []
    history.looks.append(look(8))
    assert faults_of(history) == ["'one' was acknowledged and is not stored"]
    history.looks.pop()
    history.calls = {"one": 3}
    assert faults_of(history) == ["the model was asked 3 times for 'one'"]
    history.calls, history.in_context = None, {"one": 2}
    assert faults_of(history) == []
    history.in_context = {"one": 3}
    assert faults_of(history) == ["the model sees 'one' 3 times"]


def test_a_session_that_holds_something_is_never_unknown() -> None:
    history = History([ok(1, 2)], [look(3, "one")], openings=[Opening(2.5, S), Opening(2.6, S, -32603)])
    assert faults_of(history) == []
    history.openings.append(Opening(1.5, S, -32002))  # before the answer: nothing was promised yet
    history.openings.append(Opening(4, "another session", -32002))
    assert faults_of(history) == []
    history.openings.append(Opening(4, S, -32002))
    assert faults_of(history) == [f"session {S} holds acknowledged messages and was said to be unknown"]


def test_a_session_that_holds_something_is_listed() -> None:
    history = History(
        [ok(1, 2), lost(1, "two")], listings=[Listing(1.5, frozenset()), Listing(3, frozenset([S, "other"]))]
    )
    assert faults_of(history) == []
    history.listings.append(Listing(4, frozenset(["other"])))
    assert faults_of(history) == [f"session {S} holds acknowledged messages and is not listed"]
    history.attempts[0].unstored = True  # nothing of it was promised to be stored
    assert faults_of(history) == []


def test_a_text_that_cannot_be_told_in_the_conversation_is_not_counted_there() -> None:
    history = History([ok(1, 2)], in_context={})
    assert faults_of(history) == []
    history.in_context = {"one": 0}
    assert faults_of(history) == ["the model sees 'one' 0 times"]


def test_an_odd_text_goes_by_its_name() -> None:
    assert named("tool_use_id[[prompt\n3]]x [[4]]") == "prompt\n3"
    assert named("[one]") == "[one]"


def test_the_notice_that_a_message_could_not_be_stored_is_read_from_the_wire() -> None:
    record = Record()

    def prompt(number: int, session: str, answer: str) -> None:
        params = {
            "sessionId": session,
            "prompt": [{"type": "text", "text": f"[[{answer}]] x"}],
            "idempotencyKey": answer,
        }
        record.add({"id": number, "method": "session/prompt", "params": params}, 1, sent=True)

    def notice(session: str, title: str = "This message could not be stored") -> None:
        update = {"sessionUpdate": "notice", "severity": "warning", "title": title}
        record.add({"method": "session/update", "params": {"sessionId": session, "update": update}}, 1, sent=False)

    for number, (session, answer) in enumerate(((S, "m1"), (S, "m2"), (S, "m2"), ("another", "m3"), (S, "m4"))):
        prompt(number, session, answer)
    notice(S)  # nothing was answered yet
    for number, answer in enumerate(("m1", "m2", "m2", "m3")):
        record.add({"id": number, "result": {"messageId": answer}}, 1, sent=False)
    notice(S)
    notice("another", "Something else")
    record.add({"id": 4, "result": {"messageId": "m4"}}, 1, sent=False)
    outcomes = [(attempt.text, attempt.outcome) for attempt in attempts_of(record.since(0), 0, ended=False)]
    assert outcomes == [("m1", "ok"), ("m2", "live"), ("m2", "live"), ("m3", "ok"), ("m4", "ok")]
    prompt(5, S, "m2")
    record.add({"id": 5, "result": {"messageId": "m2"}}, 1, sent=False)
    record.add({"id": 9, "method": "session/close", "params": {"sessionId": S}}, 1, sent=True)
    prompt(6, S, "m2")
    record.add({"id": 6, "result": {"messageId": "m2"}}, 1, sent=False)
    [*_, again, after] = attempts_of(record.since(0), 0, ended=False)
    assert (again.outcome, after.outcome) == ("live", "ok"), (
        "it is known while the session is active, and promised anew then"
    )


def test_withdrawals_are_read_from_the_wire() -> None:
    record = Record()

    def sent(method: str, **params: object) -> float:
        return record.add({"method": method, "params": params}, 1, sent=True).at

    for number, session in enumerate((S, S, "another session")):
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "-"}], "idempotencyKey": f"K{number}"}
        record.add({"id": number, "method": "session/prompt", "params": params}, 1, sent=True)
    first = sent("$/cancel_request", requestId=1)
    second = sent("session/cancel", sessionId=S)
    third = sent("session/close", sessionId="another session")
    sent("session/resume", sessionId=S)
    record.add({"method": "$/cancel_request", "params": {"requestId": 0}}, 1, sent=False)
    found = [attempt.withdrawn for attempt in attempts_of(record.since(0), 0, ended=False)]
    assert found == [[second], [first, second], [third]]


def test_attempts_are_read_from_the_wire() -> None:
    record = Record()
    began = time.monotonic()

    def sent(number: int, text: str, key: str | None) -> None:
        params = {"sessionId": S, "prompt": [{"type": "text", "text": text}], "idempotencyKey": key}
        record.add({"id": number, "method": "session/prompt", "params": params}, 1, sent=True)

    sent(1, "one", "K1")
    sent(2, "two", "K2")
    sent(3, "three", None)
    sent(4, "four", "K4")
    record.add({"id": 5, "method": "session/list", "params": {}}, 1, sent=True)
    record.add({"id": 1, "result": {"messageId": "m1"}}, 1, sent=False)
    record.add({"id": 2, "error": {"code": -32800, "message": "-", "data": {"inserted": False}}}, 1, sent=False)
    record.add({"id": 3, "error": {"code": -32603, "message": "-", "data": {"inserted": None}}}, 1, sent=False)
    record.add({"id": 5, "result": {"sessions": []}}, 1, sent=False)
    record.add({"method": "session/update", "params": {}}, 1, sent=False)
    record.add({"id": 1, "result": {"messageId": "m1"}}, 1, sent=False)
    record.add(None, 1, sent=False)
    attempts = list(attempts_of(record.since(0), 7, ended=True))
    assert [(a.session, a.key, a.text, a.connection) for a in attempts] == [
        (S, "K1", "one", 7), (S, "K2", "two", 7), (S, None, "three", 7), (S, "K4", "four", 7),
    ]  # fmt: skip
    assert [attempt.outcome for attempt in attempts] == ["ok", "failed", "unknown", "unknown"]
    assert [len(attempt.replies) for attempt in attempts] == [2, 1, 1, 0]
    assert {attempt.heard for attempt in attempts} == {[*record.since(0)][-1].at}
    assert all(began <= attempt.sent <= time.monotonic() for attempt in attempts)
    [_, _, _, open_still] = attempts_of(record.since(0), 7, ended=False)
    assert open_still.outcome == "open"
