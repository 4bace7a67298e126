"""Runs that break off: the error has the messages, and the next run with them is a request that every provider accepts.

A fixture of each wire is cut at every read, by a connection that breaks, by a cancellation, or by an early end.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections import Counter
from itertools import pairwise
from typing import Any, Literal, cast, get_args

import pytest

from pellucid import (
    Agent,
    ModelError,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PellucidError,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UsageLimits,
    UserPromptPart,
    capture_run_messages,
    messages_from_json,
)
from pellucid.agent.run_input import unanswered_calls
from pellucid.conversation import without_cut_turn
from pellucid.errors import ErrorInfo
from pellucid.events import Event
from pellucid.models import HTTPModelStream, Model, ModelStream
from pellucid.models.function import AgentInfo, FunctionModel
from pellucid.parts import ModelResponsePart, messages_to_json
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.examples import by_circle
from tests.models.stream_kit import PushedResponse
from tests.waiting import loop_turns
from tools.golden_kit.fixtures import FIXTURES, Script

pytestmark = pytest.mark.anyio

Ending = Literal["broken", "cancelled", "closed"]
ENDINGS: tuple[Ending, ...] = get_args(Ending)
BROKEN = ErrorInfo("unavailable", "the connection to the upstream broke", code="connection")


def look_up(city: str = "") -> str:
    """Look up a city."""
    return "found"


def tool_0(city: str) -> str:
    """Do one thing."""
    return "done"


def tool_1() -> str:
    """Do another thing."""
    return "done"


def f(a: int) -> int:
    """Return a number."""
    return a


AGENT = Agent(tools=[look_up, tool_0, tool_1, f])


def reads_of(script: Script) -> list[bytes]:
    """Split a body into its frames."""
    body = script.body
    if script.content_type.endswith("eventstream"):
        frames = []
        while body:
            length = struct.unpack("!I", body[:4])[0]
            frames.append(body[:length])
            body = body[length:]
        return frames
    end = b"\n" if script.content_type.endswith("ndjson") else b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    return [frame + end for frame in body.split(end) if frame]


def model_of(script: Script) -> Model:
    return Model(script.model, builtin_profiles()[script.provider], base_url="http://127.0.0.1:9", api_key="k")


class CutModel:
    """A model whose first turn is a response that the test pushes. There is no second turn."""

    def __init__(self, script: Script) -> None:
        model = model_of(script)
        self.name, self.origin = model.name, model.origin
        self.response = PushedResponse()
        decoder = WIRES[model.profile.wire].decoder(model.profile, model.origin)
        self._streams = [HTTPModelStream(cast("Any", self.response), decoder)]

    async def open(self, call: ModelCall) -> ModelStream:
        if not self._streams:
            raise ModelError(BROKEN)
        return self._streams.pop()

    def warnings(self, call: ModelCall) -> list[str]:
        return []


async def cut_run(script: Script, reads: list[bytes], ending: Ending) -> list[ModelMessage] | None:
    """Run an agent until its stream ends after these reads; return the messages that it leaves, None if it answers."""
    model = CutModel(script)
    with capture_run_messages() as captured:
        run = asyncio.create_task(AGENT.run("Why?", model=model))
        await loop_turns(3)
        for read in reads:
            model.response.read(read)
        await loop_turns(2)
        if ending == "cancelled":
            run.cancel()
        else:
            model.response.end(BROKEN if ending == "broken" else None)
        await asyncio.wait({run})
    error = asyncio.CancelledError() if run.cancelled() else run.exception()
    if isinstance(error, PellucidError):
        assert error.messages == captured
    assert captured, "the messages of a run are never lost"
    return None if error is None else captured


async def next_messages(messages: list[ModelMessage], prompt: str | None) -> list[ModelMessage]:
    """Return the messages that the model of the next run gets."""
    sent: list[ModelMessage] = []

    async def answer(received: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sent.extend(received)
        return ModelResponse([TextPart("Yes.")])

    await AGENT.run(prompt, model=FunctionModel(answer), message_history=messages)
    return sent


TARGETS: dict[str, Model] = {
    wire: model_of(next(script for script in FIXTURES if builtin_profiles()[script.provider].wire == wire))
    for wire in WIRES
}
"""A model of each wire."""


@pytest.mark.filterwarnings("ignore:the model's answer was cut off")
async def test_the_messages_of_a_cut_stream_can_be_sent_to_every_provider() -> None:
    wires = set()
    with Cases() as case:
        for script in FIXTURES:
            own = model_of(script)
            wires.add(own.profile.wire)
            reads = reads_of(script)
            for count in range(len(reads) + 1):
                for ending in [*ENDINGS[count % 3 :], *ENDINGS][: by_circle(1, 3)]:
                    messages = await cut_run(script, reads[:count], ending)
                    if messages is None:
                        continue
                    with case(f"{script.name} cut after {count} reads, {ending}"):
                        await check_messages(messages, [own] if ending == "closed" else [own, *TARGETS.values()])
    assert wires == set(WIRES)


async def check_messages(messages: list[ModelMessage], targets: list[Model]) -> None:
    assert not [call for call in unanswered_calls(messages).values() if call.complete]
    assert messages_from_json(messages_to_json(messages)) == messages
    for prompt in (None, "Go on."):
        sent = await next_messages(messages, prompt)
        for target in targets:
            check_request(target, sent)


# --- what providers refuse ---------------------------------------------------------------------------------------


def check_request(target: Model, messages: list[ModelMessage]) -> None:
    body = target.request(ModelCall(target.name, messages)).body
    wire = target.profile.wire
    try:
        CHECKS[wire](body)
    except AssertionError as error:
        error.add_note(f"{wire}: {json.dumps(body)}")
        raise


def check_chat(body: dict[str, Any]) -> None:
    """Chat Completions and its relatives: results follow their calls, and nothing is empty."""
    waiting: Counter[str] = Counter()
    for message in body["messages"]:
        if message["role"] == "tool":
            waiting[message.get("tool_call_id", message.get("tool_name"))] -= 1
            continue
        assert not +waiting, f"calls without results: {waiting}"
        assert all(count == 0 for count in waiting.values()), f"results without calls: {waiting}"
        waiting.clear()
        if message["role"] == "assistant":
            calls = message.get("tool_calls", [])
            assert message.get("content") or calls or message.get("reasoning_details"), "an empty message"
            for call in calls:
                arguments = call["function"]["arguments"]
                assert isinstance(json.loads(arguments) if isinstance(arguments, str) else arguments, dict)
                waiting[call.get("id", call["function"]["name"])] += 1
    assert all(count == 0 for count in waiting.values())
    assert body["messages"][-1]["role"] in ("user", "tool")


def check_anthropic(body: dict[str, Any]) -> None:
    check_blocks(
        body["messages"],
        calls=lambda block: block["id"] if block["type"] == "tool_use" else None,
        results=lambda block: block["tool_use_id"] if block["type"] == "tool_result" else None,
        is_thinking=lambda block: block["type"] in ("thinking", "redacted_thinking"),
        is_signed=lambda block: bool(block.get("signature") or block.get("data")),
    )


def check_bedrock(body: dict[str, Any]) -> None:
    def is_signed(block: dict[str, Any]) -> bool:
        content = block["reasoningContent"]
        return bool(content.get("redactedContent") or content["reasoningText"].get("signature"))

    check_blocks(
        body["messages"],
        calls=lambda block: block["toolUse"]["toolUseId"] if "toolUse" in block else None,
        results=lambda block: block["toolResult"]["toolUseId"] if "toolResult" in block else None,
        is_thinking=lambda block: "reasoningContent" in block,
        is_signed=is_signed,
    )


def check_google(body: dict[str, Any]) -> None:
    contents = [{"role": message["role"], "content": message["parts"]} for message in body["contents"]]
    check_blocks(
        contents,
        calls=lambda part: part["functionCall"]["name"] if "functionCall" in part else None,
        results=lambda part: part["functionResponse"]["name"] if "functionResponse" in part else None,
        is_thinking=lambda part: bool(part.get("thought")),
        is_signed=lambda part: True,
        is_google=True,
    )


def check_blocks(
    messages: list[dict[str, Any]],
    *,
    calls: Any,
    results: Any,
    is_thinking: Any,
    is_signed: Any,
    is_google: bool = False,
) -> None:
    """Messages of blocks: results follow their calls; roles alternate and thinking is never last, except at Google."""
    waiting: list[str] = []
    roles = [message["role"] for message in messages]
    assert roles[0] == roles[-1] == "user", roles
    assert is_google or all(a != b for a, b in pairwise(roles)), roles
    for message in messages:
        blocks = message["content"]
        assert blocks, "an empty message"
        assert all(block.get("text") != "" for block in blocks if not is_thinking(block)), "an empty text"
        returned = [id for block in blocks if (id := results(block)) is not None]
        assert sorted(returned) == sorted(waiting)
        waiting = [id for block in blocks if (id := calls(block)) is not None]
        if message["role"] != "user":
            thoughts = [block for block in blocks if is_thinking(block)]
            assert all(map(is_signed, thoughts)), "unsigned thinking"
            assert is_google or not is_thinking(blocks[-1]), "thinking at the end"
    assert not waiting


def check_responses(body: dict[str, Any]) -> None:
    """Responses: calls have outputs, and reasoning is followed by what it led to."""
    items = body["input"]
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert sorted(calls) == sorted(outputs)
    for item, following in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") == "reasoning":
            follower = following.get("role") or following.get("type", "nothing")
            assert follower not in ("user", "nothing", "function_call_output"), f"reasoning before {follower}"
    assert items[-1].get("role") == "user" or items[-1]["type"] == "function_call_output"


CHECKS = {
    "openai_chat": check_chat,
    "mistral": check_chat,
    "cohere": check_chat,
    "ollama": check_chat,
    "anthropic": check_anthropic,
    "bedrock": check_bedrock,
    "google": check_google,
    "openai_responses": check_responses,
}


# --- the rest of the rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error_type", "options"),
    [
        (UsageLimitExceeded, {"usage_limits": UsageLimits(tool_calls_limit=0)}),
        (UsageLimitExceeded, {"usage_limits": UsageLimits(request_limit=1)}),
        (UnexpectedModelBehavior, {"output_type": int}),
    ],
)
async def test_an_error_of_the_agent_has_the_messages(error_type: type[PellucidError], options: dict[str, Any]) -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ThinkingPart("Hm."), ToolCallPart("look_up", {"city": 3}, f"c{len(messages)}")])

    with pytest.raises(error_type) as raised:
        await AGENT.run("Why?", model=FunctionModel(answer), **options)
    messages = raised.value.messages
    assert isinstance(messages[0].parts[0], UserPromptPart)
    assert len(messages) >= 3
    assert isinstance(messages[-1], ModelRequest), "every call has a result"
    assert (await AGENT.run("Well?", model="test", message_history=messages)).output


async def test_the_calls_of_a_turn_that_broke_off_have_results() -> None:
    script = next(script for script in FIXTURES if script.name == "fixture:zai:calls")
    messages = await cut_run(script, reads_of(script)[:5], "broken")
    assert messages is not None
    response, results = messages[-2:]
    assert isinstance(response, ModelResponse)
    calls = [call.tool_call_id for call in response.tool_calls if call.complete]
    answers = [part for part in results.parts if isinstance(part, ToolReturnPart)]
    assert [part.tool_call_id for part in answers] == calls != []
    assert {part.outcome for part in answers} == {"failed"}


def response(*parts: ModelResponsePart, reason: Any = None) -> ModelResponse:
    return ModelResponse([*parts], finish_reason=reason)


async def test_only_a_turn_that_broke_off_is_repeated() -> None:
    prompt = ModelRequest([UserPromptPart("Why?")])
    whole, cut = TextPart("Because."), TextPart("Beca", complete=False)
    call = ToolCallPart("f", "{}", "c1")
    with Cases() as case:
        for last, is_repeated in (
            (response(whole), False),
            (response(whole, reason="stop"), False),
            (response(whole, reason="error"), True),
            (response(cut), True),
            (response(cut, reason="stop"), True),
            (response(cut, reason="length"), True),
            (response(cut, reason="pause"), False),
            (response(ThinkingPart("Hm.")), True),
            (response(ThinkingPart("Hm."), reason="stop"), True),
            (response(ThinkingPart("Hm."), whole), False),
            (response(whole, ThinkingPart("Hm.")), True),
            (response(whole, ThinkingPart("Hm."), reason="stop"), False),
            (response(cut, call), False),
            (response(ToolCallPart("f", "{", "c1", complete=False)), True),
            (response(), True),
        ):
            with case(last):
                assert without_cut_turn([prompt, last]) == ([prompt] if is_repeated else [prompt, last])
    repeated = await AGENT.run(model="test", message_history=[prompt, response(cut)])
    assert [type(message) for message in repeated.all_messages()][:2] == [ModelRequest, ModelResponse]
    assert repeated.all_messages()[0] == prompt
    assert repeated.new_messages() == repeated.all_messages()[1:]


async def test_an_error_of_an_event_handler_has_the_messages() -> None:
    def handler(event: Event) -> None:
        raise ModelError(BROKEN)

    with pytest.raises(ModelError) as raised:
        await AGENT.run("Why?", model="test", event_stream_handler=handler)
    request, _, results = raised.value.messages
    assert isinstance(request.parts[0], UserPromptPart)
    assert all(isinstance(part, ToolReturnPart) for part in results.parts)


async def test_the_error_of_an_inner_run_has_the_messages_of_the_outer_one() -> None:
    async def inner() -> str:
        """Run another agent."""
        return (await AGENT.run("inner", model="test", usage_limits=UsageLimits(request_limit=0))).output

    with pytest.raises(UsageLimitExceeded) as raised:
        await Agent("test", tools=[inner]).run("outer")
    [part] = raised.value.messages[0].parts
    assert isinstance(part, UserPromptPart)
    assert part.content == "outer"
