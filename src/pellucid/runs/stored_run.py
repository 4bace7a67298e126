"""Conversion of a finished run to a stored response, and the stage that stores a run before its end is shown.

The row contains the request (`header`, `input`), the messages that the run adds to the conversation (`messages`), and
the log. This module does not know the client protocol that made the row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..conversation import part_length
from ..errors import NOT_KEPT, ErrorInfo, PellucidError
from ..events import Event, FunctionToolResultEvent, PartDeltaEvent, PartEndEvent, RunEndEvent
from ..fold import Fold, fold
from ..offload import json_weight, offload, text_weight
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

FAULT = ErrorInfo("server_error", "the gateway failed to store the response")

RETRY_SECONDS = 0.5

STORE_WAIT_SECONDS = 3.0
"""Seconds that the end of a response waits for an unavailable store."""

ABANDONED = ErrorInfo(
    "server_error", "the gateway process that drove this run has stopped; send the request again", code="abandoned"
)


class FinishedRun(NamedTuple):
    """A finished run as it is stored."""

    row: StoredResponse
    item_ids: list[str]
    """Public ids of all its items, including those of its input."""
    entries: list[ConversationEntry]
    """The items with an id that it adds to its conversation."""


def build_finished_run(row: StoredResponse, batches: Sequence[Batch]) -> FinishedRun:
    """Build the stored form of a run.

    Args:
        row: The response as it was before the end.
        batches: All batches of the run. The last event is its `RunEndEvent`.
    """
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
        if item.get("type") != "item_reference"  # a reference has the id of another item, and is none itself
    ]
    # The id of a tool result is only on its event.
    ids = iter([event.id or "" for event in events if isinstance(event, FunctionToolResultEvent)])
    output_entries = [
        ConversationEntry(id=id, item=b"null", message=messages_to_json([message]))
        for whole in messages
        for id, message in _split_items(whole, ids)
    ]
    entries_by_id = {entry.id: entry for entry in (*input_entries, *output_entries) if entry.id}
    return FinishedRun(row_at_end, list(entries_by_id), list(entries_by_id.values()))


def _answer_texts(messages: Sequence[ModelMessage]) -> Iterator[str]:
    """Yield the texts of answers, for search. Reasoning is not searchable."""
    for message in messages:
        if isinstance(message, ModelResponse):
            yield from (part.content for part in message.parts if isinstance(part, TextPart))


def _split_items(message: ModelMessage, ids: Iterator[str]) -> Iterator[tuple[str, ModelMessage]]:
    """Split a message into one message for each item, with the item's id."""
    if isinstance(message, ModelRequest):
        for part in message.parts:
            yield next(ids), ModelRequest([part])
    else:
        for id, parts in groupby(message.parts, lambda part: part.item_id or ""):
            yield id, replace(message, parts=list(parts))


async def prepare_finished_run(row: StoredResponse, batches: Sequence[Batch]) -> FinishedRun:
    """Call `build_finished_run`, in a thread if the run or its input is large."""
    events = [event for batch in batches for event in batch.events]
    output_length = sum(part_length(event.part) for event in events if type(event) is PartEndEvent)
    weight = json_weight(row.input, row.messages) + text_weight(output_length) + len(events) // 4
    return await offload(weight, build_finished_run, row, batches)


async def prepare_final_run(row: StoredResponse, batches: Sequence[Batch], end: Batch) -> FinishedRun:
    """Build the stored form of a run whose row must get an end; after an internal error, as a failed run."""
    try:
        return await prepare_finished_run(row, [*batches, end])
    except Exception as error:
        # An end without the events before it is better than none: readers would wait forever.
        log.error("a fault while storing the events of a run: %s", error_location(error))
        return build_finished_run(row, [Batch(end.time_ms, [RunEndEvent("failed", error=FAULT)])])


def closing_events(folded: Fold, id_seed: str, error: ErrorInfo) -> list[Event]:
    """Return the events that end an interrupted run as failed.

    Args:
        folded: The events of the run so far. Its unanswered tool calls get failed results.
        id_seed: Seed of the ids of these results.
        error: The error of the run.
    """
    mint = Minter(id_seed.encode()[:64])
    text = "The run ended before this function returned."
    answers = [
        FunctionToolResultEvent(ToolReturnPart(call.tool_name, text, call.tool_call_id, "failed"), mint("fco"))
        for call in folded.unanswered
    ]
    return [*answers, *folded.closing_events(error), RunEndEvent("failed", folded.usage, error)]


async def store_with_retries(store: Store, finished_run: FinishedRun) -> None:
    """Store a finished run. `Responses.put` is idempotent, so it is repeated while the store is unavailable.

    Raises:
        StoreError: If the store rejects the run, or is unavailable for `STORE_WAIT_SECONDS`.
    """
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
    """Store a run that is over; return the error if that failed."""
    try:
        await store_with_retries(store, await prepare_finished_run(row, batches))
    except PellucidError as error:
        return error.info
    except Exception as error:
        log.error("a fault while storing a response: %s", error_location(error))
        return FAULT
    return None


async def store_end(store: Store, finished_run: FinishedRun, fence: int) -> bool:
    """Store the end of a response that was begun. May be repeated if the result is unknown.

    Returns:
        Whether this is the stored end of the response. False if the response has another end or another driver.

    Raises:
        StoreError: If the store is unavailable or rejects the row.
    """
    row, ids, entries = finished_run
    return await store.responses.finish(row, ids, fence, entries)


class StoreStage(Stage):
    """Stage that stores a run.

    The run's end passes when the response is in the store, or as a failure when the response could not be stored.
    """

    takes_texts = True

    def __init__(self, row: StoredResponse, store: Store) -> None:
        self._row = row
        self._store = store
        self._batches: list[Batch] = []
        self._store_task: asyncio.Task[None] | None = None

    def on_opened(self, *, queued: bool) -> None:
        if queued:
            # A queued stream begins with one more event, also when it is replayed.
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

    def add_texts(self, last_delta: PartDeltaEvent, texts: list[tuple[str, int]]) -> None:
        make_batch = batch_factory(last_delta)
        self._batches += [make_batch(text, time_ms) for text, time_ms in texts]

    async def _store_and_end(self, time_ms: int, end: RunEndEvent) -> None:
        """Store the run, then push its end. Runs in its own task: the reader may disconnect meanwhile."""
        error = await store_run(self._store, self._row, self._batches)
        # A client cannot continue from a response that is not stored, so the response must not look complete.
        # The end has the time in the log; otherwise a replay would show another time.
        self.push(Batch(time_ms, [end if error is None else RunEndEvent("failed", end.usage, not_stored_error(error))]))


def not_stored_error(error: ErrorInfo) -> ErrorInfo:
    """Return the error of a response that could not be stored.

    It has a code of its own, because protocols whose last event is the stored response cannot send that event.
    """
    return ErrorInfo(
        error.kind,
        f"the response could not be stored ({error.message}), so it cannot be continued",
        code=NOT_KEPT,
    )
