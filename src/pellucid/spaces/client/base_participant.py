"""Somebody's voice and ears in a space: being there, hearing what is said, and saying an envelope. What else one does
in a space is made of these (`participant`).

Whom an envelope is for and what it is about, as whoever sends it may write that.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Self, TypeAlias

from ...envelopes import kinds
from ...envelopes.capability import HeldCapability, decide, read_capability
from ...envelopes.envelope import Envelope
from ...envelopes.payloads import Present
from ...envelopes.visibility import SpaceView, space_view
from ...errors import RequestError
from .connection import ParticipantConnection
from .remote import SpaceReader, parse_address
from .subscribers import Inbox

To: TypeAlias = str | Sequence[str]
"""Participants, by id. None: everybody."""

Answers: TypeAlias = str | Envelope | Sequence[str | Envelope]
"""Envelopes, or their ids."""


def recipients(to: To) -> tuple[str, ...]:
    return (to,) if isinstance(to, str) else tuple(to)


def ids_of(answers: Answers) -> tuple[str, ...]:
    """Each once."""
    items = (answers,) if isinstance(answers, str | Envelope) else answers
    return tuple(dict.fromkeys(one.id if isinstance(one, Envelope) else one for one in items))


def reply_recipients(envelope: Envelope, me: str) -> tuple[str, ...]:
    """To whom an answer goes: to those who heard what is answered. Nobody: to everybody."""
    return tuple(one for one in dict.fromkeys((envelope.sender, *envelope.to)) if one != me) if envelope.to else ()


class BaseParticipant:
    """One participant's. Used as `async with`, in one event loop."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        space: str | None = None,
        view: SpaceView = "full",
        after_seq: int | None = None,
        history: int = 0,
        patience: float = 300.0,
        max_frame: int = 64 * 1024 * 1024,
    ) -> None:
        """`url`: the space's, or the gateway's with `space` beside it. `after_seq`: the last envelope that is known
        already; what was said since comes as if it were said now. `history`: else, how many of the last envelopes come
        first, `replayed`. `patience`: seconds for which a broken connection is tried again. `max_frame`: bytes.
        Raises `RequestError`."""
        if not token:
            raise RequestError("token: it is empty", param="token")
        self._connection = ParticipantConnection(
            parse_address(url, space),
            token,
            view=space_view(view),
            after_seq=after_seq,
            history=history,
            patience=patience,
            max_frame=max_frame,
        )
        self._inbox = self._connection.subscribers.open_inbox()

    # --- being there ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Raises `SpaceClosed`: the token is refused, or nobody answers."""
        await self._connection.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    @property
    def id(self) -> str:
        return self._connection.roster.me.id

    @property
    def space(self) -> str:
        return self._connection.address.space

    @property
    def capabilities(self) -> tuple[Any, ...]:
        """What this participant may send, as written."""
        return self._connection.roster.me.capabilities

    @property
    def participants(self) -> Mapping[str, Present]:
        """Who else is here, by id."""
        return self._connection.roster.others

    @property
    def head(self) -> int:
        """The number of the newest envelope that is known of."""
        return self._connection.deduplicator.head

    @property
    def seen(self) -> int:
        """The number of the last envelope that was received: `after_seq` for whoever comes back later."""
        return self._connection.deduplicator.seen

    @property
    def connected(self) -> bool:
        return self._connection.is_connected

    @property
    def reader(self) -> SpaceReader:
        """The space's history, over HTTP."""
        return self._connection.reader

    @property
    def view(self) -> SpaceView:
        return self._connection.view

    async def look(self, view: SpaceView) -> None:
        """Another view from now on. What was folded away until now stays so."""
        await self._connection.set_view(space_view(view))

    def may(self, kind: str, payload: Mapping[str, Any] | None = None, *, to: To = ()) -> bool:
        """Whether the capabilities allow it. The space has the last word."""
        envelope = Envelope(id="?", ts=0, sender=self.id, to=recipients(to), kind=kind, payload=dict(payload or {}))
        held = []
        for written in self.capabilities:
            with contextlib.suppress(RequestError):
                held.append(HeldCapability(read_capability(written), "door"))
        return decide(held, envelope).allowed

    # --- hearing -------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        """Raises `SpaceClosed` once all that came was read, where the connection is over."""
        envelope = await self._inbox.next()
        if envelope is None:
            raise StopAsyncIteration
        return envelope

    @contextlib.contextmanager
    def listening(self) -> Iterator[Inbox]:
        """One more who reads everything from here on: `await inbox.next()`, None at the end."""
        inbox = self._connection.subscribers.open_inbox()
        try:
            yield inbox
        finally:
            self._connection.subscribers.close_inbox(inbox)

    def subscribe(self, callback: Callable[[Envelope], None]) -> AbstractContextManager[None]:
        """`hear` is called with every envelope that is not replayed, as it comes. It must not wait, or raise."""
        return self._connection.subscribers.subscribe(callback)

    def awaiting(self, matches: Callable[[Envelope], bool]) -> AbstractAsyncContextManager[asyncio.Future[Envelope]]:
        """`async with me.awaiting(…) as found: …; await found`: the first envelope that is heard from here on, and is
        not replayed, of which that is true."""
        return self._connection.subscribers.awaiting(matches)

    # --- saying --------------------------------------------------------------------------------------------------

    async def send(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        *,
        to: To = (),
        answers: Answers = (),
        context: str | None = None,
        id: str | None = None,
    ) -> Envelope:
        """Say it, and wait until it is stored; the envelope as the space has it, with its `seq`.

        `answers`: what it correlates to. Raises `Refused`, or `SpaceClosed`.
        """
        envelope = Envelope(
            id=id or uuid.uuid4().hex,
            ts=time.time_ns() // 1_000_000,
            sender=self.id,
            to=recipients(to),
            kind=kinds.normalize_kind(kind),
            correlation_id=ids_of(answers),
            context=context,
            payload=dict(payload or {}),
        )
        return await self._connection.send(envelope)

    async def say(self, text: str, *, to: To = (), answers: Answers = (), context: str | None = None) -> Envelope:
        """A chat."""
        return await self.send(kinds.CHAT, {"text": text}, to=to, answers=answers, context=context)
