"""Threads of AG-UI that the server holds, for agents (`AgentModel`, `holds_threads`).

A thread is stored as a chat (`storage.chats`), and each of its runs as a turn. A client sends the whole conversation
with each request, as AG-UI has it; but what the agent reads is what was stored. Of the client come only:

* new messages of the user, and results of its own functions, for calls that wait for them;
* answers to the interrupts of the run before: an approval only for a call for which that run requested one;
* the place where the thread continues. The run follows the run with the last message that the client and the thread
  both have, so a client that goes back, and says something else, makes another branch. A conversation that ends with a
  question that has an answer asks for another answer. A client may also send new messages alone. Answers to interrupts
  are for the newest run.

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
from ..unicode import truncate
from .access.policy import Principal
from .services import Services


class Turn(NamedTuple):
    """A stored run of a thread."""

    row: StoredResponse
    messages: list[ModelMessage]
    """Its input and its output."""
    input: list[Message]
    """The messages of the client that began it."""
    output_keys: frozenset[str]
    """The ids of its items, and of its calls that have a result."""


class ThreadPosition(NamedTuple):
    """Where a run continues a thread."""

    chat: StoredChat
    previous_id: str | None
    """The row of the run before."""
    history: list[ModelMessage]
    """The messages up to there."""
    new_messages: list[Message]
    """The messages that the client adds."""
    waiting_calls: Mapping[str, ToolCallPart]
    """The calls of the run before that have no result, by their ids."""
    left_out: int
    """The number of messages of the client that are not the user's, and that the thread does not have."""


def row_id(thread_id: str, run_id: str) -> str:
    """Return the id of a run's row. Ids of clients may be any text of any length, so a digest of them is used."""
    return f"agui_{_digest(str(len(thread_id)), thread_id, run_id)}"


def chat_id(thread_id: str) -> str:
    """Return the id of the chat that a thread is stored as."""
    return f"thread_{_digest(thread_id)}"


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
        return _position(request, chat, [])
    rows = await services.store.chats.turns(owner, id, chat.head, log=False) or []
    if rows and not rows[-1].is_finished:
        raise busy(request.thread_id)
    turns = await offload(json_weight(*(row.messages for row in rows)), _turns_of, rows)
    return _position(request, chat, turns)


_decode_input = msgspec.json.Decoder(list[Message]).decode


def _turns_of(rows: Sequence[StoredResponse]) -> list[Turn]:
    turns = []
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
        turns.append(Turn(row, messages, _decode_input(row.input), frozenset(keys)))
    return turns


def _position(request: Request, chat: StoredChat, turns: list[Turn]) -> ThreadPosition:
    input_of = {message.id: number for number, turn in enumerate(turns) for message in turn.input}
    output_of = {key: number for number, turn in enumerate(turns) for key in turn.output_keys}
    last_index, last_number, new_messages, left_out = -1, len(turns) - 1, list[Message](), 0
    for index, message in enumerate(request.input.messages):
        number = next((output_of[key] for key in _output_keys(message) if key in output_of), input_of.get(message.id))
        if number is not None:
            last_index, last_number = index, number
    if request.resume:  # an answer is for the newest run: on a branch before it, a call would be approved twice
        last_number = len(turns) - 1
    waiting = unanswered_calls(turns[last_number].messages) if turns else {}
    for message in request.input.messages[last_index + 1 :]:
        if isinstance(message, m.UserMessage) or (
            isinstance(message, m.ToolMessage) and message.tool_call_id in waiting
        ):
            new_messages.append(message)
        elif isinstance(message, m.AssistantMessage | m.ReasoningMessage | m.ToolMessage):
            # What comes before an answer that is not the thread's own was said elsewhere.
            left_out += 1 + len(new_messages)
            new_messages.clear()
    if not new_messages and not request.resume:
        if not turns or request.input.messages[last_index].id not in input_of:
            raise invalid(
                "messages", "there is none that the thread does not have; add a message of the user", "nothing_new"
            )
        new_messages, last_number = turns[last_number].input, last_number - 1
        waiting = unanswered_calls(turns[last_number].messages) if last_number >= 0 else {}
    previous = turns[: last_number + 1]
    return ThreadPosition(
        chat,
        previous[-1].row.id if previous else None,
        join_messages(*(turn.messages for turn in previous)),
        new_messages,
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


async def find_requested_approvals(services: Services, owner: str, position: ThreadPosition) -> frozenset[str]:
    """Return the ids of the waiting calls for which the run before requested an approval."""
    if not position.waiting_calls or position.previous_id is None:
        return frozenset()
    row = await services.store.responses.get(owner, position.previous_id, log=True)
    events = events_of(unpack_log(row.log)) if row is not None and row.log else []
    return frozenset(
        event.value["tool_call_id"]
        for event in events
        if isinstance(event, SideEvent)
        and (event.namespace, event.name) == DEFERRED
        and event.value["approval"]
        and event.value["tool_call_id"] in position.waiting_calls
    )


async def find_newest_run(services: Services, owner: str, thread_id: str) -> str | None:
    """Return the id of the row of a thread's newest run; None if there is no such thread."""
    chat = await services.store.chats.get(owner, chat_id(thread_id))
    return None if chat is None else chat.head
