"""Lines on stdin and stdout, and how the process ends."""

from __future__ import annotations

import json
import signal

from adapters.check.bench import Bench
from adapters.check.launch import gone
from adapters.check.link import Json, Link, show
from adapters.check.verdict import Broken, Need, NotApplicable, Rule
from adapters.client.record import Message, as_object

PATIENCE = 10.0
"""Seconds in which an agent that is asked to end should be gone."""


async def reads_other_line_ends(bench: Bench) -> None:
    """STDIO-3."""
    async with bench.fresh() as link:
        await link.raw("")
        await link.raw(" \t ")
        request: Json = {"jsonrpc": "2.0", "id": "crlf", "method": "session/list", "params": {}}
        call = await link.raw(f"  {json.dumps(request)}\r", expecting="crlf")
        await link.outcome(call)
        nameless = [message for message in link.client.record.since(0, sent=False) if _is_nameless(message)]
        if nameless:
            raise Broken("blank lines were answered", show(nameless))


async def refuses_what_is_not_json(bench: Bench) -> None:
    """STDIO-6."""
    await _one_error_each(bench, -32700, "not JSON at all", '{"jsonrpc":"2.0","id":1,', "{'id': 1}")


async def refuses_arrays(bench: Bench) -> None:
    """STDIO-7: also nothing in them is done."""
    entry = json.dumps({"jsonrpc": "2.0", "id": "in-a-batch", "method": "session/list", "params": {}})
    await _one_error_each(bench, -32600, "[]", f"[{entry}]", f"[{entry},{entry}]")
    answers = [m for link in bench.links[-1:] for m in link.client.record.since(0, sent=False)]
    inside = [m for m in answers if as_object(m.value).get("id") == "in-a-batch"]
    if inside:
        raise Broken("a request in an array was processed", show(inside))


async def refuses_other_values(bench: Bench) -> None:
    """STDIO-8."""
    await _one_error_each(bench, -32600, "7", '"text"', "true", "null")


async def reads_long_lines(bench: Bench) -> None:
    """STDIO-5: a prompt may carry images."""
    async with bench.fresh() as link:
        params = {"padding": "x" * (4 * 1024 * 1024)}
        call = await link.ask("session/list", params)
        await link.result(call)


async def ends_with_its_input(bench: Bench) -> None:
    """STDIO-11."""
    async with bench.fresh() as link:
        session = await link.new()
        await link.client.cancel(session)
        await link.running.transport.aclose()
        await _ends(bench, link, "its stdin was closed")


async def ends_on_sigterm(bench: Bench) -> None:
    """STDIO-14."""
    async with bench.fresh() as link:
        await link.new()
        link.running.signal(signal.SIGTERM)
        await _ends(bench, link, "SIGTERM")


async def ends_in_mid_work(bench: Bench) -> None:
    """STDIO-11, while a tool runs."""
    async with bench.fresh() as link, bench.busy(link, "tool"):
        await link.running.transport.aclose()
        await _ends(bench, link, "its stdin was closed while work was running")


async def _ends(bench: Bench, link: Link, why: str) -> None:
    patience = min(PATIENCE, bench.bound)
    try:
        await link.running.wait(patience)
    except TimeoutError:
        raise Broken(f"the agent still runs {patience:g} s after {why}") from None
    left = await gone(bench.launcher, link.running, patience)
    if left:
        raise Broken(f"{len(left)} processes still run {patience:g} s after {why}", left)


async def _one_error_each(bench: Bench, code: int, *lines: str) -> None:
    async with bench.fresh() as link:
        for line in lines:
            nameless = await link.answers_to(line, _is_nameless)
            codes = [as_object(as_object(message.value).get("error")).get("code") for message in nameless]
            if codes != [code]:
                raise Broken(f"the line must get one error {code} without id", [f"-> {line}", *show(nameless)])


def _is_nameless(message: Message) -> bool:
    value = as_object(message.value)
    return not message.sent and "method" not in value and "error" in value and value.get("id") is None


async def keeps_reading_while_work_runs(bench: Bench) -> None:
    """STDIO-10."""
    async with bench.busy(bench.link, "model") as busy:
        await bench.link.result(await bench.link.ask("session/list", {}))
        busy.still()
        await busy.end()


async def large_prompts_are_taken(bench: Bench) -> None:
    """STDIO-5, with a prompt."""
    if not bench.stage.controlled:
        raise NotApplicable("needs --scripted: a long prompt is not for a real model")
    link = bench.link
    await link.turn(await link.new(), f"{bench.text('a long prompt')}\n{'long line ' * 20000}")


RULES = (
    Rule(
        "STDIO-3",
        "Blank lines, white space around a line and Windows line ends do no harm",
        "SDK 2.4.0",
        reads_other_line_ends,
        Need.VERSION,
        "should",
    ),
    Rule("STDIO-5", "A line of 4 MiB is read", "SDK 2.4.0", reads_long_lines, Need.VERSION, "should"),
    Rule(
        "STDIO-6",
        "A line that is not JSON gets one parse error without id, and the connection goes on",
        "SDK 2.4.0, schema 2.4.0",
        refuses_what_is_not_json,
        Need.VERSION,
    ),
    Rule(
        "STDIO-7",
        "An array gets one error without id, and nothing in it is done",
        "SDK 2.4.0",
        refuses_arrays,
        Need.VERSION,
    ),
    Rule(
        "STDIO-8",
        "A number, text, true or null gets one error without id",
        "SDK 2.4.0",
        refuses_other_values,
        Need.VERSION,
    ),
    Rule(
        "STDIO-10",
        "Requests are answered while work is running",
        "inference",
        keeps_reading_while_work_runs,
        Need.PROMPT,
    ),
    Rule(
        "STDIO-5b",
        "A prompt of 200,000 characters is taken",
        "SDK 2.4.0",
        large_prompts_are_taken,
        Need.PROMPT,
        "should",
    ),
    Rule(
        "STDIO-11",
        "When stdin ends, the agent and all it started end",
        "SDK 2.4.0, prompt-lifecycle RFD",
        ends_with_its_input,
        Need.SESSION,
        "should",
    ),
    Rule(
        "STDIO-11b",
        "The same while a tool runs",
        "SDK 2.4.0, prompt-lifecycle RFD",
        ends_in_mid_work,
        Need.PROMPT,
        "should",
    ),
    Rule("STDIO-14", "SIGTERM is like the end of stdin", "inference", ends_on_sigterm, Need.SESSION, "should"),
)
