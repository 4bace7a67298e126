"""Export of a space as JSON lines, in chunks of whole lines, read and written piece by piece.

* `jsonl`: every visible envelope, as a participant receives it. A last line has their number, their range and their
  SHA-256, so that a truncated or changed file is detected. It also has the head of the space's record, if there is one,
  which `pellucid record verify` knows.
* `chat-jsonl`: a line of training data for each outermost reasoning (`training`).
* `otel`: for each outermost reasoning, an event of OpenTelemetry's GenAI conventions with the messages of a model's
  turn. Parts keep their order: `reasoning`, `tool_call`, `tool_call_response`, `text`. What the model wrote last is the
  output, everything before is the input.

What is written during the export is not in it. Of one reasoning, at most `context_tree.MAX_ENVELOPES` envelopes are
exported.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ...envelopes import DEFAULT_DIALECT, DialectName, encode, kinds, time_text
from ...envelopes.tree import Tree
from ...errors import RequestError
from ...unicode import did_you_mean
from . import training
from .context_tree import ContextTree, read_tree
from .dialogue import AnswerTurn, Dialogue, IncomingTurn, ThoughtTurn, ToolCallTurn, build_dialogue
from .summaries import OPENERS_PER_QUERY, nested_paths
from .visible_log import VisibleLog

EVENT = "gen_ai.client.inference.operation.details"


def otel_event(dialogue: Dialogue, extra_attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a dialogue to an event of OpenTelemetry's GenAI conventions.

    Args:
        dialogue: The dialogue.
        extra_attributes: Further attributes.
    """
    messages = _messages(dialogue)
    output = messages.pop() if messages and messages[-1]["role"] == "assistant" else None
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "pellucid",
        "gen_ai.agent.name": dialogue.owner,
        **extra_attributes,
        "gen_ai.input.messages": messages,
    }
    if output is not None:
        calls = any(part["type"] == "tool_call" for part in output["parts"])
        finish = "stop" if dialogue.answered else "tool_call" if calls else "incomplete"
        attributes["gen_ai.output.messages"] = [output | {"finish_reason": finish}]
    return {"event_name": EVENT, "timestamp": time_text(dialogue.first.ts), "attributes": attributes}


def _messages(dialogue: Dialogue) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    calls = 0

    def add(role: str, part: dict[str, Any], **more: Any) -> None:
        if (
            messages
            and messages[-1]["role"] == role
            and all(messages[-1].get(name) == one for name, one in more.items())
        ):
            messages[-1]["parts"].append(part)
        else:
            messages.append({"role": role, "parts": [part], **more})

    for turn in dialogue.turns:
        match turn:
            case IncomingTurn(speaker, text):
                add("user", {"type": "text", "content": text}, name=speaker)
            case ThoughtTurn(text):
                add("assistant", {"type": "reasoning", "content": text})
            case ToolCallTurn(name, arguments, result):
                calls += 1
                id = f"call_{calls}"
                add("assistant", {"type": "tool_call", "id": id, "name": name, "arguments": arguments})
                if result is not None:
                    add("tool", {"type": "tool_call_response", "id": id, "response": result})
            case AnswerTurn(text):
                add("assistant", {"type": "text", "content": text})
    return messages


ExportFormat: TypeAlias = Literal["jsonl", "chat-jsonl", "otel"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)

MAX_TOOLS = 1_000
"""Maximum number of tool descriptions that are remembered, the latest ones."""

_encode = msgspec.json.Encoder().encode


def export_format(name: str) -> ExportFormat:
    """Return the format of this name.

    Raises:
        RequestError: If there is no such format.
    """
    chosen: ExportFormat = _choose(name, EXPORT_FORMATS, "format")
    return chosen


def reasoning_form(name: str) -> training.ReasoningForm:
    """Return the form of reasoning in training data that has this name.

    Raises:
        RequestError: If there is no such form.
    """
    chosen: training.ReasoningForm = _choose(name, training.REASONING_FORMS, "reasoning")
    return chosen


def _choose(name: str, choices: tuple[Any, ...], param: str) -> Any:
    if name in choices:
        return name
    raise RequestError(
        f"{param}: {name!r} is not supported; {did_you_mean(name, choices)}", code="invalid_value", param=param
    )


async def export_envelopes(
    log: VisibleLog,
    *,
    after: int = 0,
    before: int | None = None,
    dialect: DialectName = DEFAULT_DIALECT,
) -> AsyncIterator[bytes]:
    """Yield the `jsonl` export."""
    digest, count, first, last = hashlib.sha256(), 0, None, None
    async for batch in log.batches(after=after, before=before):
        chunk = b"".join(encode(stored.envelope, dialect) + b"\n" for stored in batch)
        digest.update(chunk)
        count += len(batch)
        first, last = first or batch[0].envelope.seq, batch[-1].envelope.seq
        yield chunk
    summary = {
        "space": log.name,
        "reader": log.viewer.participant,
        "view": log.viewer.view,
        "count": count,
        "first_seq": first,
        "last_seq": last,
        "sha256": digest.hexdigest(),
        "record": await log.record_head(),
    }
    yield _encode({"export": summary}) + b"\n"


async def export_chats(
    log: VisibleLog,
    *,
    after: int = 0,
    before: int | None = None,
    reasoning: training.ReasoningForm = "reasoning_content",
    metadata: bool = True,
    complete: bool = False,
) -> AsyncIterator[bytes]:
    """Yield the `chat-jsonl` export. With `complete`, only dialogues with a question and an answer or conclusion."""
    offered = _OfferedTools(log)
    async for context_tree, tree, dialogue in _dialogues(log, after, before):
        if complete and not training.is_complete(dialogue):
            continue
        await offered.read(dialogue.first.seq)
        metadata_fields = {"space": log.name, "context": tree.path, "status": tree.status, "cut": context_tree.has_more}
        yield (
            _encode(training.training_line(dialogue, offered.known, metadata_fields, form=reasoning, metadata=metadata))
            + b"\n"
        )


async def export_events(log: VisibleLog, *, after: int = 0, before: int | None = None) -> AsyncIterator[bytes]:
    """Yield the `otel` export."""
    async for _, tree, dialogue in _dialogues(log, after, before):
        attributes = {
            "gen_ai.conversation.id": log.name,
            "pellucid.space.context": tree.path,
            "pellucid.space.status": tree.status,
        }
        yield _encode(otel_event(dialogue, attributes)) + b"\n"


async def _dialogues(
    log: VisibleLog, after: int, before: int | None
) -> AsyncIterator[tuple[ContextTree, Tree, Dialogue]]:
    """Yield every outermost reasoning that was opened in the range, the oldest first."""
    end = await log.head() + 1
    end = end if before is None else min(before, end)
    more = True
    while more:
        rows = await log.spaces.find_openers(
            log.owner, log.name, after=after, before=end, limit=OPENERS_PER_QUERY, newest=False
        )
        more = rows.has_more
        inner = await nested_paths(log, rows)
        for stored in rows:
            after = stored.envelope.seq
            if stored.place.path is None or stored.place.path in inner:
                continue
            context_tree = await read_tree(log, stored.place.path)
            if context_tree.first != after:
                # It was implicit first, or is opened again: it was exported at its first opening.
                continue
            for tree in context_tree.trees:
                dialogue = await build_dialogue(log, context_tree, tree)
                if dialogue is not None:
                    yield context_tree, tree, dialogue


class _OfferedTools:
    """The tools that were offered in the space up to some number, from responses to `tools/list`."""

    def __init__(self, log: VisibleLog) -> None:
        self.known: dict[str, Mapping[str, Any]] = {}
        self._log = log
        self._read = 0

    async def read(self, up_to: int) -> None:
        """Read the responses before this number."""
        if up_to <= self._read:
            return
        async for batch in self._log.batches(after=self._read, before=up_to, kinds=(kinds.RESPONSE,)):
            for stored in batch:
                self._learn(stored.envelope.payload.get("result"))
        self._read = up_to - 1

    def _learn(self, result: Any) -> None:
        offered = result.get("tools") if isinstance(result, dict) else None
        for tool in offered if isinstance(offered, list) else ():
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                self.known.pop(name, None)
                self.known[name] = tool
        while len(self.known) > MAX_TOOLS:
            del self.known[next(iter(self.known))]
