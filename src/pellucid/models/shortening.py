"""A model whose conversations may be cut to fit its context (`truncation: "auto"`): without the oldest whole turns.

* Only where it is needed. How long a conversation is in tokens, only its model can say: it is asked with all of it, and
  asked again with less when it says that this was too much, before it has said anything else. Where the operator has
  said how long its context is, what is surely too long is not sent at all.
* What was left out once stays out for the rest of the run. A model is asked `TRIES` times for a turn at most, the last
  time with nothing but what is never left out; what it says then stands.

Which turns can be left out, and what stays of them, is `pellucid.conversation`'s to say.
"""

from __future__ import annotations

from collections.abc import Awaitable

from msgspec.structs import replace

from ..conversation import droppable, shortened, weights
from ..errors import ErrorInfo, ModelError, PellucidError
from ..events import ErrorEvent, ModelEvent, ResponseStartEvent, SideEvent
from ..providers.faults import TOO_LONG
from ..settings import ModelCall
from .model import Asked, Turn

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

    async def open(self, call: ModelCall) -> Turn:
        """Raises what `inner` raises, once there is nothing to leave out any more."""
        self._tries = TRIES
        if self._context is not None:
            self._fit(call, self._context)
        return _Beginning(self, call, await self.ask(call))

    async def ask(self, call: ModelCall) -> Turn:
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


class _Beginning:
    """A turn that may turn out to be too long until it has begun to say something."""

    def __init__(self, model: Shortening, call: ModelCall, turn: Turn) -> None:
        self._model = model
        self._call = call
        self._turn = turn
        self._begun = False
        self._held: list[ModelEvent] = []
        """What a turn begins with, whatever becomes of it."""
        self._ready: list[ModelEvent] | None = []

    @property
    def waiting(self) -> bool:
        return self._turn.waiting

    @property
    def request_id(self) -> str | None:
        return getattr(self._turn, "request_id", None)

    def wait(self) -> Awaitable[None]:
        return self._turn.wait() if self._begun else self._begin()

    async def _begin(self) -> None:
        self._ready = []
        await self._turn.wait()
        batch = self._turn.take()
        if batch is not None and all(type(event) in _BEFORE for event in batch):
            self._ready = [event for event in batch if type(event) is SideEvent]
            self._held += [event for event in batch if type(event) is not SideEvent]
            return
        said = [event for event in batch or [] if type(event) not in _BEFORE]
        if said and isinstance(said[0], ErrorEvent) and self._model.shorten(self._call, said[0].error):
            self._turn.cancel()
            try:
                turn = await self._model.ask(self._call)
            except PellucidError:
                pass  # that it was too long stands
            else:
                self._turn, self._held = turn, []
                return
        self._begun = True
        self._ready = [*self._held, *batch] if batch is not None else self._held or None
        self._held = []

    def take(self) -> list[ModelEvent] | None:
        if not self._begun:
            return self._ready
        if self._ready:
            ready, self._ready = self._ready, []
            return ready
        return self._turn.take()

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        held = [*self._held, *((self._ready or []) if self._begun else [])]
        self._begun, self._held, self._ready = True, [], []
        return [*held, *self._turn.cancel(error)]


_BEFORE = (ResponseStartEvent, SideEvent)


__all__ = ["Shortening"]
