"""A background response is read and cancelled through another replica."""

from __future__ import annotations

import asyncio

import pytest

from tests.replicas.replicas_kit import (
    Gate,
    Replica,
    get,
    is_over,
    last_event,
    start_background,
    text_of,
    wait_for_response,
)
from tests.scripted import Call, Upstream, delta

pytestmark = pytest.mark.needs("postgresql", "redis")

SOON = 15
"""Seconds; much less than the interval of the check that makes up for lost signals."""


def test_a_background_response_is_visible_on_every_replica(
    two_replicas: tuple[Replica, Replica], upstream: Upstream
) -> None:
    one, two = two_replicas
    gate = Gate(before=300, after=2)
    id = start_background(one, upstream.plays(gate))
    seen = wait_for_response(two, id, lambda response: response["status"] == "in_progress")
    assert seen["background"] is True
    gate.open()
    done = wait_for_response(two, id, is_over)
    assert done["status"] == "completed"
    assert text_of(done) == gate.full_text
    assert get(one, id).json == done


def test_finished_items_are_visible_before_the_response_ends(
    two_replicas: tuple[Replica, Replica], upstream: Upstream
) -> None:
    """Finished items are visible before the response ends, even if the log has several pages."""
    one, two = two_replicas
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

    id = start_background(one, upstream.plays(script))
    for gateway in two_replicas:
        seen = wait_for_response(gateway, id, lambda response: text_of(response) == "thought. " * 500)
        assert seen["status"] == "in_progress"
    words.open()
    assert text_of(wait_for_response(two, id, is_over)) == "thought. " * 500 + "word. "


def test_a_response_is_cancelled_from_another_replica(
    two_replicas: tuple[Replica, Replica], upstream: Upstream
) -> None:
    one, two = two_replicas
    model = upstream.plays(Gate())
    with one.open(model, background=True) as stream:
        id = stream.until("thought 2").split(b'"id":"')[1].split(b'"')[0].decode()
        [call] = upstream.calls(model)
        reply = two.request("POST", f"/v1/responses/{id}/cancel")
        assert (reply.status, reply.json["status"]) == (200, "cancelled"), reply.body
        assert text_of(reply.json) == "thought 0. thought 1. thought 2. "
        assert call.connection.closed.wait(SOON)
        body = stream.rest()
    assert last_event(body)["type"] == "response.incomplete"
    assert get(one, id).json["status"] == "cancelled"
    # A second cancellation changes nothing.
    again = two.request("POST", f"/v1/responses/{id}/cancel")
    assert (again.status, again.json) == (200, reply.json)


def test_a_response_is_cancelled_before_its_first_event(
    two_replicas: tuple[Replica, Replica], upstream: Upstream
) -> None:
    one, two = two_replicas

    async def silent(call: Call) -> None:
        await call.wait_for_disconnect()

    model = upstream.plays(silent)
    id = start_background(one, model)
    upstream.calls(model, at_least=1)
    assert get(two, id).json["status"] == "queued"
    assert two.request("POST", f"/v1/responses/{id}/cancel").json["status"] == "cancelled"
    assert upstream.calls(model)[0].connection.closed.wait(SOON)


def test_a_deleted_response_stops(two_replicas: tuple[Replica, Replica], upstream: Upstream) -> None:
    one, two = two_replicas
    model = upstream.plays(Gate())
    with one.open(model, background=True) as stream:
        id = stream.until("thought 2").split(b'"id":"')[1].split(b'"')[0].decode()
        assert two.request("DELETE", f"/v1/responses/{id}").json["deleted"] is True
        assert upstream.calls(model)[0].connection.closed.wait(SOON)
        last_event(stream.rest())
    for gateway in two_replicas:
        assert get(gateway, id).status == 404
        assert get(gateway, id, "?stream=true").status == 404


def test_a_refusal_by_the_upstream_is_reported(two_replicas: tuple[Replica, Replica], upstream: Upstream) -> None:
    one, two = two_replicas

    async def refuse(call: Call) -> None:
        await call.answer(400, b'{"error": {"message": "no"}}')

    id = start_background(one, upstream.plays(refuse))
    done = wait_for_response(two, id, is_over)
    assert done["status"] == "failed"
    assert done["error"]["message"]
    assert last_event(get(two, id, "?stream=true").body)["type"] == "response.failed"
