"""A response in the background, seen and stopped from another replica."""

from __future__ import annotations

import asyncio

import pytest

from tests.replicas.replicas_kit import Gate, Replica, background, get, last_of, over, text_of, until
from tests.scripted import Call, Upstream, delta

pytestmark = pytest.mark.needs("postgresql", "redis")

SOON = 15
"""Seconds: much less than it takes until a signal that was lost is made up for."""


def test_it_is_seen_from_everywhere_while_it_goes_on(both: tuple[Replica, Replica], upstream: Upstream) -> None:
    one, two = both
    gate = Gate(before=300, after=2)
    id = background(one, upstream.plays(gate))
    seen = until(two, id, lambda response: response["status"] == "in_progress")
    assert seen["background"] is True
    gate.open()
    done = until(two, id, over)
    assert done["status"] == "completed"
    assert text_of(done) == gate.whole
    assert get(one, id).json == done


def test_what_has_come_is_seen_however_much_it_is(both: tuple[Replica, Replica], upstream: Upstream) -> None:
    """Items that are done are there before the response is, and from more than one page of the log."""
    one, two = both
    words = Gate(before=0, after=1)

    async def script(call: Call) -> None:
        await call.head()
        for _ in range(500):
            await call.event(delta(reasoning_content="thought. "))
            await asyncio.sleep(0)
        await call.event(delta(content="word. "))
        await words.wait(call)
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    id = background(one, upstream.plays(script))
    for gateway in both:
        seen = until(gateway, id, lambda response: text_of(response) == "thought. " * 500)
        assert seen["status"] == "in_progress"
    words.open()
    assert text_of(until(two, id, over)) == "thought. " * 500 + "word. "


def test_it_is_cancelled_from_another_replica(both: tuple[Replica, Replica], upstream: Upstream) -> None:
    one, two = both
    model = upstream.plays(Gate())
    with one.open(model, background=True) as stream:
        id = stream.until("thought 2").split(b'"id":"')[1].split(b'"')[0].decode()
        [call] = upstream.calls(model)
        reply = two.request("POST", f"/v1/responses/{id}/cancel")
        assert (reply.status, reply.json["status"]) == (200, "cancelled"), reply.body
        assert text_of(reply.json) == "thought 0. thought 1. thought 2. "
        assert call.connection.closed.wait(SOON)
        body = stream.rest()
    assert last_of(body)["type"] == "response.incomplete"
    assert get(one, id).json["status"] == "cancelled"
    # Again it is as it was.
    again = two.request("POST", f"/v1/responses/{id}/cancel")
    assert (again.status, again.json) == (200, reply.json)


def test_it_is_cancelled_before_it_has_said_anything(both: tuple[Replica, Replica], upstream: Upstream) -> None:
    one, two = both

    async def silent(call: Call) -> None:
        await call.gone()

    model = upstream.plays(silent)
    id = background(one, model)
    upstream.calls(model, at_least=1)
    assert get(two, id).json["status"] == "queued"
    assert two.request("POST", f"/v1/responses/{id}/cancel").json["status"] == "cancelled"
    assert upstream.calls(model)[0].connection.closed.wait(SOON)


def test_one_that_is_deleted_stops(both: tuple[Replica, Replica], upstream: Upstream) -> None:
    one, two = both
    model = upstream.plays(Gate())
    with one.open(model, background=True) as stream:
        id = stream.until("thought 2").split(b'"id":"')[1].split(b'"')[0].decode()
        assert two.request("DELETE", f"/v1/responses/{id}").json["deleted"] is True
        assert upstream.calls(model)[0].connection.closed.wait(SOON)
        last_of(stream.rest())
    for gateway in both:
        assert get(gateway, id).status == 404
        assert get(gateway, id, "?stream=true").status == 404


def test_what_an_upstream_refuses_is_told(both: tuple[Replica, Replica], upstream: Upstream) -> None:
    one, two = both

    async def refuse(call: Call) -> None:
        await call.answer(400, b'{"error": {"message": "no"}}')

    id = background(one, upstream.plays(refuse))
    done = until(two, id, over)
    assert done["status"] == "failed"
    assert done["error"]["message"]
    assert last_of(get(two, id, "?stream=true").body)["type"] == "response.failed"
