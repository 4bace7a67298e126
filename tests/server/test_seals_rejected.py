"""Tokens that cannot be opened are refused, with an error that names the item and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pellucid.sealing import MAX_TOKEN, Keys, change_keys
from tests.scripted import Upstream
from tests.scripted.gateway import Served
from tests.server.seal_kit import CANARIES, SECRET, configured, name_of, sent, serving

USER = {"type": "message", "role": "user", "content": "Why?"}
INCLUDE = ["reasoning.encrypted_content"]
[CLAUDE] = [canary for canary in CANARIES if (canary.row, canary.name) == ("anthropic", "stream")]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seals") / "keys.json"


@pytest.fixture(scope="module")
def first(upstream: Upstream, keys: Path) -> Iterator[Served]:
    server = {"max_body_bytes": 64 << 20}
    with serving(configured(upstream, sealing={"keys_file": str(keys)}, server=server)) as running:
        yield running


def sealed_items(gateway: Served, model: str, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    reply = gateway.post({"model": model, "input": [USER], "include": INCLUDE, "store": False}, headers)
    assert reply.status == 200, reply.body
    return [item for item in reply.json["output"] if item.get("encrypted_content")]


def refusal(gateway: Served, model: str, items: list[Any], headers: dict[str, str] | None = None) -> dict[str, Any]:
    for stream in (False, True):
        body = {"model": model, "input": [USER, *items, USER], "store": False, "stream": stream}
        reply = gateway.post(body, headers, timeout=60)
        assert 400 <= reply.status < 500
        error = reply.error
        assert SECRET not in str(error)
    return error


@pytest.mark.parametrize("at", [0.01, 0.3, 0.6, 0.99])
def test_a_changed_token_is_refused(first: Served, upstream: Upstream, at: float) -> None:
    model = name_of(upstream, CLAUDE)
    item = sealed_items(first, model)[0]
    token = item["encrypted_content"]
    place = int(at * len(token))
    changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
    error = refusal(first, model, [{**item, "encrypted_content": changed}])
    assert error["param"] == "input[1].encrypted_content"
    assert error["code"] in ("seal_broken", "seal_key_unknown", "seal_foreign")


@pytest.mark.parametrize("token", ["gAAAAABofakefakefake", "x", "a.b.c.d.e", "é" * 10])
def test_a_token_that_was_never_sealed_is_refused(first: Served, upstream: Upstream, token: str) -> None:
    error = refusal(
        first, name_of(upstream, CLAUDE), [{"type": "reasoning", "summary": [], "encrypted_content": token}]
    )
    assert (error["code"], error["param"]) == ("seal_broken", "input[1].encrypted_content")


def test_the_error_names_the_item_with_the_wrong_token(first: Served, upstream: Upstream) -> None:
    model = name_of(upstream, CLAUDE)
    good = sealed_items(first, model)[0]
    error = refusal(first, model, [good, {**good, "id": "rs_2", "encrypted_content": "x"}])
    assert error["param"] == "input[2].encrypted_content"


def test_a_token_that_is_too_long_is_refused(first: Served, upstream: Upstream) -> None:
    long = {"type": "reasoning", "summary": [], "encrypted_content": "A" * (MAX_TOKEN + 1)}
    error = refusal(first, name_of(upstream, CLAUDE), [long])
    assert (error["code"], error["param"]) == ("seal_too_large", "input[1].encrypted_content")


def test_tokens_of_another_key_or_a_retired_key_are_refused(
    first: Served, upstream: Upstream, keys: Path, tmp_path: Path
) -> None:
    model = name_of(upstream, CLAUDE)
    items = sealed_items(first, model)
    with serving(configured(upstream, sealing={"keys_file": str(tmp_path / "others.json")})) as other:
        assert refusal(other, model, items)["code"] == "seal_key_unknown"

    def rotated(now: Keys) -> Keys:
        old = now.active.kid
        return now.rotate(datetime.now(UTC)).retire(old, datetime.now(UTC))

    change_keys(keys, rotated)
    assert refusal(first, model, items)["code"] == "seal_key_retired"


def test_another_model_gets_readable_reasoning_and_the_response_has_a_warning(
    first: Served, upstream: Upstream
) -> None:
    [raw] = [canary for canary in CANARIES if (canary.row, canary.name) == ("deepseek", "fields")]
    items = sealed_items(first, name_of(upstream, raw))
    for row, name in (("anthropic", "stream"), ("vllm", "reasoning"), ("google", "stream")):
        [canary] = [one for one in CANARIES if (one.row, one.name) == (row, name)]
        model = name_of(upstream, canary)
        reply = first.post({"model": model, "input": [USER, *items, USER], "store": False})
        assert reply.status == 200, reply.body
        assert "another model" in reply.headers["pellucid-warning"]
    output = first.post({"model": model, "input": [USER], "include": INCLUDE, "store": False}).json["output"]
    own = first.post({"model": model, "input": [USER, *output, USER], "store": False})
    assert "pellucid-warning" not in own.headers


def test_a_signature_is_not_sent_to_another_model(first: Served, upstream: Upstream) -> None:
    items = sealed_items(first, name_of(upstream, CLAUDE))
    model = name_of(upstream, CLAUDE)
    reply = first.post({"model": model, "input": [USER, *items, USER], "store": False, "stream": True})
    assert "pellucid-warning" in reply.headers
    [body] = sent(upstream, model)
    assert not any(word in str(body) for word in ("signature", "redacted_thinking", "'data'", "encrypted_content"))


def test_a_token_of_another_tenant_is_refused(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "keys.json")
    model = name_of(upstream, CLAUDE)
    items: list[dict[str, Any]] = []
    for owner in ("acme", "other"):
        monkeypatch.setenv("THE_KEY", "k" * 32)
        access = {"key_env": "THE_KEY", "key_owner": owner}
        with serving(configured(upstream, sealing={"keys_file": file}, access=access)) as running:
            mine = {"Authorization": "Bearer " + "k" * 32}
            if items:
                error = refusal(running, model, items, mine)
                assert (error["code"], error["param"]) == ("seal_foreign", "input[1].encrypted_content")
            items = sealed_items(running, model, mine)
            assert items
