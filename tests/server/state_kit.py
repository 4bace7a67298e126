"""Helpers for tests of stored state: a gateway on a file, keys of several owners, and models that call functions."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pellucid.server.access.keys import KeyHasher, ensure_pepper, new_key
from pellucid.server.access.policy import Policy, write_policy
from pellucid.storage import StoredKey, open_store
from tests.scripted import Call, Script, Upstream, delta
from tests.scripted.gateway import Gateway, Reply, Served, serve
from tests.waiting import wait_until


def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} is a word"


def fail(word: str) -> str:
    """Fail."""
    raise RuntimeError(word)


CLIENT_FUNCTION = {"type": "function", "name": "ask_user", "parameters": {"type": "object", "properties": {}}}
"""A function that the client executes."""


def calls(*names: str, reasoning: str = "I need help.", arguments: str = '{"word":"moss"}', text: str = "") -> Script:
    """Script a turn that calls these functions, in this order."""

    async def script(call: Call) -> None:
        await call.head()
        if reasoning:
            await call.event(delta(reasoning_content=reasoning))
        if text:
            await call.event(delta(content=text))
        turn = len(call.body["messages"])
        for index, name in enumerate(names):
            function = {"name": name, "arguments": arguments}
            entry = {"index": index, "id": f"call_{turn}_{index}", "type": "function", "function": function}
            await call.event(delta(tool_calls=[entry]))
        await call.event(delta("tool_calls"))
        await call.event(b"[DONE]")
        await call.end()

    return script


async def breaks(call: Call) -> None:
    """Script a turn that fails after reasoning and some text."""
    await call.head()
    await call.event(delta(reasoning_content="Hm."))
    await call.event(delta(content="It is"))
    await call.event({"error": {"message": "out of memory"}})
    await call.wait_for_disconnect()


async def hangs(call: Call) -> None:
    """Script a turn that never ends after its reasoning."""
    await call.head()
    await call.event(delta(reasoning_content="Hm."))
    await call.wait_for_disconnect()


def config_of(upstream: Upstream, **sections: Any) -> dict[str, Any]:
    """Configure `vllm`, which always receives reasoning again, and `deepseek`, which does as its profile demands."""
    base: dict[str, Any] = {
        "limits": {"retries": 0},
        "providers": {
            "vllm": {"profile": "vllm", "base_url": upstream.url},
            "deepseek": {"profile": "deepseek", "base_url": upstream.url},
        },
    }
    return {**base, **sections}


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def make_keys(url: str, owners: dict[str, Policy | None]) -> dict[str, str]:
    """Create a key for each name; the owner is the part of the name before `/`."""

    async def make() -> dict[str, str]:
        store = await open_store(url)
        made = {}
        for name, policy in owners.items():
            key = new_key()
            row = StoredKey(
                id=key.id,
                hash=KeyHasher(ensure_pepper(None, os.environ)).digest(key.text),
                owner=name.partition("/")[0],
                name=name,
                created_at=time.time(),
                policy=write_policy(policy or Policy()),
            )
            await store.keys.add(row)
            made[name] = key.text
        await store.aclose()
        return made

    return asyncio.run(make())


class Caller:
    """A client with one key, or without a key from the local machine."""

    def __init__(self, gateway: Gateway, key: str | None = None) -> None:
        self.gateway = gateway
        self.headers = {"Authorization": f"Bearer {key}"} if key is not None else {}

    def do(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        data = None if body is None else json.dumps(body).encode()
        return self.gateway.request(method, path, data, {"Content-Type": "application/json", **self.headers, **headers})

    def say(self, model: str, input: Any = "Why?", **more: Any) -> Reply:
        named = model if ":" in model else f"vllm:{model}"
        return self.do("POST", "/v1/responses", {"model": named, "input": input, **more})

    def create_response(self, model: str, input: Any = "Why?", **more: Any) -> Any:
        reply = self.say(model, input, **more)
        assert reply.status == 200, reply.body
        return reply.json

    def get_response(self, id: str) -> Any:
        reply = self.do("GET", f"/v1/responses/{id}")
        assert reply.status == 200, reply.body
        return reply.json

    def wait_for_response(self, id: str) -> Any:
        """Poll until this response exists."""
        wait_until(lambda: self.do("GET", f"/v1/responses/{id}").status != 404, f"{id} is there")
        return self.get_response(id)

    def wait_for_store(self, id: str) -> None:
        """Poll until the store is available."""
        wait_until(lambda: self.do("GET", f"/v1/responses/{id}").status != 503, "the store answers")

    def conversation(self, *items: Any, **more: Any) -> str:
        reply = self.do("POST", "/v1/conversations", {"items": list(items), **more})
        assert reply.status == 200, reply.body
        id = reply.json["id"]
        assert isinstance(id, str)
        return id

    def items(self, conversation: str, **query: Any) -> Any:
        query_string = "&".join(f"{name}={value}" for name, value in {"order": "asc", "limit": 100, **query}.items())
        reply = self.do("GET", f"/v1/conversations/{conversation}/items?{query_string}")
        assert reply.status == 200, reply.body
        return reply.json

    def until(self, id: str, *wanted: str) -> Any:
        """Poll until the response has one of these statuses."""
        wait_until(lambda: self.get_response(id)["status"] in wanted, f"{id} is {' or '.join(wanted)}")
        return self.get_response(id)


@contextmanager
def serving(upstream: Upstream, url: str | None = None, **sections: Any) -> Iterator[Served]:
    """Run a gateway whose store is at `url`."""
    storage = {**sections.pop("storage", {}), **({"url": url} if url is not None else {})}
    with serve(config_of(upstream, storage=storage, **sections)) as running:
        yield running


def upstream_saw(upstream: Upstream, model: str) -> list[dict[str, Any]]:
    """Return the messages of the last request to the model."""
    messages = upstream.calls(model)[-1].body["messages"]
    assert isinstance(messages, list)
    return messages


def brief(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Summarize messages as (role, content): results with their call id, calls by name."""
    out: list[tuple[str, Any]] = []
    for message in messages:
        if message["role"] == "assistant":
            names = [call["function"]["name"] for call in message.get("tool_calls") or []]
            thought = message.get("reasoning_content") or message.get("reasoning")
            out.append(("assistant", (thought, message.get("content"), *names)))
        elif message["role"] == "tool":
            out.append(("tool", (message["tool_call_id"], message["content"])))
        else:
            content = message["content"]
            text = content if isinstance(content, str) else "\n".join(part["text"] for part in content)
            out.append((message["role"], text))
    return out


def message(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def call_ids(response: Any) -> list[str]:
    return [item["call_id"] for item in response["output"] if item["type"] == "function_call"]


def types(response: Any) -> list[str]:
    return [item["type"] for item in response["output"]]
