"""Every conversation of the proposal, sent unchanged through real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.envelopes.seed_flows import FLOWS
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import Body, Client, get, joined, served, slashed_kind, token

SPEAKERS = ("user", "agent", "agent-a", "agent-b", "security-agent", "perf-agent")
"""Senders in the flows. Envelopes without `from` are sent by `agent`."""


@pytest.fixture(scope="module")
def seed_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    rooms = {name: {"participants": SPEAKERS} for name in (*FLOWS, "trees")}
    with served(tmp_path_factory.mktemp("tokens"), rooms) as running:
        yield running


@pytest.mark.parametrize("flow", sorted(FLOWS))
def test_envelopes_of_the_seed_are_accepted_and_delivered_unchanged(seed_gateway: Served, flow: str) -> None:
    received_by_name = play(seed_gateway, flow, flow)
    for received in received_by_name.values():
        assert len(received) == len(FLOWS[flow])
        for one, text in zip(received, FLOWS[flow], strict=True):
            written = json.loads(text)
            assert {name: one[name] for name in written if name != "payload"} == {
                name: value for name, value in written.items() if name != "payload"
            }
            assert one["payload"] == written.get("payload", {})
            assert one["protocol"] == "meup/draft"
    assert [[one["seq"] for one in received] for received in received_by_name.values()] == [
        [one["seq"] for one in received_by_name["agent"]]
    ] * len(SPEAKERS)

    page = get(seed_gateway, f"/spaces/{flow}/envelopes?dialect=meup-draft", token(flow, "user")).json["envelopes"]
    assert [one for one in page if not slashed_kind(one).startswith("system/")] == received_by_name["user"]


def play(gateway: Served, space: str, flow: str) -> dict[str, list[Body]]:
    """Send a flow into a space, one envelope after the other; return what each speaker received."""
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(joined(gateway, space, name, query="?dialect=meup-draft")) for name in SPEAKERS
        }
        received: dict[str, list[Body]] = {name: [] for name in SPEAKERS}
        for text in FLOWS[flow]:
            written: Body = json.loads(text)
            clients[written.get("from", "agent")].raw(text)
            for name, client in clients.items():
                received[name].append(next_envelope(client))
    return received


def next_envelope(client: Client) -> Body:
    """Return the next envelope that is not about presence."""
    while True:
        one = client.next()
        if slashed_kind(one) != "system/presence":
            assert slashed_kind(one) != "system/error", one
            return one


def test_each_agent_of_a_seed_flow_has_its_own_tree(seed_gateway: Served) -> None:
    space = "trees"
    play(seed_gateway, space, "option_5_many_agents")
    lines = get(seed_gateway, f"/spaces/{space}/contexts", token(space, "user")).json["contexts"]
    assert {line["path"]: (line["owner"], line["status"]) for line in lines} == {
        "msg-201": ("security-agent", "concluded"),
        "msg-202": ("perf-agent", "concluded"),
    }
    tree = get(seed_gateway, f"/spaces/{space}/contexts/msg-201", token(space, "user")).json
    assert [one["id"] for one in tree["triggers"]] == ["msg-200"]
    assert tree["trees"][0]["answer"] == "msg-210"
