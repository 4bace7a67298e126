"""Threads of AG-UI that the server holds, for agents (`AgentModel`, `holds_threads`).

A thread is stored as a chat (`storage.chats`), and each of its runs as a turn. A client sends the whole conversation
with each request, as AG-UI has it; but what the agent reads is what was stored. Of the client come only:

* new messages of the user, and results of its own functions, for calls that wait for them;
* answers to the interrupts of the run before: an approval only for a call for which that run requested one;
* the place where the thread continues. The run follows the run with the last message that the client and the thread
  both have, on any branch. So a client that goes back, and says something else, or changes a question, makes another
  branch. A conversation that ends with a question that has an answer asks for another answer. A client may also send
  new messages alone. Answers to interrupts are for the newest run.

Messages of the assistant that the thread does not have are left out, with a warning. One run of a thread is in progress
at a time. A run continues without its client (`detached_runs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from ..agent.run_input import unanswered_calls
from ..conversation import join_messages
from ..errors import RequestError
from ..events import DEFERRED, SideEvent
from ..offload import json_weight, offload
from ..parts import ModelMessage, ModelResponse, ToolCallPart, messages_from_json
from ..protocols.agui import Message
from ..protocols.agui import messages as m
from ..protocols.agui.metadata import item_id_of
from ..protocols.agui.request import Request
from ..protocols.decoding import invalid
from ..runs import clock_ms
from ..runs.run_log import events_of, unpack_log
from ..storage import StoredChat, StoredResponse
from ..storage.chats import THREAD_PREFIX
from ..unicode import truncate
from .access.policy import Principal
from .services import Services


class StoredRun(NamedTuple):
    """A run of a thread."""

    row: StoredResponse
    messages: list[ModelMessage]
    """Its input and its output."""
    input: list[Message]
    """The messages of the client that began it."""
    output_keys: frozenset[str]
    """The ids of its items, and of its calls that have a result."""


class Place(NamedTuple):
    """Where the messages of a client meet a branch of the thread."""

    shared: int
    """The number of messages of the client that are in the branch, or before one that is."""
    length: int
    """The number of runs of the branch that come before the others."""
    repeats: bool
    """Whether the last of these messages is a question, so that without a new message its run is repeated."""


class ThreadPosition(NamedTuple):
    """Where a run continues a thread."""

    chat: StoredChat
    previous: StoredResponse | None
    """The row of the run before."""
    history: list[ModelMessage]
    """The messages up to there."""
    new_messages: list[tuple[str, Message]]
    """The messages that the client adds, with the path of each in the request."""
    waiting_calls: Mapping[str, ToolCallPart]
    """The calls of the run before that have no result, by their ids."""
    left_out: int
    """The number of messages of the client that are not the user's, and that the thread does not have."""


def row_id(thread_id: str, run_id: str) -> str:
    """Return the id of a run's row. Ids of clients may be any text of any length, so a digest of them is used."""
    return f"agui_{_digest(str(len(thread_id)), thread_id, run_id)}"


def chat_id(thread_id: str) -> str:
    """Return the id of the chat that a thread is stored as."""
    return f"{THREAD_PREFIX}{_digest(thread_id)}"


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def busy(thread_id: str) -> RequestError:
    """Return the error for a thread with a run in progress."""
    return RequestError(
        f"threadId: the thread {truncate(thread_id)!r} has a run in progress; read it with GET, wait for its end, or "
        "cancel it",
        kind="conflict",
        code="conversation_busy",
        param="threadId",
    )


async def find_position(services: Services, principal: Principal, request: Request) -> ThreadPosition:
    """Return where a request continues its thread.

    Raises:
        RequestError: A run of the thread is in progress, or the request adds nothing.
    """
    owner, id = principal.owner, chat_id(request.thread_id)
    chat = await services.store.chats.get(owner, id)
    if chat is None:
        now = clock_ms() / 1000
        chat = StoredChat(
            id=id, owner=owner, title="", created_at=now, updated_at=now, expires_at=services.expires_at(principal)
        )
        return _position(request, chat, [], Place(0, 0, repeats=False))
    branch = await _load_branch(services, chat, None)
    if branch and not branch[-1].row.is_finished:
        raise busy(request.thread_id)
    if request.resume:  # an answer is for the newest run: before it, on another branch, a call would be approved twice
        return _position(request, chat, branch, _locate(request.input.messages, branch)._replace(length=len(branch)))
    place = _locate(request.input.messages, branch)
    for head in await _other_heads(services, chat) if _is_elsewhere(request.input.messages, place) else ():
        other = await _load_branch(services, chat, head)
        if (other_place := _locate(request.input.messages, other)).shared > place.shared:
            branch, place = other, other_place
    return _position(request, chat, branch, place)


async def _load_branch(services: Services, chat: StoredChat, head: str | None) -> list[StoredRun]:
    rows = await services.store.chats.turns(chat.owner, chat.id, head, log=False) or []
    return await offload(json_weight(*(row.messages for row in rows)), _stored_runs_of, rows)


async def _other_heads(services: Services, chat: StoredChat) -> list[str]:
    """Return the last run of each branch but that of the thread's head, the newest first."""
    runs_after = await services.store.chats.siblings(chat.owner, chat.id)
    return [id for ids in runs_after.values() for id in ids if id not in runs_after and id != chat.head][::-1]


def _is_elsewhere(messages: Sequence[Message], place: Place) -> bool:
    """Whether a client has answers that are not in a branch."""
    return any(isinstance(message, m.AssistantMessage) for message in messages[place.shared :])


_decode_input = msgspec.json.Decoder(list[Message]).decode


def _stored_runs_of(rows: Sequence[StoredResponse]) -> list[StoredRun]:
    runs = []
    for row in rows:
        messages = messages_from_json(row.messages)
        unanswered = unanswered_calls(messages)
        keys = {
            key
            for message in messages
            if isinstance(message, ModelResponse)
            for part in message.parts
            for key in (part.item_id, part.tool_call_id if isinstance(part, ToolCallPart) else None)
            if key is not None and key not in unanswered
        }
        runs.append(StoredRun(row, messages, _decode_input(row.input), frozenset(keys)))
    return runs


def _locate(messages: Sequence[Message], branch: Sequence[StoredRun]) -> Place:
    """Return where the messages of a client meet a branch: at the last one that both have."""
    output_of = {key: number for number, run in enumerate(branch) for key in run.output_keys}
    input_of = {message.id: (number, message) for number, run in enumerate(branch) for message in run.input}
    place = Place(0, len(branch), repeats=False)
    for index, message in enumerate(messages):
        number = next((output_of[key] for key in _output_keys(message) if key in output_of), None)
        if number is not None:
            place = Place(index + 1, number + 1, repeats=False)
        elif message.id in input_of:
            number, stored = input_of[message.id]
            is_changed = message != stored  # a question that follows is another one, unless its answer is there, too
            place = Place(index, number, repeats=False) if is_changed else Place(index + 1, number + 1, repeats=True)
    return place


def _position(request: Request, chat: StoredChat, branch: Sequence[StoredRun], place: Place) -> ThreadPosition:
    """Return the position at a place of a branch.

    Raises:
        RequestError: The request adds nothing.
    """
    runs = branch[: place.length]
    waiting = unanswered_calls(runs[-1].messages) if runs else {}
    added, left_out = list[tuple[str, Message]](), 0
    for index, message in enumerate(request.input.messages[place.shared :], place.shared):
        is_result = isinstance(message, m.ToolMessage) and message.tool_call_id in waiting
        if isinstance(message, m.UserMessage) or is_result:
            added.append((f"messages[{index}]", message))
        elif isinstance(message, m.AssistantMessage | m.ReasoningMessage | m.ToolMessage):
            # What comes before an answer that is not the thread's own was said elsewhere.
            left_out += 1 + len(added)
            added.clear()
    if not added and not request.resume:
        if not place.repeats:
            raise invalid(
                "messages", "there is none that the thread does not have; add a message of the user", "nothing_new"
            )
        added = [("messages", message) for message in runs[-1].input]
        runs = runs[:-1]
        waiting = unanswered_calls(runs[-1].messages) if runs else {}
    return ThreadPosition(
        chat,
        runs[-1].row if runs else None,
        join_messages(*(run.messages for run in runs)),
        added,
        waiting,
        left_out,
    )


def _output_keys(message: Message) -> list[str]:
    """Return the ids by which a message of the client may be known as output."""
    match message:
        case m.AssistantMessage():
            return [item_id_of(message.id), *(call.id for call in message.tool_calls or ())]
        case m.ReasoningMessage():
            return [item_id_of(message.id)]
        case m.ToolMessage():
            return [message.tool_call_id]
    return []


async def find_requested_approvals(services: Services, model: str, position: ThreadPosition) -> frozenset[str]:
    """Return the ids of the waiting calls for which the run before requested an approval, if it was the same agent's.

    Args:
        services: The gateway's services.
        model: The public name of the agent.
        position: The position in the thread.
    """
    previous = position.previous
    if not position.waiting_calls or previous is None or previous.model != model:
        return frozenset()
    row = await services.store.responses.get(previous.owner, previous.id, log=True)
    if row is None or not row.log:
        return frozenset()
    requested = await offload(len(row.log), _requested_approvals, row.log)
    return requested & position.waiting_calls.keys()


def _requested_approvals(log: bytes) -> frozenset[str]:
    return frozenset(
        event.value["tool_call_id"]
        for event in events_of(unpack_log(log))
        if isinstance(event, SideEvent) and (event.namespace, event.name) == DEFERRED and event.value["approval"]
    )


async def find_newest_run(services: Services, owner: str, thread_id: str) -> str | None:
    """Return the id of the row of a thread's newest run; None if there is no such thread."""
    chat = await services.store.chats.get(owner, chat_id(thread_id))
    return None if chat is None else chat.head
