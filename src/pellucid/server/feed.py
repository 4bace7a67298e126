"""`GET /api/events`: which chats of an owner change, for windows that show them.

* One feed serves a whole window: browsers open few connections to a server.
* An event holds ids only. What changed is read by the other routes, in the reader's own view.
* Events are signals of the relay, so they come from every worker and replica. They are stored for an hour, and a feed
  that is opened again with `Last-Event-ID` gets those since. An event may arrive twice, because the clocks of two
  replicas differ; it never hides a change.
* A feed begins with `feed_started`. A reader that loads its chats after it misses nothing.
* A feed ends when the gateway stops, and when the relay does not answer. Its reader opens it again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ..asgi import http
from ..asgi.streaming import PING_SECONDS, BodyWriter
from ..background_tasks import start_task
from ..errors import ErrorInfo, PellucidError
from ..relay import Listener, Relay, RelayError
from ..runs import clock_ms
from .exchange import Exchange

MAX_FEEDS = 100
"""Maximum number of feeds of one owner that one process serves."""

CLOCK_TOLERANCE_MS = 5_000
"""How far the clocks of replicas may differ. A feed begins with the events of this time before it."""

RETRY = b"retry: 1000\n\n"
PING = b": ping\n\n"


class _Event(msgspec.Struct, kw_only=True, frozen=True, tag_field="type"):
    pass


class FeedStarted(_Event, tag="feed_started", frozen=True):
    """The beginning of a feed. All later changes are in it."""


class TurnStarted(_Event, tag="turn_started", frozen=True, kw_only=True):
    """A question was asked. Its answer can be read at `/api/chat/{event_id}`."""

    conversation_id: str
    event_id: str


class TurnEnded(_Event, tag="turn_ended", frozen=True, kw_only=True):
    """An answer ended, in any status, and is stored."""

    conversation_id: str
    event_id: str


class ConversationChanged(_Event, tag="conversation_changed", frozen=True, kw_only=True):
    """A chat has another title, another branch is shown, or an answer has other feedback."""

    conversation_id: str


class ConversationDeleted(_Event, tag="conversation_deleted", frozen=True, kw_only=True):
    conversation_id: str


Change: TypeAlias = TurnStarted | TurnEnded | ConversationChanged | ConversationDeleted
FeedFrame = Annotated[FeedStarted | Change, Meta(description="An event of the feed.")]


class Feed:
    """The changes of all chats, to this process and to all others.

    Args:
        relay: What the replicas share.
    """

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._listeners: set[Listener] = set()
        self._counts: Counter[str] = Counter()
        """The number of feeds that are open here, by owner."""

    def publish(self, owner: str, change: Change) -> None:
        """Announce a change to all feeds of the owner, without waiting."""
        # The id begins with the time, by which a feed that is opened again finds what it missed.
        message = f"{clock_ms()}-{secrets.token_hex(4)} ".encode() + msgspec.json.encode(change)
        start_task(self._relay.publish(_name(owner), message), "a change of a chat could not be announced")

    def end_all(self) -> None:
        """End all feeds that are open here."""
        for listener in list(self._listeners):
            listener.close()

    async def serve(self, exchange: Exchange) -> None:
        """Stream the changes of the caller's chats until the client leaves.

        Raises:
            PellucidError: The owner has too many feeds.
        """
        owner, last_id = exchange.principal.owner, exchange.request_header("last-event-id") or ""
        if self._counts[owner] >= MAX_FEEDS:
            message = f"there are {MAX_FEEDS} open feeds of this owner already; close one"
            raise PellucidError(
                ErrorInfo("too_many_requests", message, code="too_many_feeds", retry_after=PING_SECONDS)
            )
        since_ms = (_time_of(last_id.encode()) or clock_ms()) - CLOCK_TOLERANCE_MS
        listener = self._relay.subscribe(_name(owner))
        self._counts[owner] += 1
        self._listeners.add(listener)
        try:
            async with http.Client(exchange) as client:
                writer = await exchange.stream()
                try:
                    writer.write(RETRY + _frame(b"", msgspec.json.encode(FeedStarted())))
                    await _write_changes(listener, writer, since_ms, last_id.encode())
                except asyncio.CancelledError:
                    if client.has_left:
                        raise
                except RelayError:
                    pass
                finally:
                    if not client.has_left:
                        await writer.end(b"")
                    writer.close()
        finally:
            self._listeners.discard(listener)
            listener.close()
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]


async def _write_changes(listener: Listener, writer: BodyWriter, since_ms: int, last_id: bytes) -> None:
    """Write the messages of a listener until it is closed, and a comment whenever there is none for a while."""
    while True:
        try:
            async with asyncio.timeout(PING_SECONDS):
                await listener.wait()
        except TimeoutError:
            writer.write(PING)
            continue
        messages = listener.take()
        if messages is None:
            return
        parts = (message.partition(b" ") for message in messages)
        frames = [_frame(id, data) for id, _, data in parts if (_time_of(id) or 0) >= since_ms and id != last_id]
        if frames:
            writer.write(b"".join(frames))


def _frame(id: bytes, data: bytes) -> bytes:
    """Return the SSE frame of an event. The first field of its JSON names it."""
    name = data.split(b'"', 4)[3]
    head = b"id: %b\n" % id if id else b""
    return head + b"event: %b\ndata: %b\n\n" % (name, data)


def _time_of(id: bytes) -> int | None:
    """Return the time in an event's id, in milliseconds since 1970; None if it is none."""
    text = id.partition(b"-")[0]
    return int(text) if text.isdigit() and len(text) <= 16 else None


def _name(owner: str) -> str:
    return f"feed:{owner}"
