"""A space over a real store, with outlets that record what is written to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pellucid.relay import Relay, open_relay
from pellucid.spaces.runtime.maintenance import Intervals
from pellucid.spaces.runtime.provisioning import create_space
from pellucid.spaces.runtime.session import Frame, RawWrite, Session, websocket_frame
from pellucid.spaces.runtime.settings import SpaceSettings, read_settings
from pellucid.spaces.runtime.space import Space
from pellucid.spaces.runtime.space_manager import SpaceManager
from pellucid.storage import Store, StoredEnvelope, open_store

OWNER = "owner"
QUICK = Intervals(poll_seconds=0.05, presence_seconds=0.6, unused_seconds=60.0)

EVERYBODY: Mapping[str, Sequence[Any]] = {
    "ada": ["*"],
    "bob": ["chat", "reasoning/*", "mcp/*"],
    "cyd": ["chat", "mcp/proposal", "mcp/withdraw", "reasoning/step"],
    "dee": ["chat"],
}


class Sink:
    """Outlet that records its frames. `stuck`: it drains nothing, and written bytes stay in its buffer."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.closed: tuple[int, str] | None = None
        self.buffered_bytes = 0
        self.stuck = False
        self._drained = asyncio.Event()

    def write(self, frames: Sequence[Frame]) -> None:
        assert self.closed is None, "a frame was written after the close"
        self.frames += frames
        if self.stuck:
            self.buffered_bytes += sum(len(frame.wire) for frame in frames)

    def drain(self) -> None:
        self.stuck, self.buffered_bytes = False, 0
        self._drained.set()

    async def wait_drained(self) -> None:
        if self.stuck:
            self._drained.clear()
            await self._drained.wait()

    def close(self, code: int, reason: str) -> None:
        self.closed = self.closed or (code, reason)

    @property
    def raw_write(self) -> RawWrite | None:
        return None

    def watch(self, changed: Callable[[], None] | None) -> None:
        pass

    # --- inspection

    @property
    def decoded(self) -> list[dict[str, Any]]:
        for frame in self.frames:
            assert frame.wire == websocket_frame(frame.text)
        return [json.loads(frame.text) for frame in self.frames]

    @property
    def seqs(self) -> list[int]:
        return [frame.seq for frame in self.frames if frame.seq]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.decoded if one["kind"].replace(".", "/") == kind]

    @property
    def errors(self) -> list[str]:
        return [one["payload"].get("code") for one in self.of("system/error")]


def frame(kind: str, payload: dict[str, Any] | None = None, **more: Any) -> bytes:
    return json.dumps({"kind": kind, "payload": payload or {}, **more}).encode()


def chat(text: str, **more: Any) -> bytes:
    return frame("chat", {"text": text}, **more)


async def join_space(space: Space, participant: str, **how: Any) -> tuple[Session, Sink]:
    sink = Sink()
    return await space.join(participant, sink, **how), sink


async def whole_log(space: Space) -> list[StoredEnvelope]:
    out: list[StoredEnvelope] = []
    while page := await space.writer._spaces.page(space.owner, space.name, after=len(out), limit=1000):
        out += page
    assert [one.envelope.seq for one in out] == list(range(1, len(out) + 1))
    return out


@asynccontextmanager
async def opened_store(url: str) -> AsyncIterator[Store]:
    """Open a store, as another process does."""
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def opened(
    url: str = "sqlite://", settings: dict[str, Any] | SpaceSettings | None = None, **options: Any
) -> AsyncIterator[tuple[SpaceManager, Space, Store]]:
    store, relay = await open_store(url), await open_relay(None)
    options.setdefault("intervals", QUICK)
    spaces = SpaceManager(store, relay, **options)
    await spaces.start()
    if not isinstance(settings, SpaceSettings):
        settings = read_settings(settings or {})
    try:
        await create_space(store.spaces, OWNER, "room", settings, EVERYBODY)
        yield spaces, await spaces.space("room"), store
    finally:
        await spaces.aclose()
        await store.aclose()
        await relay.aclose()


@asynccontextmanager
async def replica(store: Store, relay: Relay, **options: Any) -> AsyncIterator[SpaceManager]:
    options.setdefault("intervals", QUICK)
    spaces = SpaceManager(store, relay, **options)
    await spaces.start()
    try:
        yield spaces
    finally:
        await spaces.aclose()
