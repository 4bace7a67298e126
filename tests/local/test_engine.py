"""The real llama.cpp with the tiny model: the form of its output, not its quality."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from pellucid.local.engine import EngineSpec
from pellucid.local.model_index import EngineError, find_model
from pellucid.local.request import adapt_body, explain_error
from pellucid.local.supervisor import Engine
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.anyio

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


@pytest.fixture
async def http(engine: Engine) -> AsyncIterator[aiohttp.ClientSession]:
    # llama.cpp's server closes the connection after a stream without saying so: a pool would reuse a dying one.
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {engine.api_key}"}, connector=aiohttp.TCPConnector(force_close=True)
    ) as session:
        yield session


async def complete(engine: Engine, http: aiohttp.ClientSession, **body: Any) -> tuple[int, dict[str, Any]]:
    sent = adapt_body({"model": "m", "seed": 1, "max_tokens": 120, "temperature": 0.2} | body) | {"stream": False}
    async with http.post(f"{engine.base_url}/chat/completions", json=sent) as reply:
        return reply.status, await reply.json()


async def rendered(engine: Engine, http: aiohttp.ClientSession, **body: Any) -> str:
    url = engine.base_url.replace("/v1", "/apply-template")
    async with http.post(url, json=body) as reply:
        got = await reply.json()
        assert reply.status == 200, got
        prompt: str = got["prompt"]
        return prompt


async def test_reasoning_streams_closes_and_the_answer_follows(engine: Engine, http: aiohttp.ClientSession) -> None:
    body = adapt_body({"messages": user("How are you?"), "stream": True, "max_tokens": 120, "seed": 3})
    kinds: list[str] = []
    text = {"reasoning_content": "", "content": ""}
    finish = None
    async with http.post(f"{engine.base_url}/chat/completions", json=body) as reply:
        assert reply.status == 200
        async for line in reply.content:
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                finish = choice["finish_reason"] or finish
                for kind in text:
                    if piece := choice["delta"].get(kind):
                        text[kind] += piece
                        kinds.append(kind)
    turns = [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]
    assert turns == ["reasoning_content", "content"]
    assert finish in ("stop", "length")
    assert all(piece.strip() and "think>" not in piece for piece in text.values())


async def test_the_form_holds_at_any_temperature(engine: Engine, http: aiohttp.ClientSession) -> None:
    for seed in range(4):
        _, got = await complete(
            engine, http, messages=user("Write <b>HTML</b>"), temperature=1.8, seed=seed, max_tokens=100
        )
        message = got["choices"][0]["message"]
        *lines, last = message["reasoning_content"].strip().splitlines()
        assert re.search(r"""[^ .,:;!?*][.!?。！？؟।…]( ?[)"'”’»」\]]{1,2})?$""", last), "it ends with a sentence"
        assert not re.match(r"[-*+•#>|]|\d+[.)] ", last) or last.startswith("**") or re.match(r"-\d", last)
        assert not any(line.startswith("```") for line in lines), "it has no code fence"
        assert message["content"].strip()
        assert "<think" not in message["content"]
        assert "</think" not in message["content"]


async def test_the_grammar_leaves_room_for_markup_and_comparisons(engine: Engine, http: aiohttp.ClientSession) -> None:
    """The rules of the grammar, in cases that the tiny model would not produce without them."""
    grammar = adapt_body({"messages": []})["grammar"]
    # Each literal is a shorter language than the rule it replaces; ``check`` fails to parse if a rule is missing.
    for must in ('"so a < b, a <= b and a << b\\n"', '"a </div> and a </table> and a </th>\\n"'):
        own = grammar.replace('line{0,7} last "</think>', f'{must} "</think>') + "\n"
        _, got = await complete(engine, http, messages=user("x"), grammar=own, max_tokens=60)
        assert got["choices"][0]["message"]["reasoning_content"] == json.loads(must)


async def test_without_thinking_the_prompt_does_not_mention_it(engine: Engine, http: aiohttp.ClientSession) -> None:
    prompt = await rendered(engine, http, messages=user("Hi"), chat_template_kwargs={"enable_thinking": False})
    assert prompt == (
        "<|im_start|>system\nYou are a careful, helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    _, got = await complete(engine, http, messages=user("Hi"), reasoning_effort="none")
    message = got["choices"][0]["message"]
    assert message["content"].strip()
    assert not message.get("reasoning_content")


async def test_any_history_is_rendered(engine: Engine, http: aiohttp.ClientSession) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    prompt = await rendered(
        engine,
        http,
        tools=[WEATHER],
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": [{"type": "text", "text": "One, "}, {"type": "text", "text": "two."}]},
            {"role": "assistant", "content": None},
            {"role": "system", "content": "Now in French."},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "reasoning_content": "Ask.\n", "tool_calls": [call, call]},
            {"role": "tool", "tool_call_id": "a", "content": "rain"},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "sun"}]},
        ],
    )
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\nBe kind.")
    assert '<tools>\n{"type": "function", "function": {"name": "get_weather"' in prompt
    answer = '<function_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</function_call>'
    assert prompt.endswith(
        "<|im_start|>user\nOne, two.<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
        "<|im_start|>system\nNow in French.<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n"
        f"<|im_start|>assistant\n<think>\nAsk.\n</think>\n\n{answer}\n{answer}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nrain\n</tool_response>\n<tool_response>\nsun\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )


async def test_llama_cpp_learns_the_form_of_calls_from_the_template(
    engine: Engine, http: aiohttp.ClientSession
) -> None:
    """That calls come out as calls is measured with the default model (docs/embedded-model.md): this one makes none."""
    async with http.get(engine.base_url.replace("/v1", "/props")) as reply:
        caps = (await reply.json())["chat_template_caps"]
    assert caps["supports_tools"]
    assert caps["supports_tool_calls"]
    status, got = await complete(
        engine, http, messages=user("What is the weather in Paris?"), tools=[WEATHER], reasoning_effort="none"
    )
    assert status == 200, got


async def test_an_output_format_works_while_thinking(engine: Engine, http: aiohttp.ClientSession) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    _, got = await complete(engine, http, messages=user("2+2?"), response_format=shape, reasoning_effort="none")
    assert isinstance(json.loads(got["choices"][0]["message"]["content"])["n"], int)


async def test_the_error_for_a_conversation_that_is_too_long(engine: Engine, http: aiohttp.ClientSession) -> None:
    status, got = await complete(engine, http, messages=user("word " * 9000))
    assert explain_error(status, got).code == "context_length_exceeded"


async def test_requests_without_the_key_are_rejected(engine: Engine) -> None:
    async with (
        aiohttp.ClientSession() as stranger,
        stranger.post(f"{engine.base_url}/chat/completions", json={"messages": user("Hi")}) as reply,
    ):
        assert reply.status == 401


async def busy(engine: Engine, http: aiohttp.ClientSession) -> bool:
    async with http.get(engine.base_url.replace("/v1", "/slots")) as reply:
        return any(slot["is_processing"] for slot in await reply.json())


async def deferred_requests(engine: Engine, http: aiohttp.ClientSession) -> int:
    """How many requests llama.cpp itself holds back."""
    async with http.get(engine.base_url.removesuffix("/v1") + "/metrics") as reply:
        match = re.search(rb"^llamacpp:requests_deferred (\d+)", await reply.read(), re.MULTILINE)
    assert match is not None
    return int(match[1])


async def test_generation_stops_at_a_disconnect_and_waiting_requests_are_counted(
    engine: Engine, http: aiohttp.ClientSession
) -> None:
    async def endless() -> None:
        body = adapt_body({"messages": user("Tell a story"), "reasoning_effort": "none", "ignore_eos": True})
        async with http.post(f"{engine.base_url}/chat/completions", json=body) as reply:
            await reply.read()

    tasks = [asyncio.create_task(endless()) for _ in range(3)]
    async with asyncio.timeout(LIMIT_SECONDS):
        while await deferred_requests(engine, http) != 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert await busy(engine, http)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(LIMIT_SECONDS):  # the story would take longer
        while await busy(engine, http):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert await deferred_requests(engine, http) == 0


async def test_the_log_contains_no_content(engine: Engine, http: aiohttp.ClientSession) -> None:
    await complete(engine, http, messages=user("xyzzy-marker"), reasoning_effort="none", max_tokens=5)
    log = engine.log.read_text()
    assert "model loaded" in log
    assert "xyzzy" not in log
    assert engine.api_key not in log


@pytest.mark.needs("engine")
async def test_the_error_for_a_file_that_is_not_a_model(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF, but not really")
    async with Engine(find_model("smollm2-135m"), path, log=tmp_path / "log") as engine:
        with pytest.raises(EngineError, match=r"could not load .*m\.gguf") as caught:
            await engine.wait_ready(LIMIT_SECONDS)
        assert caught.value.info.code == "bad_model"
        assert caught.value.info.upstream_message
        assert caught.value.info.upstream_message not in caught.value.info.message


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    """A file that looks like weights until it is loaded."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF, but not really")
    return path


async def test_too_little_memory_is_an_error_before_loading(small_file: Path, tmp_path: Path) -> None:
    model = msgspec.structs.replace(find_model("smollm2-135m"), memory=10**15)
    async with Engine(model, small_file, log=tmp_path / "log") as engine:
        with pytest.raises(EngineError, match=r"needs about 1000000\.0 GB"):
            await engine.wait_ready(LIMIT_SECONDS)


async def test_the_error_for_a_missing_engine_names_the_fix(small_file: Path, tmp_path: Path) -> None:
    run = "import sys; sys.modules['xllamacpp'] = None; from pellucid.local.engine import main; main()"
    model = find_model("smollm2-135m")
    async with Engine(model, small_file, log=tmp_path / "log", command=[sys.executable, "-c", run]) as engine:
        with pytest.raises(EngineError, match=r"pip install 'pellucid\[local\]'") as caught:
            await engine.wait_ready(LIMIT_SECONDS)
        assert caught.value.info.code == "not_installed"


@pytest.mark.parametrize("when", ["loading", "serving"])
def test_the_engine_ends_with_its_parent(tiny_weights: Path, tmp_path: Path, when: str) -> None:
    """The parent is killed and cannot stop the child."""
    spec = EngineSpec(str(tiny_weights), "m", "key", 512, 1, log=str(tmp_path / "log"))
    line = msgspec.json.encode(spec) + b"\n"
    script = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "pellucid.local.engine"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdin.write({line!r}); child.stdin.flush()
{"child.stdout.readline()" if when == "serving" else "time.sleep(0.3)"}
print(child.pid, flush=True); time.sleep(3600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        parent.kill()
    try:
        wait_until(lambda: not alive(pid), "the engine has ended")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
