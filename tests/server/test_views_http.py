"""What each view shows on every read, by key and by a request for a stricter view."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scripted import Upstream
from tests.server.loop_kit import legal_events
from tests.server.seal_kit import CANARIES, SECRET, SUMMARY, Canary, name_of, sent
from tests.server.view_keys import LESSER, SEALS, Keys, with_keys

VIEWS = ["raw", *LESSER]


def canary(row: str, name: str) -> Canary:
    [selected] = [one for one in CANARIES if (one.row, one.name) == (row, name)]
    return selected


@pytest.fixture(scope="module")
def keyed(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    with with_keys(upstream, tmp_path_factory.mktemp("views")) as made:
        yield made


def visible_view(output: list[dict[str, Any]]) -> str:
    """Return the view that the reasoning shows: `raw`, `summary`, `sealed` (an empty item), or `hidden` (no item)."""
    items = [item for item in output if item["type"] == "reasoning"]
    if any(item.get("content") for item in items):
        return "raw"
    return "summary" if any(item["summary"] for item in items) else "sealed" if items else "hidden"


def without_times(response: dict[str, Any]) -> Any:
    """Return the output of a response as text without ids."""
    text = json.dumps(response["output"])
    for number, item in enumerate(response["output"]):
        text = text.replace(item["id"].partition("_")[2], str(number))
    return text


@pytest.mark.parametrize("view", VIEWS)
def test_a_key_s_view_is_the_same_on_every_read(keyed: Keys, upstream: Upstream, view: str) -> None:
    model = name_of(upstream, canary("openai-responses", "stream"))
    live = legal_events(keyed.ask(view, model, stream=True, include=SEALS if view == "raw" else []))[-1]["response"]
    assert visible_view(live["output"]) == view
    for path in (f"/v1/responses/{live['id']}", f"/v1/responses/{live['id']}?view={view}"):
        assert keyed.get(view, path).json["output"] == live["output"]
    again = keyed.get(view, f"/v1/responses/{live['id']}?stream=true")
    assert legal_events(again)[-1]["response"]["output"] == live["output"]
    for other in VIEWS:
        read = keyed.get(other, f"/v1/responses/{live['id']}").json["output"]
        assert visible_view(read) == max(view, other, key=VIEWS.index)


def test_the_sealed_view_has_a_token_that_can_be_returned(keyed: Keys, upstream: Upstream) -> None:
    model = name_of(upstream, canary("openai-responses", "stream"))
    output = keyed.ask("sealed", model, store=False).json["output"]
    for item in output:
        if item["type"] == "reasoning":
            assert set(item) == {"type", "id", "summary", "status", "encrypted_content"}
            assert item["summary"] == []
    user_message = {"type": "message", "role": "user", "content": "Why?"}
    call_ids = [item["call_id"] for item in output if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": id, "output": "rain"} for id in call_ids]
    keyed.ask("sealed", model, input=[user_message, *output, *results], store=False)
    assert SECRET in str(sent(upstream, model)[-1]["input"])


def test_the_hidden_view_has_no_reasoning_and_no_seal(keyed: Keys, upstream: Upstream) -> None:
    model = name_of(upstream, canary("deepseek", "fields"))
    reply = keyed.ask("hidden", model, stream=True, include=SEALS)
    assert b"encrypted_content" not in reply.body
    assert b"response.reasoning" not in reply.body
    assert [item["type"] for item in legal_events(reply)[-1]["response"]["output"]] == ["message"]


def test_token_counts_are_hidden_by_their_own_switch(keyed: Keys, upstream: Upstream) -> None:
    model = name_of(upstream, canary("deepseek", "fields"))
    reply = keyed.ask("uncounted", model, stream=True)
    assert legal_events(reply)[-1]["response"]["usage"] is None
    assert legal_events(keyed.ask("hidden", model, stream=True))[-1]["response"]["usage"] is not None
    chat = keyed.chat("uncounted", model, stream=True, stream_options={"include_usage": True})
    assert b"_tokens" not in chat.body
    compact = json.dumps({"model": model, "input": "Why?"}).encode()
    for key, counted in (("uncounted", False), ("hidden", True)):
        head = {"Content-Type": "application/json", **keyed.headers(key)}
        usage = keyed.gateway.request("POST", "/v1/responses/compact", compact, head).json["usage"]
        assert (usage["total_tokens"] > 0) is counted
        estimate = keyed.gateway.request("POST", "/v1/responses/input_tokens", compact, head)
        assert estimate.status == (200 if counted else 403)
    assert "usage" not in keyed.chat("uncounted", model).json or keyed.chat("uncounted", model).json["usage"] is None


def test_requesting_a_wider_view_is_forbidden(keyed: Keys, upstream: Upstream) -> None:
    model = name_of(upstream, canary("deepseek", "fields"))
    id = keyed.ask("raw", model).json["id"]
    for at, view in enumerate(VIEWS):
        for other, requested in enumerate(VIEWS):
            replies = [
                keyed.ask(view, model, {"Pellucid-View": requested}),
                keyed.get(view, f"/v1/responses/{id}?view={requested}"),
                keyed.get(view, f"/v1/responses/{id}?stream=true&view={requested}"),
            ]
            for reply in replies:
                if other < at:
                    assert (reply.status, reply.error["code"]) == (403, "view_not_allowed")
                else:
                    assert reply.status == 200
    assert upstream.calls(model.partition(":")[2])
    wrong = keyed.ask("raw", model, {"Pellucid-View": "all"})
    assert (wrong.status, wrong.error["code"]) == (400, "unknown_view")


def test_a_response_made_in_a_stricter_view_is_read_in_it(keyed: Keys, upstream: Upstream) -> None:
    model = name_of(upstream, canary("deepseek", "fields"))
    id = keyed.ask("raw", model, {"Pellucid-View": "hidden"}).json["id"]
    assert visible_view(keyed.get("raw", f"/v1/responses/{id}").json["output"]) == "hidden"
    assert visible_view(keyed.get("raw", f"/v1/responses/{id}?view=raw").json["output"]) == "raw"


def test_reasoning_from_a_client_is_redacted_like_any_other(keyed: Keys, upstream: Upstream) -> None:
    model = name_of(upstream, canary("deepseek", "fields"))
    thought = {
        "type": "reasoning",
        "id": "rs_mine",
        "summary": [{"type": "summary_text", "text": SUMMARY}],
        "content": [{"type": "reasoning_text", "text": SECRET}],
    }
    logprobs = [{"token": SECRET, "logprob": -0.1, "bytes": [], "top_logprobs": []}]
    cited = {"type": "url_citation", "url": "https://a.test/", "title": "A", "start_index": 0, "end_index": 2}
    noted = [{**cited, "note": SECRET, "title": {"of": SECRET}}, cited]
    text = {"type": "output_text", "text": "Hm.", "annotations": noted, "logprobs": logprobs, "reasoning": SECRET}
    assistant_message = {"type": "message", "role": "assistant", "content": [text], "reasoning_content": SECRET}
    user = {"type": "message", "role": "user", "content": "Why?"}
    conversation = keyed.conversation()
    id = keyed.ask("raw", model, input=[user, thought, assistant_message, user], conversation=conversation).json["id"]
    for path in (f"/v1/responses/{id}/input_items", f"/v1/conversations/{conversation}/items"):
        for view in VIEWS:
            listed = keyed.get(view, path)
            [reasoning_item] = [item for item in listed.json["data"] if item.get("id") == "rs_mine"] or [None]
            assert (SECRET in listed.body.decode()) is (view == "raw"), "nor in the assistant's message"
            [answer] = [item for item in listed.json["data"] if str(item.get("content")).find("Hm.") >= 0]
            assert answer["content"][0]["annotations"][1] == cited
            if view == "raw":
                assert reasoning_item == thought
            elif view == "hidden":
                assert reasoning_item is None
            else:
                assert SECRET not in str(reasoning_item)
                assert bool(reasoning_item["summary"]) is (view == "summary")
    for view in LESSER:
        one = keyed.get(view, f"/v1/conversations/{conversation}/items/rs_mine")
        assert SECRET.encode() not in one.body
        assert one.status == (404 if view == "hidden" else 200)
