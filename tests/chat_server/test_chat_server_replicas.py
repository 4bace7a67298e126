"""A chat on two replicas and over a restart: read, cancel and continue on either; one answer at a time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chat_server.chat_server_kit import (
    ChatClient,
    complete_frames,
    final_event,
    open_feed,
    parse_frames,
    read_event_id,
    read_feed_until,
    segment_texts,
    text_of,
)
from tests.replicas.replicas_kit import Gate, Replica, config_of, replicas
from tests.scripted import Reply, Upstream, say
from tests.server.state_kit import hangs, serving, url_of
from tests.service_postgres import PostgresServer, postgres
from tests.service_redis import RedisService, redis_service
from tests.waiting import wait_until

ANSWERS = say("Let me see.", "It is 42.")


needs_replicas = pytest.mark.needs("postgresql", "redis")


@pytest.fixture(scope="module")
def services() -> Iterator[tuple[PostgresServer, RedisService]]:
    with postgres() as database, redis_service() as relay:
        yield database, relay


def start_pair(upstream: Upstream, services: tuple[PostgresServer, RedisService]) -> Iterator[tuple[Replica, Replica]]:
    database, relay = services
    config = config_of(upstream, database.database(), relay.url)
    with replicas(config, config) as (one, two):
        yield one, two


@pytest.fixture(scope="module")
def pair(upstream: Upstream, services: tuple[PostgresServer, RedisService]) -> Iterator[tuple[Replica, Replica]]:
    yield from start_pair(upstream, services)


@pytest.fixture
def disposable_pair(
    upstream: Upstream, services: tuple[PostgresServer, RedisService]
) -> Iterator[tuple[Replica, Replica]]:
    """Two replicas for one test, which may kill them."""
    yield from start_pair(upstream, services)


@needs_replicas
def test_every_cursor_gives_the_remaining_frames_on_another_replica(
    pair: tuple[Replica, Replica], upstream: Upstream
) -> None:
    one, two = map(ChatClient, pair)
    gate = Gate(before=20, after=20)
    with one.begin(upstream.plays(gate)) as stream:
        stream.until("thought 19")
        id = read_event_id(stream)
        frames_so_far = parse_frames(stream.seen[: stream.seen.rindex(b"\n\n") + 2])
        live = [two.follow(id, f"?after={frame.id}") for frame in frames_so_far[::4]]
        gate.open()
        body = stream.rest()
    for frame, reader in zip(frames_so_far[::4], live, strict=True):
        assert reader.rest() == frames_after(body, frame.id)
        reader.leave()
    assert text_of(final_event(body)) == "".join(f"word {number}. " for number in range(20))
    for client in (one, two):
        assert client.read(id).body == body
        for frame in complete_frames(body)[::5]:
            assert client.read(id, "", **{"Last-Event-ID": str(frame.id)}).body == frames_after(body, frame.id)
    chat = parse_frames(body)[0].data["conversation_id"]
    assert two.open(chat) == one.open(chat)
    assert two.open(chat)["events"][1] == final_event(body)


def frames_after(body: bytes, after: int) -> bytes:
    blocks = [block + b"\n\n" for block in body.split(b"\n\n")[:-1]]
    return b"".join(block for block in blocks if int(block.split(b"\n")[0].removeprefix(b"id: ")) > after)


@needs_replicas
def test_another_replica_can_cancel_an_answer(pair: tuple[Replica, Replica], upstream: Upstream) -> None:
    one, two = map(ChatClient, pair)
    model = upstream.plays(Gate())
    with one.begin(model) as stream:
        stream.until("thought 2")
        reply = two.cancel(read_event_id(stream))
        assert (reply.status, reply.json["status"]) == (200, "cancelled")
        [call] = upstream.calls(model)
        assert call.connection.closed.wait(15)
        event = final_event(stream.rest())
    assert segment_texts(event) == [("reasoning", "thought 0. thought 1. thought 2. ")]


@needs_replicas
def test_one_of_two_simultaneous_questions_is_refused(pair: tuple[Replica, Replica], upstream: Upstream) -> None:
    """One question begins; the other is refused because the conversation is busy."""
    one, two = map(ChatClient, pair)
    chat = one.ask(upstream.plays(ANSWERS))["conversation_id"]
    for _ in range(3):
        gate, start = Gate(), threading.Barrier(2)
        model, replies = upstream.plays(gate), list[Reply]()

        def ask(client: ChatClient, start: threading.Barrier, model: str, replies: list[Reply]) -> None:
            start.wait()
            replies.append(client.post_question(model, conversation_id=chat))

        asking = [threading.Thread(target=ask, args=(client, start, model, replies)) for client in (one, two)]
        for thread in asking:
            thread.start()
        wait_until(lambda: replies, "one is refused")  # noqa: B023 (it is called in this round)
        gate.open()
        for thread in asking:
            thread.join(60)
        assert sorted(reply.status for reply in replies) == [200, 409]
    assert len(one.open(chat)["events"]) == 8


@needs_replicas
@pytest.mark.needs("long")
def test_a_killed_replica_loses_nothing_that_was_streamed(
    disposable_pair: tuple[Replica, Replica], upstream: Upstream
) -> None:
    one, two = disposable_pair
    with ChatClient(one).begin(upstream.plays(Gate())) as stream:
        stream.until("thought 2")
        id, chat = read_event_id(stream), parse_frames(stream.seen)[0].data["conversation_id"]
        with ChatClient(two).follow(id) as follower:
            follower.until("thought 2")
            one.kill()
            event = final_event(follower.rest())
    assert (event["status"], segment_texts(event)) == ("failed", [("reasoning", "thought 0. thought 1. thought 2. ")])
    assert ChatClient(two).open(chat)["events"][1] == event
    assert text_of(ChatClient(two).ask(upstream.plays(ANSWERS), conversation_id=chat)) == "It is 42. "


def test_a_restart_ends_the_answer_as_failed_and_keeps_its_text(upstream: Upstream, tmp_path: Path) -> None:
    """The stream breaks off without an end; after the restart the answer is stored as failed, with its text."""
    url, server = url_of(tmp_path / "store.sqlite"), {"shutdown_seconds": 0.3}
    with serving(upstream, url, server=server) as running:
        stream = ChatClient(running).begin(upstream.plays(hangs))
        stream.until("Hm.")
        id = read_event_id(stream)
    rest = parse_frames(stream.rest())
    stream.leave()
    assert "message_final" not in [frame.name for frame in rest]
    assert stream.seen.endswith(b": interrupted; send the request again with Last-Event-ID\n\n")
    with serving(upstream, url, server=server) as running:
        client = ChatClient(running)
        more = client.read(id, "", **{"Last-Event-ID": str(rest[-1].id)})
        all_frames = complete_frames(
            stream.seen.removesuffix(b": interrupted; send the request again with Last-Event-ID\n\n") + more.body
        )
        assert [frame.name for frame in all_frames][-2:] == ["message_error", "message_final"]
        event = all_frames[-1].data["event"]
        assert (event["status"], segment_texts(event)) == ("failed", [("reasoning", "Hm.")])
        assert client.open(event["conversation_id"])["active"] is None
        assert client.ask(upstream.plays(ANSWERS), conversation_id=event["conversation_id"])["status"] == "completed"


@needs_replicas
def test_a_feed_has_the_changes_of_all_replicas_until_its_own_stops(
    disposable_pair: tuple[Replica, Replica], upstream: Upstream
) -> None:
    """The end of a turn whose replica was killed is announced by the replica that ends it."""
    one, two = map(ChatClient, disposable_pair)
    with open_feed(two) as stream:
        event = one.ask(upstream.plays(ANSWERS))
        read_feed_until(stream, "turn_ended")
        two.change(event["conversation_id"], title="Two's")
        one.delete(event["conversation_id"])
        types = [value["type"] for value in read_feed_until(stream, "conversation_deleted")]
        others = ["turn_started", "turn_ended", "conversation_changed", "conversation_deleted"]
        assert sorted(types) == sorted(["feed_started", *others])
        with one.begin(upstream.plays(hangs)) as answer:
            answer.until("Hm.")
            read_feed_until(stream, "turn_started", 2)
            disposable_pair[0].kill()
            read_feed_until(stream, "turn_ended", 2)
        disposable_pair[1].signal(signal.SIGTERM)
        stream.rest()
    assert disposable_pair[1].process.wait(60) == 0
    assert "no request and no run is in progress" in disposable_pair[1].stderr_text
