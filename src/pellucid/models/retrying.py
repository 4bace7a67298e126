"""A turn that may begin again: its stream is replaced by another as long as its first content is an error.

Until then nothing was shown, so a receiver does not notice it. Both wrappers of models that try again use it:
`truncation` with a shorter conversation, and the gateway's deployments with another one. Deployments also wait for the
first content before they return the stream, so that it is known who answers, and an error can still be a status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sized

from ..emit import TURN_LIMITS
from ..errors import ErrorInfo, ModelError, PellucidError
from ..events import ErrorEvent, ModelEvent, PartDeltaEvent, ResponseEndEvent, ResponseStartEvent, SideEvent
from .model import ModelEventReceiver, ModelRead, ModelStream, TextReceiver, TextWriter

Opener = Callable[[], Awaitable[ModelStream]]
Retry = Callable[[ErrorInfo], Opener | None]
"""Returns a function that opens another stream after an error; None if the error stands."""


class RetryingStream:
    """A stream that is replaced by another if its first content is an error. It is a `TextReceiver` for both."""

    def __init__(self, stream: ModelStream, retry: Retry) -> None:
        """Create a stream.

        Args:
            stream: The first stream, which is open.
            retry: Decides about each error.
        """
        self._stream = stream
        self._retry = retry
        self._receive: ModelEventReceiver = self._hold
        self._texts: TextReceiver | None = None
        self._is_started = False
        self._has_begun = False
        self._preamble: list[ModelEvent] = []
        """Events at the start of the turn, held back until its first content."""
        self._held_reads: list[ModelRead] = []
        """What arrived before there was a receiver."""
        self._is_held = False
        """Whether the stream was paused, because the receiver did not come."""
        self._error: PellucidError | None = None
        """The error of the last attempt, if it is the first content of the turn."""
        self._decided = asyncio.Event()
        """Set with the first content, or when the turn waits in a queue."""
        self._retry_task: asyncio.Task[None] | None = None
        self._paused = False

    @property
    def queued(self) -> bool:
        return self._stream.queued

    @property
    def request_id(self) -> str | None:
        return self._stream.request_id

    @property
    def unread_fields(self) -> Iterable[str]:
        """The paths of fields of the response that nothing reads."""
        return getattr(self._stream, "unread_fields", ())

    async def wait_for_content(self) -> None:
        """Wait for the first content of the turn, unless the turn waits in a queue. It is held until `start`.

        Raises:
            PellucidError: The first content is an error, and no other stream could be opened.
        """
        if self._stream.queued:
            return
        self._is_started = True
        try:
            self._stream.start(self._on_events, self)
            await self._decided.wait()
            if self._error is not None:
                raise self._error
        except BaseException:
            self.cancel()
            raise

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        self._receive, self._texts = receive, texts
        if not self._is_started:
            self._is_started = True
            self._stream.start(self._on_events, self)
            return
        while self._held_reads:
            receive(self._held_reads.pop(0))
        if self._is_held and not self._paused:
            self._stream.resume()

    def pause(self) -> None:
        self._paused = True
        self._stream.pause()

    def resume(self) -> None:
        self._paused = False
        self._stream.resume()

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if self._retry_task is not None and not self._has_begun:
            self._retry_task.cancel()
        held_events = [event for read in self._held_reads if isinstance(read, list) for event in read]
        held_events += self._preamble
        self._held_reads, self._preamble, self._has_begun = [], [], True
        return [*held_events, *self._stream.cancel(error)]

    # --- events --------------------------------------------------------------------------------------------------

    def _on_events(self, events: ModelRead) -> None:
        if self._has_begun:
            self._receive(events)
            return
        if not isinstance(events, list):
            self._begin(events)
            return
        first = next((event for event in events if type(event) not in _PREAMBLE_EVENTS), None)
        if first is None:
            self._preamble += [event for event in events if type(event) is not SideEvent]
            if side := [event for event in events if type(event) is SideEvent]:
                self._receive([*side])
            return
        error = _error_of(first)
        open_other = self._retry(error) if error is not None else None
        if open_other is not None:
            self._stream.cancel()
            self._retry_task = asyncio.create_task(self._replace(open_other, events))
            return
        if type(first) is ErrorEvent:
            self._error = ModelError(first.error)
        self._begin(events)

    def _begin(self, events: ModelRead) -> None:
        self._has_begun = True
        preamble, self._preamble = self._preamble, []
        if isinstance(events, list):
            self._receive([*preamble, *events])
        else:
            if preamble:
                self._receive(preamble)
            self._receive(events)
        self._decided.set()

    def _hold(self, events: ModelRead) -> None:
        self._held_reads.append(events)
        # The receiver usually comes before the next read, so that a pause would be wasted.
        if self._has_begun and len(self._held_reads) > 1:
            self._is_held = True
            self._stream.pause()

    async def _replace(self, open_other: Opener, events: list[ModelEvent]) -> None:
        try:
            stream = await open_other()
        except PellucidError as error:
            if any(type(event) is ErrorEvent for event in events):
                self._error = error
            self._begin(events)  # the error of the first stream is delivered
            return
        except Exception as error:
            self._begin(error)
            return
        self._stream, self._preamble = stream, []
        if self._paused:
            stream.pause()
        stream.start(self._on_events, self)
        if stream.queued:
            self._decided.set()

    # --- TextReceiver ----------------------------------------------------------------------------------------------

    def open_text(self, last_delta: PartDeltaEvent, close: Callable[[], None]) -> TextWriter | None:
        return self._texts.open_text(last_delta, close) if self._texts is not None else None

    @property
    def pending_events(self) -> Sized:
        return self._texts.pending_events if self._texts is not None else ()

    def add_texts(self, texts: list[tuple[str, int]]) -> None:
        assert self._texts is not None  # only after `open_text` returned its writer
        self._texts.add_texts(texts)

    def fail_text(self, error: BaseException) -> None:
        assert self._texts is not None
        self._texts.fail_text(error)


def _error_of(first: ModelEvent) -> ErrorInfo | None:
    """Return the error that the first content of a turn is: also a refusal without a word, and silence."""
    if type(first) is ResponseEndEvent and first.finish_reason == "content_filter":
        return ErrorInfo("invalid_request", "the model's provider refused the content", code="content_filter")
    if type(first) is ResponseEndEvent and first.native_finish_reason in TURN_LIMITS:
        return ErrorInfo("timeout", f"the model wrote nothing until limits.{first.native_finish_reason} was reached")
    return first.error if type(first) is ErrorEvent else None


_PREAMBLE_EVENTS = (ResponseStartEvent, SideEvent)
