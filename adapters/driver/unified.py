"""Two texts as unified hunks. Exact: lines that differ only in how they end are different lines. Pure."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

Block = tuple[int, int, int, int]
"""Lines that differ: from and to in the old text, from and to in the new one, 0-based, each end excluded."""

_CONTEXT: Final = 3
_MOST: Final = 2000
"""Lines that are compared with each other; longer stretches count as different, all of them."""

NO_NEWLINE: Final = "\\ No newline at end of file"


def lines_of(text: str) -> list[str]:
    r"""The lines with their ends; only `\n` ends a line."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def blocks_between(old: Sequence[str], new: Sequence[str]) -> list[Block]:
    """Where two texts differ, by their lines."""
    start, ends = 0, [len(old), len(new)]
    while start < min(ends) and old[start] == new[start]:
        start += 1
    while min(ends) > start and old[ends[0] - 1] == new[ends[1] - 1]:
        ends = [ends[0] - 1, ends[1] - 1]
    if max(ends) - start > _MOST:
        return [(start, ends[0], start, ends[1])]
    compared = SequenceMatcher(None, old[start : ends[0]], new[start : ends[1]])
    return [
        (start + a, start + b, start + c, start + d) for kind, a, b, c, d in compared.get_opcodes() if kind != "equal"
    ]


def hunks_of(old: Sequence[str], new: Sequence[str], blocks: Sequence[Block]) -> str:
    """The hunks, from the first `@@` on; empty when nothing differs. Between blocks the texts have the same number of lines."""
    return "\n".join(line for group in _groups(_exact(old, new, blocks)) for line in _hunk(old, new, group))


def _exact(old: Sequence[str], new: Sequence[str], blocks: Sequence[Block]) -> list[Block]:
    """The blocks, with the lines between them that differ after all, and without those at their start that do not."""
    exact: list[Block] = []

    def add(a: int, b: int, c: int, d: int) -> None:
        if exact and exact[-1][1] == a and exact[-1][3] == c:
            a, _, c, _ = exact.pop()
        exact.append((a, b, c, d))

    i = j = 0
    for a, b, c, d in (*blocks, (len(old), len(old), len(new), len(new))):
        for k in range(a - i):
            if old[i + k] != new[j + k]:
                add(i + k, i + k + 1, j + k, j + k + 1)
        i, j = b, d
        same = 0
        while a + same < b and c + same < d and old[a + same] == new[c + same]:
            same += 1
        if (a + same, c + same) != (b, d):
            add(a + same, b, c + same, d)
    return exact


def _groups(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks whose context touches."""
    group: list[Block] = []
    for block in blocks:
        if group and block[0] - group[-1][1] > 2 * _CONTEXT:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _hunk(old: Sequence[str], new: Sequence[str], group: Sequence[Block]) -> Iterator[str]:
    before = min(_CONTEXT, group[0][0])
    after = min(_CONTEXT, len(old) - group[-1][1])
    spans = (
        _span(group[0][0] - before, group[-1][1] + after),
        _span(group[0][2] - before, group[-1][3] + after),
    )
    yield f"@@ -{spans[0]} +{spans[1]} @@"
    at = group[0][0] - before
    for a, b, c, d in group:
        yield from _marked(" ", old[at:a])
        yield from _marked("-", old[a:b])
        yield from _marked("+", new[c:d])
        at = b
    yield from _marked(" ", old[at : at + after])


def _span(start: int, end: int) -> str:
    return f"{start + (end > start)},{end - start}"  # git counts an empty side from the line before it


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield NO_NEWLINE
