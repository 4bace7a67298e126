"""What a run is to give: text, or a value of a type.

A type can be asked for in three ways. As a tool (the default): the model calls `final_result`, and the call's arguments
are the value; any model that calls tools can do it, and reason before it. Natively: the provider holds the answer's
text to a JSON Schema. By prompt: the schema stands in the instructions, and the text is hoped to be JSON.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from ..errors import RequestError
from ..settings import OutputFormat, ToolDefinition
from ..tools import ModelRetry, Shape, shape_of

T = TypeVar("T")

_WRAPPED = "response"
"""Where a value stands that is not an object: arguments and JSON answers always are."""


@dataclass(frozen=True)
class ToolOutput(Generic[T]):
    """`type_` as the arguments of a tool that the model calls to answer."""

    type_: type[T]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


@dataclass(frozen=True)
class NativeOutput(Generic[T]):
    """`type_` as an answer that the provider holds to the type's JSON Schema."""

    type_: type[T]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


@dataclass(frozen=True)
class PromptedOutput(Generic[T]):
    """`type_` as an answer that the instructions ask for."""

    type_: type[T]


class Form:
    """One type of value, as an object."""

    def __init__(self, type_: Any) -> None:
        shape = shape_of(type_)
        self.wrapped = shape.schema.get("type") != "object"
        if self.wrapped:
            definitions = {key: value for key, value in shape.schema.items() if key == "$defs"}
            inner = {key: value for key, value in shape.schema.items() if key != "$defs"}
            wrapper = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED]}
            shape = Shape({**wrapper, "additionalProperties": False, **definitions}, shape.read)
        self.schema = shape.schema
        self._read = shape.read
        self.name = getattr(type_, "__name__", "output")
        self.description = (getattr(type_, "__doc__", None) or "").strip() or None
        if getattr(type_, "__module__", "builtins") == "builtins":
            self.description = None

    def read(self, value: Any) -> Any:
        """Raises `ValueError` saying what is wrong."""
        if not self.wrapped:
            return self._read(value)
        if not isinstance(value, dict) or _WRAPPED not in value:
            raise ValueError(f"Object missing required field `{_WRAPPED}`")
        return self._read(value[_WRAPPED])

    def read_text(self, text: str) -> Any:
        """Raises `ValueError` saying what is wrong."""
        try:
            value = msgspec.json.decode(_without_fence(text))
        except msgspec.DecodeError as error:
            raise ValueError(f"this is not JSON: {error}") from error
        return self.read(value)


@dataclass
class Output:
    """What a run is to give, worked out of an `output_type`."""

    text: bool = False
    """Whether plain text will do."""
    tools: dict[str, Form] = field(default_factory=dict)
    """The tools that are the answer when they are called."""
    definitions: list[ToolDefinition] = field(default_factory=list)
    format: OutputFormat = field(default_factory=OutputFormat)
    form: Form | None = None
    """What the answer's text is to be, if it is to be anything."""
    instructions: str | None = None

    @property
    def by_text(self) -> bool:
        """Whether an answer can be text, of whatever form."""
        return self.text or self.form is not None

    def of_text(self, text: str) -> Any:
        """The value that an answer in text is. Raises `ModelRetry` saying what is wrong."""
        if self.form is not None:
            try:
                return self.form.read_text(text)
            except ValueError as error:
                raise ModelRetry(f"The answer has not the right form: {error}\n\nFix it and try again.") from error
        if not self.text:
            raise ModelRetry(f"Answer by calling {' or '.join(self.tools)}, not in text.")
        return text


def output_of(output_type: Any) -> Output:
    """Raises `RequestError` for a type that has no JSON form."""
    output = Output()
    types_ = _members(output_type)
    if not types_:
        raise RequestError("output_type names no type: give str, a type, or a list of types")
    forms = [type_ for type_ in types_ if type_ is not str]
    for type_ in types_:
        if type_ is str:
            output.text = True
        elif isinstance(type_, (NativeOutput, PromptedOutput)) and output.form is not None:
            raise RequestError("an answer in text can have one form only: give one NativeOutput or PromptedOutput")
        elif isinstance(type_, NativeOutput):
            output.form = Form(type_.type_)
            output.format = OutputFormat(
                "json_schema",
                type_.name or output.form.name,
                output.form.schema,
                type_.description or output.form.description,
                type_.strict,
            )
        elif isinstance(type_, PromptedOutput):
            output.form = Form(type_.type_)
            output.format = OutputFormat("json_object")
            schema = msgspec.json.encode(output.form.schema).decode()
            output.instructions = f"Answer with one JSON object of this JSON Schema, and nothing else:\n\n{schema}"
        else:
            asked = type_ if isinstance(type_, ToolOutput) else ToolOutput(type_)
            form = Form(asked.type_)
            name = asked.name or ("final_result" if len(forms) == 1 else f"final_result_{form.name}")
            if name in output.tools:
                name = f"{name}_{len(output.tools) + 1}"
            output.tools[name] = form
            description = asked.description or form.description or "The final response, which ends this conversation."
            output.definitions.append(ToolDefinition(name, form.schema, description, asked.strict))
    return output


def _members(output_type: Any) -> list[Any]:
    if isinstance(output_type, (list, tuple)):
        return [member for type_ in output_type for member in _members(type_)]
    if get_origin(output_type) in (Union, types.UnionType) and type(None) not in get_args(output_type):
        return list(get_args(output_type))
    return [output_type]


def _without_fence(text: str) -> str:
    """JSON that a model put into a code block."""
    text = text.strip()
    if text.startswith("```"):
        text = text.partition("\n")[2].rstrip().removesuffix("```")
    return text


OutputSpec = type[Any] | Sequence[Any] | ToolOutput[Any] | NativeOutput[Any] | PromptedOutput[Any]
Validator = Callable[..., Any]
