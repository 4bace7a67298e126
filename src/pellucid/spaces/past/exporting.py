"""A space as JSON lines, in chunks of whole lines, read and written piece by piece.

* `jsonl`: every envelope that the reader is given, as a participant gets it, and at the end one line that says how many
  there were, of what, and their SHA-256: so that a file that was cut or changed is seen. With it stands the head of the
  space's record, where one is kept: what `pellucid record verify` knows.
* `chat-jsonl`: a line of training data for each outermost reasoning (`training`).
* `otel`: an event of OpenTelemetry's GenAI conventions for each.

What is said while it is read is not in it. Of one reasoning, at most `grown.MOST` envelopes are.

A reasoning as OpenTelemetry's GenAI conventions tell it: the event with the messages of a model's turn.

Parts keep their order: `reasoning`, `tool_call`, `tool_call_response`, `text`. What the model said last is the output;
all before it is the input.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ...envelopes import USUAL, DialectName, encode, kinds, time_text
from ...envelopes.tree import Tree
from ...errors import RequestError
from ...text import meant
from . import training
from .dialogue import Answer, Called, Dialogue, Heard, Thought, dialogue
from .grown import Grown, read_tree
from .reading import Log
from .shapes import nested

EVENT = "gen_ai.client.inference.operation.details"


def event(said: Dialogue, about: Mapping[str, Any]) -> dict[str, Any]:
    """`about`: further attributes."""
    told = _messages(said)
    output = told.pop() if told and told[-1]["role"] == "assistant" else None
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "pellucid",
        "gen_ai.agent.name": said.owner,
        **about,
        "gen_ai.input.messages": told,
    }
    if output is not None:
        calls = any(part["type"] == "tool_call" for part in output["parts"])
        finish = "stop" if said.answered else "tool_call" if calls else "incomplete"
        attributes["gen_ai.output.messages"] = [output | {"finish_reason": finish}]
    return {"event_name": EVENT, "timestamp": time_text(said.first.ts), "attributes": attributes}


def _messages(said: Dialogue) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    calls = 0

    def add(role: str, part: dict[str, Any], **more: Any) -> None:
        if told and told[-1]["role"] == role and all(told[-1].get(name) == one for name, one in more.items()):
            told[-1]["parts"].append(part)
        else:
            told.append({"role": role, "parts": [part], **more})

    for turn in said.turns:
        match turn:
            case Heard(speaker, text):
                add("user", {"type": "text", "content": text}, name=speaker)
            case Thought(text):
                add("assistant", {"type": "reasoning", "content": text})
            case Called(name, arguments, result):
                calls += 1
                id = f"call_{calls}"
                add("assistant", {"type": "tool_call", "id": id, "name": name, "arguments": arguments})
                if result is not None:
                    add("tool", {"type": "tool_call_response", "id": id, "response": result})
            case Answer(text):
                add("assistant", {"type": "text", "content": text})
    return told


ExportFormat: TypeAlias = Literal["jsonl", "chat-jsonl", "otel"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)

RecordHead: TypeAlias = Callable[[], Awaitable[Mapping[str, Any] | None]]
"""The newest entry of the space's record; None: there is none."""

MOST_TOOLS = 1_000
"""The descriptions of so many tools are remembered, the last that were told."""

_AT_ONCE = 50
_encode = msgspec.json.Encoder().encode


def export_format(name: str, param: str = "format") -> ExportFormat:
    """The format of this name. Raises `RequestError` if there is none."""
    chosen: ExportFormat = _chosen(name, EXPORT_FORMATS, param)
    return chosen


def reasoning_form(name: str, param: str = "reasoning") -> training.ReasoningForm:
    """Where reasoning stands in training data. Raises `RequestError` if there is no such form."""
    chosen: training.ReasoningForm = _chosen(name, training.REASONING_FORMS, param)
    return chosen


def _chosen(name: str, choices: tuple[Any, ...], param: str) -> Any:
    if name in choices:
        return name
    raise RequestError(f"{param}: {name!r} is none; {meant(name, choices)}", code="invalid_value", param=param)


async def envelopes(
    log: Log,
    *,
    after: int = 0,
    before: int | None = None,
    dialect: DialectName = USUAL,
    record: RecordHead | None = None,
) -> AsyncIterator[bytes]:
    """`jsonl`."""
    digest, count, first, last = hashlib.sha256(), 0, None, None
    async for batch in log.all(after=after, before=before):
        chunk = b"".join(encode(stored.envelope, dialect) + b"\n" for stored in batch)
        digest.update(chunk)
        count += len(batch)
        first, last = first or batch[0].envelope.seq, batch[-1].envelope.seq
        yield chunk
    told = {
        "space": log.name,
        "reader": log.reader.participant,
        "view": log.reader.view,
        "count": count,
        "first_seq": first,
        "last_seq": last,
        "sha256": digest.hexdigest(),
        "record": await record() if record is not None else None,
    }
    yield _encode({"export": told}) + b"\n"


async def chats(
    log: Log,
    *,
    after: int = 0,
    before: int | None = None,
    reasoning: training.ReasoningForm = "reasoning_content",
    metadata: bool = True,
    complete: bool = False,
) -> AsyncIterator[bytes]:
    """`chat-jsonl`. `complete`: only those with a question and an answer or conclusion."""
    offers = _Offers(log)
    async for grown, tree, said in _dialogues(log, after, before):
        if complete and not training.is_complete(said):
            continue
        await offers.read(said.first.seq)
        about = {"space": log.name, "context": tree.path, "status": tree.status, "cut": grown.has_more}
        yield _encode(training.line(said, offers.known, about, form=reasoning, metadata=metadata)) + b"\n"


async def events(log: Log, *, after: int = 0, before: int | None = None) -> AsyncIterator[bytes]:
    """`otel`."""
    async for _, tree, said in _dialogues(log, after, before):
        about = {
            "gen_ai.conversation.id": log.name,
            "pellucid.space.context": tree.path,
            "pellucid.space.status": tree.status,
        }
        yield _encode(event(said, about)) + b"\n"


async def _dialogues(log: Log, after: int, before: int | None) -> AsyncIterator[tuple[Grown, Tree, Dialogue]]:
    """Every outermost reasoning that was opened in between, the oldest first."""
    end = await log.head() + 1
    end = end if before is None else min(before, end)
    more = True
    while more:
        rows = await log.spaces.opened(log.owner, log.name, after=after, before=end, limit=_AT_ONCE, newest=False)
        more = rows.more
        inner = await nested(log, rows)
        for stored in rows:
            after = stored.envelope.seq
            if stored.place.path is None or stored.place.path in inner:
                continue
            grown = await read_tree(log, stored.place.path)
            if grown.first != after:
                # It was implicit first, or is opened anew: its first opening tells of all.
                continue
            for tree in grown.trees:
                said = await dialogue(log, grown, tree)
                if said is not None:
                    yield grown, tree, said


class _Offers:
    """The tools that were offered in the space up to some number: what `tools/list` was answered."""

    def __init__(self, log: Log) -> None:
        self.known: dict[str, Mapping[str, Any]] = {}
        self._log = log
        self._read = 0

    async def read(self, up_to: int) -> None:
        if up_to <= self._read:
            return
        async for batch in self._log.all(after=self._read, before=up_to, kinds=(kinds.RESPONSE,)):
            for stored in batch:
                self._learn(stored.envelope.payload.get("result"))
        self._read = up_to - 1

    def _learn(self, result: Any) -> None:
        offered = result.get("tools") if isinstance(result, dict) else None
        for tool in offered if isinstance(offered, list) else ():
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                self.known.pop(name, None)
                self.known[name] = tool
        while len(self.known) > MOST_TOOLS:
            del self.known[next(iter(self.known))]
