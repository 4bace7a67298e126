"""`POST /v1/responses/compact`: a conversation is summarized and sealed, and any model can continue it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid.server.prepare import COMPACTION_PREAMBLE
from tests.openresponses.openresponses_kit import schemas
from tests.scripted import Call, Script, Upstream, delta, say, serve
from tests.scripted.gateway import Gateway, Reply, Served
from tests.server.sockets_kit import opened

SUMMARY = "They launch on Tuesday and tell support first. "
COMPACTS = say("What matters here?", SUMMARY.strip())
ANSWERS = say("Let me see.", "It is 42.")
LAUNCH: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "We agreed to launch on Tuesday and tell support first."},
    {"type": "message", "role": "assistant", "content": "Understood: Tuesday, support first."},
]


def compact(gateway: Gateway, model: str | None, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    body = {"input": LAUNCH, **({} if model is None else {"model": model}), **more}
    return gateway.request("POST", "/v1/responses/compact", json.dumps(body).encode(), headers)


def compacted_items(gateway: Gateway, model: str, **more: Any) -> list[dict[str, Any]]:
    """Compact the conversation, and return the items that replace it."""
    reply = compact(gateway, model, **more)
    assert reply.status == 200, reply.body
    output: list[dict[str, Any]] = reply.json["output"]
    return output


def sent(upstream: Upstream, model: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in upstream.calls(model)[-1].body["messages"]]


# --- the response ----------------------------------------------------------------------------------------------------


def test_the_response_matches_the_published_schema(gateway: Served, upstream: Upstream) -> None:
    reply = compact(gateway, upstream.plays(COMPACTS), prompt_cache_key="k")
    for schema in schemas()[1:]:
        assert schema.errors("CompactResource", reply.json) == []
    assert reply.json["object"] == "response.compaction"
    [item] = reply.json["output"]
    assert (item["type"], item["id"][:4]) == ("compaction", "cmp_")
    assert (reply.json["usage"]["input_tokens"], reply.json["usage"]["output_tokens"]) == (7, 9)


def test_the_summary_and_its_reasoning_are_sealed(gateway: Served, upstream: Upstream) -> None:
    body = compact(gateway, upstream.plays(COMPACTS)).body
    assert b"Tuesday" not in body
    assert b"What matters" not in body


def test_the_model_receives_the_conversation_and_a_request_to_summarize_it(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(COMPACTS)
    compacted_items(gateway, model, instructions="Be brief.")
    roles, words = zip(*sent(upstream, model), strict=True)
    assert roles == ("system", "user", "assistant", "user")
    assert words[:3] == ("Be brief.", LAUNCH[0]["content"], LAUNCH[1]["content"])
    assert "tools" not in upstream.calls(model)[-1].body


def test_a_missing_model_is_refused(gateway: Served) -> None:
    for model in ({}, {"model": None}, {"model": 5}):
        body = json.dumps({"input": LAUNCH, **model}).encode()
        reply = gateway.request("POST", "/v1/responses/compact", body)
        assert (reply.status, reply.error["param"]) == (400, "model")


@pytest.mark.parametrize(
    ("body", "param"),
    [({"input": None}, "input"), ({"input": []}, "input"), ({"input": [{"no": "type"}]}, "input[0].type")],
)
def test_a_missing_conversation_is_refused(gateway: Served, body: dict[str, Any], param: str) -> None:
    reply = compact(gateway, "any", **body)
    assert (reply.status, reply.error["param"]) == (400, param)


def test_a_stored_conversation_is_compacted_from_its_last_response(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(ANSWERS, COMPACTS)
    response = gateway.ask(model, store=True).json
    inputs: list[Any] = [None, []]
    for input in inputs:
        [item] = compacted_items(gateway, model, input=input, previous_response_id=response["id"])
        assert item["type"] == "compaction"
        assert sent(upstream, model)[-1][1].startswith("Write a summary")
    assert sent(upstream, model)[:2] == [("user", "Why?"), ("assistant", "It is 42. ")]
    reply = compact(gateway, model, previous_response_id="resp_never")
    assert (reply.status, reply.error["code"]) == (400, "previous_response_not_found")


def test_a_compaction_is_not_stored(gateway: Served, upstream: Upstream) -> None:
    reply = compact(gateway, upstream.plays(COMPACTS))
    assert gateway.request("GET", f"/v1/responses/{reply.json['id']}").status == 404


def test_the_input_may_contain_reasoning_calls_and_a_compaction(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(COMPACTS)
    first = compacted_items(gateway, model)
    items = [
        {"type": "message", "role": "user", "content": "And the weather?"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Ask."}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
    ]
    compacted_items(gateway, model, input=[*first, *items])
    body = upstream.calls(model)[-1].body
    assert [message["role"] for message in body["messages"]] == ["user", "user", "assistant", "tool", "user"]
    assert SUMMARY in body["messages"][0]["content"]
    # An unanswered call is not an error.
    assert compacted_items(gateway, model, input=items[:3])


# --- continuing ------------------------------------------------------------------------------------------------------


def test_a_compaction_item_becomes_the_first_message(gateway: Served, upstream: Upstream) -> None:
    items = compacted_items(gateway, upstream.plays(COMPACTS))
    model = upstream.plays(ANSWERS)
    response = gateway.ask(model, store=True, input=[*items, {"role": "user", "content": "When?"}])
    assert response.json["status"] == "completed"
    assert sent(upstream, model) == [("user", f"{COMPACTION_PREAMBLE}{SUMMARY}"), ("user", "When?")]
    gateway.ask(model, previous_response_id=response.json["id"])
    assert sent(upstream, model)[:2] == [("user", f"{COMPACTION_PREAMBLE}{SUMMARY}"), ("user", "When?")]
    input_items = gateway.request("GET", f"/v1/responses/{response.json['id']}/input_items?order=asc").json["data"]
    assert input_items[0] == items[0]


WIRES = ["vllm", "anthropic", "openai", "mistral", "cohere", "google", "ollama"]
"""A profile of each wire."""


@pytest.fixture(scope="module")
def wires(upstream: Upstream) -> Iterator[Served]:
    providers: dict[str, Any] = {
        wire: {"profile": wire if wire != "ollama" else "ollama-native", "base_url": upstream.url} for wire in WIRES
    }
    providers["vllm"].pop("models", None)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ANTHROPIC", "OPENAI", "MISTRAL", "COHERE", "GOOGLE", "CO", "GEMINI"):
            patch.setenv(f"{name}_API_KEY", "k")
        with serve({"providers": providers, "limits": {"retries": 0}}) as running:
            yield running


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_sends_a_compaction_as_a_user_message(wires: Served, upstream: Upstream, wire: str) -> None:
    items = compacted_items(wires, f"vllm:{upstream.plays(COMPACTS)}")
    bodies: list[Any] = []

    async def captures(call: Call) -> None:
        bodies.append(call.body)
        await call.answer(400, b"{}")

    # The script without a name serves a wire whose request body does not name its model.
    model = upstream.plays(captures)
    upstream._scripts[""] = captures
    wires.ask(f"{wire}:{model}", input=[*items, {"role": "user", "content": "When?"}], store=False)
    [body] = bodies
    [first, *_] = body.get("messages") or body.get("input") or body["contents"]
    assert first["role"] == "user"
    assert SUMMARY.strip() in json.dumps(first)
    del upstream._scripts[""]


def test_a_replica_with_the_same_keys_opens_a_compaction(upstream: Upstream, tmp_path: Path) -> None:
    def replica(keys: str) -> dict[str, Any]:
        return {
            "sealing": {"keys_file": str(tmp_path / keys)},
            "providers": {"vllm": {"base_url": upstream.url}},
        }

    with serve(replica("one")) as one, serve(replica("one")) as two, serve(replica("other")) as other:
        items = compacted_items(one, upstream.plays(COMPACTS))
        model = upstream.plays(ANSWERS)
        input_items = [*items, {"role": "user", "content": "When?"}]
        assert two.ask(model, input=input_items).json["status"] == "completed"
        assert SUMMARY in sent(upstream, model)[0][1]
        reply = other.ask(model, input=input_items)
        assert (reply.status, reply.error["param"]) == (400, "input[0].encrypted_content")


def test_a_changed_compaction_is_refused(gateway: Served, upstream: Upstream) -> None:
    [item] = compacted_items(gateway, upstream.plays(COMPACTS))
    token = item["encrypted_content"]
    for changed in (token[:-8], token[:-4] + "AAAA", "nonsense", ""):
        reply = gateway.ask("any", input=[{**item, "encrypted_content": changed}])
        assert reply.status == 400
        assert reply.error["param"] == "input[0].encrypted_content"


@pytest.fixture
def two_tenants(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, Served]]:
    """Two gateways with the same seal keys and different tenants; the second has a stricter view."""
    from pellucid.server.config import check_config

    monkeypatch.setenv("PELLUCID_TEST_COMPACT_KEY", "a-key-for-compaction-0123456789")
    env = {"PELLUCID_TEST_COMPACT_KEY": "a-key-for-compaction-0123456789"}

    def config(owner: str, view: str) -> Any:
        access = {
            "key_env": "PELLUCID_TEST_COMPACT_KEY",
            "key_owner": owner,
            "key_policy": "p",
            "policies": {"p": {"view": view}},
        }
        return check_config({"providers": {"vllm": {"base_url": upstream.url}}, "access": access}, env)

    with serve(config("one", "raw")) as one, serve(config("two", "hidden")) as two:
        yield one, two


AUTH = {"Authorization": "Bearer a-key-for-compaction-0123456789", "Content-Type": "application/json"}


def test_a_compaction_belongs_to_its_tenant_and_leaks_nothing_in_a_stricter_view(
    two_tenants: tuple[Served, Served], upstream: Upstream
) -> None:
    one, two = two_tenants
    model = upstream.plays(COMPACTS)
    theirs = compact(one, model, AUTH).json["output"]
    reply = two.post({"model": model, "input": [*theirs, {"role": "user", "content": "x"}]}, AUTH)
    assert reply.status == 400
    assert "Tuesday" not in reply.body.decode()
    own = compact(two, model, AUTH)
    assert own.status == 200
    assert b"What matters" not in own.body
    assert b"Tuesday" not in own.body
    assert two.post({"model": model, "input": own.json["output"]}, AUTH).status == 200


# --- errors ----------------------------------------------------------------------------------------------------------


def writes(text: str, finish: str) -> Script:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm."))
        if text:
            await call.event(delta(content=text))
        await call.event(delta(finish))
        await call.event(b"[DONE]")
        await call.end()

    return script


async def breaks(call: Call) -> None:
    await call.head()
    await call.event(delta(content="They"))
    await call.event({"error": {"message": "out of memory"}})
    await call.end()


async def refuses(call: Call) -> None:
    await call.answer(429, b'{"error": {"message": "slow down"}}', Retry_After="60")


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (writes("", "stop"), 502, "empty_compaction"),
        (writes(" \n", "stop"), 502, "empty_compaction"),
        (writes("They launch on", "length"), 502, "incomplete_compaction"),
        (breaks, 502, None),
        (refuses, 429, None),
    ],
)
def test_an_incomplete_compaction_is_an_error(
    gateway: Served, upstream: Upstream, script: Script, status: int, code: str | None
) -> None:
    reply = compact(gateway, upstream.plays(script))
    assert reply.status == status
    assert code is None or reply.error["code"] == code
    gateway.idle()


# --- a compaction as a response --------------------------------------------------------------------------------------

TRIGGER = {"type": "compaction_trigger"}
PINNED = {"type": "message", "role": "developer", "content": "Speak plainly."}


def continues(model: str, upstream: Upstream) -> None:
    """Check that the model got the compaction in place of the conversation, and the prompts of developers."""
    assert sent(upstream, model) == [
        ("system", PINNED["content"]),
        ("user", f"{COMPACTION_PREAMBLE}{SUMMARY}"),
        ("user", "When?"),
    ]


def test_a_stored_compaction_replaces_what_it_continues(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(ANSWERS, COMPACTS, ANSWERS, ANSWERS)
    first = gateway.ask(model, input=[PINNED, *LAUNCH], store=True).json
    second = gateway.ask(model, input=[TRIGGER], previous_response_id=first["id"], store=True).json
    assert [item["type"] for item in second["output"]] == ["compaction"]
    third = gateway.ask(model, input="When?", previous_response_id=second["id"], store=True).json
    continues(model, upstream)
    gateway.ask(model, input="Really?", previous_response_id=third["id"])
    assert [text for _, text in sent(upstream, model)[2:]] == ["When?", "It is 42. ", "Really?"]


def test_a_compaction_that_failed_replaces_nothing(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(ANSWERS, writes("They", "length"), ANSWERS)
    first = gateway.ask(model, input=LAUNCH, store=True).json
    second = gateway.ask(model, input=[TRIGGER], previous_response_id=first["id"], store=True, stream=True)
    id = second.events[-1]["response"]["id"]
    gateway.ask(model, input="When?", previous_response_id=id)
    assert sent(upstream, model)[0] == ("user", LAUNCH[0]["content"])


def test_a_compaction_replaces_what_its_conversation_had(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(ANSWERS, COMPACTS, ANSWERS)
    conversation = gateway.request("POST", "/v1/conversations", b"{}").json["id"]
    gateway.ask(model, input=[PINNED, *LAUNCH], conversation=conversation)
    gateway.ask(model, input=[TRIGGER], conversation=conversation)
    gateway.ask(model, input="When?", conversation=conversation)
    continues(model, upstream)
    # The items are all there.
    items = gateway.request("GET", f"/v1/conversations/{conversation}/items?order=asc").json["data"]
    assert [item["type"] for item in items].count("message") == 6
    (compaction,) = [item for item in items if item["type"] == "compaction"]
    model = upstream.plays(ANSWERS)
    gateway.ask(model, input=[compaction, {"role": "user", "content": "When?"}], store=False)
    assert sent(upstream, model)[0] == ("user", f"{COMPACTION_PREAMBLE}{SUMMARY}")


def test_a_stored_compaction_is_shown_whatever_is_included(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(COMPACTS)
    stored = gateway.ask(model, input=[*LAUNCH, TRIGGER], store=True).json
    for query in ("", "?include[]=reasoning.encrypted_content", "?include[]=message.output_text.logprobs"):
        shown = gateway.request("GET", f"/v1/responses/{stored['id']}{query}").json
        assert shown["output"] == stored["output"], query


@pytest.mark.parametrize(
    "items", [[TRIGGER], [TRIGGER, *LAUNCH], [*LAUNCH, TRIGGER, LAUNCH[0]], [*LAUNCH, TRIGGER, TRIGGER]]
)
def test_a_trigger_is_the_last_item_after_others(gateway: Served, items: list[dict[str, Any]]) -> None:
    reply = gateway.ask("any", input=items)
    assert reply.status == 400
    assert "compaction_trigger" in reply.error["message"]


def test_messages_that_a_client_sends_before_a_compaction_stay(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(ANSWERS, ANSWERS)
    compaction = compacted_items(gateway, upstream.plays(COMPACTS))
    first = gateway.ask(model, input=[LAUNCH[0], *compaction, {"role": "user", "content": "When?"}], store=True).json
    gateway.ask(model, input="Really?", previous_response_id=first["id"])
    assert sent(upstream, model)[0] == ("user", LAUNCH[0]["content"])


@pytest.mark.parametrize("store", [True, False])
def test_a_socket_continues_from_a_compaction(gateway: Served, upstream: Upstream, store: bool) -> None:
    model = upstream.plays(ANSWERS, COMPACTS, ANSWERS)
    with opened(gateway, model) as socket:
        first = socket.ask(input=[PINNED, *LAUNCH], store=store)
        second = socket.ask(input=[TRIGGER], previous_response_id=first.id, store=store)
        socket.ask(input="When?", previous_response_id=second.id, store=store)
    continues(model, upstream)
