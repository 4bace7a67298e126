"""Our model under a real Pydantic AI agent, against a server whose bytes the tests script."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import BaseModel
from pydantic_ai import Agent, AgentRunResultEvent, NativeOutput
from pydantic_ai import messages as theirs
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models import ModelRequestParameters

from pellucid import parts as ours
from pellucid.emit import response_events
from pellucid.errors import IllegalEvent
from pellucid.fold import fold
from pellucid.interop.pydantic_ai import PellucidModel
from pellucid.interop.pydantic_ai.messages import read_message
from pellucid.models import Model
from pellucid.providers.profiles import builtin_profiles
from pellucid.upstream import Limits, UpstreamClient
from tests.interop.histories import OUR_RESPONSE_PARTS
from tests.scripted import Call, Upstream, delta, say
from tests.scripted_runs import ScriptedModel
from tests.waiting import eventually, loop_turns

USAGE = {"prompt_tokens": 7, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}}


@asynccontextmanager
async def model_at(upstream: Upstream, name: str, profile: str = "deepseek") -> AsyncIterator[PellucidModel]:
    door = UpstreamClient(Limits(retries=0))
    base = upstream.url if profile != "anthropic" else upstream.url.removesuffix("/v1")
    try:
        yield PellucidModel(Model(name, builtin_profiles()[profile], door, base_url=base, api_key="k"))
    finally:
        await door.aclose()


def calls(name: str, args: str, reasoning: str = "I should look. ") -> Any:
    """A script that thinks, and then calls a function."""

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content=reasoning))
        function = {"name": name, "arguments": ""}
        await call.event(delta(tool_calls=[{"index": 0, "id": "call_7", "type": "function", "function": function}]))
        for piece in (args[:3], args[3:]):
            await call.event(delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]))
        await call.event(delta("tool_calls"))
        await call.event({"choices": [], "usage": USAGE})
        await call.event(b"[DONE]")
        await call.end()

    return script


# --- the agent's four ways ---------------------------------------------------------------------------------------


def test_an_agent_runs_with_our_model(upstream: Upstream) -> None:
    name = upstream.plays(say("Let me see. ", "42.", USAGE))

    async def ask() -> Any:
        async with model_at(upstream, name) as model:
            return await Agent(model, instructions="Be brief.").run("Why?", model_settings={"temperature": 0.5})

    result = asyncio.run(ask())
    assert result.output == "42. "
    response = result.response
    assert [part.part_kind for part in response.parts] == ["thinking", "text"]
    assert response.parts[0].content == "Let me see.  "
    assert (response.usage.input_tokens, response.usage.output_tokens) == (7, 9)
    assert result.usage.output_reasoning_tokens == 4
    assert (response.finish_reason, response.provider_response_id) == ("stop", "chatcmpl-1")
    assert (response.model_name, response.provider_name, response.state) == ("m", "deepseek", "complete")
    [call] = upstream.calls(name)
    assert call.body["temperature"] == 0.5
    assert [message["role"] for message in call.body["messages"]] == ["system", "user"]
    assert call.body["messages"][0]["content"] == "Be brief."


def test_deltas_are_streamed_live(upstream: Upstream) -> None:
    """The agent's user gets a delta before the upstream writes the next one."""
    on = threading.Event()

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm. "))
        await call.event(delta(content="One "))
        await eventually(on.is_set, "the first delta is with the agent's user")
        await call.event(delta(content="two."))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    name = upstream.plays(script)

    async def ask() -> list[str]:
        seen = []
        async with model_at(upstream, name) as model, Agent(model).run_stream("Why?") as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                seen.append(text)
                on.set()
        return seen

    assert asyncio.run(ask()) == ["One ", "two."]


def test_events_of_run_stream_events_and_iter(upstream: Upstream) -> None:
    name = upstream.plays(say("Let me see. ", "It is 42."))

    async def ask() -> tuple[list[Any], list[str]]:
        async with model_at(upstream, name) as model:
            agent = Agent(model)
            async with agent.run_stream_events("Why?") as stream:
                events = [event async for event in stream]
            async with agent.iter("Why?") as run:
                nodes = [type(node).__name__ async for node in run]
        return events, nodes

    events, nodes = asyncio.run(ask())
    deltas = [event.delta for event in events if isinstance(event, theirs.PartDeltaEvent)]
    starts = [event.part for event in events if isinstance(event, theirs.PartStartEvent)]
    thinking, answer = starts
    assert isinstance(thinking, theirs.ThinkingPart)
    assert isinstance(answer, theirs.TextPart)
    more = "".join(delta.content_delta or "" for delta in deltas if isinstance(delta, theirs.ThinkingPartDelta))
    thought = thinking.content + more
    text = answer.content + "".join(d.content_delta for d in deltas if isinstance(d, theirs.TextPartDelta))
    assert (thought, text) == ("Let me see.  ", "It is 42. ")
    # Each of our deltas is one of theirs: four of the thought and three of the text; the first of each starts its part.
    assert len(deltas) == 3 + 2
    assert nodes == ["UserPromptNode", "ModelRequestNode", "CallToolsNode", "End"]


# --- tools -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_loop_returns_the_thought(upstream: Upstream, streamed: bool) -> None:
    name = upstream.plays(calls("weather", '{"city": "Oslo"}'), say("Cold. ", "Snow."))

    async def ask() -> list[Any]:
        async with model_at(upstream, name) as model:
            agent = Agent(model)

            @agent.tool_plain
            def weather(city: str) -> dict[str, Any]:
                return {"in": city, "is": "snow"}

            if not streamed:
                return (await agent.run("And?")).all_messages()
            async with agent.run_stream_events("And?") as stream:
                last = [event async for event in stream][-1]
            assert isinstance(last, AgentRunResultEvent)
            return last.result.all_messages()

    messages = asyncio.run(ask())
    assert [message.kind for message in messages] == ["request", "response", "request", "response"]
    first, second = upstream.calls(name)
    [tool] = first.body["tools"]
    assert tool["function"]["name"] == "weather"
    _, assistant, result = second.body["messages"]
    assert assistant["reasoning_content"] == "I should look. "
    [call] = assistant["tool_calls"]
    assert (call["id"], json.loads(call["function"]["arguments"])) == ("call_7", {"city": "Oslo"})
    assert (result["tool_call_id"], json.loads(result["content"])) == ("call_7", {"in": "Oslo", "is": "snow"})


def _streamed(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Split a block into its empty start and the deltas that fill it."""
    match block["type"]:
        case "thinking":
            text = {"type": "thinking_delta", "thinking": block["thinking"]}
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {"thinking": "", "signature": ""}, [text, signature]
        case "text":
            return {"text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "tool_use":
            return {"input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        case _:
            return {}, []


def signed(*blocks: dict[str, Any], stop: str) -> Any:
    """Return a script that plays Anthropic's server with these blocks."""

    async def script(call: Call) -> None:
        async def event(value: dict[str, Any]) -> None:
            await call.data(f"event: {value['type']}\n".encode() + b"data: " + json.dumps(value).encode() + b"\n\n")

        await call.head()
        usage = {"input_tokens": 5, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": []}
        await event({"type": "message_start", "message": {**message, "usage": usage}})
        for index, block in enumerate(blocks):
            empty, pieces = _streamed(block)
            await event({"type": "content_block_start", "index": index, "content_block": block | empty})
            for piece in pieces:
                await event({"type": "content_block_delta", "index": index, "delta": piece})
            await event({"type": "content_block_stop", "index": index})
        await event({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 8}})
        await event({"type": "message_stop"})
        await call.end()

    return script


@pytest.mark.parametrize("stored", [False, True])
def test_signatures_are_returned_byte_for_byte(upstream: Upstream, stored: bool) -> None:
    """This holds in the agent's loop, and after a store of Pydantic AI's own JSON between two runs."""
    blocks = (
        {"type": "thinking", "thinking": "I should look.", "signature": "EqQBCg=="},
        {"type": "redacted_thinking", "data": "blob+/="},
        {"type": "text", "text": "One moment."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
    )
    done = {"type": "text", "text": "Snow."}
    name = upstream.plays(signed(*blocks, stop="tool_use"), signed(done, stop="end_turn"))

    async def ask() -> None:
        async with model_at(upstream, name, "anthropic") as model:
            agent = Agent(model, model_settings={"max_tokens": 2000, "thinking": True})

            @agent.tool_plain
            def weather(city: str) -> str:
                return "snow"

            result = await agent.run("And?")
            thought = result.all_messages()[1].parts[0]
            assert isinstance(thought, theirs.ThinkingPart)
            assert (thought.content, thought.signature) == ("I should look.", "EqQBCg==")
            assert thought.provider_name == "anthropic"
            history = result.all_messages()
            if stored:
                history = theirs.ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
            await agent.run("Sure?", message_history=history)

    asyncio.run(ask())
    for call in upstream.calls(name)[1:]:
        assistant = next(message for message in call.body["messages"] if message["role"] == "assistant")
        assert tuple(_bare(block) for block in assistant["content"]) == blocks
    assert upstream.calls(name)[0].body["thinking"]["type"] in ("enabled", "adaptive")


def _bare(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


class City(BaseModel):
    city: str


def test_structured_output(upstream: Upstream) -> None:
    by_tool = upstream.plays(calls("final_result", '{"city": "Oslo"}'))
    by_form = upstream.plays(say("", '{"city":"Oslo"}'))

    async def ask() -> list[City]:
        async with model_at(upstream, by_tool) as model, model_at(upstream, by_form, "vllm") as native:
            first = await Agent(model, output_type=City).run("Where?")
            second = await Agent(native, output_type=NativeOutput(City)).run("Where?")
            return [first.output, second.output]

    assert asyncio.run(ask()) == [City(city="Oslo")] * 2
    [call] = upstream.calls(by_tool)
    assert "tool_choice" not in call.body  # DeepSeek refuses a forced call while it thinks
    [call] = upstream.calls(by_form)
    assert call.body["response_format"]["json_schema"]["schema"]["properties"]["city"]["type"] == "string"


# --- failures ----------------------------------------------------------------------------------------------------


def test_an_error_status_and_an_error_in_the_stream(upstream: Upstream) -> None:
    async def refuses(call: Call) -> None:
        await call.answer(429, b'{"error": {"message": "slow down", "code": "rate_limit"}}', Retry_After="3")

    async def breaks(call: Call) -> None:
        await call.head()
        await call.event(delta(content="One "))
        await call.event({"error": {"message": "out of memory"}})
        await call.end()

    refusing, breaking = upstream.plays(refuses), upstream.plays(breaks)

    async def ask() -> tuple[ModelHTTPError, ModelAPIError]:
        async with model_at(upstream, refusing) as first, model_at(upstream, breaking) as second:
            with pytest.raises(ModelHTTPError) as refused:
                await Agent(first).run("Why?")
            with pytest.raises(ModelAPIError) as broken:
                await Agent(second).run("Why?")
        return refused.value, broken.value

    refused, broken = asyncio.run(ask())
    assert (refused.status_code, refused.retry_after) == (429, 3.0)
    assert "out of memory" in str(broken)
    assert broken.in_stream


@pytest.mark.parametrize("while_waiting", [False, True])
def test_cancellation_closes_the_upstream(upstream: Upstream, while_waiting: bool) -> None:
    left = threading.Event()

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(content="One "))
        await call.wait_for_disconnect()
        left.set()

    name = upstream.plays(script)

    async def ask() -> None:
        async with model_at(upstream, name) as model:
            agent = Agent(model)
            async with agent.run_stream("Why?") as result, asyncio.TaskGroup() as tasks:

                async def cancel_while_waiting() -> None:
                    await loop_turns(50)
                    await result.cancel()

                async for _ in result.stream_text(delta=True, debounce_by=None):
                    if not while_waiting:
                        break
                    tasks.create_task(cancel_while_waiting())
                await result.cancel()
                assert result.response.state == "interrupted"
            await eventually(left.is_set, "the upstream stops working")

    asyncio.run(ask())


# --- any turn ----------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(*OUR_RESPONSE_PARTS.values()), max_size=4))
def test_every_response_is_returned_to_the_model(parts: list[Any]) -> None:
    """Compare our response with the one that Pydantic AI stores and returns in the next request."""
    origin = ours.Origin("p", "a", "m")
    # An item's id belongs to one item, and a call without an id or with arguments as an object becomes text.
    plain = [replace(part, item_id=None) for part in parts]
    events = response_events(ours.ModelResponse(plain, origin=origin, usage=ours.Usage(1, 2, 1), finish_reason="stop"))
    try:
        folded = fold(list(events)).response
    except IllegalEvent:
        return
    assert folded is not None
    model = PellucidModel(ScriptedModel([[event] for event in events], origin=origin))
    request: list[theirs.ModelMessage] = [theirs.ModelRequest([theirs.UserPromptPart("?")])]
    there = asyncio.run(model.request(request, None, ModelRequestParameters()))
    adapter = theirs.ModelMessagesTypeAdapter
    [again] = adapter.validate_json(adapter.dump_json([there]))
    for read in (read_message(there), read_message(again)):
        assert isinstance(read, ours.ModelResponse)
        assert [_comparable(part) for part in read.parts] == [_comparable(part) for part in folded.parts]
        assert replace(read, parts=[], timestamp=None) == replace(folded, parts=[], model_name="m")


def _comparable(part: Any) -> Any:
    if isinstance(part, ours.ToolCallPart | ours.BuiltinToolCallPart):
        args = part.args_as_json() if part.args not in (None, "") else ""
        return replace(part, args=args, tool_call_id=part.tool_call_id if len(part.tool_call_id) < 9 else "")
    return part
