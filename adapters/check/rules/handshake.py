"""Version negotiation and the gate before it."""

from __future__ import annotations

from typing import Any

from adapters.acp.errors import AcpError
from adapters.check.bench import Bench, initialize_params
from adapters.check.link import Link
from adapters.check.verdict import Broken, Need, NotApplicable, Rule
from adapters.client.calls import Call
from adapters.client.record import as_object

V2 = 2


async def speaks_version_2(bench: Bench) -> None:
    """INIT-2."""
    async with bench.fresh(initialize=False) as link:
        bench.facts = await bench.initialize(link)


async def introduces_itself(bench: Bench) -> None:
    """INIT-11."""
    info = as_object(bench.facts.get("info"))
    if not isinstance(info.get("name"), str) or not isinstance(info.get("version"), str):
        raise Broken("info has no name and version", [f"<- {bench.facts}"])
    if not bench.advertises("session"):
        raise Broken("capabilities.session is not advertised as an object", [f"<- {bench.facts}"])


async def nothing_before_initialize(bench: Bench) -> None:
    """INIT-1."""
    async with bench.fresh(initialize=False) as link:
        for method, params in (("session/list", {}), ("session/new", {"cwd": link.cwd}), ("_check/unknown", {})):
            await link.refused(method, params, -32600)
        await link.client.notify("session/cancel", {"sessionId": "none"})
        await bench.initialize(link)


async def chooses_the_highest_version(bench: Bench) -> None:
    """INIT-2, INIT-10: versions above 2 give 2."""
    for version in (3, 65535):
        async with bench.fresh(initialize=False) as link:
            call = await link.ask("initialize", initialize_params(version))
            await _is_version_2(link, call)


async def refuses_version_0(bench: Bench) -> None:
    """INIT-2: below everything."""
    async with bench.fresh(initialize=False) as link:
        call = await link.ask("initialize", initialize_params(0))
        error = await link.error(call, -32022)
        data = as_object(error.data)
        supported: Any = data.get("supported")
        if data.get("requested") != 0 or not isinstance(supported, list) or V2 not in supported:
            raise Broken("the error's data lacks requested and supported", link.shown(call))
        await bench.initialize(link)


async def refuses_what_is_no_version(bench: Bench) -> None:
    """INIT-3."""
    async with bench.fresh(initialize=False) as link:
        for version in (1.5, -1, 65536, "2", None, True):
            await link.refused("initialize", initialize_params(version), -32602)
        await link.refused("initialize", {"info": {"name": "check", "version": "1"}}, -32602)
        await bench.initialize(link)


async def wants_info(bench: Bench) -> None:
    """INIT-5."""
    async with bench.fresh(initialize=False) as link:
        await link.refused("initialize", {"protocolVersion": V2}, -32602)
        await link.refused("initialize", initialize_params(info={"name": 7}), -32602)
        await bench.initialize(link)


async def is_lenient_with_later_versions(bench: Bench) -> None:
    """INIT-6."""
    async with bench.fresh(initialize=False) as link:
        call = await link.ask("initialize", {"protocolVersion": 3, "somethingNew": {"a": 1}})
        await _is_version_2(link, call)


async def ignores_malformed_capabilities(bench: Bench) -> None:
    """INIT-7."""
    for capabilities in (7, {"elicitation": True}, {"auth": {"terminal": "yes"}, "new": [1]}, None):
        async with bench.fresh(initialize=False) as link:
            call = await link.ask("initialize", initialize_params(capabilities=capabilities))
            await _is_version_2(link, call)


async def repeats_only_at_once(bench: Bench) -> None:
    """INIT-8: after another request, initialize is refused and the connection goes on."""
    async with bench.fresh() as link:
        await link.outcome(await link.ask("session/list", {}))
        await link.refused("initialize", initialize_params(), -32600)
        call = await link.ask("session/list", {})
        outcome = await link.outcome(call)
        if isinstance(outcome, AcpError) and outcome.code == -32600:  # noqa: PLR2004
            raise Broken("the earlier initialize is no longer in effect", link.shown(call))


async def login_without_methods(bench: Bench) -> None:
    """AUTH-1, AUTH-2. Logs nobody in or out.

    An agent that offers nothing to this client may still have logins for others: to it the method is not unknown.
    """
    offered: Any = bench.facts.get("authMethods") or []
    codes = (-32602,) if offered else (-32601, -32602)
    await bench.link.refused("auth/login", {"methodId": "no-such-method-of-the-check"}, *codes)


async def terminal_login_is_for_those_who_can(bench: Bench) -> None:
    """INIT-13. The check's client does not advertise it."""
    methods: Any = bench.facts.get("authMethods") or []
    if not methods:
        raise NotApplicable("the agent offers no login")
    if any(as_object(method).get("type") == "terminal" for method in methods):
        raise Broken("a terminal login is offered to a client that did not advertise it", [f"<- {bench.facts}"])


async def _is_version_2(link: Link, call: Call) -> None:
    version: Any = (await link.result(call)).get("protocolVersion")
    if type(version) is not int or version != V2:
        raise Broken(f"the agent answered protocolVersion {version}", link.shown(call))


RULES = (
    Rule(
        "INIT-10",
        "Version 2 is chosen when it is asked for",
        "schema 2.4.0",
        speaks_version_2,
        Need.NOTHING,
        opens=Need.VERSION,
    ),
    Rule(
        "INIT-11", "The agent says who it is and that it has sessions", "schema 2.4.0", introduces_itself, Need.VERSION
    ),
    Rule(
        "INIT-1",
        "Before initialize every request is refused, and initialize still works",
        "error page",
        nothing_before_initialize,
        Need.VERSION,
    ),
    Rule(
        "INIT-2",
        "A later version is answered with version 2",
        "schema 2.4.0",
        chooses_the_highest_version,
        Need.VERSION,
    ),
    Rule(
        "INIT-2b",
        "Version 0 is refused with what is supported, and initialize still works",
        "error page",
        refuses_version_0,
        Need.VERSION,
    ),
    Rule("INIT-3", "What is no version number is refused", "SDK 2.4.0", refuses_what_is_no_version, Need.VERSION),
    Rule(
        "INIT-5", "Version 2 without a client's name and version is refused", "schema 2.4.0", wants_info, Need.VERSION
    ),
    Rule("INIT-6", "A later version is read leniently", "SDK 2.4.0", is_lenient_with_later_versions, Need.VERSION),
    Rule(
        "INIT-7",
        "Malformed client capabilities count as none",
        "schema 2.4.0",
        ignores_malformed_capabilities,
        Need.VERSION,
    ),
    Rule(
        "INIT-8",
        "Initialize is refused after other requests and changes nothing",
        "SDK 2.4.0, prompt-lifecycle RFD",
        repeats_only_at_once,
        Need.VERSION,
    ),
    Rule(
        "INIT-13",
        "A terminal login is offered only to clients that can show one",
        "schema 2.4.0",
        terminal_login_is_for_those_who_can,
        Need.VERSION,
    ),
    Rule("AUTH-1", "An unknown login is refused", "schema 2.4.0", login_without_methods, Need.VERSION),
)
