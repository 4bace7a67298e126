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
from ..telemetry import error_location, log
from ..unicode import json_safe
from .run_log import QUEUED, events_of, pack_log
from .source import Batch, batch_factory, clock_ms
from .stages import Stage

FAULT = ErrorInfo("server_error", "the gateway failed to keep it")

RETRY_SECONDS = 0.5

STORE_WAIT_SECONDS = 3.0
"""How long a client waits with its answer for a store that is away."""

ABANDONED = ErrorInfo(
    "server_error", "the replica that drove this run is gone; what came until then is kept", code="abandoned"
)

THREAD_MIN_EVENTS = 2_000
"""From so many events on, a log is packed in a thread, where it keeps nobody waiting."""


class FinishedRun(NamedTuple):
    """What is kept of a run that is over."""

    row: StoredResponse
    item_ids: list[str]
    """The public ids of everything in it, of its input, too."""
    entries: list[ConversationEntry]
    """What it adds to its conversation, item by item, where each has a name."""


def build_finished_run(row: StoredResponse, batches: Sequence[Batch]) -> FinishedRun:
    """What to keep of a run that has said all of `entries`, RunEnd last."""
    events = events_of(batches)
    end = events[-1]
    assert isinstance(end, RunEndEvent)
    messages = [json_safe(message) for message in fold(events).messages]
    row_at_end = replace(
        row,
        status=end.status,
        updated_at=batches[-1].time_ms / 1000,
        messages=messages_to_json([*messages_from_json(row.messages), *messages]),
        log=pack_log(batches),
        error=msgspec.json.encode(json_safe(end.error)) if end.error is not None else None,
        text=None if row.text is None else "\n\n".join([row.text, *_answer_texts(messages)]),
    )
    input_entries = [
        ConversationEntry(id=item["id"], item=msgspec.json.encode(item))
        for item in msgspec.json.decode(row.input)
        if item.get("type") != "item_reference"  # which has the id of what it names, and is no item itself
    ]
    # A result's id stands on its event alone.
    ids = iter([event.id or "" for event in events if isinstance(event, FunctionToolResultEvent)])
    output_entries = [
        ConversationEntry(id=id, item=b"null", message=messages_to_json([message]))
        for whole in messages
        for id, message in _split_items(whole, ids)
    ]
    entries_by_id = {entry.id: entry for entry in (*input_entries, *output_entries) if entry.id}
    return FinishedRun(row_at_end, list(entries_by_id), list(entries_by_id.values()))


def _answer_texts(messages: Sequence[ModelMessage]) -> Iterator[str]:
    """What was said to the reader. What was thought is not to be found."""
    for message in messages:
        if isinstance(message, ModelResponse):
            yield from (part.content for part in message.parts if isinstance(part, TextPart))


def _split_items(message: ModelMessage, ids: Iterator[str]) -> Iterator[tuple[str, ModelMessage]]:
    """The message, in pieces of one item each."""
    if isinstance(message, ModelRequest):
        for part in message.parts:
            yield next(ids), ModelRequest([part])
    else:
        for id, parts in groupby(message.parts, lambda part: part.item_id or ""):
            yield id, replace(message, parts=list(parts))


async def prepare_finished_run(row: StoredResponse, batches: Sequence[Batch]) -> FinishedRun:
    """`finished`, in a thread where there is much to do."""
    if sum(len(entry.events) for entry in batches) > THREAD_MIN_EVENTS:
        return await asyncio.to_thread(build_finished_run, row, batches)
    return build_finished_run(row, batches)


async def prepare_final_run(row: StoredResponse, batches: Sequence[Batch], end: Batch) -> FinishedRun:
    """`finish`, for a run that has a row to end, whatever it said."""
    try:
        return await prepare_finished_run(row, [*batches, end])
    except Exception as error:
        # An end without what came before it is better than none, for which somebody would wait for ever.
        log.error("a fault while keeping what a run said: %s", error_location(error))
        return build_finished_run(row, [Batch(end.time_ms, [RunEndEvent("failed", error=FAULT)])])


def closing_events(folded: Fold, id_seed: str, error: ErrorInfo) -> list[Event]:
    """What ends a run that broke off after what was folded: as failed, its unanswered calls answered so."""
    mint = Minter(id_seed.encode()[:64])
    text = "The run ended before this function returned."
    answers = [
        FunctionToolResultEvent(ToolReturnPart(call.tool_name, text, call.tool_call_id, "failed"), mint("fco"))
        for call in folded.unanswered
    ]
    return [*answers, *folded.closing_events(error), RunEndEvent("failed", folded.usage, error)]


async def store_with_retries(store: Store, finished_run: FinishedRun) -> None:
    """Keep it. A store that did not say whether it did is asked again for a while: what is put twice is there once.
    Raises `StoreError`."""
    deadline = time.monotonic() + STORE_WAIT_SECONDS
    while True:
        try:
            await store.responses.put(*finished_run)
            return
        except PellucidError as error:
            if error.info.kind != "unavailable" or time.monotonic() > deadline:
                raise
        await asyncio.sleep(RETRY_SECONDS)


async def store_run(store: Store, row: StoredResponse, batches: Sequence[Batch]) -> ErrorInfo | None:
    """Store a run that is over; why it could not be stored."""
    try:
        await store_with_retries(store, await prepare_finished_run(row, batches))
    except PellucidError as error:
        return error.info
    except Exception as error:
        log.error("a fault while keeping a response: %s", error_location(error))
        return FAULT
    return None


async def store_end(store: Store, finished_run: FinishedRun, fence: int) -> bool:
    """Keep the end of a response that was begun; whether it is its end now. Who did not hear the answer may ask again.
    Raises `StoreError`."""
    row, ids, entries = finished_run
    return await store.responses.finish(row, ids, fence, entries)


class StoreStage(Stage):
    """Stores a run. Its end passes when the response is in the store, or as a failure when it could not be stored."""

    takes_texts = True

    def __init__(self, row: StoredResponse, store: Store) -> None:
        self._row = row
        self._store = store
        self._batches: list[Batch] = []
        self._store_task: asyncio.Task[None] | None = None

    def on_opened(self, *, queued: bool) -> None:
        if queued:
            # A stream that begins so has one event more, also when it is read again.
            self._batches.append(Batch(clock_ms(), [QUEUED]))

    def process(self, batch: Batch) -> Batch:
        events = batch.events
        if not events:
            return batch
        self._batches.append(batch)
        end = events[-1]
        if type(end) is not RunEndEvent:
            return batch
        self._store_task = asyncio.create_task(self._store_and_end(batch.time_ms, end))
        return Batch(batch.time_ms, events[:-1])

    def add_texts(self, like: PartDeltaEvent, texts: list[tuple[str, int]]) -> None:
        make_batch = batch_factory(like)
        self._batches += [make_batch(text, time_ms) for text, time_ms in texts]

    async def _store_and_end(self, time_ms: int, end: RunEndEvent) -> None:
        """A task of its own: whoever reads the run may leave meanwhile."""
        error = await store_run(self._store, self._row, self._batches)
        # A client that continues from a response that is not stored would find nothing: it must not look complete.
        # The time is that of the log, or what is read again would have ended earlier.
        self.push(Batch(time_ms, [end if error is None else RunEndEvent("failed", end.usage, not_stored_error(error))]))


def not_stored_error(error: ErrorInfo) -> ErrorInfo:
    """Its code says so too: protocols that end with what is kept of a run have nothing to end with."""
    return ErrorInfo(
        error.kind,
        f"the response came, and could not be kept ({error.message}); nothing can go on from it",
        code=NOT_KEPT,
    )
