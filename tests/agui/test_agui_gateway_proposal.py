"""The proposal's "Testing Strategy", point by point, at the running gateway, by a client written from it alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pellucid.protocols.agui import DialectName
from tests.agui import agui_client, agui_node
from tests.agui.agui_client import VERSIONS, Converse
from tests.agui.agui_gateway_kit import ON, USER, begin, error_of, path_of, post, run, run_input, streamed, without_ids
from tests.agui.agui_kit import events_of
from tests.agui.agui_seed_reader import FIELDS, REMOVED, read
from tests.cases import Cases
from tests.scripted import Call, Upstream, delta, say
from tests.scripted.gateway import Served
from tests.server.seal_kit import CANARIES, SECRET, Canary, configured, name_of, sent, serving

REASONING = [canary for canary in CANARIES if canary.name in ("stream", "fields", "reasoning", "details", "tags")]


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serving(configured(upstream)) as running:
        yield running


def plays(upstream: Upstream, *scripts: Any) -> str:
    return f"vllm:{upstream.plays(*(scripts or (say('Let me think.', 'It is 42.'),)))}"


# --- "Unit tests for new event types" ----------------------------------------------------------------------------


def test_unit_tests_for_new_event_types(gateway: Served, upstream: Upstream) -> None:
    whole = run(gateway, plays(upstream), dialect="proposal")
    chunked = run(gateway, plays(upstream), dialect="proposal", chunks="true")
    seen = {event["type"] for event in [*whole, *chunked]}
    assert set(FIELDS) <= seen
    assert not seen & set(REMOVED)
    for events in (whole, chunked):
        reader = read(events, [USER])
        assert [text for _, text in reader.reasoning] == ["Let me think. "]
        assert reader.text == "It is 42. "
        [_, thought, text] = without_ids(reader.messages)
        assert (thought, text) == (("reasoning", ["Let me think. "]), ("assistant", "It is 42. "))


def test_the_basic_flow_of_its_examples(gateway: Served, upstream: Upstream) -> None:
    # All readers of a stored run get the same bytes, so the events never depend on the batches.
    events = run(gateway, plays(upstream), dialect="proposal", store="true")
    assert [event["type"] for event in events][:9] == [
        "RUN_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "REASONING_START",  # a value that was not known when it began: the second span is empty
    ]
    assert set(events[8]) == {"type", "messageId", "encryptedContent"}
    assert events[9] == {"type": "REASONING_END", "messageId": events[8]["messageId"]}


# --- "Integration tests with reasoning-capable models" -----------------------------------------------------------


@pytest.mark.parametrize("view", ["raw", "summary", "sealed", "hidden"])
def test_integration_tests_with_reasoning_capable_models(gateway: Served, upstream: Upstream, view: str) -> None:
    with Cases() as case:
        for canary in REASONING:
            with case(f"{canary.row}-{canary.name}"):
                check_view(gateway, upstream, canary, view)


def check_view(gateway: Served, upstream: Upstream, canary: Canary, view: str) -> None:
    for more in ({}, {"chunks": "true"}):
        reader = read(run(gateway, name_of(upstream, canary), dialect="proposal", view=view, **more), [USER])
        assert reader.text == "The answer."
        assert bool(reader.spans) is (view != "hidden")
        assert bool(reader.blobs) is (view != "hidden")
        shown = "".join(text for _, text in reader.reasoning)
        assert view != "raw" or shown
        assert view != "sealed" or not shown
        assert view == "raw" or SECRET not in shown


# --- "Backward compatibility tests with existing clients" --------------------------------------------------------


@pytest.mark.parametrize(
    "converse", [agui_client.converse, pytest.param(agui_node.converse, marks=pytest.mark.needs("node"))]
)
def test_backward_compatibility_tests_with_existing_clients(
    gateway: Served, upstream: Upstream, converse: Converse
) -> None:
    """Older clients have no reasoning events; without these, nothing else changes."""
    model = plays(upstream)
    known: tuple[DialectName, ...] = ("0.x", "proposal")
    for dialect in known:
        events = run(gateway, model, dialect=dialect, reasoning="off")
        assert not [event for event in events if event["type"].startswith(("REASONING_", "THINKING_"))]
    turns = [{"messages": [USER]}, {"messages": [ON]}]
    clients = [
        {"client": client, "url": gateway.url + path_of(model, reasoning="off"), "threadId": client, "turns": turns}
        for client in VERSIONS
    ]
    for *_, last in converse(clients):
        assert (last["error"], last["failed"], last["warnings"]) == (None, None, [])
        assert [role for role, *_ in without_ids(last["messages"])] == ["user", "assistant", "user", "assistant"]


def test_reasoning_messages_are_optional_in_the_history(gateway: Served, upstream: Upstream) -> None:
    model = plays(upstream)
    messages = read(run(gateway, model, dialect="proposal"), [USER]).messages
    without = [message for message in messages if message["role"] != "reasoning"]
    assert read(run(gateway, model, run_input(*without, ON), "proposal"), [*without, ON]).text == "It is 42. "


# --- "Encryption/decryption roundtrip tests" ---------------------------------------------------------------------


def test_encryption_decryption_roundtrip_tests(gateway: Served, upstream: Upstream) -> None:
    """The client cannot read the content; the gateway, without stored state, can; a changed value is refused."""
    model = plays(upstream)
    reader = read(run(gateway, model, dialect="proposal", view="sealed", store="false"), [USER])
    [blob] = reader.blobs
    assert "think" not in json.dumps(reader.messages)
    [thought] = [message for message in reader.messages if message["role"] == "reasoning"]
    assert (thought["content"], thought["encryptedContent"]) == ([], blob)
    run(gateway, model, run_input(*reader.messages, ON), "proposal", view="sealed")
    assert sent(upstream, model)[1]["messages"][1]["reasoning_content"] == "Let me think. "
    thought["encryptedContent"] = blob[:-2] + "AA"
    body = run_input(*reader.messages, ON)
    at = body["messages"].index(thought)
    assert error_of(post(gateway, model, body, dialect="proposal"))[:2] == (
        "seal_broken",
        f"messages[{at}].encryptedContent",
    )


# --- "Performance tests for reasoning event streaming" -----------------------------------------------------------


def test_performance_tests_for_reasoning_event_streaming(gateway: Served, upstream: Upstream) -> None:
    """No delta waits for the encrypted value: each is sent before the model writes the next. Many deltas are fast."""

    async def one_by_one(call: Call) -> None:
        await call.head()
        for number in range(5):
            await call.event(delta(reasoning_content=f"thought-{number} "))
            await call.wait_for_disconnect() if number == 4 else None

    model = plays(upstream, one_by_one)
    with begin(gateway, model, dialect="proposal") as stream:
        for number in range(5):
            stream.until(f"thought-{number} ")
    words = 5_000
    model = plays(upstream, say("x " * words, "Done."))
    began = time.process_time()
    events = events_of(post(gateway, model, dialect="proposal").body)
    seconds = time.process_time() - began  # processor time, which other load does not change
    reader = read(events, [USER])
    assert len(reader.reasoning[0][1]) >= 2 * words
    assert seconds < 5, "the encoder is slower than a thousand events a second"


def test_the_verifier_accepts_every_event(gateway: Served, upstream: Upstream) -> None:
    for canary in REASONING:
        streamed(post(gateway, name_of(upstream, canary), dialect="proposal"), "proposal")
