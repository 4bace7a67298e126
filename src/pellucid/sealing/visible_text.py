"""Compares the reasoning that a client sent back next to a seal with what is sealed.

* White space does not count: protocols join the parts of an item in different ways, and clients trim texts.
* Readers get all parts of an item, or those of some forms, depending on their view and on the field of the protocol.
* The gateway's summaries are not sealed: a seal has only their digest. They come before or after the other text.
* A text is compared only with forms that the reader may see. Otherwise a reader could find out whether it guessed the
  rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import TypeAlias, get_args

from ..parts import Form, ThinkingPart
from ..unicode import replace_surrogates
from .seal import Sealed, TextDigest

VisibleForms: TypeAlias = Callable[[Sealed], Collection[Form]]
"""Returns the forms of an item's reasoning that the reader may see."""

_ALL_FORMS: frozenset[Form] = frozenset(get_args(Form))


def all_forms(item: Sealed) -> Collection[Form]:
    """Return all forms, for a reader who may see the reasoning of every item."""
    return _ALL_FORMS


def digest_of_texts(texts: Iterable[str]) -> TextDigest | None:
    """Return the digest of texts that a reader gets one after the other; None if there is no text."""
    data = b"".join(map(_without_space, texts))
    return TextDigest(len(data), _digest(data)) if data else None


def is_unchanged(text: str, items: Sequence[Sealed], visible_forms: VisibleForms) -> bool:
    """Whether a text is what a reader gets of the reasoning of these items, one after the other.

    Args:
        text: The text.
        items: The items.
        visible_forms: The forms that the reader may see.
    """
    forms = [visible_forms(item) for item in items]
    thoughts = [
        [part for part in item.parts if isinstance(part, ThinkingPart) and part.content and part.form in visible]
        for item, visible in zip(items, forms, strict=True)
    ]
    all_thoughts = list(chain.from_iterable(thoughts))
    if text == "\n\n".join(part.content for part in all_thoughts):
        return True  # as most protocols write it
    data = _without_space(text)
    contents = [[(part.form, _without_space(part.content)) for part in parts] for parts in thoughts]
    summaries = [item.summaries if "summary" in visible else None for item, visible in zip(items, forms, strict=True)]
    present = {part.form for part in all_thoughts}
    return any(
        _consists_of(
            data, [b"".join(content for form, content in parts if form in shown) for parts in contents], summaries
        )
        for count in range(len(present) + 1)
        for shown in combinations(present, count)
    )


def _consists_of(data: bytes, thoughts: list[bytes], summaries: list[TextDigest | None]) -> bool:
    """Whether a text consists of the thoughts of items, each with or without its summaries."""
    ends = {0}
    for thought, summary in zip(thoughts, summaries, strict=True):
        starts = ends | {end for start in ends for end in _ends_of(summary, data, start)}
        ends = {start + len(thought) for start in starts if data.startswith(thought, start)}
        ends |= {end for start in ends for end in _ends_of(summary, data, start)}
    return len(data) in ends


def _ends_of(summary: TextDigest | None, data: bytes, start: int) -> Iterator[int]:
    """Yield the end of the summaries that begin at a place of the text, if they do."""
    if summary is not None:
        end = start + summary.length
        if _digest(data[start:end]) == summary.digest:
            yield end


def _without_space(text: str) -> bytes:
    return replace_surrogates(text).encode().translate(None, b" \t\n\r\v\f")


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
