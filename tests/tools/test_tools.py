"""Definitions of functions for a model, and validation of a model's arguments."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from pellucid.errors import RequestError
from pellucid.tools import RunContext, Tool, type_adapter


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: float
    y: float = 0.0


class Box(TypedDict, total=False):
    corners: list[Point]


class Pair(NamedTuple):
    a: int
    b: str


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Node(msgspec.Struct):
    value: int
    next: Node | None = None


CASES: list[tuple[Any, Any, Any]] = [
    (int, "3", 3),
    (float, 1, 1.0),
    (bool, "true", True),
    (str, "x", "x"),
    (Literal["a", "b"], "a", "a"),
    (Colour, "red", Colour.RED),
    (date, "2026-11-21", date(2026, 11, 21)),
    (Point, {"x": 1}, Point(1.0)),
    (Box, {"corners": [{"x": 1, "y": 2}]}, {"corners": [Point(1.0, 2.0)]}),
    (Pair, [1, "b"], Pair(1, "b")),
    (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree(name="a", children=[Tree(name="b")])),
    (Node, {"value": 1, "next": {"value": 2}}, Node(1, Node(2))),
    (list[Tree], [{"name": "a"}], [Tree(name="a")]),
    (dict[str, int], {"a": "1"}, {"a": 1}),
    (int | None, None, None),
    (Annotated[int, msgspec.Meta(ge=1)], 1, 1),
]


@pytest.mark.parametrize(("type_", "value", "read"), CASES)
def test_a_type_has_a_self_contained_schema_and_parses_valid_values(type_: Any, value: Any, read: Any) -> None:
    shape = type_adapter(type_)
    jsonschema.Draft202012Validator.check_schema(shape.schema)
    assert shape.validate(value) == read
    assert "$ref" not in shape.schema or "$defs" in shape.schema
    # Every reference has its definition.
    names = {part.split('"')[0] for part in msgspec.json.encode(shape.schema).decode().split('"#/$defs/')[1:]}
    assert names <= set(shape.schema.get("$defs", {}))


@pytest.mark.parametrize(("type_", "value", "says"), [(int, "x", "int"), (Point, {}, "x"), (Tree, {}, "name")])
def test_an_invalid_value_is_an_error_with_its_location(type_: Any, value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        type_adapter(type_).validate(value)


def test_a_type_without_a_json_schema_is_refused() -> None:
    with pytest.raises(RequestError, match="JSON Schema"):
        type_adapter(threading.Thread)


def test_descriptions_are_from_the_docstring_in_every_style() -> None:
    def google(city: str) -> None:
        """Look.

        Longer.

        Args:
            city: Where.
        """

    def numpy(city: str) -> None:
        """Look.

        Longer.

        Parameters
        ----------
        city
            Where.
        """

    def sphinx(city: str) -> None:
        """Look.

        Longer.

        :param city: Where.
        """

    for function in (google, numpy, sphinx):
        definition = Tool(function, name="f").definition
        assert definition.description == "Look.\n\nLonger."
        assert definition.parameters_json_schema["properties"]["city"]["description"] == "Where."


@pytest.mark.anyio
async def test_methods_positional_only_parameters_and_mutable_defaults() -> None:
    class Store:
        def put(self, key: str, /, tags: list[str] = ["a"]) -> tuple[str, list[str]]:  # noqa: B006
            return key, tags

    tool = Tool(Store().put)
    assert tool.definition.parameters_json_schema["required"] == ["key"]
    assert await tool.call(RunContext(None, None), tool.validate({"key": "k"})) == ("k", ["a"])


def test_the_context_is_not_in_the_schema() -> None:
    def f(ctx: RunContext[int], n: int) -> int:
        return n

    assert list(Tool(f).definition.parameters_json_schema["properties"]) == ["n"]

    def bare(ctx: RunContext, n: int) -> int:  # type: ignore[type-arg]
        return n

    assert list(Tool(bare).definition.parameters_json_schema["properties"]) == ["n"]


@given(st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=3), max_size=3))
def test_any_arguments_are_accepted_or_refused_with_a_message(arguments: dict[str, Any]) -> None:
    def f(n: int, s: str = "") -> None: ...

    message = "fine"
    try:
        Tool(f).validate(arguments)
    except ValueError as error:
        message = str(error)
    assert message


def test_takes_context_depends_on_the_signature() -> None:
    def wants(ctx: RunContext[int], n: int) -> int:
        return n

    def plain(n: int) -> int:
        return n

    with pytest.raises(RequestError, match=r"use @agent\.tool$"):
        Tool(wants, takes_ctx=False)
    with pytest.raises(RequestError, match="tool_plain"):
        Tool(plain, takes_ctx=True)


# --- times ---------------------------------------------------------------------------------------------------------


class Meeting(TypedDict):
    begins: datetime
    reminders: list[time]


@dataclass
class Diary:
    meetings: dict[str, Meeting | None]
    next: Diary | None = None


class Slot(NamedTuple):
    room: str
    free_from: datetime


class Early(msgspec.Struct, tag=True):
    at: time


class Late(msgspec.Struct, tag=True):
    at: datetime


TIMES: list[tuple[Any, int]] = [
    (datetime, 1),
    (Annotated[datetime, msgspec.Meta(description="The beginning.")], 1),
    (tuple[int, time], 1),
    (int | datetime | None, 1),
    (Early | Late, 2),
    (int | Early | Late | None, 2),
    (Early | time | None, 2),
    (Diary, 2),
    (list[Slot], 1),
    (int | date, 0),
]


@pytest.mark.parametrize(("type_", "count"), TIMES)
def test_every_time_in_a_schema_has_its_format(type_: Any, count: int) -> None:
    def f(value: Any) -> None: ...

    f.__annotations__["value"] = type_
    schema = Tool(f).definition.parameters_json_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    text = msgspec.json.encode(schema).decode()
    assert text.count('"format":"date-time"') + text.count('"format":"time"') == count
    assert text.count('"type":"string"') >= count


# --- what only pydantic reads --------------------------------------------------------------------------------------


class Cat(BaseModel):
    lives: int


class Dog(BaseModel):
    tricks: list[str]


PYDANTIC: list[tuple[Any, Any, Any]] = [
    (Cat | Dog, {"tricks": ["sit"]}, Dog(tricks=["sit"])),
    (list[str | Cat], ["a", {"lives": 9}], ["a", Cat(lives=9)]),
    (Path, "/srv", Path("/srv")),
    (Annotated[int, Field(ge=1)], "3", 3),
    (dict[str, Annotated[str, Field(max_length=2)]], {"a": "bc"}, {"a": "bc"}),
]


@pytest.mark.parametrize(("type_", "value", "read"), PYDANTIC)
def test_types_that_only_pydantic_reads(type_: Any, value: Any, read: Any) -> None:
    adapter = type_adapter(type_)
    jsonschema.Draft202012Validator.check_schema(adapter.schema)
    assert adapter.validate(value) == read

    def f(value: Any, _more: int = 1) -> Any:
        return value

    f.__annotations__["value"] = type_
    tool = Tool(f)
    assert list(tool.definition.parameters_json_schema["properties"]) == ["value", "_more"]
    assert tool.validate({"value": value}) == {"value": read, "_more": 1}
    with pytest.raises(ValueError, match="other") as caught:
        tool.validate({"value": value, "other": 1})
    assert "http" not in str(caught.value)


def test_constraints_and_descriptions_of_pydantic_are_in_the_schema() -> None:
    def book(
        seats: Annotated[int, Field(description="How many.", ge=1)],
        name: str,
        tags: list[str] = [],  # noqa: B006
        row: int = Field(default=3, description="From the front."),
    ) -> None:
        """Book seats.

        Args:
            seats: Not this text: the parameter has one of its own.
            name: Who comes.
        """

    schema = Tool(book, require_parameter_descriptions=False).definition.parameters_json_schema
    assert schema == {
        "type": "object",
        "properties": {
            "seats": {"type": "integer", "minimum": 1, "description": "How many."},
            "name": {"type": "string", "description": "Who comes."},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "row": {"type": "integer", "default": 3, "description": "From the front."},
        },
        "required": ["seats", "name"],
        "additionalProperties": False,
    }
    assert Tool(book).validate({"seats": 2, "name": "Ada"}) == {"seats": 2, "name": "Ada", "tags": [], "row": 3}
    with pytest.raises(ValueError, match="greater than or equal to 1 - at `seats`"):
        Tool(book).validate({"seats": 0, "name": "Ada"})
