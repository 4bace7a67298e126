"""A reasoning as a conversation with the model that reasoned: what it heard, thought, called and answered.

Export for training and for telemetry is made of it. Its rules:

* It is the owner's: the model that is to learn to reason so. What it said in the context is its thinking, whatever the
  kind; what came out of it in the main conversation is its answer.
* What triggered it was heard first. Where nothing is correlated (the drafts' flows), what another said last in the main
  conversation is taken for it, and `trigger` says so; what its owner says next there is taken for its answer.
* What others said in the context was heard in its place. What they responded to the owner's requests is the result of
  the call; a proposal that somebody fulfilled is a call, too.
* What erasure left, what says nothing in words, and what only stands for other thoughts in it, is not there.

The words of an envelope, for people and models to read: what its sender said, without the field names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from ...envelopes import GATEWAY, Envelope, kinds, text_of
from ...envelopes.mcp import given_to, text_in, tool_of
from ...envelopes.tree import Tree
from .grown import Grown, in_order
from .reading import Log

BRIEF = 200
"""Characters of what is said in one line."""


def words(envelope: Envelope) -> str:
    """All that it says; empty if it says nothing in words."""
    said = [text_of(envelope)]
    for name in kinds.kind_of(envelope.kind).more_text_fields:
        said += _lines(envelope.payload.get(name))
    return "\n".join(dict.fromkeys(line for line in said if line))


def brief(envelope: Envelope) -> str:
    """The beginning of it, on one line; an ellipsis where more was said."""
    text = " ".join(text_of(envelope).split())
    return text if len(text) <= BRIEF else f"{text[: BRIEF - 1]}…"


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [f"- {one if isinstance(one, str) else json_text(one)}" for one in value]
    return [] if value is None else [json_text(value)]


_LOOKED_BACK = 20
"""So many chats are looked at for one that may have triggered it."""


class Heard(msgspec.Struct, frozen=True):
    speaker: str
    text: str


class Thought(msgspec.Struct, frozen=True):
    text: str


class Called(msgspec.Struct, frozen=True):
    name: str
    """The tool's; of another request, its method."""
    arguments: dict[str, Any]
    result: str | None
    """None: nobody responded."""


class Answer(msgspec.Struct, frozen=True):
    text: str


Turn: TypeAlias = Heard | Thought | Called | Answer
Trigger: TypeAlias = Literal["correlated", "preceding", "none"]


class Dialogue(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    turns: tuple[Turn, ...]
    trigger: Trigger
    participants: tuple[str, ...]
    """All who speak in it, the owner too."""
    first: Envelope
    answered: bool
    """Whether it ends with an answer, or a conclusion."""


async def dialogue(log: Log, grown: Grown, tree: Tree) -> Dialogue | None:
    """None: nothing in it says anything in words."""
    said = list(in_order(tree))
    owner = tree.owner or said[0].sender
    trigger: Trigger = "correlated"
    heard = [one for one in grown.triggers if one.id in tree.triggers]
    if not heard:
        heard, trigger = await _preceding(log, said[0], owner), "preceding"
    if not heard:
        trigger = "none"
    turns: list[Turn] = [Heard(one.sender, text) for one in heard if (text := _told(one))]
    turns += _inside(said, owner, [*said, *grown.linked], {turn.text for turn in turns if isinstance(turn, Heard)})
    answer = _answer(grown, tree)
    if answer is None and tree.answer is None and trigger != "correlated":
        answer = await _following(log, said[-1], owner)
    if answer is not None and (text := _told(answer)):
        turns.append(Answer(text))
    if not any(isinstance(turn, Thought | Called | Answer) for turn in turns):
        return None
    concluded = any(one.kind == kinds.CONCLUSION and one.sender == owner and words(one) for one in said)
    speakers = [turn.speaker for turn in turns if isinstance(turn, Heard)]
    return Dialogue(
        owner=owner,
        turns=tuple(turns),
        trigger=trigger,
        participants=tuple(dict.fromkeys([*speakers, *tree.participants])),
        first=said[0],
        answered=isinstance(turns[-1], Answer) or concluded,
    )


def result_text(payload: dict[str, Any]) -> str:
    """What a response says: the texts of a tool's content if there is nothing else in it, or its JSON."""
    error, result = payload.get("error"), payload.get("result")
    if error is not None:
        return json_text({"error": error})
    if (text := text_in(result)) is not None:
        return text
    return result if isinstance(result, str) else "" if result is None else json_text(result)


def _told(envelope: Envelope) -> str:
    if envelope.kind == kinds.RESPONSE:
        return result_text(envelope.payload)
    text = words(envelope)
    if not text and kinds.kind_of(envelope.kind).link == "call":
        return json_text({name: envelope.payload[name] for name in ("method", "params") if name in envelope.payload})
    return text


def _inside(said: Iterable[Envelope], owner: str, known: Iterable[Envelope], heard: set[str]) -> list[Turn]:
    results, fulfilled = _results(known)
    said = list(said)
    ids = {envelope.id for envelope in said}
    turns: list[Turn] = []
    for envelope in said:
        if envelope.sender == GATEWAY or envelope.is_erased or _stands_for(envelope, ids):
            continue
        if kinds.kind_of(envelope.kind).link == "call" and envelope.sender == owner:
            asked = envelope.id if envelope.kind == kinds.REQUEST else fulfilled.get(envelope.id, "")
            turns.append(_called(envelope, results.get(asked)))
        elif envelope.family != "mcp" and envelope.kind != kinds.CANCEL and (text := words(envelope)):
            if envelope.sender != owner:
                turns.append(Heard(envelope.sender, text))
            elif envelope.kind != kinds.START or text not in heard:
                # MEW's agents start with what they were asked.
                turns.append(Thought(text))
    return turns


def _stands_for(envelope: Envelope, ids: set[str]) -> bool:
    metadata = envelope.payload.get("metadata")
    named = metadata.get("compresses") if isinstance(metadata, dict) else None
    return isinstance(named, list) and any(isinstance(one, str) and one in ids for one in named)


def _results(known: Iterable[Envelope]) -> tuple[dict[str, str], dict[str, str]]:
    """Results by the id of the request, and the requests that fulfilled proposals."""
    results: dict[str, str] = {}
    fulfilled: dict[str, str] = {}
    for envelope in known:
        for id in envelope.correlation_id:
            if envelope.kind == kinds.RESPONSE:
                results.setdefault(id, result_text(envelope.payload))
            elif envelope.kind == kinds.REQUEST:
                fulfilled.setdefault(id, envelope.id)
    return results, fulfilled


def _called(envelope: Envelope, result: str | None) -> Called:
    name, given = tool_of(envelope) or envelope.payload.get("method"), given_to(envelope)
    return Called(name if isinstance(name, str) else "request", given if isinstance(given, dict) else {}, result)


def _answer(grown: Grown, tree: Tree) -> Envelope | None:
    if tree.answer is None:
        return None
    every = [*grown.linked, *(one for other in grown.trees for one in in_order(other))]
    return next((one for one in reversed(every) if one.id == tree.answer and one.sender == tree.owner), None)


async def _preceding(log: Log, first: Envelope, owner: str) -> list[Envelope]:
    page = await log.page(before=first.seq, newest=True, limit=_LOOKED_BACK, kinds=(kinds.CHAT,))
    for envelope in reversed(page.envelopes):
        if envelope.context is None and envelope.sender != owner and (not envelope.to or owner in envelope.to):
            return [envelope]
    return []


async def _following(log: Log, last: Envelope, owner: str) -> Envelope | None:
    page = await log.page(after=last.seq, limit=_LOOKED_BACK, kinds=(kinds.CHAT,))
    said = next((one for one in page.envelopes if one.context is None), None)
    return said if said is not None and said.sender == owner and not said.correlation_id else None
