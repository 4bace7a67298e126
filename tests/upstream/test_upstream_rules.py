"""The client itself: its time limits, its tries, and what it leaves behind. (What a client sees is in tests/server.)"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pellucid.errors import ModelError
from pellucid.upstream import Limits, UpstreamClient, UpstreamResponse
from tests.scripted import Call, Script, Upstream
from tests.upstream.aiohttp_peer import PeerClient, PeerResponse
from tests.upstream.body_reader import BodyReader
from tests.waiting import LIMIT_SECONDS, eventually

pytestmark = pytest.mark.anyio

LIMITS = Limits(connect=LIMIT_SECONDS, first_byte=LIMIT_SECONDS, idle=LIMIT_SECONDS, retries=0, retry_wait=0.05)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=[UpstreamClient, PeerClient], ids=["own", "aiohttp"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """Either implementation, for the rules that both keep."""
    either: Client = request.param(LIMITS)
    yield either
    await either.aclose()


@pytest.fixture
async def own() -> AsyncIterator[UpstreamClient]:
    client = UpstreamClient(LIMITS)
    yield client
    await client.aclose()


Client = UpstreamClient | PeerClient
Reader = BodyReader | PeerResponse


async def post(client: Client, upstream: Upstream, model: str, **limits: Any) -> UpstreamResponse | PeerResponse:
    url = f"{upstream.url}/chat/completions"
    return await client.open(url, {}, msgspec.json.encode({"model": model}), replace(LIMITS, **limits))


def reading(response: UpstreamResponse | PeerResponse) -> Reader:
    return BodyReader(response) if isinstance(response, UpstreamResponse) else response


async def left(call: Call) -> None:
    assert await asyncio.to_thread(call.connection.closed.wait, LIMIT_SECONDS)


@contextlib.contextmanager
def deaf_port() -> Iterator[int]:
    """A port whose queue of connections is full: a connection is neither accepted nor refused."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_connecting_takes_so_long_and_no_longer(client: Client) -> None:
    with deaf_port() as port, pytest.raises(ModelError, match=r"no connection within 0\.2 s") as caught:
        await client.open(f"http://127.0.0.1:{port}/v1", {}, b"{}", replace(LIMITS, connect=0.2))
    assert (caught.value.info.kind, caught.value.info.code) == ("unavailable", "unreachable")


async def test_connecting_is_tried_again(client: Client) -> None:
    with deaf_port() as port:
        began = time.monotonic()
        with pytest.raises(ModelError):
            await client.open(f"http://127.0.0.1:{port}/v1", {}, b"{}", replace(LIMITS, connect=0.1, retries=2))
        assert time.monotonic() - began >= 0.28


async def test_silence_is_not_tried_again(client: Client, upstream: Upstream) -> None:
    """It may be at work, and its work is paid for."""

    async def script(call: Call) -> None:
        await call.wait_for_disconnect()

    model = upstream.plays(script)
    with pytest.raises(ModelError, match=r"did not begin to answer within 0\.5 s") as caught:
        await post(client, upstream, model, first_byte=0.5, retries=5)
    assert caught.value.info.kind == "timeout"
    [call] = upstream.calls(model)
    await left(call)


@pytest.mark.parametrize("url", ["http://", "http://nowhere.invalid/v1", "http://127.0.0.1:1/v1"])
async def test_an_address_without_a_server(client: Client, url: str) -> None:
    with pytest.raises(ModelError) as caught:
        await client.open(url, {}, b"{}")
    assert caught.value.info.message


async def test_secrets_in_an_address_are_in_no_message(client: Client) -> None:
    with pytest.raises(ModelError) as caught:
        await client.open("http://user:hunter2@127.0.0.1:1/v1?key=hunter2", {}, b"{}")
    assert "hunter2" not in caught.value.info.message


def asks_to_wait(value: str) -> Script:
    async def script(call: Call) -> None:
        await call.answer(503, b"", Retry_After=value)

    return script


@pytest.mark.parametrize("seconds", [7, 0.5])
async def test_when_to_ask_again_is_a_number(client: Client, upstream: Upstream, seconds: float) -> None:
    answer = await post(client, upstream, upstream.plays(asks_to_wait(str(seconds))))
    assert answer.retry_after == seconds
    answer.close()


async def test_or_a_date(client: Client, upstream: Upstream) -> None:
    now = datetime.datetime.now(datetime.UTC)
    for ahead, least, most in ((3600, 3500, 3600), (-3600, 0, 0)):
        date = format_datetime(now + datetime.timedelta(seconds=ahead), usegmt=True)
        answer = await post(client, upstream, upstream.plays(asks_to_wait(date)))
        assert answer.retry_after is not None
        assert least <= answer.retry_after <= most
        answer.close()


@pytest.mark.parametrize("header", ["", "soon", "nan", "inf", "-1", "1e999", "Mon, 99 Jan 2026 00:00:00 GMT"])
async def test_an_invalid_retry_after_is_ignored(client: Client, upstream: Upstream, header: str) -> None:
    model = upstream.plays(asks_to_wait(header))
    answer = await post(client, upstream, model, retries=1)
    assert answer.retry_after is None
    assert len(upstream.calls(model)) == 2
    answer.close()


async def test_the_first_byte_is_the_bodys(client: Client, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await asyncio.sleep(0.2)  # longer than `idle`, within `first_byte`
        await call.data(b"at last")
        await call.wait_for_disconnect()

    answer = reading(await post(client, upstream, upstream.plays(script), idle=0.1))
    assert await answer.read() == b"at last"
    with pytest.raises(ModelError, match=r"sent nothing within 0\.1 s"):
        await answer.read()


async def test_time_without_a_reader_does_not_count_as_silence(client: Client, upstream: Upstream) -> None:
    goes_on, sent = threading.Event(), threading.Event()

    async def script(call: Call) -> None:
        await call.head()
        await call.data(b"one")
        await eventually(goes_on.is_set)
        await call.data(b"two")
        sent.set()
        await call.end()

    answer = reading(await post(client, upstream, upstream.plays(script), idle=0.5))
    assert await answer.read() == b"one"
    await asyncio.sleep(0.8)  # longer than `idle`
    goes_on.set()
    await eventually(sent.is_set)
    assert await answer.read() == b"two"
    assert await answer.read() == b""


async def test_cancelling_a_read_and_closing_leaves_the_upstream(client: Client, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.wait_for_disconnect()

    model = upstream.plays(script)
    answer = reading(await post(client, upstream, model))
    task = asyncio.create_task(answer.read())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    answer.close()
    answer.close()
    await left(upstream.calls(model)[0])


async def test_cancelling_before_there_is_an_answer_leaves_the_upstream(client: Client, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.wait_for_disconnect()

    model = upstream.plays(script)
    opening = asyncio.create_task(post(client, upstream, model))
    [call] = await asyncio.to_thread(upstream.calls, model, 1)
    opening.cancel()
    await asyncio.wait([opening])
    await left(call)


async def test_an_answer_that_is_finished_with_keeps_its_connection_if_it_ends(
    own: UpstreamClient, upstream: Upstream
) -> None:
    finished = threading.Event()

    async def script(call: Call) -> None:
        await call.head()
        await call.data(b"all there is")
        await eventually(finished.is_set)
        await call.end()

    model = upstream.plays(script)
    answer = reading(await post(own, upstream, model))
    assert await answer.read() == b"all there is"
    answer.finish()
    assert not own.idle_connections
    finished.set()
    await eventually(lambda: own.idle_connections)
    second = await post(own, upstream, model)
    assert len({call.connection for call in upstream.calls(model)}) == 1
    second.close()


async def test_cookies_and_redirects_are_nobodys_business(client: Client, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.answer(302, b"", Set_Cookie="a=b; Path=/", Location="/v1/chat/completions")

    model = upstream.plays(script)
    for _ in range(2):
        assert (await post(client, upstream, model)).status == 302
    assert all("cookie" not in call.headers for call in upstream.calls(model))


async def test_nothing_is_read_without_a_request_for_it(client: Client, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        while True:
            await call.data(bytes(100_000))

    model = upstream.plays(script)
    answer = reading(await post(client, upstream, model))
    await answer.read()
    [call] = upstream.calls(model)
    before = -1
    while call.connection.written != before:
        before = call.connection.written
        await asyncio.sleep(0.1)
    assert before < 20_000_000
    answer.close()
    await left(call)
