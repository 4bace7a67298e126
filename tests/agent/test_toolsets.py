"""Toolsets of agents: what tools a run has at each step, how they are described, and how they are called.

The cases are those of Pydantic AI's pages on tools and toolsets, in words of our own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pellucid import (
    AbstractToolset,
    Audio,
    AudioUrl,
    BinaryContent,
    CombinedToolset,
    DeferredToolRequests,
    DeferredToolResults,
    DocumentUrl,
    ExternalToolset,
    File,
    FunctionToolset,
    Image,
    ImageUrl,
    MCPServerStdio,
    ModelRetry,
    RequestError,
    RetryPromptPart,
    RunContext,
    RunUsage,
    Tool,
    ToolDefinition,
    ToolReturnPart,
    ToolsetTool,
    UsageLimitExceeded,
    UsageLimits,
    Video,
    VideoUrl,
    WrapperToolset,
)
from pellucid.agent import RunInput
from pellucid.background_tasks import wait_for_tasks
from pellucid.parts import UserContent
from tests.agent.agent_kit import MakeAgent, calls, offered, results_in
from tests.scripted import Call, say
from tests.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

SMALL_PEER = str(Path(__file__).parents[1] / "tools" / "small_peer.py")


def celsius(city: str) -> float:
    """Temperature in Celsius."""
    return 21.0


def fahrenheit(city: str) -> float:
    """Temperature in Fahrenheit."""
    return 69.8


def now() -> str:
    return "noon"


def system_text(call: Call) -> str:
    """Return all text of a request whose role is system."""
    return "\n".join(str(m["content"]) for m in call.body["messages"] if m["role"] == "system")


@dataclass
class Active:
    toolset: AbstractToolset


WEATHER = FunctionToolset([celsius, fahrenheit])
CLOCK = FunctionToolset([now])
BOTH = CombinedToolset([WEATHER.prefixed("weather"), CLOCK.prefixed("clock")])

NAMES: dict[str, tuple[AbstractToolset, list[str]]] = {
    "functions": (WEATHER, ["celsius", "fahrenheit"]),
    "combined": (CombinedToolset([WEATHER, CLOCK]), ["celsius", "fahrenheit", "now"]),
    "prefixed": (BOTH, ["weather_celsius", "weather_fahrenheit", "clock_now"]),
    "filtered": (BOTH.filtered(lambda ctx, tool: "celsius" not in tool.name), ["weather_fahrenheit", "clock_now"]),
    "filtered by dependencies": (WEATHER.filtered(lambda ctx, tool: tool.name == ctx.deps), ["celsius"]),
    "renamed": (BOTH.renamed({"time": "clock_now"}), ["weather_celsius", "weather_fahrenheit", "time"]),
    "renamed, then filtered": (BOTH.renamed({"time": "clock_now"}).filtered(lambda _, t: t.name == "time"), ["time"]),
    "none": (WEATHER.prepared(lambda ctx, tools: None), []),
}


@pytest.mark.parametrize("case", NAMES)
async def test_a_toolset_decides_which_tools_the_model_has(make_agent: MakeAgent, case: str) -> None:
    toolset, names = NAMES[case]
    agent, get_calls = make_agent(say(), toolsets=[toolset])
    await agent.run("Which tools are there?", deps="celsius")
    assert offered(get_calls()[0]) == names


async def test_tools_of_the_agent_the_toolsets_and_the_run_are_all_there(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(say(), say(), tools=[now], toolsets=[WEATHER])
    await agent.run("?", toolsets=[FunctionToolset([lambda: 1], id="run").renamed({"one": "<lambda>"})])
    await agent.run("?")
    own = ["now", "celsius", "fahrenheit"]
    assert [offered(call) for call in get_calls()] == [[*own, "one"], own]


async def test_a_call_reaches_the_function_under_its_own_name(make_agent: MakeAgent) -> None:
    seen: list[tuple[str | None, int, str]] = []
    toolset = FunctionToolset(max_retries=4)

    @toolset.tool
    def find(ctx, name):  # type: ignore[no-untyped-def]
        seen.append((ctx.tool_name, ctx.max_retries, name))
        return name.upper()

    wrapped = toolset.prefixed("people").renamed({"look_up": "people_find"}).filtered(lambda ctx, tool: True)
    agent, get_calls = make_agent(calls(("look_up", {"name": "ada"})), say(), toolsets=[wrapped])
    await agent.run("Who is Ada?")
    assert seen == [("find", 4, "ada")]
    assert get_calls()[1].body["messages"][-1]["content"] == "ADA"


async def test_a_toolset_of_ones_own_changes_the_call(make_agent: MakeAgent) -> None:
    log: list[str] = []

    class Logging(WrapperToolset):
        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext, tool: ToolsetTool) -> Any:  # type: ignore[type-arg, override]
            log.append(f"{name}{tool_args}")
            result = await super().call_tool(name, tool_args | {"city": "Paris"}, ctx, tool)
            log.append(f"{result!r} of {tool.tool_def.name}")
            return result

    def where(city: str) -> str:
        return city

    toolset = Logging(FunctionToolset([where]).filtered(lambda ctx, tool: True))
    agent, _ = make_agent(calls(("where", {"city": "Lyon"})), say(), toolsets=[toolset])
    await agent.run("?")
    assert log == ["where{'city': 'Lyon'}", "'Paris' of where"]


async def test_names_that_collide_are_an_error_that_says_what_to_do(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(say(), tools=[celsius], toolsets=[WEATHER])
    with pytest.raises(RequestError, match=r"two tools with the name 'celsius'.*prefix"):
        await agent.run("?")
    agent, _ = make_agent(say(), output_type=int, toolsets=[FunctionToolset([Tool(now, name="final_result")])])
    with pytest.raises(RequestError, match="name of the output"):
        await agent.run("?")
    agent, _ = make_agent(say(), toolsets=[WEATHER.prepared(lambda ctx, tools: [replace(tools[0], name="new")])])
    with pytest.raises(RequestError, match=r"'new', which was not there"):
        await agent.run("?")


# --- definitions for one step ------------------------------------------------------------------------------------


async def test_a_tool_is_prepared_for_each_step(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(calls(("greet", {"name": "you"})), say(), say())

    async def prepare(ctx: RunContext[str], tool_def: ToolDefinition) -> ToolDefinition | None:
        if ctx.deps == "nobody" or ctx.run_step > 1:
            return None
        tool_def.parameters_json_schema["properties"]["name"]["description"] = f"Name of the {ctx.deps}."
        return tool_def

    @agent.tool_plain(prepare=prepare)
    def greet(name: str) -> str:
        return f"hello {name}"

    await agent.run("?", deps="human")
    await agent.run("?", deps="nobody")
    assert [offered(call) for call in get_calls()] == [["greet"], [], []]
    schema = get_calls()[0].body["tools"][0]["function"]["parameters"]
    assert schema["properties"]["name"]["description"] == "Name of the human."
    [tool] = agent.toolsets[0].tools.values()  # type: ignore[attr-defined]
    assert "description" not in tool.definition.parameters_json_schema["properties"]["name"]


async def test_all_tools_are_prepared_together(make_agent: MakeAgent) -> None:
    def only_strict(ctx: RunContext[bool], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        return [replace(tool, strict=True) for tool in tool_defs if ctx.deps or tool.name != "now"]

    options = {"tools": [now], "toolsets": [WEATHER], "prepare_tools": only_strict, "output_type": [str, int]}
    agent, get_calls = make_agent(say(), say(), **options)
    await agent.run("?", deps=True)
    await agent.run("?", deps=False)
    assert [offered(call) for call in get_calls()] == [
        ["now", "celsius", "fahrenheit", "final_result"],
        ["celsius", "fahrenheit", "final_result"],
    ]
    strict = [tool["function"].get("strict") for tool in get_calls()[0].body["tools"]]
    assert strict == [True, True, True, None]


async def test_a_function_builds_the_toolset_of_each_step(make_agent: MakeAgent) -> None:
    entered: list[str] = []

    class Watched(WrapperToolset):
        async def __aenter__(self) -> Watched:
            entered.append("in")
            return self

        async def __aexit__(self, *error: object) -> None:
            entered.append("out")

    agent, get_calls = make_agent(calls(("toggle", {})), say())

    @agent.toolset
    def active(ctx: RunContext[Active]) -> AbstractToolset:
        return ctx.deps.toolset

    @agent.toolset(per_run_step=False)
    async def first(ctx):  # type: ignore[no-untyped-def]
        return ctx.deps.toolset.prefixed("first")

    @agent.tool
    def toggle(ctx: RunContext[Active]) -> None:
        ctx.deps.toolset = CLOCK

    await agent.run("?", deps=Active(Watched(WEATHER.filtered(lambda c, t: t.name == "celsius"))))
    assert [offered(call) for call in get_calls()] == [
        ["toggle", "celsius", "first_celsius"],
        ["toggle", "now", "first_celsius"],
    ]
    assert entered == ["in", "in", "out", "out"]


async def test_a_tool_that_is_added_in_a_run_is_there_in_the_next_step(make_agent: MakeAgent) -> None:
    toolset = FunctionToolset()

    @toolset.tool_plain
    def learn() -> str:
        toolset.add_function(lambda: "noon", name="time")
        return "learnt"

    agent, get_calls = make_agent(calls(("learn", {})), calls(("time", {})), say(), toolsets=[toolset])
    await agent.run("?")
    assert [offered(call) for call in get_calls()] == [["learn"], ["learn", "time"], ["learn", "time"]]


async def test_a_toolset_has_instructions(make_agent: MakeAgent) -> None:
    toolset = FunctionToolset([now], instructions="Ask the clock.")

    @toolset.instructions
    def step(ctx):  # type: ignore[no-untyped-def]
        return f"Step {ctx.run_step}."

    toolsets = [toolset.prefixed("t")]
    agent, get_calls = make_agent(calls(("t_now", {})), say(), toolsets=toolsets, instructions="Be brief.")
    await agent.run("?")
    texts = [call.body["messages"][0]["content"] for call in get_calls()]
    assert texts == [f"Be brief.\n\nAsk the clock.\n\nStep {step}." for step in (1, 2)]


# --- calls that others answer --------------------------------------------------------------------------------------


async def test_calls_of_a_toolset_need_an_approval(make_agent: MakeAgent) -> None:
    toolset = WEATHER.approval_required(lambda ctx, tool_def, tool_args: tool_args["city"] == "Lyon")
    turn = calls(("celsius", {"city": "Lyon"}), ("fahrenheit", {"city": "Lyon"}), ("celsius", {"city": "Paris"}))
    agent, _ = make_agent(turn, say(), toolsets=[toolset], output_type=[str, DeferredToolRequests])
    first = await agent.run("?")
    assert isinstance(first.output, DeferredToolRequests)
    assert [call.tool_name for call in first.output.approvals] == ["celsius", "fahrenheit"]
    yes, no = (call.tool_call_id for call in first.output.approvals)
    results = DeferredToolResults(approvals={yes: True, no: False})
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    results_of_both = [part for part in results_in(second.all_messages()[-2]) if isinstance(part, ToolReturnPart)]
    outcomes = {part.tool_call_id: (part.content, part.outcome) for part in results_of_both}
    assert outcomes[yes] == (21.0, "success")
    assert outcomes[no] == ("The tool call was denied.", "denied")


async def test_an_external_toolset_ends_the_run_and_its_results_continue_it(make_agent: MakeAgent) -> None:
    definitions = [
        ToolDefinition(name="language", parameters_json_schema={"type": "object"}, description="Of the browser."),
        ToolDefinition("zone"),
    ]
    agent, get_calls = make_agent(calls(("p_language", {}), ("p_zone", {}), ("now", {})), say(), tools=[now])
    toolsets = [ExternalToolset(definitions).prefixed("p")]
    first = await agent.run("?", toolsets=toolsets)
    assert isinstance(first.output, DeferredToolRequests)
    assert [call.tool_name for call in first.output.calls] == ["p_language", "p_zone"]
    answers = DeferredToolResults()
    language, zone = (call.tool_call_id for call in first.output.calls)
    answers.calls[language] = "es-MX"
    answers.calls[zone] = ModelRetry("There is no such tool.")
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=answers, toolsets=toolsets)
    assert second.output == "42. "
    parts = [part for message in second.all_messages() for part in message.parts]
    assert [part.content for part in parts if isinstance(part, RetryPromptPart)] == ["There is no such tool."]
    assert offered(get_calls()[1]) == ["now", "p_language", "p_zone"]


async def test_an_mcp_server_is_a_toolset(make_agent: MakeAgent) -> None:
    server = MCPServerStdio(sys.executable, [SMALL_PEER], id="peer")
    names = [tool.name for tool in await server.tools()]
    one = server.prefixed("peer").filtered(lambda ctx, tool: tool.name == f"peer_{names[0]}")
    agent, get_calls = make_agent(say(), say(), toolsets=[one])
    async with agent:
        await agent.run("?")
        session = server._session
        await agent.run("?")
        assert server._session is session is not None
    assert server._session is None
    assert [offered(call) for call in get_calls()] == [[f"peer_{names[0]}"]] * 2


async def test_a_served_run_enters_and_leaves_its_toolsets(make_agent: MakeAgent) -> None:
    states: list[str] = []

    class Watched(WrapperToolset):
        async def __aenter__(self) -> Watched:
            states.append("in")
            return self

        async def __aexit__(self, *error: object) -> None:
            states.append("out")

    agent, _ = make_agent(say(), toolsets=[Watched(CLOCK)])
    first = await make_agent(say())[0].run("Hello")
    run = await agent.start(RunInput(messages=first.all_messages()[:1]))
    assert states == []
    await run.finish()
    await wait_for_tasks(LIMIT_SECONDS)
    assert states == ["in", "out"]


# --- usage that runs share -----------------------------------------------------------------------------------------


async def test_runs_share_their_usage(make_agent: MakeAgent) -> None:
    inner, _ = make_agent(say(), say())
    outer, _ = make_agent(calls(("delegate", {})), say(), calls(("delegate", {})), say())

    @outer.tool
    async def delegate(ctx: RunContext[None]) -> str:
        result = await inner.run("?", usage=ctx.usage)
        assert result.usage is ctx.usage
        return str(result.output)

    result = await outer.run("?")
    assert (result.usage.requests, result.usage.tool_calls) == (3, 1)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (10 + 7 + 7, 5 + 9 + 9)
    with pytest.raises(UsageLimitExceeded):
        await outer.run("?", usage_limits=UsageLimits(request_limit=2))
    usage = RunUsage(requests=10)
    with pytest.raises(UsageLimitExceeded, match="10"):
        await inner.run("?", usage=usage, usage_limits=UsageLimits(request_limit=10))


# --- functions and their context -----------------------------------------------------------------------------------


async def test_a_context_goes_to_every_function_that_takes_one(make_agent: MakeAgent) -> None:
    """Annotated or not. A function without a context gets none."""
    seen: list[Any] = []

    def handler(ctx, events):  # type: ignore[no-untyped-def]
        seen.append(("handler", ctx.deps))

        async def read() -> None:
            async for _ in events:
                pass

        return read()

    def processor(ctx, messages):  # type: ignore[no-untyped-def]
        seen.append(("processor", ctx.deps))
        return messages

    processors = [processor, lambda messages: messages]
    agent, get_calls = make_agent(say(), history_processors=processors, system_prompt="One.")

    @agent.system_prompt
    def prompt(ctx):  # type: ignore[no-untyped-def]
        return f"Two {ctx.deps}."

    @agent.system_prompt
    async def plain() -> str:
        return "Three."

    @agent.instructions
    def instructions(ctx):  # type: ignore[no-untyped-def]
        return f"Four {ctx.deps}."

    @agent.output_validator
    def validator(ctx, output):  # type: ignore[no-untyped-def]
        seen.append(("validator", ctx.deps))
        return output

    @agent.output_validator
    def other(output: str) -> str:
        return output.strip()

    result = await agent.run("?", deps=5, event_stream_handler=handler)
    assert result.output == "42."
    assert seen == [("handler", 5), ("processor", 5), ("validator", 5)]
    positions = [system_text(get_calls()[0]).index(text) for text in ("Four 5.", "One.", "Two 5.", "Three.")]
    assert positions == sorted(positions)


async def test_a_dynamic_system_prompt_is_replaced_in_each_run(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(say(), say(), say())

    @agent.system_prompt(dynamic=True)
    async def user(ctx: RunContext[str]) -> str:
        return f"You talk to {ctx.deps}."

    @agent.system_prompt
    def fixed(ctx: RunContext[str]) -> str:
        return f"You began with {ctx.deps}."

    first = await agent.run("?", deps="Ada")
    second = await agent.run("?", deps="Bo", message_history=first.all_messages())
    await agent.run("?", deps="Cy", message_history=second.all_messages())
    for call, name in zip(get_calls(), ("Ada", "Bo", "Cy"), strict=True):
        text = system_text(call)
        assert f"You talk to {name}." in text
        assert text.count("You talk to") == 1
        assert "You began with Ada." in text
    assert second.new_messages() == second.all_messages()[2:]


async def test_a_tool_with_a_schema_of_ones_own(make_agent: MakeAgent) -> None:
    def total(**numbers: int) -> int:
        return sum(numbers.values())

    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    tool = Tool.from_schema(total, name="sum", description="Adds.", json_schema=schema, takes_ctx=False)
    agent, get_calls = make_agent(calls(("sum", {"a": 1, "b": 2})), say(), tools=[tool])
    await agent.run("?")
    assert get_calls()[0].body["tools"][0]["function"] == {"name": "sum", "description": "Adds.", "parameters": schema}
    assert get_calls()[1].body["messages"][-1]["content"] == "3"


def test_a_parameter_without_a_description_can_be_an_error() -> None:
    def f(a: int, b: str) -> None:
        """Do it.

        Args:
            a: A number.
        """

    Tool(f, docstring_format="google")
    with pytest.raises(RequestError, match="does not describe b"):
        Tool(f, docstring_format="google", require_parameter_descriptions=True)


# --- content by the names that people know -------------------------------------------------------------------------


async def test_content_has_the_names_that_people_know(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(calls(("logo", {})), say())

    @agent.tool_plain
    def logo() -> ImageUrl:
        return ImageUrl(url="https://example.com/logo.png")

    pixel = BinaryContent(data=b"\x89PNG", media_type="image/png")
    prompt: list[str | UserContent] = ["What is this?", ImageUrl(url="https://example.com/a.png"), pixel]
    result = await agent.run(prompt)
    parts = get_calls()[0].body["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "image_url"]
    assert parts[2]["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    [returned] = results_in(result.all_messages()[2])
    assert returned.content == [Image(url="https://example.com/logo.png")]


def test_content_names_give_our_own_types() -> None:
    kinds: dict[str, type] = {"image/png": Image, "audio/wav": Audio, "video/mp4": Video, "application/pdf": File}
    for media_type, kind in kinds.items():
        content = BinaryContent(b"x", media_type=media_type)
        assert isinstance(content, kind)
        assert (content.data, content.media_type) == ("eA==", media_type)
    assert isinstance(DocumentUrl(url="https://x/y.pdf"), File)
    assert isinstance(AudioUrl(url="https://x/y.wav"), Audio)
    assert isinstance(VideoUrl(url="https://x/y.mp4"), Video)
