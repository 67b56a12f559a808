"""The runtime's own texts: what is recognised, and that no text of a tool or user makes recognising slow."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.claude.stored import cli_texts, content
from adapters.driver.tool_text import fenced

TAG = "<local-command-stdout>"
END = "</local-command-stdout>"


@pytest.mark.parametrize(
    ("content", "output"),
    [
        (f"{TAG}out{END}", "out"),
        (f" {TAG} out \n{END}\n", "out"),
        (f"{TAG}{END}", ""),
        (f"{TAG}(no content){END}", ""),
        (f"{TAG}\x1b[1;31mred\x1b[0m \x1b]8;;x\x07link\x1b]8;;\x07{END}", "red link"),
        (f"{TAG}a {END} in it{END}", "a\nin it"),
        ("<bash-stdout>a</bash-stdout><bash-stderr>b</bash-stderr>", "a\nb"),
        ([{"type": "text", "text": f"{TAG}out{END}"}], "out"),
        ([{"type": "text", "text": f"{TAG}out{END}"}, {"type": "text", "text": "x"}], None),
        (f"{TAG}out", None),
        (f"say {TAG}out{END}", None),
        (f"{TAG}out{END} said", None),
        (f"{END}out{END}", None),
        ("", None),
        (None, None),
        (5, None),
        ([5], None),
    ],
)
def test_output_of_commands(content: object, output: str | None) -> None:
    assert cli_texts.command_output(content) == output


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\n\n<system-reminder>x</system-reminder>\n", "a"),
        ("  a\n<system-reminder>x</system-reminder>\n\n  b ", "  a\nb "),
        ("<system-reminder>x</system-reminder>", ""),
        ("<system-reminder>never closed", "<system-reminder>never closed"),
        ("closed </system-reminder> only", "closed </system-reminder> only"),
        ("<tools-used-before-summary>Bash</tools-used-before-summary>\nreport", "report"),
        ("plain", "plain"),
    ],
)
def test_notes_for_the_model(text: str, left: str) -> None:
    assert cli_texts.without_notes(text) == left


@given(st.lists(st.sampled_from(["<system-reminder>", "</system-reminder>", "a", " ", "\n"]), max_size=12).map("".join))
def test_text_without_notes_is_left_alone(text: str) -> None:
    """Only closed notes go; every other character that is no white space stays, in order."""
    left = cli_texts.without_notes(text)
    assert cli_texts.without_notes(left) == left
    if "</system-reminder>" not in text:
        assert left == text


@pytest.mark.parametrize(
    "text",
    [
        "<system-reminder>" * 60_000,
        "<system-reminder></system-reminder>" * 30_000,
        f"{TAG}{END}" * 20_000 + "x",
        f"{TAG}a" * 20_000 + END,
        " " * 1_000_000,
        "<command-name>/x</command-name>\n<command-message>x</command-message><command-args>"
        + "</command-args> " * 50_000
        + "x",
        "<command-name>" * 60_000,
        "<resource " + "a " * 30_000,
        "<resource uri=" + '{"a":' * 20_000,
        "<image x>\n" * 50_000,
        "\\" * 1_000_000 + "<",
        "`" * 1_000_000,
        "\x1b[" * 400_000,
    ],
)
def test_no_text_makes_it_slow(text: str) -> None:
    """A megabyte of anything is looked through in well under a second: the work is linear."""
    began = time.process_time()
    cli_texts.command_output(text)
    cli_texts.command_output(f"{TAG}{text}{END}")
    cli_texts.without_notes(text)
    cli_texts.is_hidden(text)
    cli_texts.bash_input(text)
    cli_texts.summary_text(text)
    content.unescape(content.escape(text))
    cli_texts.typed_command(text)
    fenced(text)
    assert time.process_time() - began < 5
