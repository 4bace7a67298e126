"""Which text can be a name in a database.

PostgreSQL keeps no NUL, and neither database half of a surrogate pair. An id like that, from the path of a request
say, is nobody's: a reader finds nothing, and a writer is told.
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
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_names(**names: str | None) -> None:
    """Raises `RequestError` for the first that cannot be kept."""
    for name, text in names.items():
        if text is not None and not is_storable(text):
            raise RequestError(f"{name} holds a character that cannot be kept: a NUL or half of a surrogate pair")


def return_if_unstorable(default: M) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | M]]]:
    """For a method that looks for something by its ids: what it says when one of them cannot be an id."""

    def decorate(method: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R | M]]:
        @wraps(method)
        async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | M:
            if all(is_storable(value) for value in (*args, *kwargs.values()) if isinstance(value, str)):
                return await method(*args, **kwargs)
            return default

        return wrapper

    return decorate
