"""A reasoning as a conversation with the model that reasoned: what it received, thought, called and answered.

Exports for training and telemetry are built from it. The rules:

* It is the owner's conversation: the owner is the model from which to learn. Everything that it wrote in the context is
  thinking, whatever the kind. What came out of it in the main conversation is the answer.
* The triggers come first, as received messages. If nothing is correlated (the drafts' flows), the last message of
  another participant in the main conversation counts as the trigger, and `trigger` says so. The next message of the
  owner there counts as its answer.
* Messages of others in the context are received at their place. Responses to the owner's requests are results of the
  calls. A proposal that was fulfilled is a call, too.
* Left out are erased envelopes, envelopes without text, and summaries of other thoughts in the context.

The text of an envelope is what its sender wrote for people and models, without field names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from ...envelopes import GATEWAY, Envelope, kinds, text_of
from ...envelopes.mcp import request_arguments, result_text, tool_of
from ...envelopes.tree import Tree
from .context_tree import ContextTree, all_envelopes
from .visible_log import VisibleLog

MAX_EXCERPT = 200
"""Maximum number of characters of an excerpt."""


def full_text(envelope: Envelope) -> str:
    """Return all text of an envelope; empty if it has none."""
    lines = [text_of(envelope)]
    for name in kinds.kind_of(envelope.kind).more_text_fields:
        lines += _lines(envelope.payload.get(name))
    return "\n".join(dict.fromkeys(line for line in lines if line))


def excerpt(envelope: Envelope) -> str:
    """Return the beginning of the text, on one line, with an ellipsis if it was cut."""
    text = " ".join(text_of(envelope).split())
    return text if len(text) <= MAX_EXCERPT else f"{text[: MAX_EXCERPT - 1]}…"


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [f"- {one if isinstance(one, str) else json_text(one)}" for one in value]
    return [] if value is None else [json_text(value)]


_MAX_LOOKBACK = 20
"""How many chats are searched for a trigger."""


class IncomingTurn(msgspec.Struct, frozen=True):
    """A message of another participant."""

    speaker: str
    text: str


class ThoughtTurn(msgspec.Struct, frozen=True):
    """A thought of the owner."""

    text: str


class ToolCallTurn(msgspec.Struct, frozen=True):
    """A call by the owner, with its result."""

    name: str
    """Name of the tool; for another request, its method."""
    arguments: dict[str, Any]
    result: str | None
    """None: there was no response."""


class AnswerTurn(msgspec.Struct, frozen=True):
    """The answer of the owner."""

    text: str


DialogueTurn: TypeAlias = IncomingTurn | ThoughtTurn | ToolCallTurn | AnswerTurn
Trigger: TypeAlias = Literal["correlated", "preceding", "none"]


class Dialogue(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation of one reasoning."""

    owner: str
    turns: tuple[DialogueTurn, ...]
    trigger: Trigger
    participants: tuple[str, ...]
    """Everyone who wrote in it, with the owner."""
    first: Envelope
    answered: bool
    """Whether it ends with an answer or a conclusion."""


async def build_dialogue(log: VisibleLog, context_tree: ContextTree, tree: Tree) -> Dialogue | None:
    """Build the dialogue of a tree; None if the owner wrote no text in it."""
    envelopes = list(all_envelopes(tree))
    owner = tree.owner or envelopes[0].sender
    trigger: Trigger = "correlated"
    incoming = [one for one in context_tree.triggers if one.id in tree.triggers]
    if not incoming:
        incoming, trigger = await _preceding_chat(log, envelopes[0], owner), "preceding"
    if not incoming:
        trigger = "none"
    turns: list[DialogueTurn] = [IncomingTurn(one.sender, text) for one in incoming if (text := _turn_text(one))]
    turns += _context_turns(
        envelopes,
        owner,
        [*envelopes, *context_tree.linked],
        {turn.text for turn in turns if isinstance(turn, IncomingTurn)},
    )
    answer = _find_answer(context_tree, tree)
    if answer is None and tree.answer is None and trigger != "correlated":
        answer = await _following_chat(log, envelopes[-1], owner)
    if answer is not None and (text := _turn_text(answer)):
        turns.append(AnswerTurn(text))
    if not any(isinstance(turn, ThoughtTurn | ToolCallTurn | AnswerTurn) for turn in turns):
        return None
    is_concluded = any(one.kind == kinds.CONCLUSION and one.sender == owner and full_text(one) for one in envelopes)
    speakers = [turn.speaker for turn in turns if isinstance(turn, IncomingTurn)]
    return Dialogue(
        owner=owner,
        turns=tuple(turns),
        trigger=trigger,
        participants=tuple(dict.fromkeys([*speakers, *tree.participants])),
        first=envelopes[0],
        answered=isinstance(turns[-1], AnswerTurn) or is_concluded,
    )


def response_text(payload: dict[str, Any]) -> str:
    """Return the text of a response: the text of a tool's content if it has nothing else, or its JSON."""
    error, result = payload.get("error"), payload.get("result")
    if error is not None:
        return json_text({"error": error})
    if (text := result_text(result)) is not None:
        return text
    return result if isinstance(result, str) else "" if result is None else json_text(result)


def _turn_text(envelope: Envelope) -> str:
    if envelope.kind == kinds.RESPONSE:
        return response_text(envelope.payload)
    text = full_text(envelope)
    if not text and kinds.kind_of(envelope.kind).link == "call":
        return json_text({name: envelope.payload[name] for name in ("method", "params") if name in envelope.payload})
    return text


def _context_turns(
    envelopes: Iterable[Envelope], owner: str, known: Iterable[Envelope], incoming_texts: set[str]
) -> list[DialogueTurn]:
    results, fulfilled = _results(known)
    envelopes = list(envelopes)
    ids = {envelope.id for envelope in envelopes}
    turns: list[DialogueTurn] = []
    for envelope in envelopes:
        if envelope.sender == GATEWAY or envelope.is_erased or _is_compression(envelope, ids):
            continue
        if kinds.kind_of(envelope.kind).link == "call" and envelope.sender == owner:
            request_id = envelope.id if envelope.kind == kinds.REQUEST else fulfilled.get(envelope.id, "")
            turns.append(_to_tool_call(envelope, results.get(request_id)))
        elif envelope.family != "mcp" and envelope.kind != kinds.CANCEL and (text := full_text(envelope)):
            if envelope.sender != owner:
                turns.append(IncomingTurn(envelope.sender, text))
            elif envelope.kind != kinds.START or text not in incoming_texts:
                # MEW's agents repeat the question in their start.
                turns.append(ThoughtTurn(text))
    return turns


def _is_compression(envelope: Envelope, ids: set[str]) -> bool:
    metadata = envelope.payload.get("metadata")
    named = metadata.get("compresses") if isinstance(metadata, dict) else None
    return isinstance(named, list) and any(isinstance(one, str) and one in ids for one in named)


def _results(known: Iterable[Envelope]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the results by id of the request, and the requests that fulfilled proposals by id of the proposal."""
    results: dict[str, str] = {}
    fulfilled: dict[str, str] = {}
    for envelope in known:
        for id in envelope.correlation_id:
            if envelope.kind == kinds.RESPONSE:
                results.setdefault(id, response_text(envelope.payload))
            elif envelope.kind == kinds.REQUEST:
                fulfilled.setdefault(id, envelope.id)
    return results, fulfilled


def _to_tool_call(envelope: Envelope, result: str | None) -> ToolCallTurn:
    name, arguments = tool_of(envelope) or envelope.payload.get("method"), request_arguments(envelope)
    return ToolCallTurn(
        name if isinstance(name, str) else "request", arguments if isinstance(arguments, dict) else {}, result
    )


def _find_answer(context_tree: ContextTree, tree: Tree) -> Envelope | None:
    if tree.answer is None:
        return None
    envelopes = [*context_tree.linked, *(one for other in context_tree.trees for one in all_envelopes(other))]
    return next((one for one in reversed(envelopes) if one.id == tree.answer and one.sender == tree.owner), None)


async def _preceding_chat(log: VisibleLog, first: Envelope, owner: str) -> list[Envelope]:
    page = await log.page(before=first.seq, newest=True, limit=_MAX_LOOKBACK, kinds=(kinds.CHAT,))
    for envelope in reversed(page.envelopes):
        if envelope.context is None and envelope.sender != owner and (not envelope.to or owner in envelope.to):
            return [envelope]
    return []


async def _following_chat(log: VisibleLog, last: Envelope, owner: str) -> Envelope | None:
    page = await log.page(after=last.seq, limit=_MAX_LOOKBACK, kinds=(kinds.CHAT,))
    chat = next((one for one in page.envelopes if one.context is None), None)
    return chat if chat is not None and chat.sender == owner and not chat.correlation_id else None
