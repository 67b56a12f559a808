"""Which entries of a file are its session's own."""

from __future__ import annotations

from typing import Any

from adapters.claude.stored.ownership import Ownership

OWN, OTHER = "own", "other"
Entry = dict[str, Any]


def entry(uuid: str, session: str | None, parent: str | None = None, **more: Any) -> Entry:
    return {"uuid": uuid, "parentUuid": parent, **({} if session is None else {"sessionId": session}), **more}


def kept(*entries: Entry) -> list[str]:
    ownership = Ownership(OWN, lambda: entries)
    return [entry["uuid"] for entry in entries if ownership.holds(entry)]


def test_what_names_another_session_is_left_out() -> None:
    """Also where it begins at an entry of ours: nothing of ours comes after it."""
    assert kept(entry("a", OWN), entry("b", OTHER), entry("c", OTHER, "a"), entry("d", None), entry("e", OWN, "a")) == [
        "a",
        "d",
        "e",
    ]


def test_what_our_own_went_on_from_belongs() -> None:
    """The model has seen it; what branches off from it has it not."""
    others = [
        entry("b", OTHER),
        entry("c", OTHER, "b"),
        entry("x", OTHER, "b"),
        entry("m", OTHER, logicalParentUuid="c"),
    ]
    assert kept(*others, entry("d", OWN, "m")) == ["b", "c", "m", "d"]


def test_a_file_under_another_name_belongs_to_that() -> None:
    assert kept(entry("a", OTHER), entry("b", OTHER, "a")) == ["a", "b"]


def test_a_circle_and_odd_values_end() -> None:
    odd: list[Any] = [entry("a", OTHER, "b"), entry("b", OTHER, "a"), {"uuid": 7, "sessionId": 8}, entry("c", OWN, "a")]
    ownership = Ownership(OWN, lambda: odd)
    assert [ownership.holds(entry) for entry in odd] == [True] * 4


def test_the_file_is_not_read_for_it_where_nothing_names_another_session() -> None:
    def unread() -> list[Entry]:
        raise AssertionError

    assert Ownership(OWN, unread).holds(entry("a", OWN))
