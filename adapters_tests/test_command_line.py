"""The grammar of the command line: what is understood, what is refused and how."""

import pytest

from adapters.command_line import Command, Grammar, Invocation, Option, UsageError

SERVE = Command(
    "serve", "serve a thing", "More text.", (Option("--from", "where from", "FILE"), Option("--fast", "hurry"))
)
SHOW = Command("show", "show a thing", takes_runtime=True)
TRY = Command("try", "try a command", options=(Option("--only", "only this", "NAME", many=True),), takes_rest=True)
GRAMMAR = Grammar("A summary.", (SERVE, SHOW, TRY), ("one", "two"), "A footer.")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--version"], Invocation("version")),
        (["-V"], Invocation("version")),
        (["--help"], Invocation("help")),
        (["-h"], Invocation("help")),
        (["serve", "--help"], Invocation("help", topic=SERVE)),
        (["serve", "--fast", "-h"], Invocation("help", topic=SERVE)),
        (["serve"], Invocation("serve")),
        (["serve", "--from", "a b"], Invocation("serve", options={"from": "a b"})),
        (["serve", "--from=a=b", "--fast"], Invocation("serve", options={"from": "a=b", "fast": ""})),
        (["serve", "--from", "--fast"], Invocation("serve", options={"from": "--fast"})),
        (["show"], Invocation("show")),
        (["show", "two"], Invocation("show", "two")),
        (["try", "--", "a", "--help", "--", "b"], Invocation("try", rest=("a", "--help", "--", "b"))),
        (["try", "--only", "a", "--only=b", "--", "c"], Invocation("try", options={"only": "a,b"}, rest=("c",))),
        (["try"], Invocation("try")),
    ],
)
def test_arguments_are_understood(arguments: list[str], expected: Invocation) -> None:
    assert GRAMMAR.parse(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], "no command given: choose serve, show or try"),
        (["sreve"], "unknown command 'sreve': choose serve, show or try"),
        (["try", "a"], "write the command after --: acp-adapters try [OPTIONS] -- a ..."),
        (["show", "--"], "unknown option '--' of show"),
        (["--fast"], "unknown option '--fast'"),
        (["serve", "--slow"], "unknown option '--slow' of serve"),
        (["serve", "-x=1"], "unknown option '-x' of serve"),
        (["serve", "one"], "serve takes no argument 'one'"),
        (["serve", "--fast=1"], "--fast takes no value"),
        (["serve", "--from"], "--from needs a value: --from FILE"),
        (["serve", "--from="], "--from needs a value: --from FILE"),
        (["show", "three"], "unknown runtime 'three': choose one or two"),
        (["show", "one", "two"], "show takes no argument 'two'"),
        (["a\nb"], r"unknown command 'a\nb'"),
    ],
)
def test_what_makes_no_sense_is_named_in_one_line(arguments: list[str], names: str) -> None:
    with pytest.raises(UsageError) as caught:
        GRAMMAR.parse(arguments)
    assert names in str(caught.value)
    assert "\n" not in str(caught.value)


def test_help_lists_every_command_with_its_sentence() -> None:
    text = GRAMMAR.help()
    for part in ("A summary.", "serve", "serve a thing", "show a thing", "--version", "--help", "A footer."):
        assert part in text


def test_help_of_a_command_lists_its_options_and_runtimes() -> None:
    assert GRAMMAR.help(SERVE).splitlines() == [
        "usage: acp-adapters serve [--from FILE] [--fast]",
        "",
        "Serve a thing.",
        "",
        "More text.",
        "",
        "  --from FILE  where from",
        "  --fast       hurry",
    ]
    assert GRAMMAR.help(SHOW).splitlines()[0] == "usage: acp-adapters show [one|two]"
