"""Items with values that no client should send: an error that names the value, or an answer, for every reader."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scripted import Upstream, say
from tests.scripted.gateway import Served

VIEWS = ("raw", "summary", "sealed", "hidden")
SECRET = {"thought": "the butler"}


@pytest.mark.parametrize("id", [5, [1], {"a": 1}, True])
def test_the_id_of_an_item_of_an_unknown_type_must_be_a_text(gateway: Served, id: Any) -> None:
    item = {"type": "other_kind", "id": id}
    for store in (True, False):
        reply = gateway.ask("any", input=[item], store=store)
        assert (reply.status, reply.error["param"]) == (400, "input[0].id")
    conversation = gateway.request("POST", "/v1/conversations", b"{}").json["id"]
    body = json.dumps({"items": [item]}).encode()
    reply = gateway.request("POST", f"/v1/conversations/{conversation}/items", body)
    assert (reply.status, reply.error["param"]) == (400, "items[0].id")


@pytest.mark.parametrize(
    "item",
    [
        {"type": "tool_search_call", "call_id": "c", "arguments": [1, "x"]},
        {"type": "tool_search_call", "arguments": ["x"], "output": [5, {"type": [SECRET]}], "name": SECRET},
        {"type": "tool_search_call", "call_id": None, "status": SECRET, "input": SECRET, "content": {"x": SECRET}},
        {"type": "reasoning_v2", "status": SECRET, "content": [{"type": SECRET}]},
    ],
    ids=str,
)
def test_every_reader_can_read_stored_items_and_none_reads_what_may_be_reasoning(
    gateway: Served, upstream: Upstream, item: dict[str, Any]
) -> None:
    response = gateway.ask(upstream.plays(say()), input=[item, {"role": "user", "content": "Hi"}], store=True)
    assert response.status == 200
    path = f"/v1/responses/{response.json['id']}/input_items"
    for view in VIEWS:
        reply = gateway.request("GET", f"{path}?view={view}&order=asc")
        assert reply.status == 200
        assert reply.json["data"][0]["type"] == item["type"]
        assert (b"butler" in reply.body) == (view == "raw" and "butler" in json.dumps(item))
