"""What a finished run is in the store; and the stage that stores a run and holds its end back until it is durable.

The row holds the request (`header`, `input`), the run's share of the conversation (`messages`), and the log. The
protocol that made the row is not known here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..errors import NOT_KEPT, ErrorInfo, PellucidError
from ..events import Event, FunctionToolResultEvent, PartDeltaEvent, RunEndEvent
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
from .log import WAITED, events_of, pack
from .source import Batch, batches_like, clock_ms
from .stages import Stage

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


def finished(row: StoredResponse, entries: Sequence[Batch]) -> Finished:
    """What to keep of a run that has said all of `entries`, RunEnd last."""
    events = events_of(entries)
    end = events[-1]
    assert isinstance(end, RunEndEvent)
    said = [writable(message) for message in fold(events).messages]
    done = replace(
        row,
        status=end.status,
        updated_at=entries[-1].time_ms / 1000,
        messages=messages_to_json([*messages_from_json(row.messages), *said]),
        log=pack(entries),
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


async def finish(row: StoredResponse, entries: Sequence[Batch]) -> Finished:
    """`finished`, in a thread where there is much to do."""
    if sum(len(entry.events) for entry in entries) > LARGE:
        return await asyncio.to_thread(finished, row, entries)
    return finished(row, entries)


async def ending(row: StoredResponse, said: Sequence[Batch], end: Batch) -> Finished:
    """`finish`, for a run that has a row to end, whatever it said."""
    try:
        return await finish(row, [*said, end])
    except Exception as error:
        # An end without what came before it is better than none, for which somebody would wait for ever.
        log.error("a fault while keeping what a run said: %s", place_of(error))
        return finished(row, [Batch(end.time_ms, [RunEndEvent("failed", error=FAULT)])])


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


async def put(store: Store, row: StoredResponse, batches: Sequence[Batch]) -> ErrorInfo | None:
    """Store a run that is over; why it could not be stored."""
    try:
        await keep(store, await finish(row, batches))
    except PellucidError as error:
        return error.info
    except Exception as error:
        log.error("a fault while keeping a response: %s", place_of(error))
        return FAULT
    return None


async def keep_end(store: Store, done: Finished, fence: int) -> bool:
    """Keep the end of a response that was begun; whether it is its end now. Who did not hear the answer may ask again.
    Raises `StoreError`."""
    row, ids, entries = done
    return await store.responses.finish(row, ids, fence, entries)


class StoreStage(Stage):
    """Stores a run. Its end passes when the response is in the store, or as a failure when it could not be stored."""

    takes_texts = True

    def __init__(self, row: StoredResponse, store: Store) -> None:
        self._row = row
        self._store = store
        self._batches: list[Batch] = []
        self._storing: asyncio.Task[None] | None = None

    def opened(self, *, queued: bool) -> None:
        if queued:
            # A stream that begins so has one event more, also when it is read again.
            self._batches.append(Batch(clock_ms(), [WAITED]))

    def process(self, batch: Batch) -> Batch:
        events = batch.events
        if not events:
            return batch
        self._batches.append(batch)
        end = events[-1]
        if type(end) is not RunEndEvent:
            return batch
        self._storing = asyncio.create_task(self._store_and_end(batch.time_ms, end))
        return Batch(batch.time_ms, events[:-1])

    def add_texts(self, like: PartDeltaEvent, texts: list[tuple[str, int]]) -> None:
        batch = batches_like(like)
        self._batches += [batch(text, time_ms) for text, time_ms in texts]

    async def _store_and_end(self, time_ms: int, end: RunEndEvent) -> None:
        """A task of its own: whoever reads the run may leave meanwhile."""
        error = await put(self._store, self._row, self._batches)
        # A client that continues from a response that is not stored would find nothing: it must not look complete.
        # The time is that of the log, or what is read again would have ended earlier.
        self.push(Batch(time_ms, [end if error is None else RunEndEvent("failed", end.usage, not_kept(error))]))


def not_kept(why: ErrorInfo) -> ErrorInfo:
    """Its code says so too: protocols that end with what is kept of a run have nothing to end with."""
    return ErrorInfo(
        why.kind, f"the response came, and could not be kept ({why.message}); nothing can go on from it", code=NOT_KEPT
    )
