"""The values that `TestModel` makes fit their JSON Schema, for every seed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import Meta
from pydantic import BaseModel, Field

from pellucid.errors import RequestError
from pellucid.models.test import SchemaValues
from pellucid.tools import type_adapter
from tests.examples import many


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: float
    label: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: Annotated[int, Field(gt=0, le=9)]


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    friends: list[Dog]


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    name: Annotated[str, Field(min_length=3, max_length=5)]


class Node(msgspec.Struct):
    value: int
    next: Node | None
    children: list[Node]


TYPES: list[Any] = [
    *(int, float, bool, str, None, date, UUID, Color, Point, Owner, Dog, Node),
    *(list[int], dict[str, int], tuple[int, str], set[Color], Literal[3, "x"], Point | int),
    *(datetime, time, dict[str, list[datetime | None]], tuple[int, time], Annotated[datetime, Meta(tz=True)]),
    Annotated[int, Meta(ge=3, lt=5)],
    Annotated[int, Meta(multiple_of=7, ge=10)],
    Annotated[int, Meta(le=-3)],
    Annotated[float, Meta(gt=0.5, lt=0.75)],
    Annotated[float, Meta(ge=2)],
    Annotated[float, Meta(lt=-1)],
    Annotated[str, Meta(min_length=4)],
    Annotated[str, Meta(max_length=0)],
    Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=3)],
    Annotated[dict[str, int], Meta(min_length=2)],
]


@many
@given(type_=st.sampled_from(TYPES), seed=st.integers(0, 10_000))
def test_a_value_fits_the_schema_and_the_type(type_: Any, seed: int) -> None:
    adapter = type_adapter(type_)
    value = SchemaValues(adapter.schema, seed).value()
    Draft202012Validator(adapter.schema).validate(value)
    adapter.validate(value)


SCHEMAS: list[dict[str, Any]] = [
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"minProperties": 1}]},
    {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": True},
    {"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": True},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 3, "maxItems": 3},
    {"type": "array", "maxItems": 0, "items": {"type": "integer"}},
    {"type": ["integer", "null"]},
    {"type": "number", "multipleOf": 0.5, "minimum": 0.75},
    {"type": "object", "required": ["x"], "additionalProperties": {"type": "boolean"}},
    {"properties": {"a": {"const": None}, "b": True}, "required": ["a", "b"]},
    {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}},
    {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    {"type": "integer", "examples": [4, 5]},
    {},
]


@many
@given(schema=st.sampled_from(SCHEMAS), seed=st.integers(0, 10_000))
def test_a_value_fits_schemas_that_no_type_here_has(schema: dict[str, Any], seed: int) -> None:
    Draft202012Validator(schema).validate(SchemaValues(schema, seed).value())


def test_the_values_of_the_first_seed_are_the_plain_ones() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "day": {"type": "string", "format": "date"},
            "n": {"type": "integer"},
        },
        "required": ["city", "day", "n"],
    }
    assert SchemaValues(schema).value() == {"city": "a", "day": "2024-01-01", "n": 0}


def test_a_schema_that_requires_itself_is_refused() -> None:
    endless = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    with pytest.raises(RequestError, match="requires itself"):
        SchemaValues(endless).value()
