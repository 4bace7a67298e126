"""Reasoning that a client returns unchanged: the model gets the same history as from a stateful client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pellucid.cli.seal_keys import seal_keys
from tests.scripted import Upstream
from tests.scripted.gateway import Reply, Served
from tests.server.loop_kit import function
from tests.server.seal_kit import CANARIES, MORE, SECRET, Canary, configured, name_of, sent, serving

USER = {"type": "message", "role": "user", "content": "Why?"}
ON = {"type": "message", "role": "user", "content": "And?"}
TOOLS = [function("weather", city={"type": "string"})]
INCLUDE = ["reasoning.encrypted_content"]
WHOLE = [
    canary for canary in [*CANARIES, *MORE] if canary.name in ("stream", "whole", "fields", "reasoning", "details")
]
WHOLE += [canary for canary in [*CANARIES, *MORE] if canary.name in ("tags", "raw", "server tools")]

each = pytest.mark.parametrize("canary", WHOLE, ids=lambda canary: f"{canary.row}-{canary.name}")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seals") / "keys.json"


@pytest.fixture(scope="module")
def first(upstream: Upstream, keys: Path) -> Iterator[Served]:
    with serving(configured(upstream, sealing={"keys_file": str(keys)})) as running:
        yield running


@pytest.fixture(scope="module")
def second(upstream: Upstream, keys: Path, first: Served) -> Iterator[Served]:
    """Another gateway that shares only the seal keys."""
    with serving(configured(upstream, sealing={"keys_file": str(keys)})) as running:
        yield running


def send(gateway: Served, model: str, **more: Any) -> Reply:
    body = {"model": model, "tools": TOOLS, "include": INCLUDE, "reasoning": {"effort": "high"}, **more}
    reply = gateway.post(body)
    assert reply.status == 200, reply.body
    return reply


def results(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls = [item["call_id"] for item in output if item["type"] == "function_call"]
    return [{"type": "function_call_output", "call_id": id, "output": "rain"} for id in calls]


def histories(
    first: Served,
    second: Served,
    upstream: Upstream,
    canary: Canary,
    change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = list,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the model's requests from a stateful client and from a stateless one."""
    model = name_of(upstream, canary)
    stateful = send(first, model, input=[USER], store=True).json
    on = [*results(stateful["output"]), ON]
    send(first, model, input=on, previous_response_id=stateful["id"])
    stateless = send(first, model, input=[USER], store=False).json["output"]
    send(second, model, input=[USER, *change(stateless), *on], store=False)
    _, expected, _, got = sent(upstream, model)
    for item in expected.get("input", []):
        if item.get("type") == "function_call":
            # No provider requires the id of a call's item: it is the only field without a carrier.
            del item["id"]
    return expected, got


@each
def test_output_returned_verbatim_restores_the_history(
    first: Served, second: Served, upstream: Upstream, canary: Canary
) -> None:
    expected, got = histories(first, second, upstream, canary)
    assert got == expected


@each
def test_item_ids_are_not_required(first: Served, second: Served, upstream: Upstream, canary: Canary) -> None:
    def stripped(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: value for name, value in item.items() if name not in ("id", "status")} for item in output]

    expected, got = histories(first, second, upstream, canary, stripped)
    assert got == expected


@each
def test_a_client_that_drops_reasoning_is_served(
    first: Served, second: Served, upstream: Upstream, canary: Canary
) -> None:
    def dropped(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [item for item in output if item["type"] not in ("reasoning", "compaction")]

    _, got = histories(first, second, upstream, canary, dropped)
    assert SECRET not in str(got.get("messages") or got.get("contents") or got.get("input")).replace(
        "encrypted_content", ""
    )


def test_key_rotation_keeps_tokens_valid(first: Served, second: Served, upstream: Upstream, keys: Path) -> None:
    def rotated(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        done = CliRunner().invoke(seal_keys, ["rotate", "--file", str(keys)])
        assert done.exit_code == 0, done.output
        return output

    for canary in WHOLE:
        if canary.row in ("anthropic", "deepseek"):
            expected, got = histories(first, second, upstream, canary, rotated)
            assert got == expected
