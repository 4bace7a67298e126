"""Sealed values that came back, put where they belong in the history.

* A token stands where its item stood: its parts take its place, each with its own origin.
* Reasoning that is visible beside its own seal gives way to it: the visible text may be a summary, cut or changed.
* A part that was sealed without its text is merged into the visible part that it belongs to, wherever in that turn it
  stands, if and only if the text is still the same; else the visible part stands as it is, for no provider takes a
  signature over other words. A call is known by its `tool_call_id`, a text by its `item_id`, or, where a client left
  ids out, by the text itself. No part takes two signatures.
* What belongs to a text that was empty (Gemini signs such) stands by itself, should the empty text not come back.
* The same token given twice counts once.

`attach` opens nothing itself: an opener does, which knows for whom, and says what is wrong with a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from ..parts import (
    PROVIDER_FIELDS,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    Origin,
    SealedPart,
    ThinkingPart,
    same_origin,
)
from .items import VisiblePart, digest
from .seal import Sealed
from .token import SealError

Opener: TypeAlias = Callable[[SealedPart], Sealed]
"""What is in a sealed part. Whatever it raises comes through."""


class AttachedHistory(NamedTuple):
    """The history, and what to tell about it."""

    messages: list[ModelMessage]
    sealed: list[Sealed]
    """Everything that was opened, in order."""
    unclaimed: list[VisiblePart]
    """Carriers whose text was changed or did not come back, without that text: they went nowhere."""

    def foreign(self, target: Origin) -> list[Sealed]:
        """Those of which `target` gets nothing opaque, since another model made them."""
        return [sealed for sealed in self.sealed if not same_origin(sealed.made_for, target)]

    def warnings(self, target: Origin) -> list[str]:
        """What to tell whoever gave it back: what of it does not reach `target`, which is no reason to refuse."""
        warnings = []
        if foreign := self.foreign(target):
            warnings.append(
                f"{len(foreign)} sealed item(s) were made by another model: this one gets what of them is readable, "
                "as far as it takes such"
            )
        if self.unclaimed:
            warnings.append(f"{len(self.unclaimed)} sealed signature(s) fit no text or call of the input")
        return warnings


def make_opener(
    open_token: Callable[[str], Sealed],
    location_of: Callable[[SealedPart], str],
    is_for_entity: Callable[[SealedPart, Sealed], bool] | None = None,
) -> Opener:
    """What opens the sealed parts of one request.

    Args:
        open_token: Opens a token; raises `SealError`.
        place_of: Where in the request a part stands, which the error then says.
        fits: Whether what was opened was sealed for the entity at which it came back; None where any will do.
    """

    def open_part(part: SealedPart) -> Sealed:
        try:
            sealed = open_token(part.token)
            if is_for_entity is not None and not is_for_entity(part, sealed):
                raise SealError("seal_foreign", "this value was sealed for another message or call")
        except SealError as error:
            raise error.at(location_of(part)) from None
        return sealed

    return open_part


def attach(messages: Sequence[ModelMessage], opener: Opener) -> AttachedHistory:
    """The conversation without sealed parts. The responses between two requests are one turn, or pieces of one."""
    attached = AttachedHistory([], [], [])
    for message in messages:
        if isinstance(message, ModelResponse) and any(isinstance(part, SealedPart) for part in message.parts):
            turn = _Turn(message.parts, opener)
            attached.messages.append(replace(message, parts=turn.merged_parts()))
            attached.sealed.extend(turn.sealed)
            attached.unclaimed.extend(turn.unclaimed)
        else:
            attached.messages.append(message)
    return attached


class _Turn:
    """The parts of one turn."""

    def __init__(self, parts: Sequence[ModelResponsePart], opener: Opener) -> None:
        self.sealed: list[Sealed] = []
        self.unclaimed: list[VisiblePart] = []
        self._opened: dict[int, Sealed] = {}
        """What was in the sealed part at each place."""
        self._parts = list(parts)
        tokens: set[str] = set()
        for place, part in enumerate(parts):
            if isinstance(part, SealedPart) and part.token not in tokens:
                tokens.add(part.token)
                opened = opener(part)
                self._opened[place] = opened
                self.sealed.append(opened)
        self._claimed: set[int] = set()
        self._digests = {place: digest(part) for place, part in enumerate(parts) if isinstance(part, VisiblePart)}

    def merged_parts(self) -> list[ModelResponsePart]:
        standalone = {place: self._standalone_parts(sealed) for place, sealed in self._opened.items()}
        duplicated = self._duplicated_places()
        out: list[ModelResponsePart] = []
        for place, part in enumerate(self._parts):
            if isinstance(part, SealedPart):
                out += standalone.get(place, [])
            elif place not in duplicated:
                out.append(part)
        return out

    def _standalone_parts(self, sealed: Sealed) -> list[ModelResponsePart]:
        """The parts that stand by themselves; the others are merged on the way."""
        out: list[ModelResponsePart] = []
        digests = sealed.digests or [None] * len(sealed.parts)
        for part, text_digest in zip(sealed.parts, digests, strict=True):
            if text_digest is None or not isinstance(part, VisiblePart):
                out.append(part)
            elif (place := self._find_place(part, text_digest)) is not None:
                self._claimed.add(place)
                self._parts[place] = _merge_part(self._parts[place], part)
            elif text_digest == digest(part):
                out.append(part)
            else:
                self.unclaimed.append(part)
        return out

    def _find_place(self, part: VisiblePart, text_digest: str) -> int | None:
        same = [place for place, here in self._digests.items() if here == text_digest and place not in self._claimed]
        name = "tool_call_id" if hasattr(part, "tool_call_id") else "item_id"
        wanted = getattr(part, name)
        named = (place for place in same if getattr(self._parts[place], name) == wanted)
        nameless = (place for place in same if getattr(self._parts[place], name) in (None, ""))
        return next(named, None) if name == "tool_call_id" else next(named, next(nameless, None))

    def _duplicated_places(self) -> set[int]:
        """Where visible reasoning stands beside its own seal."""
        ids: set[str] = set()
        texts: set[str] = set()
        for place, sealed in self._opened.items():
            thoughts = [part.content for part in sealed.parts if isinstance(part, ThinkingPart)]
            if thoughts:
                ids |= {id for id in (sealed.item_id, getattr(self._parts[place], "item_id", None)) if id is not None}
                texts |= {*thoughts, "".join(thoughts), "\n\n".join(thoughts)}
        return {
            place
            for place, part in enumerate(self._parts)
            if isinstance(part, ThinkingPart)
            and (part.item_id in ids or (part.item_id is None and part.origin is None and part.content in texts))
        }


def _merge_part(visible: ModelResponsePart, sealed: VisiblePart) -> ModelResponsePart:
    """The visible part with what its maker put on it. One that was cut off stays so, whatever its client says."""
    names = (*PROVIDER_FIELDS, "origin", "annotations")
    opaque_fields = {name: value for name in names if (value := getattr(sealed, name, None)) is not None}
    return replace(visible, **opaque_fields) if sealed.complete else replace(visible, complete=False, **opaque_fields)
