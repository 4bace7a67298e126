"""Summaries of long reasoning.

    {"kind": "reasoning/thought", "context": "msg-301", "payload": {"message": …, "metadata": {"compresses": [ids]}}}

After a number of thoughts in a context, the gateway writes one thought that stands for them. The thoughts themselves
stay. The replica that stored the last of them writes the summary, so it is written once. If the compressor fails, there
is no summary.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from ...envelopes import GATEWAY, Envelope
from ...envelopes.kinds import STEP_KINDS, THOUGHT
from ...errors import PellucidError
from ...storage import Spaces, StoredEnvelope
from ...telemetry import error_location, log
from .ids import new_id
from .settings import SpaceSettings
from .state import SpaceState
from .write_queue import EnvelopeFactory

Compressor: TypeAlias = Callable[[Sequence[Envelope]], Awaitable[str]]
"""Summarises envelopes in fewer words. An empty text: there is no summary."""

MAX_CONTEXTS = 1_000


class CompressionHost(Protocol):
    """The space to which summaries are written."""

    owner: str
    name: str

    @property
    def settings(self) -> SpaceSettings: ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> object: ...

    async def append_as_gateway(self, make: EnvelopeFactory) -> object: ...


class ThoughtCompression:
    """Counts thoughts and writes summaries, for one space."""

    def __init__(self, space: CompressionHost, spaces: Spaces, compressor: Compressor) -> None:
        self._space = space
        self._spaces = spaces
        self._compressor = compressor
        self._uncompressed: dict[str, list[int]] = {}
        """Sequence numbers of the thoughts of each context that are not summarised yet."""

    def on_stored(self, stored: Sequence[StoredEnvelope]) -> None:
        """Count envelopes that this replica stored."""
        settings = self._space.settings.compress
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
                    self._space.spawn(self._compress(path, numbers))
        while len(self._uncompressed) > MAX_CONTEXTS:
            del self._uncompressed[next(iter(self._uncompressed))]

    async def _compress(self, path: str, numbers: list[int]) -> None:
        space = self._space
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

            def make(state: SpaceState, at: int) -> Envelope | None:
                if not state.is_open(path):
                    return None
                payload = {"message": summary, "metadata": {"compresses": [one.id for one in thoughts]}}
                return Envelope(id=new_id(), ts=at, sender=GATEWAY, kind=THOUGHT, context=path, payload=payload)

            await space.append_as_gateway(make)
