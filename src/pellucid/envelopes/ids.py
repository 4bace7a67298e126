"""Ids: of envelopes, and of who is in a space. Printable, at most 255 characters, and otherwise anything; who comes in
has one without blanks, for it is typed, and stands in lists."""

from __future__ import annotations

from typing import Any

from .envelope import EnvelopeError
from .frames import name_of

MAX_LENGTH = 255
MOST = 256
"""How many may stand in one list."""

_OURS = "system:"


def is_id(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_LENGTH and value.isprintable()


def checked(value: Any, at: str) -> str:
    """The id itself. Raises `EnvelopeError`, naming the place `at`."""
    if is_id(value):
        return str(value)
    if not isinstance(value, str):
        raise EnvelopeError(f"{at}: must be a string, not {name_of(value)}", code="invalid_type", param=at)
    if len(value) > MAX_LENGTH:
        raise EnvelopeError(f"{at}: at most {MAX_LENGTH} characters, not {len(value)}", code="too_long", param=at)
    what = "must not be empty" if not value else "must have no control characters, and no blanks but spaces"
    raise EnvelopeError(f"{at}: {what}", param=at)


def several(value: Any, at: str) -> tuple[str, ...]:
    """One id, a list of them, or none. Raises `EnvelopeError`."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (checked(value, at),)
    if not isinstance(value, list):
        raise EnvelopeError(f"{at}: must be an array of ids, not {name_of(value)}", code="invalid_type", param=at)
    if len(value) > MOST:
        raise EnvelopeError(f"{at}: at most {MOST} ids, not {len(value)}", code="too_long", param=at)
    return tuple(checked(one, f"{at}[{index}]") for index, one in enumerate(value))


def participant(value: Any, at: str = "participant") -> str:
    """The id of somebody who may come in: not one of the gateway's. Raises `EnvelopeError`."""
    name = checked(value, at)
    if name.lower().startswith(_OURS):
        raise EnvelopeError(f"{at}: {name!r} is the gateway's: nobody's id begins with {_OURS!r}", param=at)
    if " " in name:
        raise EnvelopeError(
            f"{at}: {name!r} has blanks, and an id has none; {'-'.join(name.split()) or 'alice'!r} would do", param=at
        )
    return name
