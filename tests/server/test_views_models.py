"""The view of a model: the most that any key sees of its reasoning, on every read, now and later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.server.catalog import Catalog
from pellucid.server.config import check_config
from pellucid.upstream import UpstreamClient
from pellucid.view import VIEWS as ORDER
from pellucid.view import View, stricter
from tests.scripted import Upstream
from tests.scripted.gateway import Reply
from tests.server.loop_kit import legal_events
from tests.server.seal_kit import CANARIES, SECRET, Canary, name_of
from tests.server.sockets_kit import opened
from tests.server.test_views_canary import assert_no_secret
from tests.server.test_views_http import VIEWS, visible_view
from tests.server.view_keys import SEALS, Keys, with_each_view, with_keys

RAW = {"Pellucid-View": "raw"}


def public(canary: Canary, view: str) -> str:
    return f"{canary.row}-{canary.name}-{view}".replace(" ", "-")


def named(upstream: Upstream, canary: Canary, view: str) -> dict[str, Any]:
    provider, _, model = name_of(upstream, canary).partition(":")
    return {"provider": provider, "model": model, "view": view}


@pytest.fixture(scope="module")
def keyed(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    models = {public(canary, view): named(upstream, canary, view) for canary in CANARIES for view in VIEWS}
    with with_keys(upstream, tmp_path_factory.mktemp("views"), models=models) as made:
        yield made


def over_a_socket(keyed: Keys, model: str) -> bytes:
    """Return the events of two responses on one socket; the second continues the first, which is not stored."""
    with opened(keyed.gateway, model, additional_headers=keyed.headers("raw")) as socket:
        first = socket.ask(store=False, include=SEALS)
        events = [first.events]
        calls = [item["call_id"] for item in first.response["output"] if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": id, "output": "rain"} for id in calls]
        again = [*results, {"type": "message", "role": "user", "content": "Why?"}]
        events.append(socket.ask(previous_response_id=first.id, input=again, store=False).events)
    return json.dumps(events).encode()


@with_each_view(CANARIES)
def test_no_read_shows_more_than_the_model_s_view(keyed: Keys, canary: Canary, view: str) -> None:
    model = public(canary, view)
    conversation = keyed.conversation()
    live = keyed.ask("raw", model, stream=True, include=SEALS, conversation=conversation)
    assert_no_secret(live, keyed.ask("raw", model), keyed.chat("raw", model, stream=True), keyed.chat("raw", model))
    if live.status != 200:
        return
    id = legal_events(live)[-1]["response"]["id"]
    assert ORDER.index(visible_view(legal_events(live)[-1]["response"]["output"])) >= ORDER.index(view)
    for path in (
        f"/v1/responses/{id}",
        f"/v1/responses/{id}?stream=true",
        f"/v1/responses/{id}?stream=true&starting_after=3&include=reasoning.encrypted_content",
        f"/v1/responses/{id}/input_items",
        f"/v1/conversations/{conversation}/items",
    ):
        reply = keyed.get("raw", path)
        assert reply.status == 200, reply.body
        assert_no_secret(reply)
    for item in keyed.get("raw", f"/v1/conversations/{conversation}/items").json["data"]:
        assert_no_secret(keyed.get("raw", f"/v1/conversations/{conversation}/items/{item['id']}"))
    assert SECRET.encode() not in over_a_socket(keyed, model)
    compact = json.dumps({"model": model, "input": "Why?"}).encode()
    head = {"Content-Type": "application/json", **keyed.headers("raw")}
    assert_no_secret(keyed.gateway.request("POST", "/v1/responses/compact", compact, head))
    begun = keyed.ask("raw", model, background=True, stream=True)
    assert_no_secret(begun, keyed.get("raw", f"/v1/responses/{begun.events[0]['response']['id']}?stream=true"))


def read_with(keyed: Keys, key: str, model: str, requested: str | None) -> list[Reply]:
    """Return the responses that this key gets for the model's reasoning, live and from the store."""
    made = keyed.ask("raw", model).json
    more = {"Pellucid-View": requested} if requested else {}
    query = f"?view={requested}" if requested else ""
    return [keyed.ask(key, model, more), keyed.get(key, f"/v1/responses/{made['id']}{query}")]


@pytest.mark.parametrize("own", VIEWS)
def test_the_viewer_is_the_strictest_of_key_model_and_request(keyed: Keys, own: str) -> None:
    [canary] = [one for one in CANARIES if (one.row, one.name) == ("openai-responses", "stream")]
    for key in VIEWS:
        most = max(key, own, key=ORDER.index)
        for requested in (None, *VIEWS):
            for reply in read_with(keyed, key, public(canary, own), requested):
                if requested is not None and ORDER.index(requested) < ORDER.index(most):
                    assert (reply.status, reply.error["code"]) == (403, "view_not_allowed")
                    assert repr(most) in reply.error["message"]
                else:
                    assert visible_view(reply.json["output"]) == (requested or most)


def chat_shows(keyed: Keys, model: str) -> bool:
    return SECRET.encode() in keyed.chat("raw", model, stream=True).body


def test_no_other_name_of_a_model_shows_more(upstream: Upstream, tmp_path: Path) -> None:
    """The strictest view of all names applies to the provider's list, PROVIDER:MODEL and the provider's own name."""
    [canary] = [one for one in CANARIES if (one.row, one.name) == ("deepseek", "fields")]
    other, model = (name_of(upstream, canary).partition(":")[2] for _ in range(2))
    entries = {"open": {"provider": "deepseek", "model": model}}
    entries["closed"] = {**entries["open"], "view": "sealed"}
    with with_keys(upstream, tmp_path, models=entries) as keyed:
        for name, view in {"open": "raw", "closed": "sealed", f"deepseek:{model}": "sealed"}.items():
            assert visible_view(keyed.ask("raw", name).json["output"]) == view, name
            assert chat_shows(keyed, name) is (view == "raw")
        assert visible_view(keyed.ask("raw", f"deepseek:{other}").json["output"]) == "raw"


def test_a_provider_s_view_is_that_of_all_its_models(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [canary] = [one for one in CANARIES if (one.row, one.name) == ("deepseek", "fields")]
    model = name_of(upstream, canary).partition(":")[2]
    monkeypatch.setenv("SOME_KEY", "none-of-a-provider")
    house = {"profile": "deepseek", "base_url": upstream.url, "api_key_env": "SOME_KEY", "view": "sealed"}
    models = {"more": {"provider": "house", "model": model}, "less": {"provider": "house", "model": model}}
    models["less"]["view"] = "hidden"
    with with_keys(upstream, tmp_path, providers={"house": house}, models=models) as keyed:
        for name, view in {"more": "sealed", "less": "hidden", "house:other": "sealed", "any": "sealed"}.items():
            reply = keyed.ask("raw", name)
            assert_no_secret(reply)
            assert visible_view(reply.json["output"]) == view, name


def made_and_read(keyed: Keys, model: str) -> tuple[str, str]:
    conversation = keyed.conversation()
    return keyed.ask("raw", model, conversation=conversation).json["id"], conversation


def reads(keyed: Keys, id: str, conversation: str) -> list[Reply]:
    return [
        keyed.get("raw", f"/v1/responses/{id}"),
        keyed.get("raw", f"/v1/responses/{id}?stream=true"),
        keyed.get("raw", f"/v1/conversations/{conversation}/items"),
    ]


def test_the_stricter_of_the_past_and_present_view_applies(upstream: Upstream, tmp_path: Path) -> None:
    [canary] = [one for one in CANARIES if (one.row, one.name) == ("deepseek", "fields")]
    entry = named(upstream, canary, "raw")
    with with_keys(upstream, tmp_path, models={"thinker": entry}) as keyed:
        open_ = made_and_read(keyed, "thinker")
        assert all(SECRET.encode() in reply.body for reply in reads(keyed, *open_))
    with with_keys(upstream, tmp_path, models={"thinker": {**entry, "view": "sealed"}}) as keyed:
        closed = made_and_read(keyed, "thinker")
        assert_no_secret(*reads(keyed, *open_), *reads(keyed, *closed))
        assert keyed.get("raw", f"/v1/responses/{open_[0]}?view=raw").status == 403
        # The items of a conversation outlive their response; then the view of its model applies.
        keyed.gateway.request("DELETE", f"/v1/responses/{open_[0]}", None, keyed.headers("raw"))
        assert_no_secret(keyed.get("raw", f"/v1/conversations/{open_[1]}/items"))
    with with_keys(upstream, tmp_path, models={"thinker": entry}) as keyed:
        assert_no_secret(*reads(keyed, *closed))
        assert keyed.get("raw", f"/v1/responses/{closed[0]}?view=raw").status == 403
        assert SECRET.encode() in keyed.ask("raw", "thinker").body
    with with_keys(upstream, tmp_path) as keyed:  # the model is no longer configured
        assert_no_secret(*reads(keyed, *closed))


def test_returned_reasoning_is_redacted_by_the_model_s_view(keyed: Keys) -> None:
    [canary] = [one for one in CANARIES if (one.row, one.name) == ("deepseek", "fields")]
    thought = {
        "type": "reasoning",
        "id": "rs_m",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": SECRET}],
    }
    user = {"type": "message", "role": "user", "content": "Why?"}
    assistant_message = {"type": "message", "role": "assistant", "content": "Hm."}
    id = keyed.ask("raw", public(canary, "sealed"), input=[user, thought, assistant_message, user]).json["id"]
    assert_no_secret(keyed.get("raw", f"/v1/responses/{id}/input_items"))


views = st.sampled_from(ORDER)


@given(st.lists(st.tuples(st.sampled_from("ab"), views), max_size=4), views, st.sampled_from(["a", "b", "c"]))
def test_every_name_of_a_model_gets_its_strictest_view(
    entries: list[tuple[str, View]], provider: View, model: str
) -> None:
    table = {
        "providers": {"vllm": {"base_url": "http://127.0.0.1:1/v1", "view": provider, "models": ["a", "*"]}},
        "models": {f"n{at}": {"provider": "vllm", "model": m, "view": v} for at, (m, v) in enumerate(entries)},
    }
    catalog = Catalog(check_config(table, {}), UpstreamClient())
    for at, (_, view) in enumerate(entries):
        assert catalog.max_view(f"n{at}") == stricter(view, provider)
    strictest = provider
    for named_model, view in entries:
        strictest = stricter(strictest, view) if named_model == model else strictest
    assert catalog.max_view(f"vllm:{model}") == strictest
    if model == "a":
        assert catalog.max_view("a") == strictest
    with pytest.raises(RequestError):
        catalog.find("unknown")
    assert catalog.max_view("unknown") == "raw"


@pytest.mark.parametrize("section", ["models", "providers"])
def test_an_unknown_view_is_reported(section: str) -> None:
    from pellucid.errors import ConfigError

    house = {"base_url": "http://127.0.0.1:1/v1", "profile": "vllm"}
    table: dict[str, Any] = {"providers": {"house": house}, "models": {"house": {"provider": "house"}}}
    table[section]["house"]["view"] = "all"
    with pytest.raises(ConfigError) as caught:
        check_config(table, {})
    assert caught.value.mistakes == [f"{section}.house.view: 'all' is none of 'raw', 'summary', 'sealed', 'hidden'"]
