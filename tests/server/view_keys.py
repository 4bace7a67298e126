"""A gateway with a key for every view, all of one owner."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pellucid.cli.keys import keys
from tests.scripted import Upstream
from tests.scripted.gateway import Reply, Served
from tests.server.loop_kit import function
from tests.server.seal_kit import Canary, configured, serving

LESSER = ["summary", "sealed", "hidden"]
TOOLS = [function("weather", city={"type": "string"})]
SEALS = ["reasoning.encrypted_content"]


def with_each_view(canaries: Sequence[Canary]) -> pytest.MarkDecorator:
    """Parametrize a test by `canary` and `view`: every pair; in the core circle one view of each canary, in turn."""
    return pytest.mark.parametrize(
        ("canary", "view"),
        [
            pytest.param(
                canary,
                view,
                id=f"{canary.row}-{canary.name}-{view}",
                marks=() if (number + place) % len(LESSER) == 0 else pytest.mark.needs("long"),
            )
            for number, canary in enumerate(canaries)
            for place, view in enumerate(LESSER)
        ],
    )


class Keys:
    """A gateway, and a key of one owner for every view."""

    def __init__(self, gateway: Served, tokens: dict[str, str]) -> None:
        self.gateway = gateway
        self._tokens = tokens

    def headers(self, view: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._tokens[view]}"}

    def ask(self, view: str, model: str, more: dict[str, str] | None = None, **body: Any) -> Reply:
        body = {"model": model, "input": "Why?", "tools": TOOLS, **body}
        return self.gateway.post(body, {**self.headers(view), **(more or {})})

    def chat(self, view: str, model: str, **body: Any) -> Reply:
        messages = [{"role": "user", "content": "Why?"}]
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
        data = json.dumps({"model": model, "messages": messages, "tools": tools, **body}).encode()
        head = {"Content-Type": "application/json", **self.headers(view)}
        return self.gateway.request("POST", "/v1/chat/completions", data, head)

    def get(self, view: str, path: str) -> Reply:
        return self.gateway.request("GET", path, None, self.headers(view))

    def conversation(self) -> str:
        reply = self.gateway.request("POST", "/v1/conversations", b"{}", self.headers("raw"))
        id: str = reply.json["id"]
        return id


@contextmanager
def with_keys(upstream: Upstream, home: Path, **config: Any) -> Iterator[Keys]:
    url = f"sqlite:///{home / 'store.sqlite'}"
    more = {"storage": {"url": url}, "access": {"keys": True}, **config}
    with serving(configured(upstream, **more)) as gateway:
        tokens = {view: _made(url, "--view", view) for view in ("raw", *LESSER)}
        tokens["uncounted"] = _made(url, "--no-counts", "--view", "hidden")
        yield Keys(gateway, tokens)


def _made(url: str, *options: str) -> str:
    done = CliRunner().invoke(keys, ["create", "--owner", "acme", "--store", url, "--json", *options])
    assert done.exit_code == 0, done.output
    key: str = json.loads(done.stdout)["key"]
    return key
