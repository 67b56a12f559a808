"""Faults to plant on the wire of the conformant agent, and the rules that each must break."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

from adapters_tests.check.agent import Fault, Json


@dataclass(frozen=True)
class Planted:
    """A fault and what it breaks. `silent`: something is not answered, so that the wait for it is kept short."""

    fault: type[Fault]
    breaks: tuple[str, ...]
    silent: bool = False
    beside: tuple[str, ...] = ()
    """Rules to look at as well, for the messages that they bring about."""


def _error(message: Json) -> Json:
    return message.get("error") or {}


def _update(message: Json) -> Json:
    params = message.get("params")
    return (
        (params.get("update") or {}) if isinstance(params, dict) and message.get("method") == "session/update" else {}
    )


def _state(message: Json) -> Any:
    return _update(message).get("state")


class _OtherCode(Fault):
    code = 0

    def give(self, message: Json) -> Any:
        if _error(message).get("code") == self.code:
            message["error"]["code"] = -32001
        return message


class ParseErrorsHaveAnotherCode(_OtherCode):
    code = -32700


class InvalidRequestsHaveAnotherCode(_OtherCode):
    code = -32600


class InvalidParamsHaveAnotherCode(_OtherCode):
    code = -32602


class UnknownMethodsHaveAnotherCode(_OtherCode):
    code = -32601


class CancelledRequestsHaveAnotherCode(_OtherCode):
    code = -32800


class SpeaksVersion1(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "initialize" and "result" in message:
            message["result"]["protocolVersion"] = 1
        return message


class IsNobody(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "initialize" and "result" in message:
            message["result"]["info"] = {}
        return message


class EchoesTheVersion(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "initialize" and "result" in message:
            message["result"]["protocolVersion"] = self.asked[message["id"]]["params"]["protocolVersion"]
        return message


class ErrorsWithoutData(Fault):
    def give(self, message: Json) -> Any:
        _error(message).pop("data", None)
        return message


class IsStrictAboutCapabilities(Fault):
    def take(self, message: Json) -> Any:
        if message.get("method") == "initialize" and message["params"].get("capabilities", {}) != {}:
            message["params"]["protocolVersion"] = "no"
        return message


class OffersATerminalLogin(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "initialize" and "result" in message:
            message["result"]["authMethods"] = [{"type": "terminal", "methodId": "t", "name": "T"}]
        return message


class OneSessionForAll(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/new" and "result" in message:
            message["result"]["sessionId"] = "the-one"
        return message


class WantsServers(Fault):
    def take(self, message: Json) -> Any:
        if message.get("method") == "session/new" and message["params"].get("mcpServers", 0) is None:
            message["params"]["mcpServers"] = 7
        return message


class StartsByItself(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/new" and "result" in message:
            self.update(message["result"]["sessionId"], sessionUpdate="state_update", state="running")
        return message


class ListsNothingAtAll(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/list" and "result" in message:
            message["result"] = {"sessions": None}
        return message


class ListsOtherFolders(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/list" and "result" in message:
            for row in message["result"]["sessions"]:
                row["cwd"] = "/somewhere/else"
        return message


class RefusesWhatIsNotThere(Fault):
    """Also counts as: sessions that it has not made itself are not known to it."""

    def __init__(self) -> None:
        super().__init__()
        self.made: set[str] = set()

    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/new" and "result" in message:
            self.made.add(message["result"]["sessionId"])
        return message

    def take(self, message: Json) -> Any:
        ends = message.get("method") in ("session/close", "session/delete")
        if ends and message["params"].get("sessionId") not in self.made:
            message["method"] = "session/none"
        return message


class WorksOnACancel(Fault):
    def take(self, message: Json) -> Any:
        if message.get("method") == "session/cancel" and "sessionId" in message.get("params", {}):
            self.update(message["params"]["sessionId"], sessionUpdate="state_update", state="running")
        return message


class OnlySaysThatItCloses(Fault):
    """And the same for delete."""

    def take(self, message: Json) -> Any:
        if message.get("method") in ("session/close", "session/delete") and "sessionId" in message.get("params", {}):
            self.say({"id": message["id"], "result": {}})
            return None
        return message


class TellsNoStateOnResume(Fault):
    def __init__(self) -> None:
        super().__init__()
        self.open: set[Any] = set()

    def take(self, message: Json) -> Any:
        if message.get("method") == "session/resume":
            self.open.add(message["id"])
        return message

    def give(self, message: Json) -> Any:
        self.open.discard(message.get("id"))
        return None if self.open and _state(message) else message


class _Replaying(Fault):
    """Knows when a replay is going on."""

    def __init__(self) -> None:
        super().__init__()
        self.open: set[Any] = set()

    def take(self, message: Json) -> Any:
        if message.get("method") == "session/resume" and message["params"].get("replayFrom"):
            self.open.add(message["id"])
        return message

    def give(self, message: Json) -> Any:
        self.open.discard(message.get("id"))
        return self.replayed(message) if self.open and _update(message) else message

    def replayed(self, message: Json) -> Any:
        raise NotImplementedError


class ReplaysUnderOtherIds(_Replaying):
    def replayed(self, message: Json) -> Any:
        if _update(message).get("messageId"):
            _update(message)["messageId"] += "-again"
        return message


class ReplaysOntoWhatIsThere(_Replaying):
    def replayed(self, message: Json) -> Any:
        update = _update(message)
        if update.get("sessionUpdate") in ("user_message", "agent_message"):
            update["sessionUpdate"] += "_chunk"
            update["content"] = update["content"][0]
        return message


class ReplaysDeadToolsAsRunning(_Replaying):
    def replayed(self, message: Json) -> Any:
        tool = copy.deepcopy(message)
        tool["params"]["update"] = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress"}
        return [message, tool]


class IsNoisy(Fault):
    def out(self, line: bytes) -> list[bytes]:
        return [b"Welcome back!", line]


class AddsFields(Fault):
    def give(self, message: Json) -> Any:
        if _state(message):
            _update(message)["mood"] = "good"
        return message


class SpeaksInOldUpdates(Fault):
    def give(self, message: Json) -> Any:
        if _state(message) == "idle":
            self.update(message["params"]["sessionId"], sessionUpdate="plan", entries=[])
        return message


class AnswersTwice(Fault):
    def give(self, message: Json) -> Any:
        return [message, message] if self.method_of(message) == "session/list" else message


class ShowsStackTraces(Fault):
    def give(self, message: Json) -> Any:
        if "error" in message:
            message["error"]["data"] = {"stack": "Error: no\n    at run (/agent/index.js:7:1)"}
        return message


class OffersOptionsThatAreWrong(Fault):
    """It knows no value of its own options, takes any, and gives no list back."""

    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/new" and "result" in message:
            values = [{"value": "a", "name": "A"}]
            option = {"configId": "o", "name": "O", "type": "select", "currentValue": "b", "options": values}
            message["result"]["configOptions"] = [option]
        return message

    def take(self, message: Json) -> Any:
        if message.get("method") == "session/set_config_option":
            self.say({"id": message["id"], "result": {"configOptions": []}})
            return None
        return message


class OffersCommandsThatAreWrong(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/new" and "result" in message:
            message["result"]["availableCommands"] = [{"type": "command", "name": "/bad one", "description": ""}]
        return message


class ListsBackgroundNowAndThen(Fault):
    def give(self, message: Json) -> Any:
        if _state(message) == "running":
            _update(message)["background"] = []
        return message


class StartsFinishedToolsAgain(Fault):
    def give(self, message: Json) -> Any:
        if _update(message).get("status") == "completed":
            again = copy.deepcopy(message)
            _update(again)["status"] = "in_progress"
            return [message, again]
        return message


class OneIdForAllPrompts(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/prompt" and "result" in message:
            message["result"]["messageId"] = "m"
        return message


class AnswersPromptsWithoutAnId(Fault):
    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/prompt" and "result" in message:
            message["result"] = {}
        return message


class TellsKeys(Fault):
    """In updates."""

    key: Any = None

    def take(self, message: Json) -> Any:
        if message.get("method") == "session/prompt":
            self.key = message["params"].get("idempotencyKey")
        return message

    def give(self, message: Json) -> Any:
        if _update(message).get("sessionUpdate") == "user_message":
            _update(message)["_meta"] = {"key": self.key}
        return message


class KnowsNoWindows(Fault):
    def into(self, line: bytes) -> list[bytes]:
        return super().into(line) if not line.endswith(b"\r") else []


class ReadsShortLinesOnly(Fault):
    def into(self, line: bytes) -> list[bytes]:
        return super().into(line) if len(line) < 64 * 1024 else []


class IsDeafWhileItWorks(Fault):
    working = False

    def give(self, message: Json) -> Any:
        if state := _state(message):
            self.working = state == "running"
        return message

    def take(self, message: Json) -> Any:
        return None if self.working and message.get("method") == "session/list" else message


class NeverEnds(Fault):
    ignores_end = True


class LeavesProcesses(Fault):
    leaves = ("/bin/runtime --forever",)


class MakesIdsToNumbers(Fault):
    def give(self, message: Json) -> Any:
        if "method" not in message and str(message.get("id")).isdigit():
            message["id"] = int(message["id"])
        return message


class AnswersNotifications(Fault):
    def take(self, message: Json) -> Any:
        if "id" not in message:
            self.say({"id": None, "error": {"code": -32601, "message": "No such notification."}})
        return message


class AnswersAnswers(Fault):
    def take(self, message: Json) -> Any:
        if "method" not in message and message.get("id") in ("nobody-asked", None):
            self.say({"id": message.get("id"), "error": {"code": -32600, "message": "What is that?"}})
            return None
        return message


class WantsParams(Fault):
    def take(self, message: Json) -> Any:
        if message.get("method") == "session/list" and message.get("params") is None:
            self.say({"id": message["id"], "error": {"code": -32602, "message": "Params are missing."}})
            return None
        return message


class KnowsAllFields(Fault):
    def take(self, message: Json) -> Any:
        if "fieldOfTomorrow" in json.dumps(message):
            self.say({"id": message["id"], "error": {"code": -32602, "message": "An unknown field."}})
            return None
        return message


class AnswersPromptsAtTheEnd(Fault):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Json] = []

    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/prompt" and "result" in message:
            self.answers.append(message)
            return None
        if _state(message) == "idle":
            answers, self.answers = self.answers, []
            return [message, *answers]
        return message


class ReportsNoUserMessages(Fault):
    def give(self, message: Json) -> Any:
        return None if _update(message).get("sessionUpdate") == "user_message" else message


class EndsFailuresWell(Fault):
    def give(self, message: Json) -> Any:
        if _update(message).get("stopReason") == "error":
            _update(message)["stopReason"] = "end_turn"
        return message


class TakesNoLinks(Fault):
    def take(self, message: Json) -> Any:
        if message.get("method") == "session/prompt" and "resource_link" in json.dumps(message):
            message["params"]["prompt"] = [{"type": "none"}]
        return message


class IsBusy(IsDeafWhileItWorks):
    def take(self, message: Json) -> Any:
        if self.working and message.get("method") == "session/prompt":
            self.say({"id": message["id"], "error": {"code": -32603, "message": "Busy."}})
            return None
        return message


class NeverRuns(Fault):
    def give(self, message: Json) -> Any:
        return None if _state(message) == "running" else message


class TalksAfterItsEnd(Fault):
    """The last words follow the idle update."""

    def give(self, message: Json) -> Any:
        if _state(message) == "idle":
            words = {"type": "text", "text": "By the way."}
            self.update(
                message["params"]["sessionId"], sessionUpdate="agent_message_chunk", messageId="late", content=words
            )
        return message


class GivesNoReasons(Fault):
    def give(self, message: Json) -> Any:
        _update(message).pop("stopReason", None)
        return message


class CallsACancelAnEnd(Fault):
    def give(self, message: Json) -> Any:
        if _update(message).get("stopReason") == "cancelled":
            _update(message)["stopReason"] = "end_turn"
        return message


class CancelsTheNextOneToo(Fault):
    cancelled: Json | None = None

    def take(self, message: Json) -> Any:
        if message.get("method") == "session/cancel":
            self.cancelled = message
        elif message.get("method") == "session/prompt" and self.cancelled is not None:
            again, self.cancelled = self.cancelled, None
            return [message, again]
        return message


class LeavesToolsOpen(Fault):
    def give(self, message: Json) -> Any:
        return None if _update(message).get("status") in ("cancelled", "failed") else message


class TakesEveryCancelForAStop(Fault):
    session: Any = None

    def take(self, message: Json) -> Any:
        if message.get("method") == "session/prompt":
            self.session = message["params"]["sessionId"]
        if message.get("method") == "$/cancel_request":
            return {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self.session}}
        return message


class _Answering(Fault):
    """Changes the client's answers to permission requests."""

    outcome: Json

    def take(self, message: Json) -> Any:
        if "method" in message:
            return message
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"outcome": self.outcome}}


class NeverAllows(_Answering):
    outcome = {"outcome": "cancelled"}  # noqa: RUF012 - not changed


class AlwaysAllows(_Answering):
    outcome = {"outcome": "selected", "optionId": "allow_once"}  # noqa: RUF012 - not changed


class TakesNoQuestionBack(Fault):
    def give(self, message: Json) -> Any:
        return None if message.get("method") == "$/cancel_request" else message


class DoesNotSayThatItWaits(Fault):
    def give(self, message: Json) -> Any:
        if _state(message) == "requires_action":
            _update(message)["state"] = "running"
        return message


class KnowsNoKeys(Fault):
    def take(self, message: Json) -> Any:
        if message.get("method") == "session/prompt":
            message["params"].pop("idempotencyKey", None)
        return message


class TakesNullForAKey(Fault):
    def take(self, message: Json) -> Any:
        if message.get("method") == "session/prompt" and message["params"].get("idempotencyKey", 0) is None:
            message["params"]["idempotencyKey"] = "null"
        return message


class FindsKeysEverywhere(Fault):
    def take(self, message: Json) -> Any:
        if message.get("method") == "session/prompt":
            key = (message["params"].get("_meta") or {}).get("idempotencyKey")
            if key:
                message["params"]["idempotencyKey"] = key
        return message


class TakesIdsForKeys(Fault):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()

    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/prompt" and "result" in message:
            self.ids.add(message["result"]["messageId"])
        return message

    def take(self, message: Json) -> Any:
        if message.get("method") == "session/prompt" and message["params"].get("idempotencyKey") in self.ids:
            self.say({"id": message["id"], "result": {"messageId": message["params"]["idempotencyKey"]}})
            return None
        return message


class BurnsKeysOfErrors(Fault):
    def __init__(self) -> None:
        super().__init__()
        self.burnt: set[Any] = set()

    def give(self, message: Json) -> Any:
        if self.method_of(message) == "session/prompt" and "error" in message:
            self.burnt.add(self.asked[message["id"]]["params"].get("idempotencyKey"))
        return message

    def take(self, message: Json) -> Any:
        if message.get("method") == "session/prompt" and message["params"].get("idempotencyKey") in self.burnt - {None}:
            self.say({"id": message["id"], "error": {"code": -32603, "message": "This key has failed before."}})
            return None
        return message


class Crashes(Fault):
    """Gives up in the middle of everything: its answers stop."""

    def give(self, message: Json) -> Any:
        return (
            message
            if self.method_of(message) in ("initialize", "session/new", "session/prompt") or _update(message)
            else None
        )


FAULTS = (
    Planted(ParseErrorsHaveAnotherCode, ("STDIO-6",)),
    Planted(InvalidRequestsHaveAnotherCode, ("INIT-1", "INIT-8", "RPC-1", "RPC-3", "RPC-8", "STDIO-7", "STDIO-8")),
    Planted(
        InvalidParamsHaveAnotherCode,
        (
            *("INIT-3", "INIT-5", "SETUP-1", "SETUP-4", "SETUP-7", "LIST-3", "LIST-4", "RESUME-3"),
            *("RPC-10", "PROMPT-13", "KEY-4"),
        ),
    ),
    Planted(UnknownMethodsHaveAnotherCode, ("AUTH-1", "RPC-11", "RPC-11b")),
    Planted(CancelledRequestsHaveAnotherCode, ("CANCEL-4", "RCAN-5", "E6", "KEY-20")),
    Planted(SpeaksVersion1, ("INIT-10",)),
    Planted(IsNobody, ("INIT-11",)),
    Planted(EchoesTheVersion, ("INIT-2", "INIT-6")),
    Planted(ErrorsWithoutData, ("INIT-2b", "ERR-1")),
    Planted(IsStrictAboutCapabilities, ("INIT-7",)),
    Planted(OffersATerminalLogin, ("INIT-13",)),
    Planted(OneSessionForAll, ("SETUP-10",)),
    Planted(WantsServers, ("SETUP-3",)),
    Planted(StartsByItself, ("SETUP-12",)),
    Planted(ListsNothingAtAll, ("LIST-1", "LIST-2")),
    Planted(ListsOtherFolders, ("LIST-2",)),
    Planted(RefusesWhatIsNotThere, ("ERR-3", "ERR-4")),
    Planted(WorksOnACancel, ("ERR-6",)),
    Planted(OnlySaysThatItCloses, ("CLOSE-2", "CLOSE-3", "CLOSE-6", "DEL-1", "E14")),
    Planted(TellsNoStateOnResume, ("RESUME-4", "RESUME-5")),
    Planted(ReplaysUnderOtherIds, ("REPLAY-3", "TRACE-1")),
    Planted(ReplaysOntoWhatIsThere, ("REPLAY-2", "REPLAY-4")),
    Planted(ReplaysDeadToolsAsRunning, ("REPLAY-7",)),
    Planted(IsNoisy, ("STDIO-1",)),
    Planted(AddsFields, ("UPD-7",), beside=("PROMPT-4",)),
    Planted(SpeaksInOldUpdates, ("UPD-6", "UPD-7"), beside=("PROMPT-4",)),
    Planted(AnswersTwice, ("RPC-2",), beside=("LIST-1",)),
    Planted(ShowsStackTraces, ("RPC-14",), beside=("RPC-11",)),
    Planted(OffersOptionsThatAreWrong, ("CFG-2", "CFG-5", "CFG-6")),
    Planted(OffersCommandsThatAreWrong, ("CMD-1",)),
    Planted(ListsBackgroundNowAndThen, ("STATE-9",)),
    Planted(StartsFinishedToolsAgain, ("TOOL-1",), beside=("PROMPT-16",)),
    Planted(OneIdForAllPrompts, ("PROMPT-4", "PROMPT-5", "PROMPT-6", "TRACE-6")),
    Planted(AnswersPromptsWithoutAnId, ("PROMPT-3",)),
    Planted(TellsKeys, ("KEY-30",), beside=("TRACE-1",)),
    Planted(KnowsNoWindows, ("STDIO-3",), silent=True),
    Planted(ReadsShortLinesOnly, ("STDIO-5", "STDIO-5b"), silent=True),
    Planted(IsDeafWhileItWorks, ("STDIO-10",), silent=True),
    Planted(NeverEnds, ("STDIO-11", "STDIO-11b", "STDIO-14"), silent=True),
    Planted(LeavesProcesses, ("STDIO-11", "STDIO-11b", "STDIO-14"), silent=True),
    Planted(MakesIdsToNumbers, ("RPC-4",), silent=True),
    Planted(AnswersNotifications, ("RPC-6",)),
    Planted(AnswersAnswers, ("RPC-7",)),
    Planted(WantsParams, ("RPC-9",)),
    Planted(KnowsAllFields, ("EXT-1",)),
    Planted(AnswersPromptsAtTheEnd, ("PROMPT-2",), silent=True),
    Planted(ReportsNoUserMessages, ("PROMPT-4", "PROMPT-5")),
    Planted(EndsFailuresWell, ("PROMPT-10",)),
    Planted(TakesNoLinks, ("PROMPT-13b",)),
    Planted(IsBusy, ("PROMPT-16", "TRACE-4", "TRACE-7")),
    Planted(NeverRuns, ("STATE-1",)),
    Planted(TalksAfterItsEnd, ("STATE-2", "CANCEL-2")),
    Planted(GivesNoReasons, ("STATE-3", "CANCEL-2")),
    Planted(CallsACancelAnEnd, ("CANCEL-2", "CLOSE-2")),
    Planted(CancelsTheNextOneToo, ("CANCEL-5",)),
    Planted(LeavesToolsOpen, ("CANCEL-9",)),
    Planted(TakesEveryCancelForAStop, ("RCAN-3",)),
    Planted(NeverAllows, ("PERM-1",)),
    Planted(AlwaysAllows, ("PERM-2", "PERM-3")),
    Planted(TakesNoQuestionBack, ("PERM-6",)),
    Planted(DoesNotSayThatItWaits, ("STATE-5",)),
    Planted(
        KnowsNoKeys,
        (
            *("KEY-3", "KEY-3b", "KEY-4", "E15", "E16", "TRACE-1", "TRACE-2", "TRACE-2b", "TRACE-3", "TRACE-3b"),
            *("TRACE-4", "TRACE-6", "TRACE-7", "E1", "E6", "E9", "E14", "E27", "E34", "E37", "E44", "E45"),
        ),
        silent=True,
    ),
    Planted(TakesNullForAKey, ("KEY-2",), silent=True),
    Planted(FindsKeysEverywhere, ("KEY-7",), silent=True),
    Planted(TakesIdsForKeys, ("KEY-31",)),
    Planted(BurnsKeysOfErrors, ("TRACE-5", "E40")),
    Planted(Crashes, ("RPC-11",), silent=True),
)
