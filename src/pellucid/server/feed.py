"""`GET /api/events`: which chats of an owner change, and whether the models do, for windows that show them.

* One feed serves a whole window: browsers open few connections to a server.
* An event holds ids only. What changed is read by the other routes, in the reader's own view. All owners get the event
  that the models changed, without names: each reader may see others.
* Events are signals of the relay, so they come from every worker and replica. They are stored for an hour, and a feed
  that is opened again with `Last-Event-ID` gets those since. An event may arrive twice, because the clocks of two
  replicas differ; it never hides a change.
* A feed begins with `feed_started`. A reader that loads its chats after it misses nothing.
* A feed ends when the gateway stops, and when the relay does not answer. Its reader opens it again.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

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

_NAME_OF_ALL = "feeds"
"""The name of the signals to the feeds of all owners."""

WINDOW_HEADER = "pellucid-window"
"""The request header in which a window names itself, so that it knows its own changes in the feed again."""

_WINDOW = re.compile(r"[0-9A-Za-z_-]{1,64}")

RETRY = b"retry: 1000\n\n"
PING = b": ping\n\n"


class _Event(msgspec.Struct, kw_only=True, frozen=True, tag_field="type"):
    pass


class FeedStarted(_Event, tag="feed_started", frozen=True):
    """The beginning of a feed. All later changes are in it."""


class _Change(_Event, frozen=True, kw_only=True):
    conversation_id: str
    window: str | UnsetType = UNSET
    """The `Pellucid-Window` of the request that made the change."""


class TurnStarted(_Change, tag="turn_started", frozen=True, kw_only=True):
    """A question was asked. Its answer can be read at `/api/chat/{event_id}`."""

    event_id: str


class TurnEnded(_Change, tag="turn_ended", frozen=True, kw_only=True):
    """An answer ended, in any status, and is stored."""

    event_id: str


class ConversationChanged(_Change, tag="conversation_changed", frozen=True, kw_only=True):
    """A chat has another title, another branch is shown, or an answer has other feedback."""


class ConversationDeleted(_Change, tag="conversation_deleted", frozen=True, kw_only=True):
    """A chat does not exist any more."""


class ModelsChanged(_Event, tag="models_changed", frozen=True):
    """Models were connected or removed. `GET /api/models` has those that the reader may see."""


Change: TypeAlias = TurnStarted | TurnEnded | ConversationChanged | ConversationDeleted | ModelsChanged
FeedFrame = Annotated[FeedStarted | Change, Meta(description="An event of the feed.")]


class _OpenFeed:
    """A feed that is being served: what it listens to, and whether there may be something to write."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = listeners
        self.news = asyncio.Event()
        self.news.set()
        for listener in listeners:
            listener.start(self.news.set)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()
        self.news.set()

    async def write_changes(self, writer: BodyWriter, since_ms: int, last_id: bytes) -> None:
        """Write the messages until the feed is closed, and a comment whenever there is none for a while."""
        while True:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await self.news.wait()
            except TimeoutError:
                writer.write(PING)
                continue
            self.news.clear()
            frames = []
            for listener in self.listeners:
                messages = listener.take()
                if messages is None:
                    return
                parts = (message.partition(b" ") for message in messages)
                frames += [
                    _frame(id, data) for id, _, data in parts if (_time_of(id) or 0) >= since_ms and id != last_id
                ]
            if frames:
                writer.write(b"".join(frames))


def window_of(exchange: Exchange) -> str | UnsetType:
    """Return the name of the window that made a request, if it has one that can be one."""
    name = exchange.request_header(WINDOW_HEADER)
    return name if name is not None and _WINDOW.fullmatch(name) else UNSET


class Feed:
    """The changes of all chats and of the models, to this process and to all others.

    Args:
        relay: What the replicas share.
    """

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._open_feeds: defaultdict[str, set[_OpenFeed]] = defaultdict(set)
        """The feeds that are open here, by owner."""

    def publish(self, owner: str, change: Change) -> None:
        """Announce a change to all feeds of the owner, without waiting."""
        self._publish(_name(owner), change)

    def publish_to_all(self, change: ModelsChanged) -> None:
        """Announce a change to the feeds of all owners, without waiting."""
        self._publish(_NAME_OF_ALL, change)

    def _publish(self, name: str, change: Change) -> None:
        # The id begins with the time, by which a feed that is opened again finds what it missed.
        message = f"{clock_ms()}-{secrets.token_hex(4)} ".encode() + msgspec.json.encode(change)
        start_task(self._relay.publish(name, message), "a change could not be announced")

    def end_all(self) -> None:
        """End all feeds that are open here."""
        for feeds in self._open_feeds.values():
            for feed in feeds:
                feed.close()

    async def serve(self, exchange: Exchange) -> None:
        """Stream the changes of the caller's chats, and of the models, until the client leaves.

        Raises:
            PellucidError: The owner has too many feeds.
        """
        owner, last_id = exchange.principal.owner, exchange.request_header("last-event-id") or ""
        if len(self._open_feeds.get(owner, ())) >= MAX_FEEDS:
            message = f"there are {MAX_FEEDS} open feeds of this owner already; close one"
            raise PellucidError(
                ErrorInfo("too_many_requests", message, code="too_many_feeds", retry_after=PING_SECONDS)
            )
        since_ms = (_time_of(last_id.encode()) or clock_ms()) - CLOCK_TOLERANCE_MS
        feed = _OpenFeed([self._relay.subscribe(name) for name in (_name(owner), _NAME_OF_ALL)])
        self._open_feeds[owner].add(feed)
        try:
            async with http.Client(exchange) as client:
                writer = await exchange.stream()
                try:
                    writer.write(RETRY + _frame(b"", msgspec.json.encode(FeedStarted())))
                    await feed.write_changes(writer, since_ms, last_id.encode())
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
            self._open_feeds[owner].discard(feed)
            feed.close()
            if not self._open_feeds[owner]:
                del self._open_feeds[owner]


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
