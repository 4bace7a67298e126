"""Checkpoints, while the server runs: what was recorded is signed soon afterwards."""

from __future__ import annotations

import asyncio
import time

from ..errors import PellucidError
from ..storage import Store
from ..storage.errors import AlreadyStored
from ..telemetry import log, place_of
from .config import RecordConfig

LOOK_SECONDS = 1.0


class Recorder:
    """Signs what this process recorded: `seconds` after the first of it, or when there are `entries` of it; and, as
    often, what a replica left that is gone. `run` goes on until it is cancelled; `last` signs what is left then."""

    def __init__(self, store: Store, config: RecordConfig) -> None:
        self._record = store.record
        self._config = config
        self._refused = 0

    async def run(self) -> None:
        signed_at = time.monotonic()
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._config.seconds))
            waited = time.monotonic() - signed_at
            if waited >= self._config.seconds or self._record.recording.waiting >= self._config.entries:
                await self._sign()
                signed_at = time.monotonic()

    async def last(self) -> None:
        if self._record.recording.waiting:
            await self._sign()

    async def _sign(self) -> None:
        try:
            done = await self._record.sign()
        except AlreadyStored:
            return  # another replica does it at this moment; what it does not see is for the next time
        except PellucidError as error:
            log.warning("cannot sign the record: %s", error.info.message)
            return
        except Exception as error:
            log.error("a fault while signing the record: %s", place_of(error))
            return
        if done.refused > self._refused:
            log.error(
                "%d chains of the record have an end that was written without this gateway's key, and are not signed; "
                "`pellucid record verify` names them",
                done.refused,
            )
        self._refused = done.refused
