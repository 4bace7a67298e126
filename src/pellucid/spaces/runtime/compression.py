"""Summaries of long reasoning.

    {"kind": "reasoning/thought", "context": "msg-301", "payload": {"message": …, "metadata": {"compresses": [ids]}}}

After a number of thoughts in a context, the gateway writes one thought that stands for them. The thoughts themselves
stay. The replica that stored the last of them writes the summary, so it is written once. If the compressor fails, there
is no summary.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from ...envelopes import GATEWAY, Envelope
from ...envelopes.kinds import STEP_KINDS, THOUGHT
from ...errors import PellucidError
from ...storage import Spaces, StoredEnvelope
from ...telemetry import error_location, log
from .ids import new_id
from .live_state import Configuration
from .state import EnvelopeFactory, SpaceState

Compressor: TypeAlias = Callable[[Sequence[Envelope]], Awaitable[str]]
"""Summarises envelopes in fewer words. An empty text: there is no summary."""

MAX_CONTEXTS = 1_000


class ThoughtCompression:
    """Counts thoughts and writes summaries, for one space.

    Args:
        configuration: The configuration of the space.
        spaces: The store's spaces.
        compressor: Makes the summaries.
        spawn: Runs a coroutine until the space is closed.
        append: Writes an envelope of the gateway.
    """

    def __init__(
        self,
        configuration: Configuration,
        spaces: Spaces,
        compressor: Compressor,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        append: Callable[[EnvelopeFactory], Awaitable[object]],
    ) -> None:
        self._configuration = configuration
        self._spaces = spaces
        self._compressor = compressor
        self._spawn = spawn
        self._append = append
        self._uncompressed: dict[str, list[int]] = {}
        """Sequence numbers of the thoughts of each context that are not summarised yet."""

    def on_stored(self, stored: Sequence[StoredEnvelope]) -> None:
        """Count envelopes that this replica stored."""
        settings = self._configuration.settings.compress
        if settings is None:
            return
        for one in stored:
            path, envelope = one.place.path, one.envelope
            if path is None or envelope.sender == GATEWAY:
                continue
            if one.place.role == "ends":
                self._uncompressed.pop(path, None)
            elif envelope.kind in STEP_KINDS:
                numbers = self._uncompressed.setdefault(path, [])
                numbers.append(envelope.seq)
                if len(numbers) >= settings.after:
                    del self._uncompressed[path]
                    self._spawn(self._compress(path, numbers))
        while len(self._uncompressed) > MAX_CONTEXTS:
            del self._uncompressed[next(iter(self._uncompressed))]

    async def _compress(self, path: str, numbers: list[int]) -> None:
        space = self._configuration
        with suppress(PellucidError):
            stored = [await self._spaces.get_envelope(space.owner, space.name, number) for number in numbers]
            thoughts = [one.envelope for one in stored if one is not None and not one.envelope.is_erased]
            try:
                summary = await self._compressor(thoughts)
            except PellucidError:
                return
            except Exception as error:
                log.warning("thoughts could not be summarised: %s", error_location(error))
                return
            if not summary or not thoughts:
                return

            def make(state: SpaceState, time_ms: int) -> Envelope | None:
                if not state.is_open(path):
                    return None
                payload = {"message": summary, "metadata": {"compresses": [one.id for one in thoughts]}}
                return Envelope(id=new_id(), ts=time_ms, sender=GATEWAY, kind=THOUGHT, context=path, payload=payload)

            await self._append(make)
