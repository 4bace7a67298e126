"""How a `Participant` within the gateway reaches its space: directly, without a socket.

Its frames are those of a WebSocket, so everything that `Participant` guarantees holds here too: acknowledgements,
gaps, reconnection (a space may be closed and opened again while the gateway runs).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NoReturn

from websockets.exceptions import ConnectionClosedOK

from ...envelopes import DEFAULT_DIALECT, close_codes
from ...envelopes.context import parse as path_of
from ...envelopes.visibility import SpaceView, space_view
from ...errors import PellucidError
from ...spaces.client.connection import ConnectionLost, ResumePoint
from ...spaces.client.errors import SpaceClosed
from ...spaces.client.remote import PAGE_SIZE, RemotePage
from ...spaces.runtime.session import Frame, Session
from ..services import Services
from .auth import AuthenticatedParticipant
from .history_handlers import context_not_found, history_of, kind_filter, to_json_value

_TRANSIENT_KINDS = frozenset({"unavailable", "server_error", "timeout"})


class LocalTransport:
    """The transport of one participant. A `spaces.client.connection.Transport`.

    Args:
        services: The services of the gateway.
        space: The name of the space.
        token: The participant's token.
        address: The URL under which the participant reached the gateway.
    """

    def __init__(self, services: Services, space: str, token: str, address: str) -> None:
        self.space = space
        self.location = f"the space {space!r}"
        self.reader = LocalReader(services, space, token)
        self._services = services
        self._token = token
        self._address = address

    async def connect(self, *, view: SpaceView, resume: ResumePoint, max_frame: int) -> LocalSocket:
        """Join the space (see `Transport.connect`)."""
        outlet = LocalOutlet()
        try:
            space, participant = await self._services.spaces.admit(self.space, self._token)
            session = await space.join(
                participant,
                outlet,
                dialect=DEFAULT_DIALECT,
                view=view,
                after_seq=resume.after_seq,
                history=resume.history or 0,
                address=self._address,
            )
        except PellucidError as error:
            if error.info.kind in _TRANSIENT_KINDS:
                raise ConnectionLost(error.info.message) from error
            raise SpaceClosed(
                error.info.message, kind=error.info.kind, code=error.info.code or error.info.kind
            ) from None
        return LocalSocket(outlet, session)


class LocalOutlet:
    """Holds the frames of a session until they are read. A `spaces.runtime.session.Outlet`."""

    raw_write = None
    """Frames are read from a queue (see `Outlet.raw_write`)."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.buffered_bytes = 0
        self.close_code: int | None = None
        self.close_reason: str | None = None
        self.changed = asyncio.Event()
        """Set when there is a frame, or it is closed."""
        self._drained = asyncio.Event()
        self._drained.set()

    def watch(self, changed: Callable[[], None] | None) -> None:
        """Do nothing, because `raw_write` does not change."""

    def write(self, frames: Sequence[Frame]) -> None:
        if self.close_code is None:
            self.frames.extend(frame.text for frame in frames)
            self.buffered_bytes += sum(len(frame.text) for frame in frames)
            self._drained.clear()
            self.changed.set()

    def take(self) -> bytes:
        """Remove and return the next frame."""
        frame = self.frames.popleft()
        self.buffered_bytes -= len(frame)
        if not self.frames:
            self._drained.set()
        return frame

    async def wait_drained(self) -> None:
        await self._drained.wait()

    def close(self, code: int, reason: str) -> None:
        if self.close_code is None:
            self.close_code, self.close_reason = code, reason
            self._drained.set()
            self.changed.set()


class LocalSocket:
    """One session, used like a WebSocket. A `spaces.client.connection.Socket`."""

    def __init__(self, outlet: LocalOutlet, session: Session) -> None:
        self._outlet = outlet
        self._session = session

    @property
    def close_code(self) -> int | None:
        return self._outlet.close_code

    @property
    def close_reason(self) -> str | None:
        return self._outlet.close_reason

    async def recv(self) -> bytes:
        outlet = self._outlet
        while not outlet.frames:
            if outlet.close_code is not None:
                _raise_closed()
            outlet.changed.clear()
            await outlet.changed.wait()
        return outlet.take()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                yield await self.recv()
            except ConnectionClosedOK:
                return

    async def send(self, message: bytes, *, text: bool | None = None) -> None:
        if self._outlet.close_code is not None:
            _raise_closed()
        await self._session.receive(message)

    async def close(self) -> None:
        self._outlet.close(close_codes.NORMAL_CLOSURE, "")
        await self._session.leave()


def _raise_closed() -> NoReturn:
    raise ConnectionClosedOK(None, None)


class LocalReader:
    """The history as a participant may read it. A `spaces.client.remote.HistoryReader`."""

    def __init__(self, services: Services, space: str, token: str) -> None:
        self._services = services
        self._space = space
        self._token = token

    async def _authenticate(self) -> AuthenticatedParticipant:
        return AuthenticatedParticipant(*await self._services.spaces.admit(self._space, self._token))

    async def page(
        self,
        *,
        after_seq: int | None = None,
        before_seq: int | None = None,
        limit: int = PAGE_SIZE,
        newest: bool = False,
        **more: str | None,
    ) -> RemotePage:
        participant = await self._authenticate()
        history = history_of(self._services, participant, space_view(more.get("view") or "full"), None)
        within = more.get("context")
        page = await history.page(
            after=after_seq or 0,
            before=before_seq,
            limit=limit,
            newest=newest,
            kinds=kind_filter((more.get("kind") or "").split(",")),
            sender=more.get("from"),
            within=path_of(within) if within else None,
        )
        return RemotePage(list(page.envelopes), page.has_more, max(after_seq or 0, page.last), participant.space.head)

    async def contexts(self, *, view: SpaceView = "full", limit: int = 20) -> dict[str, Any]:
        history = history_of(self._services, await self._authenticate(), view, None)
        return _json_object(await history.contexts(limit=limit))

    async def context(self, path: str, *, view: SpaceView = "full") -> dict[str, Any]:
        tree = await history_of(self._services, await self._authenticate(), view, None).tree(path)
        if tree is None:
            raise context_not_found(path)
        return _json_object(tree)

    async def aclose(self) -> None:
        """Do nothing: it holds nothing."""


def _json_object(value: Any) -> dict[str, Any]:
    result: dict[str, Any] = to_json_value(value)
    return result
