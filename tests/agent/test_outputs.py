"""Outputs of agents: functions, several types in one form, values that grow, and other calls in the turn of an output.

The cases are those of Pydantic AI's page on output, in words of our own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from typing import Any, Generic, Literal, TypedDict, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from pellucid import (
    Agent,
    DeferredToolRequests,
    ModelRetry,
    NativeOutput,
    PromptedOutput,
    RequestError,
    RunContext,
    StructuredDict,
    TextOutput,
    Tool,
    ToolOutput,
    UnexpectedModelBehavior,
)
from pellucid.agent.partial_json import PartialJSON
from tests.agent.agent_kit import MakeAgent, calls, offered, results_in, writes_arguments
from tests.scripted import say

pytestmark = pytest.mark.anyio

T = TypeVar("T")


@dataclass
class Fruit:
    """Something to eat."""

    name: str
    color: str


class Vehicle(BaseModel):
    name: str
    wheels: int


class Row(TypedDict):
    name: str


# --- functions -----------------------------------------------------------------------------------------------------


async def test_the_output_is_what_a_function_returns(make_agent: MakeAgent) -> None:
    def query(ctx: RunContext[str], sql: str) -> list[Row]:
        """Query the database.

        Args:
            sql: The query.
        """
        if not sql.startswith("SELECT"):
            raise ModelRetry(f"Only SELECT, {ctx.deps}.")
        return [{"name": sql.split()[-1]}]

    agent, get_calls = make_agent(
        calls(("final_result_query", {"sql": "DROP x"})),
        calls(("final_result_query", {"sql": "SELECT * FROM pets"})),
        output_type=[query, Fruit],
    )
    result = await agent.run("Which pets?", deps="Ada")
    assert result.output == [{"name": "pets"}]
    assert offered(get_calls()[0]) == ["final_result_query", "final_result_Fruit"]
    function = get_calls()[0].body["tools"][0]["function"]
    assert function["description"] == "Query the database."
    assert function["parameters"]["properties"] == {"sql": {"type": "string", "description": "The query."}}
    assert "Only SELECT, Ada." in get_calls()[1].body["messages"][-1]["content"]


async def test_a_failing_function_is_the_cause_of_the_error(make_agent: MakeAgent) -> None:
    async def refuse(text: str) -> str:
        raise ModelRetry("Never.")

    script = calls(("final_result", {"text": ""}))
    agent, get_calls = make_agent(script, script, script, output_type=ToolOutput(refuse, max_retries=0), retries=5)
    with pytest.raises(UnexpectedModelBehavior) as caught:
        await agent.run("?")
    assert isinstance(caught.value.__cause__, ModelRetry)
    assert caught.value.__cause__.message == "Never."
    assert len(get_calls()) == 1


@pytest.mark.parametrize("with_context", [False, True])
async def test_text_goes_through_a_function(make_agent: MakeAgent, with_context: bool) -> None:
    def split(text):  # type: ignore[no-untyped-def]
        return text.split()

    async def split_for(ctx, text):  # type: ignore[no-untyped-def]
        return [ctx.deps, *text.split()]

    agent, get_calls = make_agent(say(text="So it is."), output_type=TextOutput(split_for if with_context else split))
    result = await agent.run("?", deps="Ada")
    assert result.output == (["Ada"] if with_context else []) + ["So", "it", "is."]
    assert offered(get_calls()[0]) == []
    async with agent.run_stream("?", deps="Ada") as stream:
        assert [len(words) for words in [output async for output in stream.stream_output()]] == (
            [2, 3, 4] if with_context else [1, 2, 3]
        )


# --- types ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [NativeOutput, PromptedOutput])
async def test_one_of_several_types_in_text(make_agent: MakeAgent, form: Any) -> None:
    wrong = {"response": {"kind": "Ship", "data": {}}}
    right = {"response": {"kind": "Vehicle", "data": {"name": "Explorer", "wheels": 4}}}
    output_type = form([Fruit, Vehicle], name="thing", description="A fruit or a vehicle.")
    agent, get_calls = make_agent(say(text=json.dumps(wrong)), say(text=json.dumps(right)), output_type=output_type)
    assert (await agent.run("What is it?")).output == Vehicle(name="Explorer", wheels=4)
    body = json.dumps(get_calls()[0].body)
    assert all(word in body for word in ("wheels", "color", "A fruit or a vehicle."))
    assert "Fruit, Vehicle" in json.dumps(get_calls()[1].body["messages"][-1])


async def test_the_prompt_of_an_output_can_be_ones_own(make_agent: MakeAgent) -> None:
    for template, words in (("Give JSON: {schema}", ["Give JSON: {", "wheels"]), (False, [])):
        output_type: PromptedOutput[Vehicle] = PromptedOutput(Vehicle, template=template)  # type: ignore[arg-type]
        agent, get_calls = make_agent(say(text='{"name": "x", "wheels": 1}'), output_type=output_type)
        await agent.run("?")
        system = [m["content"] for m in get_calls()[0].body["messages"] if m["role"] == "system"]
        assert all(word in system[0] for word in words)
        assert bool(system) is bool(words)


async def test_a_dictionary_with_a_schema_of_ones_own(make_agent: MakeAgent) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    human = StructuredDict(schema, name="Human", description="A human.")
    agent, get_calls = make_agent(calls(("final_result", {"name": "Ada"})), output_type=human)
    assert (await agent.run("?")).output == {"name": "Ada"}
    function = get_calls()[0].body["tools"][0]["function"]
    assert (function["parameters"], function["description"]) == (schema, "A human.")


async def test_none_is_an_output_only_where_it_is_allowed(make_agent: MakeAgent) -> None:
    for output_type in (str | None, [str, None], [int, None], int | None):
        agent, get_calls = make_agent(say(text=""), output_type=output_type)
        assert (await agent.run("Do it, then stop.")).output is None
        assert len(get_calls()) == 1
    agent, get_calls = make_agent(say(text=""), say(text="Done."))
    assert (await agent.run("Do it.")).output == "Done. "
    with pytest.raises(RequestError, match="names no type"):
        make_agent(say(), output_type=[None, DeferredToolRequests])


async def test_deferred_requests_are_no_type_for_the_model(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(say(text="Yes."), output_type=[str, DeferredToolRequests])
    assert (await agent.run("?")).output == "Yes. "
    assert offered(get_calls()[0]) == []


# --- other calls in the turn of an output ------------------------------------------------------------------------

F: tuple[str, dict[str, Any]] = ("fine", {})
R: tuple[str, dict[str, Any]] = ("retries", {})
ONE, TWO, BAD = ("one", {"n": 1}), ("two", {"n": 2}), ("one", {"n": "x"})

STRATEGIES: dict[str, tuple[Literal["early", "graceful", "exhaustive"], list[Any], list[Any], int | None]] = {
    "early: functions are not called": ("early", [F, ONE, F], ["one"], 1),
    "early: the second output is not called": ("early", [TWO, ONE], ["two"], 2),
    "early: functions are called if no output is valid": ("early", [BAD, F], ["fine"], None),
    "graceful: functions are called in order": ("graceful", [F, ONE, F], ["fine", "one", "fine"], 1),
    "graceful: the second output is not called": ("graceful", [BAD, TWO, ONE], ["two"], 2),
    "graceful: a function that wants another call": ("graceful", [R, ONE], ["retries", "one"], None),
    "graceful: an unknown function changes nothing": ("graceful", [("what", {}), ONE], ["one"], 1),
    "exhaustive: everything is called": ("exhaustive", [TWO, F, ONE], ["fine", "one", "two"], 2),
    "exhaustive: a function that wants another call": ("exhaustive", [ONE, R], ["one", "retries"], None),
}


@pytest.mark.parametrize("case", STRATEGIES)
async def test_the_strategy_says_what_else_is_called_in_the_turn_of_an_output(make_agent: MakeAgent, case: str) -> None:
    strategy, turn, called, output = STRATEGIES[case]
    seen: list[str] = []

    def fine() -> str:
        seen.append("fine")
        return "fine"

    def retries() -> str:
        seen.append("retries")
        raise ModelRetry("Again.")

    def one(n: int) -> int:
        seen.append("one")
        return n

    def two(n: int) -> int:
        seen.append("two")
        return n

    agent, get_calls = make_agent(
        calls(*turn),
        calls(("two", {"n": 20})),
        tools=[fine, retries],
        output_type=[ToolOutput(one, name="one"), ToolOutput(two, name="two")],
        end_strategy=strategy,
    )
    result = await agent.run("?")
    first_turn = seen if output is not None else seen[:-1]
    assert (sorted(first_turn) if strategy == "exhaustive" else first_turn) == called
    assert result.output == (20 if output is None else output)
    assert len(get_calls()) == (2 if output is None else 1)
    assert len(results_in(result.all_messages()[2])) == len(turn)


async def test_only_text_of_the_right_form_ends_a_turn_early(make_agent: MakeAgent) -> None:
    seen: list[str] = []
    note = Tool(lambda: seen.append("note"), name="note")
    text = json.dumps({"name": "x", "wheels": 1})
    agent, _ = make_agent(
        calls(("note", {}), text=text), tools=[note], output_type=NativeOutput(Vehicle), end_strategy="early"
    )
    assert (await agent.run("?")).output == Vehicle(name="x", wheels=1)
    assert seen == []
    agent, _ = make_agent(calls(("note", {}), text="I look."), say(), tools=[note], end_strategy="early")
    assert (await agent.run("?")).output == "42. "
    assert seen == ["note"]


def test_a_strategy_that_does_not_exist() -> None:
    with pytest.raises(TypeError, match="early, graceful, exhaustive"):
        Agent("openai:gpt-5", end_strategy="late")  # type: ignore[call-overload]


# --- values that grow ----------------------------------------------------------------------------------------------


class Profile(TypedDict, total=False):
    name: str
    born: date
    bio: str


PIECES = ('{"name": "B', 'en", "born": "1990', '-01-28", "bi', 'o": "Likes', ' dogs"}')
GROWN = [
    {"name": "B"},
    {"name": "Ben"},
    {"name": "Ben", "born": date(1990, 1, 28)},
    {"name": "Ben", "born": date(1990, 1, 28), "bio": "Likes"},
    {"name": "Ben", "born": date(1990, 1, 28), "bio": "Likes dogs"},
]


async def test_a_typed_output_is_streamed_as_it_grows(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(writes_arguments("final_result", *PIECES), output_type=Profile)
    async with agent.run_stream("Who is Ben?") as stream:
        assert [output async for output in stream.stream_output()] == GROWN
    async with agent.run_stream("Who is Ben?") as stream:
        assert [output async for output in stream.stream_output(debounce_by=3600)] == [GROWN[0], GROWN[-1]]


async def test_json_in_text_is_streamed_as_it_grows(make_agent: MakeAgent) -> None:
    text = '{"name": "Ben", "bio": "Likes dogs"}'
    agent, _ = make_agent(say(text=text), output_type=PromptedOutput(Profile))
    async with agent.run_stream("?") as stream:
        outputs = [output async for output in stream.stream_output()]
    assert outputs[-1] == {"name": "Ben", "bio": "Likes dogs"}
    assert {"name": "Ben"} in outputs


async def test_functions_and_validators_know_that_an_output_is_not_complete(make_agent: MakeAgent) -> None:
    saved: list[Any] = []
    validated: list[bool] = []

    def save(ctx: RunContext[None], profile: Profile) -> Profile:
        if not ctx.partial_output:
            saved.append(profile)
        return profile

    pieces = ('{"profile": ' + PIECES[0], *PIECES[1:-1], PIECES[-1] + "}")
    agent, _ = make_agent(writes_arguments("final_result", *pieces), output_type=save)

    @agent.output_validator
    def not_too_short(ctx: RunContext[None], profile: Profile) -> Profile:
        validated.append(ctx.partial_output)
        if profile["name"] == "B":
            raise ModelRetry("Too short.")
        return profile

    async with agent.run_stream("Who is Ben?") as stream:
        assert [output async for output in stream.stream_output()] == GROWN[1:]
    assert saved == [GROWN[-1]]
    assert validated.count(False) == 1
    assert validated[-1] is False


async def test_a_second_attempt_at_an_output_is_streamed_too(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(
        writes_arguments("final_result", '{"name": ', "1", "}"),
        writes_arguments("final_result", '{"name": "A', 'da"}'),
        output_type=Row,
    )

    @agent.output_validator
    def check(output: Row) -> Row:
        if output["name"] == "1":
            raise ModelRetry("A number.")
        return output

    async with agent.run_stream("?") as stream:
        assert [output async for output in stream.stream_output()] == [{"name": "A"}, {"name": "Ada"}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON), st.integers(1, 7), st.booleans())
def test_a_partial_value_only_grows(value: dict[str, Any], size: int, is_ascii: bool) -> None:
    """Every cut of a JSON text has a value that fits into the next, and the whole text has the whole value."""
    text = json.dumps(value, ensure_ascii=is_ascii)
    partial = PartialJSON()
    last: dict[str, Any] = {}
    for start in range(0, len(text), size):
        partial.feed(text[start : start + size])
        for with_last in (False, True):
            now = partial.value(with_last=with_last)
            assert fits(last, now) or not with_last
            assert fits(now, value)
        last = now
    assert last == value


def fits(part: Any, whole: Any) -> bool:
    """Whether `part` is a beginning of `whole`."""
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(fits(a, b) for a, b in zip(part, whole, strict=False))
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and fits(inner, whole[key]) for key, inner in part.items())
    return bool(part == whole)


@pytest.mark.parametrize("text", ["", "   ", "no", "}", "nul"])
def test_text_that_is_no_json_has_no_value(text: str) -> None:
    partial = PartialJSON()
    partial.feed(text)
    with pytest.raises(ValueError, match="no value yet"):
        partial.value()


@pytest.mark.parametrize("text", ['{"a" 1', '{"a": "\\x\\x\\x\\x', '{"a": "\\ud83d', '{"a": tru'])
def test_of_text_that_breaks_off_or_is_wrong_the_rest_counts(text: str) -> None:
    partial = PartialJSON()
    partial.feed(text)
    assert partial.value() in ({}, {"a": ""})


# --- names ---------------------------------------------------------------------------------------------------------


class Page(BaseModel, Generic[T]):
    items: list[T]


async def test_names_that_come_from_types_are_ones_that_providers_accept(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(calls(("final_result_Page_int", {"items": [1]})), output_type=[Page[int], Fruit])
    assert (await agent.run("?")).output == Page[int](items=[1])
    assert offered(get_calls()[0]) == ["final_result_Page_int", "final_result_Fruit"]


@pytest.mark.parametrize(
    ("name", "sent"),
    [("Fruit or vehicle", "Fruit_or_vehicle"), ("x" * 99, "x" * 60), ("y" * 64, "y" * 64), ("é", "name")],
)
async def test_the_name_of_a_native_output_is_sent_as_providers_accept_it(
    make_agent: MakeAgent, name: str, sent: str
) -> None:
    answer = '{"name": "banana", "color": "yellow"}'
    agent, get_calls = make_agent(say(text=answer), output_type=NativeOutput(Fruit, name=name))
    assert (await agent.run("?")).output == Fruit("banana", "yellow")
    assert get_calls()[0].body["response_format"]["json_schema"]["name"] == sent


def test_an_output_tool_with_a_name_that_providers_refuse_is_refused() -> None:
    with pytest.raises(RequestError, match=r"an output tool cannot be named 'return fruit'.*'return_fruit'"):
        Agent("test", output_type=ToolOutput(Fruit, name="return fruit"))
