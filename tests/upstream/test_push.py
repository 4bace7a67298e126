"""Responses that are pushed: what a receiver gets, and when the connection is used again."""

from __future__ import annotations

import asyncio
import gzip
import socket

import pytest
from msgspec.structs import replace

from pellucid.errors import ModelError
from pellucid.upstream import UpstreamClient, UpstreamResponse
from tests.upstream.body_reader import BodyReader
from tests.upstream.conftest import LIMITS
from tests.upstream.raw_server import CHUNKED, OK, Peer, RawServer, Received, chunk
from tests.waiting import eventually, loop_turns

pytestmark = pytest.mark.anyio


async def opened(
    client: UpstreamClient, server: RawServer, sent: bytes, peer: Peer | None = None, **headers: str
) -> tuple[UpstreamResponse, Peer]:
    """Request something, and answer with these bytes."""
    opening = asyncio.create_task(client.open(server.url, headers, b"{}"))
    peer = peer or await server.accept()
    await peer.request()
    peer.send(sent)
    return await opening, peer


# --- what a receiver gets ---------------------------------------------------------------------------------------------


async def test_what_came_is_one_call_and_every_read_one_more(client: UpstreamClient, server: RawServer) -> None:
    response, peer = await opened(client, server, CHUNKED + chunk(b"a") + chunk(b"b"))
    received = Received(response)
    assert received.reads == [b"ab"]
    await received.next()
    for piece in (b"c", b"d"):
        peer.send(chunk(piece) + chunk(b"!"))
        assert await received.next() == piece + b"!"
    peer.send(b"0\r\n\r\n")
    assert await received.end() is None
    assert response.is_over


async def test_a_body_that_is_here_already_comes_whole(client: UpstreamClient, server: RawServer) -> None:
    response, _ = await opened(client, server, OK)
    received = Received(response)
    assert (received.reads, received.ends) == ([b"ok"], [None])


async def test_a_response_without_a_body_ends_at_once(client: UpstreamClient, server: RawServer) -> None:
    response, _ = await opened(client, server, b"HTTP/1.1 204 No Content\r\n\r\n")
    received = Received(response)
    assert (received.reads, received.ends) == ([], [None])
    assert client.idle_connections == 1


async def test_a_body_that_breaks_off_gives_what_came_and_then_the_error(
    client: UpstreamClient, server: RawServer
) -> None:
    for end in (Peer.close, Peer.reset):
        response, peer = await opened(client, server, CHUNKED + chunk(b"a"))
        received = Received(response)
        assert received.body == b"a"
        end(peer)
        error = await received.end()
        assert error is not None
        assert (error.kind, error.code) == ("model_error", "stream_truncated")
        assert error.message == "the provider's connection broke off in mid-answer (ClientPayloadError)"
    response, peer = await opened(client, server, CHUNKED + chunk(b"a") + b"zz\r\n")
    received = Received(response)
    assert (received.body, received.code) == (b"a", "stream_truncated")
    await peer.left()


async def test_a_body_until_close(client: UpstreamClient, server: RawServer) -> None:
    response, peer = await opened(client, server, b"HTTP/1.0 200 OK\r\n\r\nab")
    received = Received(response)
    peer.send(b"cd")
    peer.close()
    assert await received.end() is None
    assert received.body == b"abcd"
    response, peer = await opened(client, server, b"HTTP/1.0 200 OK\r\n\r\nab")
    received = Received(response)
    peer.reset()  # what was lost is not known
    await received.end()
    assert received.code == "stream_truncated"


async def test_nothing_is_reported_after_close(client: UpstreamClient, server: RawServer) -> None:
    response, peer = await opened(client, server, CHUNKED + chunk(b"a"))
    received = Received(response)
    response.close()
    response.close()
    peer.send(chunk(b"b"))
    await peer.left()
    await loop_turns()
    assert (received.reads, received.ends) == ([b"a"], [])


class Closes(Received):
    """A receiver that closes the response in its first call."""

    def __init__(self, response: UpstreamResponse) -> None:
        self._response = response
        super().__init__(response)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._response.close()


async def test_a_receiver_may_close_within_its_call(client: UpstreamClient, server: RawServer) -> None:
    for sent in (OK, CHUNKED + chunk(b"a"), CHUNKED + chunk(b"a") + b"zz\r\n"):
        response, peer = await opened(client, server, sent)
        received = Closes(response)
        await peer.left()
        assert (len(received.reads), received.ends) == (1, [])
    response, peer = await opened(client, server, CHUNKED)
    received = Closes(response)
    peer.send(chunk(b"a") + b"0\r\n\r\n")
    await peer.left()
    assert (received.reads, received.ends) == ([b"a"], [])


@pytest.mark.parametrize("early", [1, 200_000, 2_000_000])
async def test_a_pause_before_the_start_outlives_it(client: UpstreamClient, server: RawServer, early: int) -> None:
    """However much came before: only that is delivered, and the rest waits in the sockets."""
    response, peer = await opened(client, server, CHUNKED + chunk(bytes(early)))
    await loop_turns(20)
    peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    response.pause_reading()
    received = Received(response)
    here = len(received.body)
    for _ in range(200):
        peer.send(chunk(bytes(100_000)))
    await loop_turns(20)
    assert len(received.body) == here
    assert peer.writer.transport.get_write_buffer_size() > 0
    response.resume_reading()
    peer.send(b"0\r\n\r\n")
    assert await received.end() is None
    assert len(received.body) == early + 200 * 100_000


async def test_a_paused_response_reads_nothing(client: UpstreamClient, server: RawServer) -> None:
    response, peer = await opened(client, server, CHUNKED + chunk(b"a"))
    received = Received(response)
    peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    response.pause_reading()
    response.pause_reading()
    for _ in range(200):
        peer.send(chunk(bytes(100_000)))
    await loop_turns(20)
    assert received.reads == [b"a"]
    assert peer.writer.transport.get_write_buffer_size() > 0
    response.resume_reading()
    response.resume_reading()
    peer.send(b"0\r\n\r\n")
    assert await received.end() is None
    assert len(received.body) == 20_000_001


async def test_a_compressed_body_is_decompressed(client: UpstreamClient, server: RawServer) -> None:
    packed = gzip.compress(b"data: x\n\n" * 1000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: GZIP\r\nContent-Length: %d\r\n\r\n" % len(packed)
    response, peer = await opened(client, server, head + packed[:20])
    received = Received(response)
    peer.send(packed[20:])
    assert await received.end() is None
    assert received.body == b"data: x\n\n" * 1000
    assert client.idle_connections == 1


async def test_a_compressed_bomb_keeps_the_loop_free(client: UpstreamClient, server: RawServer) -> None:
    packed = gzip.compress(bytes(50_000_000))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    response, _ = await opened(client, server, head + packed)
    received = Received(response)
    turns = 0
    while not received.ends:
        await asyncio.sleep(0)
        turns += 1
    assert len(received.body) == 50_000_000
    assert turns > 100


@pytest.mark.parametrize("encoding", [b"br", b"zstd"])
async def test_an_encoding_that_cannot_be_decoded_is_refused(
    client: UpstreamClient, server: RawServer, encoding: bytes
) -> None:
    with pytest.raises(ModelError) as caught:
        await opened(client, server, OK.replace(b"\r\n\r\n", b"\r\nContent-Encoding: %b\r\n\r\n" % encoding))
    assert caught.value.info.code == "not_http"
    await server.peers[0].left()


async def test_a_small_part_is_all_that_is_read_of_an_error(
    client: UpstreamClient, server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    response, peer = await opened(client, server, CHUNKED + chunk(b"ab"))
    assert await response.read_all(1) == b"a"
    await peer.left()
    response, peer = await opened(client, server, CHUNKED + chunk(b"ab"))
    with monkeypatch.context() as patch:
        patch.setattr("pellucid.upstream.response.READ_ALL_SECONDS", 0.0)
        assert await response.read_all(10) == b"ab"
    await peer.left()
    response, _ = await opened(client, server, OK)
    assert await response.read_all(10) == b"ok"
    assert client.idle_connections == 1


# --- connections that are used again ----------------------------------------------------------------------------------


async def used_again(client: UpstreamClient, server: RawServer, sent: bytes, **headers: str) -> bool:
    """Whether the connection is idle after this response, and carries the next request."""
    response, peer = await opened(client, server, sent, None, **headers)
    received = Received(response)
    assert await received.end() is None
    if not client.idle_connections:
        await peer.left()
        return False
    response, _ = await opened(client, server, OK, peer)
    assert Received(response).body == b"ok"
    return True


async def test_a_connection_is_used_again_after_a_whole_body(client: UpstreamClient, server: RawServer) -> None:
    for sent in (OK, CHUNKED + chunk(b"a") + b"0\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"):
        assert await used_again(client, server, sent)
        await client.aclose()
        client = UpstreamClient(LIMITS)
    assert len(server.peers) == 3


@pytest.mark.parametrize(
    "sent",
    [
        OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"x",
        OK + OK,
        OK.replace(b"OK\r\n", b"OK\r\nKeep-Alive: timeout=1\r\n"),
    ],
)
async def test_a_connection_is_not_used_again(client: UpstreamClient, server: RawServer, sent: bytes) -> None:
    assert not await used_again(client, server, sent)


async def test_a_request_that_asks_to_close_is_the_connections_last(client: UpstreamClient, server: RawServer) -> None:
    assert not await used_again(client, server, OK, connection="Close")


async def test_bytes_on_an_idle_connection_end_it(client: UpstreamClient, server: RawServer) -> None:
    response, peer = await opened(client, server, OK)
    Received(response)
    assert client.idle_connections == 1
    peer.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    await peer.left()
    assert client.idle_connections == 0


async def test_an_idle_connection_that_the_server_closes_leaves_the_pool(
    client: UpstreamClient, server: RawServer
) -> None:
    for end in (Peer.close, Peer.reset):
        response, peer = await opened(client, server, OK)
        Received(response)
        assert client.idle_connections == 1
        end(peer)
        await eventually(lambda: not client.idle_connections)


async def test_a_stale_connection_is_tried_again_at_once_on_a_new_one(
    client: UpstreamClient, server: RawServer
) -> None:
    """The server closes or resets it in the moment of the request. This is no retry, of which there are none here."""
    for end in (Peer.close, Peer.reset):
        response, second = await opened(client, server, OK)
        Received(response)
        opening = asyncio.create_task(client.open(server.url, {}, b"{}"))
        await second.request()
        end(second)
        fresh = await server.accept()
        await fresh.request()
        fresh.send(OK.replace(b"Content", b"Connection: close\r\nContent"))
        assert Received(await opening).body == b"ok"


async def test_a_stale_connection_is_tried_again_once(client: UpstreamClient, server: RawServer) -> None:
    """The new connection is closed, too: that is a failure, as there are no retries."""
    response, peer = await opened(client, server, OK)
    Received(response)
    opening = asyncio.create_task(client.open(server.url, {}, b"{}"))
    await peer.request()
    peer.close()
    fresh = await server.accept()
    await fresh.request()
    fresh.close()
    with pytest.raises(ModelError, match="it closed the connection without an answer"):
        await opening


async def test_a_part_of_a_head_is_not_tried_again(client: UpstreamClient, server: RawServer) -> None:
    limits = replace(LIMITS, retries=3)
    for end, message in ((Peer.close, "closed the connection in mid-answer"), (Peer.reset, "reset by peer")):
        opening = asyncio.create_task(client.open(server.url, {}, b"{}", limits))
        peer = await server.accept()
        await peer.request()
        peer.send(b"HTTP/1.1 200 O")
        await loop_turns(20)  # what is reset may be lost before it is read
        end(peer)
        with pytest.raises(ModelError, match=message):
            await opening
    assert len(server.peers) == 2


async def test_the_response_that_is_over_does_not_touch_the_next_one(client: UpstreamClient, server: RawServer) -> None:
    first, peer = await opened(client, server, OK)
    Received(first)
    second, _ = await opened(client, server, CHUNKED, peer)
    received = Received(second)
    first.pause_reading()
    first.close()
    first.finish()
    peer.send(chunk(b"a"))
    assert await received.next() == b"a"
    second.close()


async def test_a_finished_response_that_does_not_end_is_closed(
    client: UpstreamClient, server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.upstream.response._FINISH_SECONDS", 0.01)
    response, peer = await opened(client, server, CHUNKED + chunk(b"a"))
    received = Received(response)
    response.finish()
    peer.send(chunk(b"b"))
    await peer.left()
    assert (received.reads, received.ends) == ([b"a"], [])


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_a_large_body_goes_out_in_pieces_and_others_are_served(client: UpstreamClient, server: RawServer) -> None:
    body = bytes(range(256)) * 100_000
    opening = asyncio.create_task(client.open(server.url, {}, body))
    peer = await server.accept()
    small, _ = await opened(client, server, OK)
    assert Received(small).body == b"ok"
    _, received = await peer.request()
    assert received == body
    peer.send(OK)
    assert Received(await opening).body == b"ok"
    assert client.idle_connections == 2


@pytest.mark.parametrize("status", [413, 200])
async def test_a_server_may_answer_before_it_has_read_the_body(
    client: UpstreamClient, server: RawServer, status: int
) -> None:
    opening = asyncio.create_task(client.open(server.url, {}, bytes(50_000_000)))
    peer = await server.accept()
    await peer.head()
    peer.send(OK.replace(b"200", b"%d" % status))
    response = await opening
    received = Received(response)
    assert (response.status, received.body) == (status, b"ok")
    await peer.left()  # what is left of the body cannot be taken back
    assert client.idle_connections == 0


async def test_cancelling_closes_the_connection_at_once(client: UpstreamClient, server: RawServer) -> None:
    for sent in (b"", b"HTTP/1.1 200 OK\r\n"):
        opening = asyncio.create_task(client.open(server.url, {}, b"{}"))
        peer = await server.accept()
        await peer.request()
        peer.send(sent)
        await loop_turns()
        opening.cancel()
        await asyncio.wait([opening])
        await peer.left()
    opening = asyncio.create_task(client.open(server.url, {}, bytes(50_000_000)))
    peer = await server.accept()
    await peer.head()
    opening.cancel()
    await asyncio.wait([opening])
    await peer.left()


async def test_closing_the_client_closes_everything(server: RawServer) -> None:
    client = UpstreamClient(LIMITS)
    running, first = await opened(client, server, CHUNKED)
    reader = BodyReader(running)
    response, second = await opened(client, server, OK)
    Received(response)
    waiting = asyncio.create_task(client.open(server.url, {}, b"{}"))
    await second.request()
    response, third = await opened(client, server, OK)
    Received(response)
    assert client.idle_connections == 1
    await client.aclose()
    await client.aclose()
    for peer in (first, second, third):
        await peer.left()
    with pytest.raises(ModelError):
        await waiting
    with pytest.raises(ModelError):
        await reader.read()
    with pytest.raises(RuntimeError):
        await client.open(server.url, {}, b"{}")


async def test_the_total_counts_tries(client: UpstreamClient, server: RawServer) -> None:
    with pytest.raises(ModelError, match=r"did not finish within 0\.05 s") as caught:
        await client.open(server.url, {}, b"{}", total_seconds=0.05)
    assert (caught.value.info.kind, caught.value.info.code) == ("timeout", "timeout")
    for peer in server.peers:
        await peer.left()


async def test_and_reading(client: UpstreamClient, server: RawServer) -> None:
    response, peer = await opened(client, server, CHUNKED + chunk(b"a"))
    received = Received(response)
    response.end_by(asyncio.get_running_loop().time(), 7.0)
    error = await received.end()
    assert error is not None
    assert error.message == "the provider did not finish within 7 s"
    await peer.left()


async def test_silence_ends_a_body(client: UpstreamClient, server: RawServer) -> None:
    limits = replace(LIMITS, idle=0.02)
    opening = asyncio.create_task(client.open(server.url, {}, b"{}", limits))
    peer = await server.accept()
    await peer.request()
    peer.send(CHUNKED + chunk(b"a"))
    response = await opening
    received = Received(response)
    error = await received.end()
    assert error is not None
    assert (error.code, received.body) == ("idle_timeout", b"a")
    await peer.left()
