"""History over HTTP: pages, search, trees, shapes, references, export and replay; each for its viewer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from websockets.sync.client import connect

from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import (
    TALK_CAPABILITIES,
    Body,
    Client,
    get,
    joined,
    served,
    slashed_kind,
    token,
)

WHO = {
    "human": ["*"],
    "agent": TALK_CAPABILITIES,
    "blind": ["chat"],
    "observer": ["chat", "space/observe", "reasoning/read"],
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway with a space in which an agent has reasoned, and one that refers to it."""
    rooms: dict[str, Body] = {
        "past": {"participants": WHO, "read_reasoning": "capability"},
        "other": {"participants": {"human": ["*"]}},
        "hidden": {"participants": {"human": ["*"], "agent": ["chat"], "watcher": ["chat"]}},
    }
    with served(tmp_path_factory.mktemp("tokens"), rooms) as running:
        with joined(running, "past", "human") as human, joined(running, "past", "agent") as agent:
            human.chat("Is it safe? 日本語のテキスト", id="q-1")
            agent.say(kind="reasoning/start", id="r-1", correlation_id=["q-1"], payload={"message": "Checking"})
            agent.say(kind="reasoning/thought", id="t-1", context="r-1", payload={"message": "Look at the diff"})
            call = {"method": "tools/call", "params": {"name": "git_diff"}}
            agent.say(kind="mcp/request", id="c-1", context="r-1", payload=call)
            human.say(kind="mcp/response", correlation_id=["c-1"], context="r-1", payload={"result": {"ok": True}})
            agent.say(kind="reasoning/start", id="r-2", context="r-1", payload={"message": "Deeper"})
            agent.say(kind="reasoning/conclusion", context="r-1/r-2", payload={"message": "Fine"})
            agent.say(kind="reasoning/conclusion", context="r-1", payload={"message": "Safe", "confidence": 0.9})
            agent.say(kind="chat", id="a-1", correlation_id=["q-1"], payload={"text": "It is safe."})
            human.say(kind="chat", id="whisper", to=["agent"], payload={"text": "between us"})
        with joined(running, "other", "human") as human:
            start = {"message": "Again", "references": ["space:past/a-1", "space:nowhere/x"]}
            human.say(kind="reasoning/start", id="r-9", payload=start)
        with joined(running, "hidden", "human") as human:
            human.say(kind="chat", id="pin", to=["agent"], payload={"text": "the pin is 4831"})
            human.say(kind="reasoning/start", id="plan", to=["agent"], payload={"message": "a plan"})
            human.say(kind="reasoning/thought", context="plan", payload={"message": "to be kept"})
        yield running


def read(gateway: Served, path: str, who: str = "human", space: str = "past", **headers: str) -> Any:
    reply = get(gateway, f"/spaces/{space}/{path}", token(space, who), **headers)
    assert reply.status == 200, reply.body
    return reply.json


def ids(envelopes: list[Body]) -> list[str]:
    return [one["id"] for one in envelopes if not slashed_kind(one).startswith("system/")]


def test_pages_in_both_directions_give_the_whole_log(gateway: Served) -> None:
    whole = read(gateway, "envelopes?limit=500")
    assert not whole["has_more"]
    forward_pages: list[Body] = []
    after = 0
    while True:
        page = read(gateway, f"history?limit=3&after_seq={after}")
        forward_pages += page["envelopes"]
        after = page["last"]
        if not page["has_more"]:
            break
    backward_pages: list[Body] = []
    before = whole["head"] + 1
    while True:
        page = read(gateway, f"envelopes?limit=4&newest=true&before_seq={before}")
        backward_pages = page["envelopes"] + backward_pages
        before = page["first"]
        if not page["has_more"]:
            break
    assert forward_pages == backward_pages == whole["envelopes"]


def test_what_is_for_others_changes_no_answer(gateway: Served) -> None:
    def answers(text: str, sender: str) -> list[Any]:
        queries = (
            f"search?q={text}",
            f"search?q={text}&from={sender}&limit=1",
            f"envelopes?from={sender}&kind=reasoning/*",
            f"envelopes?from={sender}&kind=reasoning/*&newest=true",
            f"envelopes?context={text}",
        )
        return [read(gateway, query, "watcher", "hidden") for query in queries]

    assert answers("4831", "human") == answers("4832", "agent")
    assert answers("plan", "human") == answers("none", "agent")
    for query in ("contexts", "contexts?limit=1", "patterns"):
        body = read(gateway, query, "watcher", "hidden")
        assert (body["contexts"] or [], body["has_more"], body["before"]) == ([], False, 1)
    assert [one["envelope"]["id"] for one in read(gateway, "search?q=4831", "agent", "hidden")["hits"]] == ["pin"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("kind=chat", ["q-1", "a-1", "whisper"]),
        ("kind=chat&from=agent", ["a-1"]),
        ("kind=reasoning.thought,mcp/request", ["t-1", "c-1"]),
        ("kind=reasoning/*&from=agent&context=r-1/r-2", ["r-2"]),
        ("view=main&kind=chat&kind=reasoning/start", ["q-1", "a-1", "whisper"]),
    ],
)
def test_a_page_applies_its_filters(gateway: Served, query: str, expected: list[str]) -> None:
    found_ids = ids(read(gateway, f"envelopes?{query}", "observer")["envelopes"])
    assert found_ids[: len(expected)] == expected or set(expected) <= set(found_ids)


def test_hidden_envelopes_are_in_no_response(gateway: Served) -> None:
    for path in ("envelopes?limit=500", "history", "search?q=safe", "contexts", "patterns", "export", "replay"):
        body = get(gateway, f"/spaces/past/{path}", token("past", "blind")).body.decode()
        for secret in ("between us", "Look at the diff", "whisper"):
            assert secret not in body, path
    assert get(gateway, "/spaces/past/contexts/r-1", token("past", "blind")).body.count(b"Look at the diff") == 0
    whisper = next(one for one in read(gateway, "envelopes?limit=500")["envelopes"] if one["id"] == "whisper")
    assert get(gateway, f"/spaces/past/envelopes/{whisper['seq']}", token("past", "blind")).status == 404
    assert get(gateway, f"/spaces/past/envelopes/{whisper['seq']}", token("past", "observer")).status == 200


@pytest.mark.parametrize("query", ["safe", "本語の", "SAFE", "is sa"])
def test_search_finds_substrings_in_every_script(gateway: Served, query: str) -> None:
    hits = read(gateway, f"search?q={quote(query)}")["hits"]
    assert hits
    assert all(hit["snippet"] for hit in hits)
    seqs = [hit["envelope"]["seq"] for hit in hits]
    assert seqs == sorted(seqs, reverse=True)


def test_a_context_is_returned_as_a_tree(gateway: Served) -> None:
    [line] = read(gateway, "contexts", "agent")["contexts"]
    assert (line["path"], line["owner"], line["status"], line["confidence"]) == ("r-1", "agent", "concluded", 0.9)
    tree = read(gateway, "contexts/r-1", "agent")
    assert [one["id"] for one in tree["triggers"]] == ["q-1"]
    assert tree["trees"][0]["answer"] == "a-1"
    assert read(gateway, "contexts/r-1/r-2", "agent")["trees"]
    assert get(gateway, "/spaces/past/contexts/never", token("past", "agent")).status == 404


def test_patterns_count_shapes_and_tools(gateway: Served) -> None:
    body = read(gateway, "patterns", "agent")
    assert body["tools"] == {"git_diff": 1}
    assert body["patterns"][0]["count"] == 1
    assert "call git_diff" in body["patterns"][0]["shape"]


def test_references_are_resolved_in_readable_spaces_only(gateway: Served) -> None:
    seq = next(one["seq"] for one in read(gateway, "envelopes", space="other")["envelopes"] if one["id"] == "r-9")
    references = read(gateway, f"envelopes/{seq}/references", space="other")["references"]
    # The token of "other" differs from that of "past" and gives no access there.
    assert [(one["name"], one["envelope"]) for one in references] == [
        ("space:past/a-1", None),
        ("space:nowhere/x", None),
    ]
    answer = next(one["seq"] for one in read(gateway, "envelopes")["envelopes"] if one["id"] == "a-1")
    here = read(gateway, f"envelopes/{answer}/references")["references"]
    assert [one["envelope"]["id"] for one in here if one["how"] == "correlation"] == ["q-1"]


def test_an_export_is_complete_and_ends_with_its_count(gateway: Served) -> None:
    reply = get(gateway, "/spaces/past/export", token("past", "human"))
    assert reply.headers["content-type"] == "application/x-ndjson"
    *lines, last = [json.loads(line) for line in reply.body.splitlines()]
    assert ids(lines) == ids(read(gateway, "envelopes?limit=500")["envelopes"])
    assert json.dumps(last).count(str(len(lines)))


def test_a_training_export_has_one_conversation_per_line(gateway: Served) -> None:
    body = get(gateway, "/spaces/past/export?format=chat-jsonl", token("past", "agent")).body
    conversation = json.loads(body.splitlines()[0])
    roles = [message["role"] for message in conversation["messages"]]
    assert roles[0] == "user"
    assert roles[-1] == "assistant"
    assert conversation["messages"][-1]["content"] == "It is safe."
    wrong = get(gateway, "/spaces/past/export?format=xml", token("past", "agent"))
    assert (wrong.status, wrong.error["param"]) == (400, "format")


# --- replay ----------------------------------------------------------------------------------------------------------


def test_a_replay_gives_the_log_flagged(gateway: Served) -> None:
    stored = read(gateway, "envelopes?limit=500")["envelopes"]
    lines = get(gateway, "/spaces/past/replay", token("past", "human")).body.splitlines()
    assert [json.loads(line) for line in lines] == [{**one, "replayed": True} for one in stored]
    events = get(
        gateway, "/spaces/past/replay?after_seq=4&before_seq=8", token("past", "human"), Accept="text/event-stream"
    )
    assert events.headers["content-type"].startswith("text/event-stream")
    assert [int(line[4:]) for line in events.body.decode().splitlines() if line.startswith("id: ")] == [
        one["seq"] for one in stored if 4 < one["seq"] < 8
    ]


def test_a_replay_socket_is_read_only_and_invisible(gateway: Served) -> None:
    stored = read(gateway, "envelopes?limit=500")
    url = f"ws://127.0.0.1:{gateway.port}/spaces/past/ws?replay=original&speed=0.01&view=full"
    with connect(url, additional_headers={"Authorization": f"Bearer {token('past', 'human')}"}, proxy=None) as made:
        client = Client(made)
        assert client.until("system/welcome")["payload"]["replay"]["speed"] == 0.01
        client.send(kind="chat", payload={"text": "Hello?"})
        assert client.until("system/error")["payload"]["code"] == "read_only"
    with connect(
        f"ws://127.0.0.1:{gateway.port}/spaces/past/ws?replay=instant",
        additional_headers={"Authorization": f"Bearer {token('past', 'human')}"},
        proxy=None,
    ) as made:
        client = Client(made)
        assert client.closed() == 1000
        received = [one for one in client.seen if "seq" in one]
        assert received == [{**one, "replayed": True} for one in stored["envelopes"]]
    assert read(gateway, "envelopes?limit=500") == stored


def test_a_replay_can_be_limited_by_time(gateway: Served) -> None:
    page = read(gateway, "envelopes?limit=500")
    middle = page["at"][len(page["at"]) // 2]
    early = get(gateway, f"/spaces/past/replay?until={middle}", token("past", "human")).body.splitlines()
    late = get(gateway, f"/spaces/past/replay?since={middle}", token("past", "human")).body.splitlines()
    assert [json.loads(one)["seq"] for one in early + late] == [one["seq"] for one in page["envelopes"]]


def test_leaving_a_slow_replay_stops_it(gateway: Served) -> None:
    url = f"ws://127.0.0.1:{gateway.port}/spaces/past/ws?replay=original&speed=0.0001"
    with connect(url, additional_headers={"Authorization": f"Bearer {token('past', 'human')}"}, proxy=None) as made:
        Client(made).until("system/welcome")
    gateway.idle()
