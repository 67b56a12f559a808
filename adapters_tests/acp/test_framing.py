"""framing.py: bytes to lines, lines to values, values to lines."""

import json
import math
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.acp.errors import ParseError
from adapters.acp.framing import MAX_DEPTH, MAX_LINE, LineDecoder, LineTooLong, decode, encode


def lines_of(data: bytes, max_line: int = MAX_LINE, cuts: list[int] | None = None) -> list[bytes | LineTooLong]:
    decoder = LineDecoder(max_line)
    edges = [0, *sorted(cuts or []), len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges)]
    return [line for piece in pieces for line in decoder.feed(piece)] + decoder.finish()


# --- lines -----------------------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=300)
def test_any_split_gives_the_same_lines(data: st.DataObject) -> None:
    """STDIO-1: where the reads end changes nothing."""
    alphabet = st.sampled_from(
        [b"a", b"\n", b"\r", b" ", b"\t", b"{", b"\xe2\x80\xa8", b"\xff", b"\xef\xbb\xbf", b"long" * 5]
    )
    stream = b"".join(data.draw(st.lists(alphabet, max_size=40)))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    max_line = data.draw(st.sampled_from([3, 20, MAX_LINE]))
    assert lines_of(stream, max_line, cuts) == lines_of(stream, max_line)


@given(st.lists(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)), st.data())
def test_any_split_gives_the_same_messages(values: list[object], data: st.DataObject) -> None:
    """STDIO-1: what was encoded comes back, in order."""
    stream = b"".join(encode({"value": value}) for value in values)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    assert [decode(line)["value"] for line in lines_of(stream, cuts=cuts) if isinstance(line, bytes)] == values


def test_crlf_white_space_and_blank_lines_are_dropped() -> None:
    """STDIO-3."""
    assert lines_of(b"\n\r\n  \t\n {}\r\n\t[] \n") == [b"{}", b"[]"]


def test_a_byte_order_mark_is_dropped() -> None:
    """STDIO-3: the SDK trims it too."""
    assert lines_of(b"\xef\xbb\xbf{}\n\xef\xbb\xbf\n") == [b"{}"]


def test_only_a_newline_ends_a_line() -> None:
    """STDIO-1: U+2028, U+2029, U+0085, form feed and a lone carriage return are content."""
    text = '{"a":"\u2028\u2029\u0085"}\f\v\r{}'.encode()
    assert lines_of(text + b"\n") == [text]


def test_an_unterminated_last_line_is_a_line() -> None:
    """STDIO-4."""
    assert lines_of(b"{}\n[1]") == [b"{}", b"[1]"]
    assert lines_of(b"{}\n  ") == [b"{}"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_bound_counts_the_line_without_its_end(end: bytes) -> None:
    """STDIO-5."""
    assert lines_of(b"12345" + end, 5) == [b"12345"]
    assert lines_of(b"123456" + end, 5) == [LineTooLong(6)]


def test_a_line_over_the_bound_costs_only_itself() -> None:
    """STDIO-5: its bytes are not kept, and the next line is read as usual."""
    decoder = LineDecoder(10)
    assert decoder.feed(b"1\n" + b"x" * 8) == [b"1"]
    for _ in range(100):
        assert decoder.feed(b"x" * 1000) == []
        assert sum(map(len, decoder._pieces)) <= 11
    assert decoder.feed(b"x\n2\n") == [LineTooLong(100_009), b"2"]


def test_a_line_over_the_bound_at_the_end_of_input_is_reported() -> None:
    assert lines_of(b"x" * 11, 10) == [LineTooLong(11)]


def test_a_40_mib_line_in_64_kib_pieces_takes_linear_time() -> None:
    """STDIO-5: ten times the line takes about ten times as long, not a hundred times."""

    def seconds(mebibytes: int) -> float:
        piece = b"x" * 65536
        decoder = LineDecoder()
        start = time.process_time()
        for _ in range(mebibytes * 16):
            decoder.feed(piece)
        (line,) = decoder.feed(b"\n")
        assert len(line) == mebibytes << 20
        return time.process_time() - start

    small = min(seconds(4) for _ in range(3))
    assert seconds(40) < 40 * small + 0.2


def test_many_short_lines_in_one_piece_take_linear_time() -> None:
    decoder = LineDecoder()
    start = time.process_time()
    assert len(decoder.feed(b"{}\n" * 200_000)) == 200_000
    assert time.process_time() - start < 2


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"garbage",
        b"{'a':1}",
        b'{"a":1}{"b":2}',
        b"[1,]",
        b'"\n"',
        b'"\x00"',
        b"01",
        b"\xff\xfe{}",
        b'"\xed\xa0\x80"',
        b'"\xc3"',
        b"NaN",
        b'{"a":Infinity}',
        b"[-Infinity]",
        b'"\\x"',
    ],
)
def test_what_is_not_json_is_a_parse_error(line: bytes) -> None:
    """STDIO-6: also bad UTF-8, encoded surrogates, NaN and Infinity."""
    with pytest.raises(ParseError) as raised:
        decode(line)
    assert raised.value.code == -32700
    assert raised.value.data is None


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 100_000])
def test_deep_nesting_is_a_parse_error(opening: str, closing: str, depth: int) -> None:
    """STDIO-6: and not the end of the process."""
    with pytest.raises(ParseError, match="nested"):
        decode((opening * depth + "1" + closing * depth).encode())


def test_nesting_up_to_the_bound_can_be_read_and_written() -> None:
    value = decode(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert decode(encode({"value": value[0]}))["value"] == value[0]


def test_many_brackets_are_not_deep() -> None:
    """A large flat message and code in a text are both read."""
    flat = {"list": [{} for _ in range(1000)], "text": "{[" * 1000}
    assert decode(json.dumps(flat).encode()) == flat


def test_lone_surrogates_pass_both_ways() -> None:
    """E16: what JSON can say is read, and written in a form that is UTF-8."""
    assert decode(b'"\\ud800 \\udc00"') == "\ud800 \udc00"
    assert encode({"a": "\ud800"}) == b'{"a":"\\ud800"}\n'


def test_escaped_pairs_and_raw_characters_are_the_same() -> None:
    """E15."""
    assert decode(b'"\\ud83d\\ude00"') == decode('"\U0001f600"'.encode()) == "\U0001f600"


def test_separators_of_other_programs_are_escaped() -> None:
    """STDIO-1: no reader that splits at U+2028 or U+0085 cuts our lines."""
    line = encode({"a": "x\n\r\u2028\u2029\u0085\f\x00"})
    assert len(line.decode().splitlines()) == 1
    assert line.isascii()
    assert decode(line) == {"a": "x\n\r\u2028\u2029\u0085\f\x00"}


def test_integers_are_exact() -> None:
    """MAL-3."""
    assert decode(b"9007199254740993") == 9007199254740993
    assert decode(b"123456789012345678901234567890") == 123456789012345678901234567890
    assert type(decode(b"1.0")) is float


def test_an_endless_integer_is_read_in_linear_time() -> None:
    """MAL-3: CPython refuses to convert more than 4300 digits; such a number must not cost the message."""
    start = time.process_time()
    value = decode(b'{"a":' + b"7" * 1_000_000 + b',"b":123456789012345678901}')
    assert time.process_time() - start < 2
    assert value == {"a": math.inf, "b": 123456789012345678901}


def test_numbers_that_json_lacks_are_written_as_null() -> None:
    """RFC 8259: 1e999 is read as infinite; it must not make our output invalid."""
    value = decode(b'{"a":[1e999,{"b":-1e999}],"c":1.5}')
    assert encode({"x": value, "nan": math.nan, "t": (math.inf, 1)}) == (
        b'{"x":{"a":[null,{"b":null}],"c":1.5},"nan":null,"t":[null,1]}\n'
    )


def test_the_last_of_duplicate_members_wins() -> None:
    """E42."""
    assert decode(b'{"idempotencyKey":"a","idempotencyKey":"b"}') == {"idempotencyKey": "b"}


def test_what_json_cannot_say_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        encode({"a": object()})


def test_a_cycle_is_an_error_not_a_hang() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises((ValueError, RecursionError)):
        encode({"a": cycle})
