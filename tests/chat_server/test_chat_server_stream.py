"""`POST /api/chat`: the stream from its first frame to the stored event."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pellucid.emit import Emitter
from pellucid.events import ModelEvent, SideEvent
from pellucid.models import ModelStream
from pellucid.parts import Origin
from pellucid.runs import driver
from pellucid.settings import ModelCall
from pellucid.storage import StoreError
from pellucid.storage.usage import _add as write_usage
from tests.chat_server.chat_server_kit import (
    ChatClient,
    complete_frames,
    error_of,
    final_event,
    parse_frames,
    read_event_id,
    segment_texts,
    text_of,
)
from tests.scripted import Call, Script, Upstream, delta, say
from tests.scripted.gateway import Served, serve
from tests.scripted_runs import ScriptedStream
from tests.server.state_kit import breaks, calls, config_of, hangs, serving
from tests.waiting import LIMIT_SECONDS

ANSWERS = say(
    "Let me see.",
    "It is 42.",
    {"prompt_tokens": 7, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 5}},
)
LAST = "It is 42. "


def store_of(gateway: Served) -> Any:
    return gateway.server.config.app.services.store  # type: ignore[union-attr]


@contextmanager
def counted_writes(gateway: Served) -> Iterator[list[Any]]:
    """Collect the writes to the store, without the sums of usage: those are written once a second, by a timer."""
    database, writes = store_of(gateway)._database, []
    real = database.write

    async def write(op: Any, argument: Any) -> Any:
        if op is not write_usage:
            writes.append(op)
        return await real(op, argument)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "write", write)
        yield writes


# --- the stream and the stored event ----------------------------------------------------------------------------------


def test_a_stream_has_every_frame_and_ends_with_the_saved_event(gateway: Served, upstream: Upstream) -> None:
    client, started_after_ms = ChatClient(gateway), time.time_ns() // 1_000_000
    reply = client.post_question(upstream.plays(ANSWERS), effort="low")
    received = complete_frames(reply.body)
    names = [frame.name for frame in received]
    started = received[0].data
    assert set(started) == {"type", "event_id", "conversation_id", "model", "created_at", "view", "effort_level"}
    assert started["event_id"].startswith("evt_")
    assert started["conversation_id"].startswith("chat_")
    assert (started["view"], started["effort_level"]) == ("raw", "low")
    assert started_after_ms <= started["created_at"] <= time.time_ns() // 1_000_000
    assert names.index("reasoning_part_started") < names.index("reasoning_part_delta") < names.index("text_delta")
    event = received[-1].data["event"]
    assert event["id"] == started["event_id"]
    assert event["conversation_id"] == started["conversation_id"]
    assert (event["role"], event["status"], event["model"]) == ("assistant", "completed", started["model"])
    reasoning, text = event["segments"]
    # Exactly the specification's example, and the fields that are known for this answer.
    assert set(reasoning) == {
        *("id", "type", "parts", "streaming", "output_index", "combined_text", "sequence_number"),
        *("effort_level", "reasoning_tokens"),
    }
    assert set(reasoning["parts"][0]) == {
        *("text", "type", "created_at", "is_complete", "summary_index", "sequence_number"),
    }
    assert set(text) == {"id", "text", "type"}
    assert (reasoning["combined_text"], text["text"]) == ("Let me see. ", LAST)
    assert (reasoning["reasoning_tokens"], reasoning["effort_level"]) == (5, "low")
    assert reasoning["parts"][0]["type"] == "reasoning_text"
    # The streamed text equals the stored text.
    parts = [frame.data for frame in received if frame.name == "reasoning_part_started"]
    assert [part["segment_id"] for part in parts] == [reasoning["id"]]
    assert parts[0]["sequence_number"] == reasoning["sequence_number"] + 1
    for name, text_saved in (("reasoning_part_delta", reasoning["combined_text"]), ("text_delta", text["text"])):
        assert "".join(frame.data["text_delta"] for frame in received if frame.name == name) == text_saved
    assert client.open(event["conversation_id"])["events"][1] == event
    assert upstream.calls(started["model"].removeprefix("vllm:"))[0].body["reasoning_effort"] == "low"


def test_a_function_of_the_server_is_shown_and_answered(gateway: Served, upstream: Upstream) -> None:
    event = ChatClient(gateway).ask(upstream.plays(calls("look_up"), ANSWERS))
    assert [segment["type"] for segment in event["segments"]] == ["reasoning", "tool_call", "reasoning", "text"]
    call = event["segments"][1]
    assert (call["name"], call["args"], call["result"]) == ("look_up", {"word": "moss"}, "moss is a word")
    assert call["status"] == "completed"
    assert [segment["output_index"] for segment in event["segments"] if "output_index" in segment] == [0, 1, 2]


async def answers_nothing(call: Call) -> None:
    await call.head()
    await call.event(delta("stop"))
    await call.event(b"[DONE]")
    await call.end()


async def answers_plainly(call: Call) -> None:
    await call.head()
    await call.event(delta(content="It is 42."))
    await call.event(delta("stop"))
    await call.event(b"[DONE]")
    await call.end()


async def breaks_in_text(call: Call) -> None:
    """The connection breaks in the middle of a word."""
    await call.head()
    await call.event(delta(reasoning_content="Hm."))
    await call.event(delta(content="It is"))
    call.reset()


async def refuses(call: Call) -> None:
    await call.answer(400, b'{"error": {"message": "no such thing", "code": "bad"}}')


@pytest.mark.parametrize(
    ("script", "status", "segments"),
    [
        (ANSWERS, "completed", [("reasoning", "Let me see. "), ("text", LAST)]),
        (answers_plainly, "completed", [("text", "It is 42.")]),
        (answers_nothing, "completed", []),
        (breaks, "failed", [("reasoning", "Hm."), ("text", "It is")]),
        (breaks_in_text, "failed", [("reasoning", "Hm."), ("text", "It is")]),
        (refuses, "failed", []),
    ],
    ids=["whole", "no reasoning", "empty", "breaks", "cut", "refused"],
)
def test_message_final_is_sent_once_last_and_after_the_save(
    gateway: Served, upstream: Upstream, script: Script, status: str, segments: list[tuple[str, str]]
) -> None:
    client = ChatClient(gateway)
    with counted_writes(gateway) as writes:
        reply = client.post_question(upstream.plays(script))
    # The question and the answer: nothing is written in between.
    assert len(writes) == 2
    received = complete_frames(reply.body)
    event = received[-1].data["event"]
    assert (event["status"], segment_texts(event)) == (status, segments)
    assert [frame.name for frame in received].count("message_error") == (status == "failed")
    if status == "failed":
        assert received[-2].name == "message_error"
        assert received[-2].data["message"]
        assert event["error"]["message"] == received[-2].data["message"]
    assert client.open(event["conversation_id"])["events"][1] == event


def test_an_unreachable_model_is_an_error_event(gateway: Served, upstream: Upstream) -> None:
    config: dict[str, Any] = {
        "providers": {"gone": {"profile": "vllm", "base_url": "http://127.0.0.1:9/v1"}},
        "limits": {"retries": 0},
    }
    with serving(upstream, **config) as running:
        received = complete_frames(ChatClient(running).post_question("gone:m").body)
        assert [frame.name for frame in received] == ["message_started", "message_error", "message_final"]


async def lingers(call: Call) -> None:
    """The stream ends a moment after its last text."""
    await call.head()
    await call.event(delta(content="It is 42."))
    await asyncio.sleep(0.05)
    await call.event(delta("stop"))
    await call.event(b"[DONE]")
    await call.end()


def test_nothing_is_stored_during_the_stream_and_the_end_waits_for_the_save(upstream: Upstream) -> None:
    with serving(upstream) as running:
        client, store, name = ChatClient(running), store_of(running), upstream.plays(hangs, lingers)
        with counted_writes(running) as writes:
            with client.begin(name) as stream:
                stream.until("Hm.")
                assert len(writes) == 1
                client.cancel(read_event_id(stream))
                stream.rest()
            assert len(writes) == 2

        real, saving, saved = store.responses.finish, threading.Event(), threading.Event()

        async def slow(*args: Any) -> bool:
            saving.set()
            await asyncio.to_thread(saved.wait, 60)
            done: bool = await real(*args)
            return done

        store.responses.finish = slow
        with client.begin(name) as stream:
            stream.until("42.")
            id = read_event_id(stream)
            assert saving.wait(60)
            stream.socket.settimeout(0.05)
            with pytest.raises(TimeoutError):
                stream.until("message_final")
            assert client.open(parse_frames(stream.seen)[0].data["conversation_id"])["active"] == id
            saved.set()


def test_a_queued_answer_begins_with_a_comment(upstream: Upstream) -> None:
    """The comment has no number: a replay has the message alone."""
    with serve(config_of(upstream), more=[QueuedModel()]) as running:
        client = ChatClient(running)
        body = client.send_request("POST", "/api/chat", {"text": "Hi", "model": "busy"}).body
        assert body.count(b": queued\n\n") == 1
        assert body.index(b"message_started") < body.index(b": queued") < body.index(b"text_delta")
        event = final_event(body)
        assert segment_texts(event) == [("text", "Hello.")]
        assert client.read(event["id"]).body == body.replace(b": queued\n\n", b"")


class QueuedModel:
    """A model whose turn is queued at first."""

    name = "busy"
    origin = Origin("agents", "agent", "busy")

    async def open(self, call: ModelCall) -> ModelStream:
        emitter = Emitter(self.origin)
        emitter.text("t", "Hello.")
        text_events = emitter.take()
        emitter.finish("stop")
        reads: list[list[ModelEvent]] = [[SideEvent("queue", "position", 1)], text_events, emitter.end("eof")]
        return ScriptedStream(reads, queued=True)

    def warnings(self, call: ModelCall) -> list[str]:
        return []


def test_the_ai_sdk_is_recognised(gateway: Served, upstream: Upstream) -> None:
    name = upstream.plays(ANSWERS)
    messages = [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Why?"}]}]
    transactions_before = store_of(gateway).transactions
    reply = ChatClient(gateway).send_request(
        "POST", "/api/chat", {"id": "c", "messages": messages, "model": f"vllm:{name}"}
    )
    assert (reply.status, reply.headers["x-vercel-ai-ui-message-stream"]) == (200, "v1")
    assert b"reasoning-delta" in reply.body
    assert store_of(gateway).transactions == transactions_before


# --- the answer continues without its client --------------------------------------------------------------------------


def test_a_disconnected_client_does_not_stop_the_answer(gateway: Served, upstream: Upstream) -> None:
    client, left = ChatClient(gateway), threading.Event()

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm."))
        await asyncio.to_thread(left.wait, 5)
        await call.event(delta(content="Still here."))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    name = upstream.plays(script)
    with client.begin(name) as stream:
        id = read_event_id(stream)
        stream.until("Hm.")
    gateway.idle()
    [call] = upstream.calls(name)
    assert not call.connection.closed.is_set()
    opened = client.open(parse_frames(stream.seen)[0].data["conversation_id"])
    assert opened["active"] == id
    assert opened["events"][1]["status"] == "in_progress"
    assert opened["events"][1]["segments"] == []
    with client.follow(id) as again:
        again.until("Hm.")
        left.set()
        event = final_event(again.rest())
    assert segment_texts(event) == [("reasoning", "Hm."), ("text", "Still here.")]


def test_cancel_ends_the_answer_and_keeps_its_text(gateway: Served, upstream: Upstream) -> None:
    client, name = ChatClient(gateway), upstream.plays(hangs)
    with client.begin(name) as stream:
        stream.until("Hm.")
        id = read_event_id(stream)
        reply = client.cancel(id)
        assert (reply.status, reply.json) == (200, {"id": id, "status": "cancelled"})
        [call] = upstream.calls(name)
        assert call.connection.closed.wait(LIMIT_SECONDS)
        received = complete_frames(stream.rest())
    assert [frame.name for frame in received][-2:] == ["message_cancelled", "message_final"]
    event = received[-1].data["event"]
    assert (event["status"], segment_texts(event)) == ("cancelled", [("reasoning", "Hm.")])
    assert client.cancel(id).json == {"id": id, "status": "cancelled"}
    assert client.open(event["conversation_id"])["events"][1] == event


def test_every_cursor_gives_the_remaining_frames(gateway: Served, upstream: Upstream) -> None:
    client, name = ChatClient(gateway), upstream.plays(calls("look_up"), hangs)
    with client.begin(name) as stream:
        stream.until("Hm.")
        id = read_event_id(stream)
        frames_so_far = parse_frames(stream.seen[: stream.seen.rindex(b"\n\n") + 2])
        readers = [client.follow(id, f"?after={frame.id}") for frame in frames_so_far[::3]]
        assert client.cancel(id).status == 200
        body = stream.rest()
    for frame, reader in zip(frames_so_far[::3], readers, strict=True):
        assert reader.rest() == frames_after(body, frame.id)
        reader.leave()
    for frame in complete_frames(body):
        assert client.read(id, f"?after={frame.id}").body == frames_after(body, frame.id)
        assert client.read(id, "", **{"Last-Event-ID": str(frame.id)}).body == frames_after(body, frame.id)
    assert client.read(id).body == body


def frames_after(body: bytes, after: int) -> bytes:
    """The bytes after the frame with this number."""
    blocks = [block + b"\n\n" for block in body.split(b"\n\n")[:-1]]
    return b"".join(block for block in blocks if int(block.split(b"\n")[0].removeprefix(b"id: ")) > after)


# --- failures of the store --------------------------------------------------------------------------------------------


def test_message_error_is_the_last_frame_only_where_the_save_fails(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "STORE_TIMEOUT_SECONDS", 0.0)
    with serving(upstream) as running:
        client = ChatClient(running)
        responses = store_of(running).responses

        async def fails(*_: Any) -> bool:
            raise StoreError

        responses.finish = fails
        received = complete_frames(client.post_question(upstream.plays(ANSWERS)).body)
        assert received[-1].name == "message_error"
        assert "could not be stored" in received[-1].data["message"]
        assert "message_final" not in [frame.name for frame in received]
        del responses.finish
        assert final_event(client.post_question(upstream.plays(ANSWERS)).body)["status"] == "completed"


def test_a_question_that_cannot_be_stored_is_not_sent_to_the_model(upstream: Upstream) -> None:
    with serving(upstream) as running:
        name = upstream.plays(ANSWERS)

        async def fails(*_: Any, **__: Any) -> None:
            raise StoreError

        store_of(running).chats.begin_turn = fails
        assert error_of(ChatClient(running).post_question(name), 503)[0] == "storage_unavailable"
        assert upstream.calls(name) == []


# --- errors before a stream -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, None),
        ({}, 400, "text"),
        ({"text": ""}, 400, "text"),
        ({"text": "Hi", "temperature": 1}, 400, "temperature"),
        ({"text": "Hi", "effort": "most"}, 400, "effort"),
        ({"text": "Hi", "view": "all"}, 400, "view"),
        ({"text": "Hi", "model": "vllm:m", "conversation_id": "chat_1"}, 404, "conversation_id"),
        ({"text": "Hi", "model": "vllm:m", "replaces": "evt_1"}, 404, "replaces"),
        ({"text": "Hi", "replaces": "resp_1"}, 400, "replaces"),
        ({"text": "Hi", "model": "unknown:m"}, 404, "model"),
    ],
)
def test_an_error_names_its_location(upstream: Upstream, body: Any, status: int, param: str | None) -> None:
    with serving(upstream) as running:
        code, at, message = error_of(ChatClient(running).send_request("POST", "/api/chat", body), status)
        assert code
        assert at == param
        if param is not None and status == 400:
            assert param in message


def test_a_conversation_answers_one_question_at_a_time(gateway: Served, upstream: Upstream) -> None:
    client = ChatClient(gateway)
    with client.begin(upstream.plays(hangs)) as stream:
        stream.until("Hm.")
        chat = parse_frames(stream.seen)[0].data["conversation_id"]
        code, param, _ = error_of(client.post_question(upstream.plays(ANSWERS), conversation_id=chat), 409)
        assert (code, param) == ("conversation_busy", "conversation_id")
        assert (
            error_of(client.post_question(upstream.plays(ANSWERS), replaces=read_event_id(stream)), 409)[0]
            == "conversation_busy"
        )
        client.cancel(read_event_id(stream))
        stream.rest()
    assert text_of(client.ask(upstream.plays(ANSWERS), conversation_id=chat)) == LAST


@pytest.mark.parametrize("after", ["", "-1", "x", "1.5", "9" * 17])
def test_an_invalid_cursor_is_refused(gateway: Served, upstream: Upstream, after: str) -> None:
    client = ChatClient(gateway)
    id = client.ask(upstream.plays(ANSWERS))["id"]
    assert error_of(client.read(id, f"?after={after}"), 400)[:2] == ("invalid_value", "after")
    assert error_of(client.read(id, "", **{"Last-Event-ID": after}), 400)[:2] == ("invalid_value", "Last-Event-ID")
    assert client.read(id, "?after=100000").body == b""


def test_any_text_is_returned_unchanged_or_refused(gateway: Served, upstream: Upstream) -> None:
    """Any text is returned unchanged; text that cannot be stored is refused."""
    client = ChatClient(gateway)
    for text in ("\x00 nul", "שלום", "你好" * 50, "a\r\nb\u2028", "<script>alert(1)</script>", json.dumps({"a": 1})):
        reply = client.post_question(upstream.plays(ANSWERS), text)
        if reply.status != 200:
            assert error_of(reply, 400)[1] == "text"
            continue
        opened = client.open(final_event(reply.body)["conversation_id"])
        assert text_of(opened["events"][0]) == text
        assert 1 <= len(opened["conversation"]["title"]) <= 80
