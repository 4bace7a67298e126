"""What a run that is over leaves in the store; and a run that is kept, whose end is told only when it is.

The store's row says what was asked (`header`, `input`), the conversation's share of the run (`messages`), and its log.
The protocol that made the row is not known here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..errors import NOT_KEPT, ErrorInfo, PellucidError
from ..events import Event, FunctionToolResultEvent, RunEndEvent
from ..fold import Fold, fold
from ..parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    messages_from_json,
    messages_to_json,
)
from ..run import Minter
from ..storage import ConversationEntry, Store, StoredResponse
from ..telemetry import log, place_of
from ..text import writable
from .log import WAITED, Entry, encode_entry, events_of, pack
from .running import Running

FAULT = ErrorInfo("server_error", "the gateway failed to keep it")

RETRY_SECONDS = 0.5

WAITED_SECONDS = 3.0
"""How long a client waits with its answer for a store that is away."""

ABANDONED = ErrorInfo(
    "server_error", "the replica that drove this run is gone; what came until then is kept", code="abandoned"
)

LARGE = 2_000
"""From so many events on, a log is packed in a thread, where it keeps nobody waiting."""


class Finished(NamedTuple):
    """What is kept of a run that is over."""

    row: StoredResponse
    item_ids: list[str]
    """The public ids of everything in it, of its input, too."""
    entries: list[ConversationEntry]
    """What it adds to its conversation, item by item, where each has a name."""


def finished(row: StoredResponse, entries: Sequence[Entry]) -> Finished:
    """What to keep of a run that has said all of `entries`, RunEnd last."""
    events = events_of(entries)
    end = events[-1]
    assert isinstance(end, RunEndEvent)
    said = [writable(message) for message in fold(events).messages]
    done = replace(
        row,
        status=end.status,
        updated_at=entries[-1].now / 1000,
        messages=messages_to_json([*messages_from_json(row.messages), *said]),
        log=pack(encode_entry(entry) for entry in entries),
        error=msgspec.json.encode(writable(end.error)) if end.error is not None else None,
        text=None if row.text is None else "\n\n".join([row.text, *_answers(said)]),
    )
    given = [
        ConversationEntry(id=item["id"], item=msgspec.json.encode(item))
        for item in msgspec.json.decode(row.input)
        if item.get("type") != "item_reference"  # which has the id of what it names, and is no item itself
    ]
    # A result's id stands on its event alone.
    ids = iter([event.id or "" for event in events if isinstance(event, FunctionToolResultEvent)])
    told = [
        ConversationEntry(id=id, item=b"null", message=messages_to_json([message]))
        for whole in said
        for id, message in _items(whole, ids)
    ]
    named = {entry.id: entry for entry in (*given, *told) if entry.id}
    return Finished(done, list(named), list(named.values()))


def _answers(said: Sequence[ModelMessage]) -> Iterator[str]:
    """What was said to the reader. What was thought is not to be found."""
    for message in said:
        if isinstance(message, ModelResponse):
            yield from (part.content for part in message.parts if isinstance(part, TextPart))


def _items(message: ModelMessage, ids: Iterator[str]) -> Iterator[tuple[str, ModelMessage]]:
    """The message, in pieces of one item each."""
    if isinstance(message, ModelRequest):
        for part in message.parts:
            yield next(ids), ModelRequest([part])
    else:
        for id, parts in groupby(message.parts, lambda part: part.item_id or ""):
            yield id, replace(message, parts=list(parts))


async def finish(row: StoredResponse, entries: Sequence[Entry]) -> Finished:
    """`finished`, in a thread where there is much to do."""
    if sum(len(entry.events) for entry in entries) > LARGE:
        return await asyncio.to_thread(finished, row, entries)
    return finished(row, entries)


async def ending(row: StoredResponse, said: Sequence[Entry], end: Entry) -> Finished:
    """`finish`, for a run that has a row to end, whatever it said."""
    try:
        return await finish(row, [*said, end])
    except Exception as error:
        # An end without what came before it is better than none, for which somebody would wait for ever.
        log.error("a fault while keeping what a run said: %s", place_of(error))
        return finished(row, [Entry(end.now, [RunEndEvent("failed", error=FAULT)])])


def closing(folded: Fold, seed: str, error: ErrorInfo) -> list[Event]:
    """What ends a run that broke off after what was folded: as failed, its unanswered calls answered so."""
    mint = Minter(seed.encode()[:64])
    why = "The run ended before this function returned."
    answers = [
        FunctionToolResultEvent(ToolReturnPart(call.tool_name, why, call.tool_call_id, "failed"), mint("fco"))
        for call in folded.unanswered
    ]
    return [*answers, *folded.closing(error), RunEndEvent("failed", folded.usage, error)]


async def keep(store: Store, done: Finished) -> None:
    """Keep it. A store that did not say whether it did is asked again for a while: what is put twice is there once.
    Raises `StoreError`."""
    until = time.monotonic() + WAITED_SECONDS
    while True:
        try:
            await store.responses.put(*done)
            return
        except PellucidError as error:
            if error.info.kind != "unavailable" or time.monotonic() > until:
                raise
        await asyncio.sleep(RETRY_SECONDS)


async def keep_end(store: Store, done: Finished, fence: int) -> bool:
    """Keep the end of a response that was begun; whether it is its end now. Who did not hear the answer may ask again.
    Raises `StoreError`."""
    row, ids, entries = done
    return await store.responses.finish(row, ids, fence, entries)


class KeptRun:
    """An attached run whose response is kept. Its end comes when it is in the store, or says that it is not."""

    def __init__(self, inner: Running, row: StoredResponse, store: Store) -> None:
        self._inner = inner
        self._row = row
        self._store = store
        self._entries: list[Entry] = []
        self._end: RunEndEvent | None = None
        """Said, and not told yet."""
        self._settled: list[Event] | None = None
        self._told: RunEndEvent | None = None
        self._keeping: asyncio.Task[ErrorInfo | None] | None = None
        self.now = 0
        self.waiting = False

    async def open(self) -> None:
        await self._inner.open()
        self.waiting = self._inner.waiting
        if self.waiting:
            # A stream that begins so has one event more, and so must it have whenever it is read again.
            self._entries.append(Entry(self._inner.now, [WAITED]))

    @property
    def ended(self) -> RunEndEvent | None:
        return self._told

    def wait(self) -> Awaitable[None]:
        return self._inner.wait() if self._end is None else self._settle()

    def take(self) -> list[Event] | None:
        if self._settled is not None:
            settled, self._settled = self._settled, None
            return settled
        if self._told is not None:
            return None
        events = self._inner.take()
        return None if events is None else self._note(events)

    async def stop(self, error: ErrorInfo | None = None) -> list[Event]:
        if self._told is not None:
            return []
        events = self._note(await self._inner.stop(error)) if self._end is None else []
        await self._settle()
        return events + (self.take() or [])

    def _note(self, events: list[Event]) -> list[Event]:
        """Keep what came; an end is held back."""
        self.now = self._inner.now
        self._entries.append(Entry(self.now, events))
        if events and type(events[-1]) is RunEndEvent:
            self._end = events[-1]
            return events[:-1]
        return events

    async def _settle(self) -> None:
        """Put it into the store, then let the end pass. Whoever is cancelled meanwhile does not break it off."""
        if self._end is None or self._told is not None:
            return
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        error = await asyncio.shield(self._keeping)
        if self._told is None:
            # Whoever continues from a response that is not kept would find nothing: it must not look whole.
            self._told = self._end if error is None else RunEndEvent("failed", self._end.usage, not_kept(error))
            self._settled = [self._told]

    async def _keep(self) -> ErrorInfo | None:
        try:
            await keep(self._store, await finish(self._row, self._entries))
        except PellucidError as error:
            return error.info
        except Exception as error:
            log.error("a fault while keeping a response: %s", place_of(error))
            return FAULT
        return None


def not_kept(why: ErrorInfo) -> ErrorInfo:
    """Its code says so too: protocols that end with what is kept of a run have nothing to end with."""
    return ErrorInfo(
        why.kind, f"the response came, and could not be kept ({why.message}); nothing can go on from it", code=NOT_KEPT
    )


__all__ = [
    "ABANDONED",
    "Finished",
    "KeptRun",
    "closing",
    "ending",
    "finish",
    "finished",
    "keep",
    "keep_end",
    "not_kept",
]
