"""`GET /v1/models` lists what open-ended providers serve, as they say it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pellucid.models import ServedModel
from pellucid.models.model import served_models
from pellucid.upstream.client import MAX_LIST_BYTES
from tests.scripted import Call, Script, Upstream
from tests.scripted.gateway import Served, serve

FORMS: dict[str, tuple[Any, list[ServedModel]]] = {
    "openai": ({"object": "list", "data": [{"id": "a"}, {"id": "b"}]}, [ServedModel("a"), ServedModel("b")]),
    "openrouter": ({"data": [{"id": "a/b", "name": "A", "context_length": 8192}]}, [ServedModel("a/b", 8192)]),
    "vllm": ({"data": [{"id": "a", "max_model_len": 4096}]}, [ServedModel("a", 4096)]),
    "google": ({"models": [{"name": "models/g", "inputTokenLimit": 10}]}, [ServedModel("g", 10)]),
    "ollama": ({"models": [{"name": "q:8b", "model": "q:8b", "size": 5}]}, [ServedModel("q:8b")]),
    "together": ([{"id": "t", "context_length": None}], [ServedModel("t")]),
    "twice": ({"data": [{"id": "a"}, {"id": "a"}]}, [ServedModel("a")]),
    "other": ({"data": [None, {"id": 5}, {"no": "id"}, "x", {"id": ""}, {"name": "models/"}]}, []),
    "no list": ({"data": "x"}, []),
    "text": ("x", []),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_lists_of_many_providers_are_read(form: str) -> None:
    body, models = FORMS[form]
    assert served_models(json.dumps(body).encode()) == models


def test_what_is_no_json_lists_nothing() -> None:
    for body in (b"<html>", b"[" * 100_000, b'{"data": [{"id": "\xff"}]}', b""):
        assert served_models(body) == []


def lists(*names: str, status: int = 200) -> Script:
    async def script(call: Call) -> None:
        body = {"data": [{"id": name, "max_model_len": 4096} for name in names]}
        await call.answer(status, json.dumps(body).encode(), "application/json")

    return script


@contextmanager
def gateway_of(upstream: Upstream, **scripts: Script) -> Iterator[Served]:
    """A gateway whose providers list these models."""
    names = {provider: upstream.plays(script) for provider, script in scripts.items()}
    rows = {provider: {"profile": "vllm", "base_url": f"{upstream.url}/{name}"} for provider, name in names.items()}
    models = {"mine": {"provider": next(iter(rows)), "context": 77}}
    with serve({"providers": rows, "models": models, "limits": {"retries": 0}}) as running:
        yield running


def entries(gateway: Served, **headers: str) -> dict[str, Any]:
    reply = gateway.request("GET", "/v1/models", headers=headers)
    assert reply.status == 200, reply.body
    return {entry["id"]: entry for entry in reply.json["data"]}


def test_the_models_of_one_provider_have_their_own_names(upstream: Upstream) -> None:
    with gateway_of(upstream, one=lists("a", "b")) as gateway:
        listed = entries(gateway)
        assert list(listed) == ["mine", "a", "b"]
        assert [entry.get("context_length") for entry in listed.values()] == [77, 4096, 4096]
        assert list(entries(gateway, **{"anthropic-version": "2023-06-01"})) == ["mine", "a", "b"]
        reply = gateway.request("GET", "/v1/models/b")
        assert (reply.status, reply.json["id"]) == (200, "b")
        assert gateway.request("GET", "/v1/models/c").status == 404


def test_the_models_of_several_providers_have_their_prefix(upstream: Upstream) -> None:
    with gateway_of(upstream, one=lists("a"), two=lists("a"), broken=lists("x", status=500)) as gateway:
        assert list(entries(gateway)) == ["mine", "one:a", "two:a"]


def test_many_lists_need_one_request_to_a_provider(upstream: Upstream) -> None:
    with gateway_of(upstream, one=lists("a")) as gateway:
        for _ in range(5):
            assert list(entries(gateway)) == ["mine", "a"]
        name = next(reversed(upstream._scripts))
        assert len(upstream.calls(name)) == 1


def answers(body: bytes, status: int = 200, **headers: str) -> Script:
    async def script(call: Call) -> None:
        await call.answer(status, body, "application/json", **headers)

    return script


@pytest.mark.parametrize(
    "script",
    [
        answers(b'{"data": [{"id": "\xff"}]}'),
        answers(b'{"data": [{"id": "x"}]' + b" " * MAX_LIST_BYTES + b"}"),
        answers(b"", status=302, Location="/elsewhere"),
    ],
    ids=["no UTF-8", "too large", "redirect"],
)
def test_a_list_that_cannot_be_used_lists_nothing(upstream: Upstream, script: Script) -> None:
    upstream._scripts[""] = lists("elsewhere")
    with gateway_of(upstream, one=script) as gateway:
        assert list(entries(gateway)) == ["mine"]
    del upstream._scripts[""]


def test_a_provider_says_nothing_about_the_models_of_others(upstream: Upstream) -> None:
    url = f"{upstream.url}/{upstream.plays(lists('theirs', 'own'))}"
    providers = {"open": {"profile": "vllm", "base_url": url}, "closed": {"base_url": url, "profile": "vllm"}}
    providers["closed"]["models"] = ["theirs"]  # type: ignore[assignment]
    with serve({"providers": providers, "limits": {"retries": 0}}) as gateway:
        listed = entries(gateway)
        assert ["context_length" in listed[name] for name in ("theirs", "own")] == [False, True]
