"""The base of `Participant`: joining a space, receiving envelopes, and sending one.

Everything else is built from these. Also the types of recipients and of answered envelopes, as callers may pass them.
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
from .connection import MAX_FRAME_BYTES, PATIENCE_SECONDS, ParticipantConnection, RemoteTransport, Transport
from .remote import HistoryReader, SpaceReader, parse_address, parse_token
from .subscribers import Inbox

To: TypeAlias = str | Sequence[str]
"""Ids of participants. Empty: everyone."""

Answers: TypeAlias = str | Envelope | Sequence[str | Envelope]
"""Envelopes, or their ids."""


def recipients(to: To) -> tuple[str, ...]:
    """Return the ids of recipients as a tuple."""
    return (to,) if isinstance(to, str) else tuple(to)


def ids_of(answers: Answers) -> tuple[str, ...]:
    """Return the ids, each once."""
    items = (answers,) if isinstance(answers, str | Envelope) else answers
    return tuple(dict.fromkeys(one.id if isinstance(one, Envelope) else one for one in items))


def reply_recipients(envelope: Envelope, me: str) -> tuple[str, ...]:
    """Return the recipients of an answer: the sender and the other recipients of `envelope`. Empty: everyone."""
    return tuple(one for one in dict.fromkeys((envelope.sender, *envelope.to)) if one != me) if envelope.to else ()


class BaseParticipant:
    """One participant. Used as `async with`, in one event loop."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        space: str | None = None,
        view: SpaceView = "full",
        after_seq: int | None = None,
        history: int = 0,
        patience: float = PATIENCE_SECONDS,
        max_frame: int = MAX_FRAME_BYTES,
    ) -> None:
        """Create a participant. It joins in `async with`.

        Args:
            url: The URL of the space, or of the gateway, with `space`.
            token: The participant's token.
            space: The name of the space, if the URL does not have it.
            view: How much of the reasoning is received: `full`, `collapsed` or `main`.
            after_seq: The last envelope that is known already. Later ones come as if they were new.
            history: Without `after_seq`: how many of the latest envelopes come first, with `replayed` set.
            patience: Seconds for which a lost connection is tried again.
            max_frame: Maximum size of a frame in bytes.

        Raises:
            RequestError: If an argument is not valid.
        """
        self._attach_connection(
            ParticipantConnection(
                RemoteTransport(parse_address(url, space), parse_token(token)),
                view=space_view(view),
                after_seq=after_seq,
                history=history,
                patience_seconds=patience,
                max_frame=max_frame,
            )
        )

    @classmethod
    def over(cls, transport: Transport, *, view: SpaceView = "full") -> Self:
        """Create a participant that reaches its space in another way than by a URL.

        Args:
            transport: How it reaches the space.
            view: As for `__init__`.
        """
        self = cls.__new__(cls)
        self._attach_connection(ParticipantConnection(transport, view=space_view(view)))
        return self

    def _attach_connection(self, connection: ParticipantConnection) -> None:
        self._connection = connection
        self._inbox = connection.subscribers.open_inbox()

    # --- joining -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Join the space.

        Raises:
            SpaceClosed: If the token is refused, or there is no answer.
        """
        await self._connection.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave the space. Idempotent."""
        await self._connection.close()

    @property
    def id(self) -> str:
        """Id of this participant."""
        return self._connection.roster.me.id

    @property
    def space(self) -> str:
        """Name of the space."""
        return self._connection.transport.space

    @property
    def capabilities(self) -> tuple[Any, ...]:
        """Capabilities of this participant, as they are written."""
        return self._connection.roster.me.capabilities

    @property
    def participants(self) -> Mapping[str, Present]:
        """The other participants who are present, by id."""
        return self._connection.roster.others

    @property
    def head(self) -> int:
        """Number of the newest known envelope."""
        return self._connection.deduplicator.head

    @property
    def seen(self) -> int:
        """Number of the last received envelope: `after_seq` for a later visit."""
        return self._connection.deduplicator.seen

    @property
    def connected(self) -> bool:
        """Whether there is a connection at the moment."""
        return self._connection.is_connected

    @property
    def is_closed(self) -> bool:
        """Whether there will be no connection any more."""
        return self._connection.is_closed

    @property
    def history(self) -> HistoryReader:
        """The history of the space, however the participant reaches it."""
        return self._connection.reader

    @property
    def reader(self) -> SpaceReader:
        """The history of the space, over HTTP. For a participant with a URL."""
        reader = self._connection.reader
        if not isinstance(reader, SpaceReader):
            raise RuntimeError("this participant does not use HTTP: use `history`")
        return reader

    @property
    def view(self) -> SpaceView:
        """The current view."""
        return self._connection.view

    async def look(self, view: SpaceView) -> None:
        """Change the view from now on. What was folded away before stays so."""
        await self._connection.set_view(space_view(view))

    def may(self, kind: str, payload: Mapping[str, Any] | None = None, *, to: To = ()) -> bool:
        """Check whether the capabilities allow an envelope. The space decides when it is sent.

        Args:
            kind: The kind.
            payload: The payload.
            to: The recipients. Empty: everyone.
        """
        envelope = Envelope(id="?", ts=0, sender=self.id, to=recipients(to), kind=kind, payload=dict(payload or {}))
        held = []
        for written in self.capabilities:
            with contextlib.suppress(RequestError):
                held.append(HeldCapability(read_capability(written), "door"))
        return decide(held, envelope).allowed

    # --- receiving -----------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Envelope]:
        """Iterate over the received envelopes."""
        return self

    async def __anext__(self) -> Envelope:
        """Return the next received envelope.

        Raises:
            SpaceClosed: If the connection is over and everything received was read.
        """
        envelope = await self._inbox.next()
        if envelope is None:
            raise StopAsyncIteration
        return envelope

    @contextlib.contextmanager
    def listening(self) -> Iterator[Inbox]:
        """Add a reader that receives everything from here on: `await inbox.next()`, None at the end."""
        inbox = self._connection.subscribers.open_inbox()
        try:
            yield inbox
        finally:
            self._connection.subscribers.close_inbox(inbox)

    def subscribe(self, callback: Callable[[Envelope], None]) -> AbstractContextManager[None]:
        """Call `callback` with every envelope that is not replayed, as it arrives. It must not block or raise."""
        return self._connection.subscribers.subscribe(callback)

    def awaiting(self, matches: Callable[[Envelope], bool]) -> AbstractAsyncContextManager[asyncio.Future[Envelope]]:
        """Wait for the first envelope from here on, not replayed, for which `matches` is true.

        async with me.awaiting(…) as future:
            …
            envelope = await future
        """
        return self._connection.subscribers.awaiting(matches)

    # --- sending -------------------------------------------------------------------------------------------------

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
        """Send an envelope and wait until it is stored.

        Args:
            kind: The kind, with slashes or dots.
            payload: The payload.
            to: The recipients. Empty: everyone.
            answers: The envelopes to which it correlates.
            context: Path of its context. None: the main conversation.
            id: Its id. None: a new one.

        Returns:
            The envelope as the space stored it, with its `seq`.

        Raises:
            Refused: If the space refuses it.
            SpaceClosed: If there is no connection and there will be none.
            PellucidError: If the space does not answer within the patience (`no_answer`).
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
        """Send a chat. Arguments, result and errors are those of `send`."""
        return await self.send(kinds.CHAT, {"text": text}, to=to, answers=answers, context=context)
