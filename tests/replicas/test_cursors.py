"""A stream that begins on one replica is read on the other from any cursor, with the same bytes."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from pellucid.protocols.openresponses.verify import verify
from tests.replicas.replicas_kit import OPENAI, Gate, Replica, clients, get, run, start_background, tails
from tests.scripted import Call, Upstream, delta
from tests.waiting import eventually

pytestmark = pytest.mark.needs("postgresql", "redis")


async def full_answer(call: Call) -> None:
    """Send thoughts, text, thoughts again, and a tool call."""
    await call.head()
    for piece in ("Let me ", "see: \ud83e", "\udd14 100 %s. "):
        await call.event(delta(reasoning_content=piece))
    for piece in ("It ", "is ", '"42"\n'):
        await call.event(delta(content=piece))
    await call.event(delta(reasoning_content="Or is it? "))
    call_ = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}
    await call.event(delta(tool_calls=[call_]))
    for piece in ('{"where"', ': "up"}'):
        await call.event(delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]))
    await call.event(delta("tool_calls"))
    await call.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}})
    await call.event(b"[DONE]")
    await call.end()


TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}


@pytest.mark.parametrize("mode", ["background", "attached"])
def test_every_cursor_of_a_finished_response(
    two_replicas: tuple[Replica, Replica], upstream: Upstream, mode: str
) -> None:
    one, two = two_replicas
    reply = one.ask(upstream.plays(full_answer), stream=True, background=mode == "background", tools=[TOOL])
    original = reply.body
    assert verify(original) == []
    id = reply.events[0]["response"]["id"]
    other = get(one, id, "?stream=true", OPENAI).body
    assert verify(other, "openai") == []
    assert other != original
    for gateway in two_replicas:
        assert get(gateway, id, "?stream=true").body == original
        assert get(gateway, id, "?stream=true", OPENAI).body == other
    for body, headers in ((original, {}), (other, OPENAI)):
        for cursor, tail in enumerate(tails(body)):
            reply = get(two, id, f"?stream=true&starting_after={cursor}", headers)
            assert reply.body == tail, f"after {cursor}"


def test_every_cursor_of_a_running_response(two_replicas: tuple[Replica, Replica], upstream: Upstream) -> None:
    """Followers join while the response runs, also with cursors beyond its present end."""
    one, two = two_replicas
    gate = Gate(before=12, after=12, pace=0.004)
    model = upstream.plays(gate)

    reading = 0

    async def read(session: aiohttp.ClientSession, id: str, cursor: int, headers: dict[str, str]) -> bytes:
        nonlocal reading
        async with session.get(
            f"{(one, two)[cursor % 2].url}/v1/responses/{id}?stream=true&starting_after={cursor}", headers=headers
        ) as reply:
            reading += 1
            return await reply.read()

    async def main() -> None:
        id = start_background(one, model)
        async with clients() as session:
            readers = {
                (cursor, dialect): asyncio.create_task(read(session, id, cursor, headers))
                for dialect, headers in (("ours", {}), ("openai", OPENAI))
                for cursor in range(37)
            }
            await eventually(lambda: reading == len(readers))
            gate.open()
            await asyncio.gather(*readers.values())
            for dialect, headers in (("ours", {}), ("openai", OPENAI)):
                async with session.get(f"{one.url}/v1/responses/{id}?stream=true", headers=headers) as reply:
                    after = tails(await reply.read())
                assert len(after) == 37  # 12 deltas of each, and the events that open and close them
                for cursor, tail in enumerate(after):
                    assert readers[cursor, dialect].result() == tail, f"after {cursor}, {dialect}"

    run(main())


def test_a_live_stream_equals_its_replay(two_replicas: tuple[Replica, Replica], upstream: Upstream) -> None:
    one, two = two_replicas
    gate = Gate(before=5, after=5)
    with one.open(upstream.plays(gate), background=True) as stream:
        head = stream.until("thought 4")
        id = head.split(b'"id":"')[1].split(b'"')[0].decode()
        gate.open()
        original = stream.rest()
    assert verify(original) == []
    assert get(two, id, "?stream=true").body == original
    assert get(one, id, "?stream=true").body == original
