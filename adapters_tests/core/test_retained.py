"""The fold of the running work: whatever the updates, folded and replayed they give the same view."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapters.client.view import SessionView
from adapters.core.retained import Tail

TEXT = st.builds(lambda text: {"type": "text", "text": text}, st.text(max_size=5))
LINK = st.just({"type": "resource_link", "name": "n", "uri": "file:///n"})
BLOCK = TEXT | LINK
IDS = st.sampled_from(["a", "b"])
UPDATE: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(
        lambda kind, name, block: {"sessionUpdate": kind + "_chunk", "messageId": name, "content": block},
        st.sampled_from(["user_message", "agent_message", "agent_thought"]),
        IDS,
        BLOCK,
    ),
    st.builds(
        lambda kind, name, blocks: {"sessionUpdate": kind, "messageId": name, "content": blocks},
        st.sampled_from(["user_message", "agent_message", "agent_thought"]),
        IDS,
        st.lists(BLOCK, max_size=3),
    ),
    st.builds(
        lambda name, fields: {"sessionUpdate": "tool_call_update", "toolCallId": name, **fields},
        IDS,
        st.fixed_dictionaries(
            {},
            optional={
                "title": st.text(max_size=3),
                "status": st.sampled_from(["pending", "completed", None]),
                "content": st.lists(st.builds(lambda b: {"type": "content", "content": b}, TEXT), max_size=2)
                | st.none(),
                "rawInput": st.just({"x": 1}),
            },
        ),
    ),
    st.builds(
        lambda name, block: {
            "sessionUpdate": "tool_call_content_chunk",
            "toolCallId": name,
            "content": {"type": "content", "content": block},
        },
        IDS,
        TEXT,
    ),
)


@given(st.lists(UPDATE, max_size=30))
def test_the_fold_gives_the_view_that_the_updates_gave(updates: list[dict[str, Any]]) -> None:
    """REPLAY-12, UPD-2."""
    tail = Tail()
    for update in updates:
        tail.add(update)
    folded = list(tail.updates())
    live = SessionView.of(updates).snapshot()
    assert SessionView.of(folded).snapshot() == live
    assert SessionView.of([*updates, *folded]).snapshot() == live
    tail.clear()
    assert list(tail.updates()) == []


def test_a_long_stream_costs_its_text_and_not_its_square() -> None:
    """Memory and time follow the text: pieces are joined when somebody asks."""
    tail = Tail()
    for _ in range(100_000):
        block = {"type": "text", "text": "0123456789"}
        tail.add({"sessionUpdate": "agent_message_chunk", "messageId": "a", "content": block})
    (folded,) = tail.updates()
    assert folded["content"] == [{"type": "text", "text": "0123456789" * 100_000}]
