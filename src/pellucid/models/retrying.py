"""A turn that may begin again: its stream is replaced by another as long as its first content is an error.

Until then nothing was shown, so a receiver does not notice it. Both wrappers of models that try again use it:
`truncation` with a shorter conversation, and the gateway's deployments with another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..errors import ErrorInfo, PellucidError
from ..events import ErrorEvent, ModelEvent, ResponseEndEvent, ResponseStartEvent, SideEvent
from .model import ModelEventReceiver, ModelRead, ModelStream, TextReceiver

Retry = Callable[[ErrorInfo], Awaitable[ModelStream] | None]
"""Returns the opening of another stream after an error; None if the error stands."""


class RetryingStream:
    """A stream that is replaced by another if its first content is an error."""

    def __init__(self, stream: ModelStream, retry: Retry) -> None:
        """Create a stream.

        Args:
            stream: The first stream, which is open.
            retry: Decides about each error.
        """
        self._stream = stream
        self._retry = retry
        self._receive: ModelEventReceiver
        self._texts: TextReceiver | None = None
        self._has_begun = False
        self._held_events: list[ModelEvent] = []
        """Events at the start of the turn, held back until its first content."""
        self._retry_task: asyncio.Task[None] | None = None
        self._paused = False

    @property
    def queued(self) -> bool:
        return self._stream.queued

    @property
    def request_id(self) -> str | None:
        return getattr(self._stream, "request_id", None)

    @property
    def deployment(self) -> str | None:
        """The deployment that answers, if the model has several."""
        return getattr(self._stream, "deployment", None)

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        self._receive, self._texts = receive, texts
        self._stream.start(self._on_events, texts)

    def pause(self) -> None:
        self._paused = True
        self._stream.pause()

    def resume(self) -> None:
        self._paused = False
        self._stream.resume()

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if self._retry_task is not None and not self._has_begun:
            self._retry_task.cancel()
        held_events, self._held_events, self._has_begun = self._held_events, [], True
        return [*held_events, *self._stream.cancel(error)]

    def _on_events(self, events: ModelRead) -> None:
        if self._has_begun or isinstance(events, Exception):
            self._receive(events)
            return
        if events is not None and all(type(event) in _PREAMBLE_EVENTS for event in events):
            self._held_events += [event for event in events if type(event) is not SideEvent]
            if side := [event for event in events if type(event) is SideEvent]:
                self._receive([*side])
            return
        error = _error_of(next((event for event in events or [] if type(event) not in _PREAMBLE_EVENTS), None))
        opening = self._retry(error) if error is not None else None
        if opening is None:
            self._begin(events)
            return
        self._stream.cancel()
        self._retry_task = asyncio.create_task(self._replace(opening, events))

    def _begin(self, events: list[ModelEvent] | None) -> None:
        self._has_begun = True
        held_events, self._held_events = self._held_events, []
        if events is not None or held_events:
            self._receive([*held_events, *(events or [])])
        if events is None:
            self._receive(None)

    async def _replace(self, opening: Awaitable[ModelStream], events: list[ModelEvent] | None) -> None:
        try:
            stream = await opening
        except PellucidError:
            self._begin(events)  # the error of the first stream is delivered
            return
        except Exception as error:
            self._receive(error)
            return
        self._stream, self._held_events = stream, []
        if self._paused:
            stream.pause()
        stream.start(self._on_events, self._texts)


def _error_of(first: ModelEvent | None) -> ErrorInfo | None:
    """Return the error that the first content of a turn is: also a refusal without a word."""
    if type(first) is ResponseEndEvent and first.finish_reason == "content_filter":
        return ErrorInfo("invalid_request", "the model's provider refused the content", code="content_filter")
    return first.error if type(first) is ErrorEvent else None


_PREAMBLE_EVENTS = (ResponseStartEvent, SideEvent)
