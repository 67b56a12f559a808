"""Counting: what makes a call the model's second answer to a prompt, and what does not (KEY-10 tests rely on it)."""

from dataclasses import replace

from adapters.scripted.calls import Asked, CallLog, holds


def asked(
    *prompts: str, fresh: int = 1, step: int = 0, session: str | None = "S", agent: str | None = None, **other: bool
) -> Asked:
    steps = (0,) * (len(prompts) - 1) + (step,)
    return Asked(session, agent, prompts, 0 if step else fresh, steps, (False,) * len(prompts), **other)


def log(*requests: Asked) -> CallLog:
    found = CallLog()
    for request in requests:
        found.end(found.add(request, None, 0, {}), "answered")
    return found


def test_later_steps_and_later_prompts_do_not_count_again() -> None:
    counted = log(asked("a"), asked("a", step=1), asked("a", "b"))
    assert counted.prompts_seen() == ["a", "b"]


def test_the_same_conversation_asked_again_counts() -> None:
    assert log(asked("a"), asked("a")).calls("a") == 2


def test_prompts_with_ids_are_known_at_another_place_and_apart_from_their_like() -> None:
    first, cut = replace(asked("gone", "a"), ids=("1", "2")), replace(asked("a", "a", fresh=2), ids=("2", "3"))
    assert log(first, cut).prompts_seen() == ["a", "a"]
    assert log(first, replace(cut, ids=("4", "3"))).prompts_seen() == ["a", "a", "a"]


def test_a_prompt_inserted_twice_counts_twice() -> None:
    counted = log(asked("a"), asked("a", "a"))
    assert counted.calls("a") == 2
    assert counted.in_conversation("a") == 2


def test_an_unanswered_prompt_that_comes_along_with_the_next_counts_once() -> None:
    counted = log(asked("a"), asked("a", "b", fresh=2))
    assert counted.prompts_seen() == ["a", "b"]


def test_two_prompts_new_in_one_call_count_both() -> None:
    assert log(asked("a", "b", fresh=2)).prompts_seen() == ["a", "b"]


def test_joined_prompts_count_by_their_lines() -> None:
    counted = log(asked("a\nb\nc"))
    assert [counted.calls(text) for text in ("a", "b\nc", "a\nc", "d")] == [1, 1, 0, 0]


def test_holds_ignores_white_space_at_the_ends_and_finds_empty_prompts_only_as_such() -> None:
    assert holds("a", " a\n")
    assert holds("", " ")
    assert not holds("a\n\nb", "")


def test_compactions_do_not_count_and_are_no_conversation() -> None:
    counted = log(asked("a", "b"), asked("a", fresh=0, compaction=True))
    assert counted.prompts_seen() == ["b"]
    assert counted.in_conversation("b") == 1


def test_another_session_asks_for_itself() -> None:
    counted = log(asked("a", "b", fresh=2), asked("a", "b", fresh=2, session="T"))
    assert counted.calls("a") == 2


def test_a_subagent_is_not_the_main_conversation() -> None:
    counted = log(asked("a"), asked("sub", agent="A"))
    assert counted.calls("sub") == 1
    assert counted.in_conversation("a") == 1


def test_a_repetition_after_a_failure_is_a_retry_once() -> None:
    counted = CallLog()
    for outcome in ("failed", "failed", "answered", "answered"):
        counted.end(counted.add(asked("a"), None, 0, {}), outcome)
    assert [call.attempt for call in counted.records] == [1, 2, 3, 1]
    assert [call.retry for call in counted.records] == [False, True, True, False]
    assert counted.calls("a") == 2


def test_a_repetition_after_a_compaction_is_a_retry() -> None:
    counted = CallLog()
    counted.end(counted.add(asked("a", "b"), "b", 0, {}), "failed")
    counted.end(counted.add(asked("a", fresh=0, compaction=True), "a", 0, {}), "answered")
    again = counted.add(asked("b"), "b", 0, {})
    counted.end(again, "answered")
    assert (again.attempt, again.retry) == (2, True)
    assert counted.prompts_seen() == ["b"]
    assert counted.add(asked("b", "b"), "b", 0, {}).taken_up == ("b",)


def test_a_prompt_sent_again_after_it_failed_counts() -> None:
    counted = CallLog()
    counted.end(counted.add(asked("a"), "a", 0, {}), "failed")
    again = counted.add(asked("a", "a", fresh=2), "a", 0, {})
    assert (again.attempt, again.retry) == (2, False)
    assert counted.calls("a") == 2


def test_the_first_word_on_the_end_of_a_call_counts() -> None:
    counted = CallLog()
    call = counted.add(asked("a"), None, 0, {})
    counted.end(call, "failed")
    counted.end(call, "left")
    assert call.outcome == "failed"
    assert counted.add(asked("a"), None, 0, {}).retry


def test_an_empty_log_holds_nothing() -> None:
    assert CallLog().in_conversation("a") == 0
    assert CallLog().summary() == {"total": 0, "prompts": {}, "calls": []}
