"""Restore sealed items that clients sent back in the history.

* A token is at the place of its item. The item's parts replace it, each with its own origin.
* Visible reasoning next to its own seal is dropped in favour of the seal, because the visible text may be a summary, or
  cut or changed. Whether it was changed is reported (`AttachedHistory.edited`), for each token that comes with a text,
  also a repeated one. A text on one token may be that of all tokens since the last text: some protocols have one field
  for all reasoning of a message.
* A part that was sealed without its text is merged into its visible part, wherever that is in the turn, if and only if
  the text is unchanged. Otherwise the visible part stays as it is, because no provider accepts a signature over a
  different text. A call is identified by its `tool_call_id`, a text by its `item_id` or, if a client left ids out, by
  the text itself. No part gets two signatures.
* The opaque data of an empty text (Gemini signs such texts) becomes a part of its own if the empty text did not come
  back.
* A repeated token counts once.

`attach` does not open tokens itself. An opener does, which knows the tenant and reports faults of a token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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
    ToolCallPart,
    same_origin,
)
from .items import VisiblePart, digest
from .seal import Sealed
from .token import SealError
from .visible_text import VisibleForms, all_forms, is_unchanged

Opener: TypeAlias = Callable[[SealedPart], Sealed]
"""Opens a sealed part. Its exceptions are not caught."""


class AttachedHistory(NamedTuple):
    """A history whose sealed parts were opened, and what was found in it."""

    messages: list[ModelMessage]
    sealed: list[Sealed]
    """All opened values, in order."""
    unclaimed: list[VisiblePart]
    """Parts with signatures whose visible text was changed or did not come back. They are dropped."""
    edited: list[Sealed]
    """Values that came back with another visible text than the client got."""

    def foreign(self, target: Origin) -> list[Sealed]:
        """Return the sealed values of other models, whose opaque data is not sent to `target`."""
        return [sealed for sealed in self.sealed if not same_origin(sealed.made_for, target)]

    def warnings(self, target: Origin) -> list[str]:
        """Return warnings for the client about what of its input does not reach `target`. They are not errors."""
        warnings = []
        if foreign := self.foreign(target):
            warnings.append(
                f"{len(foreign)} sealed item(s) were made by another model: this one gets what of them is readable, "
                "as far as it takes such"
            )
        if self.unclaimed:
            warnings.append(f"{len(self.unclaimed)} sealed signature(s) fit no text or call of the input")
        return warnings + edited_warnings(self.edited)


def edited_warnings(edited: Sequence[Sealed]) -> list[str]:
    """Return the warning about values of reasoning that came back with another text; empty if there are none."""
    if not edited:
        return []
    return [f"the text of {len(edited)} sealed item(s) of reasoning was changed: the sealed text is used"]


def make_opener(
    open_token: Callable[[str], Sealed],
    location_of: Callable[[SealedPart], str],
    is_carrier: Callable[[str, str | None, Collection[str]], bool] | None = None,
) -> Opener:
    """Make the opener of the sealed parts of one request.

    Args:
        open_token: Opens a token; raises `SealError`.
        location_of: Returns the path of a part in the request, for errors.
        is_carrier: Whether a value may come back on an entity, by the entity's id, and the ids of the sealed item and
            of the calls in it; None if any entity is accepted.

    Returns:
        An opener. It raises `SealError` with the path of the part.
    """

    def open_part(part: SealedPart) -> Sealed:
        try:
            sealed = open_token(part.token)
            call_ids = [inner.tool_call_id for inner in sealed.parts if isinstance(inner, ToolCallPart)]
            if is_carrier is not None and (
                part.item_id is None or not is_carrier(part.item_id, sealed.item_id, call_ids)
            ):
                raise SealError("seal_foreign", "this value was sealed for another message or call")
        except SealError as error:
            raise error.at(location_of(part)) from None
        return sealed

    return open_part


def attach(
    messages: Sequence[ModelMessage], opener: Opener, visible_forms: VisibleForms = all_forms
) -> AttachedHistory:
    """Replace the sealed parts of a conversation by the parts that they hold.

    Args:
        messages: The conversation. The responses between two requests are one turn, or pieces of one.
        opener: Opens a sealed part.
        visible_forms: The forms of an item's reasoning that the client may see.

    Returns:
        The conversation without sealed parts, and all opened values.
    """
    history = AttachedHistory([], [], [], [])
    for message in messages:
        if isinstance(message, ModelResponse) and any(isinstance(part, SealedPart) for part in message.parts):
            turn = _Turn(message.parts, opener, visible_forms)
            history.messages.append(replace(message, parts=turn.merged_parts()))
            history.sealed.extend(turn.sealed)
            history.unclaimed.extend(turn.unclaimed)
            history.edited.extend(turn.edited)
        else:
            history.messages.append(message)
    return history


class _Turn:
    """The parts of one turn, and the values of its sealed parts."""

    def __init__(self, parts: Sequence[ModelResponsePart], opener: Opener, visible_forms: VisibleForms) -> None:
        self.sealed: list[Sealed] = []
        self.unclaimed: list[VisiblePart] = []
        self.edited: list[Sealed] = []
        self._opened: dict[int, Sealed] = {}
        """The opened value of the sealed part at each index."""
        self._parts = list(parts)
        values: dict[str, Sealed] = {}
        without_text: dict[str, Sealed] = {}
        """The values since the last text, by token."""
        for index, part in enumerate(parts):
            if not isinstance(part, SealedPart):
                continue
            if part.token not in values:
                values[part.token] = self._opened[index] = opener(part)
                self.sealed.append(self._opened[index])
            value = values[part.token]
            without_text[part.token] = value
            if part.visible_texts:
                if not all(
                    is_unchanged(text, [value], visible_forms)
                    or is_unchanged(text, [*without_text.values()], visible_forms)
                    for text in part.visible_texts
                ):
                    self.edited.append(value)
                without_text = {}
        self._claimed: set[int] = set()
        self._digests = {index: digest(part) for index, part in enumerate(parts) if isinstance(part, VisiblePart)}

    def merged_parts(self) -> list[ModelResponsePart]:
        """Return the turn's parts without sealed parts."""
        standalone = {index: self._standalone_parts(sealed) for index, sealed in self._opened.items()}
        duplicated = self._duplicated_indexes()
        out: list[ModelResponsePart] = []
        for index, part in enumerate(self._parts):
            if isinstance(part, SealedPart):
                out += standalone.get(index, [])
            elif index not in duplicated:
                out.append(part)
        return out

    def _standalone_parts(self, sealed: Sealed) -> list[ModelResponsePart]:
        """Return the parts that replace the token. Parts that belong to a visible part are merged into it."""
        out: list[ModelResponsePart] = []
        digests = sealed.digests or [None] * len(sealed.parts)
        for part, text_digest in zip(sealed.parts, digests, strict=True):
            if text_digest is None or not isinstance(part, VisiblePart):
                out.append(part)
            elif (index := self._find_index(part, text_digest)) is not None:
                self._claimed.add(index)
                self._parts[index] = _merge_part(self._parts[index], part)
            elif text_digest == digest(part):
                out.append(part)
            else:
                self.unclaimed.append(part)
        return out

    def _find_index(self, part: VisiblePart, text_digest: str) -> int | None:
        same = [index for index, here in self._digests.items() if here == text_digest and index not in self._claimed]
        name = "tool_call_id" if hasattr(part, "tool_call_id") else "item_id"
        wanted = getattr(part, name)
        named = (index for index in same if getattr(self._parts[index], name) == wanted)
        nameless = (index for index in same if getattr(self._parts[index], name) in (None, ""))
        return next(named, None) if name == "tool_call_id" else next(named, next(nameless, None))

    def _duplicated_indexes(self) -> set[int]:
        """Return the indexes of visible reasoning that is also sealed, or that a client added to a seal."""
        ids: set[str] = set()
        texts: set[str] = set()
        for index, sealed in self._opened.items():
            token = self._parts[index]
            assert isinstance(token, SealedPart)
            thoughts = [part.content for part in sealed.parts if isinstance(part, ThinkingPart)]
            if thoughts or token.visible_texts:
                ids |= {id for id in (sealed.item_id, token.item_id) if id is not None}
            if thoughts:
                texts |= {*thoughts, "".join(thoughts), "\n\n".join(thoughts)}
        return {
            index
            for index, part in enumerate(self._parts)
            if isinstance(part, ThinkingPart)
            and (part.item_id in ids or (part.item_id is None and part.origin is None and part.content in texts))
        }


def _merge_part(visible: ModelResponsePart, sealed: VisiblePart) -> ModelResponsePart:
    """Merge opaque data into the visible part. A part that was cut off stays incomplete, whatever the client sends."""
    names = (*PROVIDER_FIELDS, "origin", "annotations")
    opaque_fields = {name: value for name in names if (value := getattr(sealed, name, None)) is not None}
    return replace(visible, **opaque_fields) if sealed.complete else replace(visible, complete=False, **opaque_fields)
