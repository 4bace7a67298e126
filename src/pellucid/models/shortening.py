"""A model whose conversations may be cut to fit its context (`truncation: "auto"`): without the oldest whole turns.

* Only where it is needed. How long a conversation is in tokens, only its model can say: it is asked with all of it, and
  asked again with less when it says that this was too much, before it has said anything else. Where the operator has
  said how long its context is, what is surely too long is not sent at all.
* What was left out once stays out for the rest of the run. A model is asked `TRIES` times for a turn at most, the last
  time with nothing but what is never left out; what it says then stands.

Which turns can be left out, and what stays of them, is `pellucid.conversation`'s to say.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from ..conversation import droppable, shortened, weights
from ..errors import ErrorInfo, ModelError, PellucidError
from ..events import ErrorEvent, ModelEvent, ResponseStartEvent, SideEvent
from ..providers.faults import TOO_LONG
from ..settings import ModelCall
from .model import Asked, ModelEventReceiver, ModelRead, ModelStream

TRIES = 8
SHARE = 1 / 3
"""How much of what can be left out is, each time."""

CHARACTERS = 4
"""In a token: more than most text has, so that what is found too long is."""


class Shortening:
    """`inner`, for one run. `context`: how many tokens fit, as far as that is known."""

    def __init__(self, inner: Asked, context: int | None = None) -> None:
        self.name = inner.name
        self.origin = inner.origin
        self.warnings = inner.warnings
        self.left_out = 0
        """How many turns."""
        self._inner = inner
        self._context = context
        self._tries = TRIES

    async def open(self, call: ModelCall) -> ModelStream:
        """Raises what `inner` raises, once there is nothing to leave out any more."""
        self._tries = TRIES
        if self._context is not None:
            self._fit(call, self._context)
        return _ShorteningStream(self, call, await self.ask(call))

    async def ask(self, call: ModelCall) -> ModelStream:
        while True:
            self._tries -= 1
            try:
                return await self._inner.open(replace(call, messages=shortened(call.messages, self.left_out)))
            except ModelError as error:
                if not self.shorten(call, error.info):
                    raise

    def shorten(self, call: ModelCall, error: ErrorInfo) -> bool:
        """Leave more out, if that is what is wrong, and can be done."""
        possible = droppable(call.messages)
        if error.code != TOO_LONG or self.left_out >= possible or self._tries <= 0:
            return False
        if self._tries == 1:
            self.left_out = possible
            return True
        turns = weights(call.messages)[self.left_out : possible]
        gone, most = 0, sum(turns) * SHARE
        while gone < most or not gone:
            gone += turns.pop(0) or 1
            self.left_out += 1
        return True

    def _fit(self, call: ModelCall, context: int) -> None:
        room = (context - call.settings.get("max_tokens", 0)) * CHARACTERS
        turns, possible = weights(call.messages), droppable(call.messages)
        while self.left_out < possible and sum(turns[self.left_out :]) > room:
            self.left_out += 1


class _ShorteningStream:
    """A stream that may turn out to be too long until it has begun to say something."""

    def __init__(self, model: Shortening, call: ModelCall, stream: ModelStream) -> None:
        self._model = model
        self._call = call
        self._stream = stream
        self._receive: ModelEventReceiver | None = None
        self._begun = False
        self._held: list[ModelEvent] = []
        """What a turn begins with, whatever becomes of it."""
        self._retry: asyncio.Task[None] | None = None
        self._paused = False

    @property
    def queued(self) -> bool:
        return self._stream.queued

    @property
    def request_id(self) -> str | None:
        return getattr(self._stream, "request_id", None)

    def start(self, receive: ModelEventReceiver) -> None:
        self._receive = receive
        self._stream.start(self._on_first_events)

    def pause(self) -> None:
        self._paused = True
        self._stream.pause()

    def resume(self) -> None:
        self._paused = False
        self._stream.resume()

    def _on_first_events(self, events: ModelRead) -> None:
        receive = self._receive
        assert receive is not None
        if self._begun or isinstance(events, Exception):
            receive(events)
            return
        if events is not None and all(type(event) in _BEFORE for event in events):
            self._held += [event for event in events if type(event) is not SideEvent]
            if side := [event for event in events if type(event) is SideEvent]:
                receive([*side])
            return
        said = [event for event in events or [] if type(event) not in _BEFORE]
        if said and isinstance(said[0], ErrorEvent) and self._model.shorten(self._call, said[0].error):
            self._stream.cancel()
            self._retry = asyncio.create_task(self._ask_again(events))
            return
        self._begin(events)

    def _begin(self, events: list[ModelEvent] | None) -> None:
        self._begun = True
        held, self._held = self._held, []
        assert self._receive is not None
        if events is not None or held:
            self._receive([*held, *(events or [])])
        if events is None:
            self._receive(None)

    async def _ask_again(self, events: list[ModelEvent] | None) -> None:
        try:
            stream = await self._model.ask(self._call)
        except PellucidError:
            self._begin(events)  # that it was too long stands
            return
        except Exception as fault:
            if self._receive is not None:
                self._receive(fault)
            return
        self._stream, self._held = stream, []
        if self._paused:
            stream.pause()
        stream.start(self._on_first_events)

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if self._retry is not None and not self._begun:
            self._retry.cancel()
        held, self._held, self._begun = self._held, [], True
        return [*held, *self._stream.cancel(error)]


_BEFORE = (ResponseStartEvent, SideEvent)
