"""Check that texts can be stored as names in SQLite and PostgreSQL.

PostgreSQL cannot store NUL, and neither database can store a lone surrogate. Such an id, for example from the path of a
request, cannot exist: a read finds nothing, and a write raises an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ..errors import RequestError

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")


def is_storable(text: str) -> bool:
    """Return whether both databases can store a text."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_names(**names: str | None) -> None:
    """Raise `RequestError` for the first name that cannot be stored. Keys are the field names for the message."""
    if is_storable("".join([text for text in names.values() if text is not None])):
        return  # nearly always, and much faster for many names
    for name, text in names.items():
        if text is not None and not is_storable(text):
            raise RequestError(f"{name} contains a character that cannot be stored: NUL or a lone surrogate")


def return_if_unstorable(default: M) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | M]]]:
    """Decorate a method so that it returns `default` if one of its text arguments cannot be stored."""

    def decorate(method: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R | M]]:
        @wraps(method)
        async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | M:
            if all(is_storable(value) for value in (*args, *kwargs.values()) if isinstance(value, str)):
                return await method(*args, **kwargs)
            return default

        return wrapper

    return decorate
