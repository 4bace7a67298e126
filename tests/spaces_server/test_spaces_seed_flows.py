"""Every conversation of the proposal, sent as it is written, through real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.envelopes.seed_flows import FLOWS
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import Body, Client, get, joined, served, slashes, token

SPEAKERS = ("user", "agent", "agent-a", "agent-b", "security-agent", "perf-agent")
"""Who speaks there. Whoever is not named is the agent."""


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    rooms = {name: {"participants": SPEAKERS} for name in (*FLOWS, "trees")}
    with served(tmp_path_factory.mktemp("tokens"), rooms) as running:
        yield running


@pytest.mark.parametrize("flow", sorted(FLOWS))
def test_what_the_seed_writes_is_taken_and_told_as_it_is_written(seed: Served, flow: str) -> None:
    told = play(seed, flow, flow)
    for heard in told.values():
        assert len(heard) == len(FLOWS[flow])
        for one, text in zip(heard, FLOWS[flow], strict=True):
            written = json.loads(text)
            assert {name: one[name] for name in written if name != "payload"} == {
                name: value for name, value in written.items() if name != "payload"
            }
            assert one["payload"] == written.get("payload", {})
            assert one["protocol"] == "meup/draft"
    assert [[one["seq"] for one in heard] for heard in told.values()] == [[one["seq"] for one in told["agent"]]] * len(
        SPEAKERS
    )

    page = get(seed, f"/spaces/{flow}/envelopes?dialect=meup-draft", token(flow, "user")).json["envelopes"]
    assert [one for one in page if not slashes(one).startswith("system/")] == told["user"]


def play(gateway: Served, space: str, flow: str) -> dict[str, list[Body]]:
    """Send a flow into a space, one envelope after the other; what each speaker received of it."""
    with ExitStack() as stack:
        seats = {
            name: stack.enter_context(joined(gateway, space, name, query="?dialect=meup-draft")) for name in SPEAKERS
        }
        received: dict[str, list[Body]] = {name: [] for name in SPEAKERS}
        for text in FLOWS[flow]:
            written: Body = json.loads(text)
            seats[written.get("from", "agent")].raw(text)
            for name, seat in seats.items():
                received[name].append(next_envelope(seat))
    return received


def next_envelope(seat: Client) -> Body:
    """The next that is not about who is there."""
    while True:
        one = seat.next()
        if slashes(one) != "system/presence":
            assert slashes(one) != "system/error", one
            return one


def test_the_reasoning_of_many_agents_is_a_tree_each(seed: Served) -> None:
    space = "trees"
    play(seed, space, "option_5_many_agents")
    lines = get(seed, f"/spaces/{space}/contexts", token(space, "user")).json["contexts"]
    assert {line["path"]: (line["owner"], line["status"]) for line in lines} == {
        "msg-201": ("security-agent", "concluded"),
        "msg-202": ("perf-agent", "concluded"),
    }
    tree = get(seed, f"/spaces/{space}/contexts/msg-201", token(space, "user")).json
    assert [one["id"] for one in tree["triggers"]] == ["msg-200"]
    assert tree["trees"][0]["answer"] == "msg-210"
