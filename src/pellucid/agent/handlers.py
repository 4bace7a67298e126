"""Who is told of events while a run goes on: `handler(event)`, for each, or `handler(ctx, events)`, for all."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from ..events import Event
from ..tools import RunContext

EventHandler: TypeAlias = (
    Callable[[Event], Awaitable[None] | None] | Callable[[RunContext[Any], AsyncIterator[Event]], Awaitable[None]]
)


async def handle(handler: EventHandler, context: RunContext[Any], events: AsyncIterator[Event]) -> None:
    """Tell `handler` of all `events`; what it does not read is read here."""
    tell: Callable[..., Any] = handler
    if _parameters(handler) >= 2:
        result = tell(context, events)
        if inspect.isawaitable(result):
            await result
        async for _ in events:
            pass
    else:
        async for event in events:
            result = tell(event)
            if inspect.isawaitable(result):
                await result


def _parameters(handler: Callable[..., Any]) -> int:
    """How many arguments it must be, or can be, given by place."""
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(handler).parameters.values()
    return sum(parameter.kind in places and parameter.default is parameter.empty for parameter in parameters)
