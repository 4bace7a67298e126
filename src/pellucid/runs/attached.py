"""A run that its request drives: nothing is logged, and when the request goes, the run and its upstream go at once.

`open` asks the first model, so that "nobody there" and "refused" can still become an HTTP status; after that every
fault is an event. `wait` and `take` give one batch for each read of the upstream.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress

from ..errors import ErrorInfo, PellucidError
from ..events import Event
from ..models import Asked, Turn
from ..run import CallModel, Effect, Mint, Run
from ..settings import ModelCall


class AttachedRun:
    """Drives one `Run` against one model."""

    def __init__(self, model: Asked, call: ModelCall, mint: Mint) -> None:
        self.run = Run(call, mint)
        self._model = model
        self._effects: list[Effect] = []
        self._turn: Turn | None = None
        self._last: list[Event] | None = None
        """What ended the run between two turns."""

    async def open(self) -> None:
        """Ask for the first turn. Raises `ModelError` or `RequestError`; there is nothing to clean up then."""
        [effect] = self.run.start()
        assert isinstance(effect, CallModel)
        self._turn = await self._model.open(effect.call)

    @property
    def waiting(self) -> bool:
        """Whether the model has yet to become free for this run."""
        return self._turn is not None and self._turn.waiting

    def wait(self) -> Awaitable[None]:
        """Wait until there is something to take."""
        return self._turn.wait() if self._turn is not None else self._next_turn()

    def take(self) -> list[Event] | None:
        """What has come, once `wait` is over; None after RunEnd."""
        if self.run.ended is not None:
            last, self._last = self._last, None
            return last
        turn = self._turn
        batch = [] if turn is None else turn.take()
        if batch is None:
            # A turn that stops without its end is a fault of whatever plays the model.
            self._turn = None
            return self.run.end(ErrorInfo("model_error", "the model's turn stopped without an end"))
        events, effects = self.run.feed(batch)
        if turn is not None and (effects or self.run.ended is not None):
            # The model has said all: what the turn holds (a connection, a place in a line) is given back now.
            self._turn = None
            turn.cancel()
            self._effects = effects
        return events

    async def read(self) -> list[Event] | None:
        """Both."""
        await self.wait()
        return self.take()

    def cancel(self, error: ErrorInfo | None = None) -> list[Event]:
        """Stop now, upstream included. Gives the events that close what is open, as cancelled or failed with `error`.

        Idempotent; after RunEnd it gives nothing.
        """
        turn, self._turn = self._turn, None
        last = turn.cancel(error) if turn is not None else []
        if self.run.ended is not None:
            return []
        if error is None:
            self.run.cancel()
        return self.run.feed(last)[0] + self.run.end(error)

    def fail(self, error: ErrorInfo) -> list[Event]:
        """The same after a fault of ours: nothing more is asked of the turn, and what was told is closed."""
        self.close()
        return self.run.end(error)

    def close(self) -> None:
        """Let go of the upstream, in whatever state this is. Never raises."""
        turn, self._turn = self._turn, None
        if turn is not None:
            with suppress(Exception):
                turn.cancel()

    async def _next_turn(self) -> None:
        if self.run.ended is not None:
            return
        [effect] = self._effects
        assert isinstance(effect, CallModel)  # no tool here is the server's, so the machine never asks for one
        try:
            self._turn = await self._model.open(effect.call)
        except PellucidError as error:
            self._last = self.run.end(error.info)


__all__ = ["AttachedRun"]
