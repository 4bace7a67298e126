"""Output types of a run: text, or a value of a type.

A type can be requested in three ways. As a tool (the default): the model calls `final_result`, and the arguments of the
call are the value. Every model that calls tools can do this, and can reason before the call. Natively: the provider
forces the text of the answer to match a JSON Schema. By prompt: the schema is in the instructions, and the text is
parsed as JSON.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from ..errors import RequestError
from ..settings import OutputFormat, ToolDefinition
from ..tools import ModelRetry, TypeAdapter, type_adapter

T = TypeVar("T")

_WRAPPER_FIELD = "response"
"""The field that holds a value which is not an object: arguments and JSON answers are always objects."""


@dataclass(frozen=True)
class ToolOutput(Generic[T]):
    """Requests `type_` as the arguments of a tool that the model calls to answer."""

    type_: type[T]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


@dataclass(frozen=True)
class NativeOutput(Generic[T]):
    """Requests `type_` as an answer that the provider forces to match the type's JSON Schema."""

    type_: type[T]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


@dataclass(frozen=True)
class PromptedOutput(Generic[T]):
    """Requests `type_` as an answer that the instructions describe."""

    type_: type[T]


class OutputSchema:
    """The JSON Schema of one output type, always of an object."""

    def __init__(self, type_: Any) -> None:
        adapter = type_adapter(type_)
        self.is_wrapped = adapter.schema.get("type") != "object"
        if self.is_wrapped:
            definitions = {key: value for key, value in adapter.schema.items() if key == "$defs"}
            inner = {key: value for key, value in adapter.schema.items() if key != "$defs"}
            wrapper = {"type": "object", "properties": {_WRAPPER_FIELD: inner}, "required": [_WRAPPER_FIELD]}
            adapter = TypeAdapter({**wrapper, "additionalProperties": False, **definitions}, adapter.validate)
        self.schema = adapter.schema
        self._validate = adapter.validate
        self.name = getattr(type_, "__name__", "output")
        self.description = (getattr(type_, "__doc__", None) or "").strip() or None
        if getattr(type_, "__module__", "builtins") == "builtins":
            self.description = None

    def validate(self, value: Any) -> Any:
        """Convert a JSON value to the type. Raises `ValueError` that says what is wrong."""
        if not self.is_wrapped:
            return self._validate(value)
        if not isinstance(value, dict) or _WRAPPER_FIELD not in value:
            raise ValueError(f"Object missing required field `{_WRAPPER_FIELD}`")
        return self._validate(value[_WRAPPER_FIELD])

    def validate_text(self, text: str) -> Any:
        """Convert JSON text to the type. Raises `ValueError` that says what is wrong."""
        try:
            value = msgspec.json.decode(_strip_code_fence(text))
        except msgspec.DecodeError as error:
            raise ValueError(f"this is not JSON: {error}") from error
        return self.validate(value)


@dataclass
class Output:
    """The outputs that a run may have, derived from an `output_type`."""

    allows_text: bool = False
    """Whether plain text is an output."""
    tools: dict[str, OutputSchema] = field(default_factory=dict)
    """The output tools by name: a call of one is the answer."""
    definitions: list[ToolDefinition] = field(default_factory=list)
    format: OutputFormat = field(default_factory=OutputFormat)
    text_schema: OutputSchema | None = None
    """The schema of the answer's text, if it must have one."""
    instructions: str | None = None

    @property
    def accepts_text(self) -> bool:
        """Whether an answer can be text, plain or with a schema."""
        return self.allows_text or self.text_schema is not None

    def parse_text(self, text: str) -> Any:
        """Return the value of a text answer. Raises `ModelRetry` that says what is wrong."""
        if self.text_schema is not None:
            try:
                return self.text_schema.validate_text(text)
            except ValueError as error:
                raise ModelRetry(f"The answer has not the right form: {error}\n\nFix it and try again.") from error
        if not self.allows_text:
            raise ModelRetry(f"Answer by calling {' or '.join(self.tools)}, not in text.")
        return text


def build_output(output_type: Any) -> Output:
    """Derive the outputs from an `output_type`. Raises `RequestError` for a type without a JSON Schema."""
    output = Output()
    types_ = _member_types(output_type)
    if not types_:
        raise RequestError("output_type names no type: give str, a type, or a list of types")
    value_types = [type_ for type_ in types_ if type_ is not str]
    for type_ in types_:
        if type_ is str:
            output.allows_text = True
        elif isinstance(type_, (NativeOutput, PromptedOutput)) and output.text_schema is not None:
            raise RequestError("an answer in text can have one form only: give one NativeOutput or PromptedOutput")
        elif isinstance(type_, NativeOutput):
            output.text_schema = OutputSchema(type_.type_)
            output.format = OutputFormat(
                "json_schema",
                type_.name or output.text_schema.name,
                output.text_schema.schema,
                type_.description or output.text_schema.description,
                type_.strict,
            )
        elif isinstance(type_, PromptedOutput):
            output.text_schema = OutputSchema(type_.type_)
            output.format = OutputFormat("json_object")
            schema = msgspec.json.encode(output.text_schema.schema).decode()
            output.instructions = f"Answer with one JSON object of this JSON Schema, and nothing else:\n\n{schema}"
        else:
            tool_output = type_ if isinstance(type_, ToolOutput) else ToolOutput(type_)
            tool_schema = OutputSchema(tool_output.type_)
            name = tool_output.name or ("final_result" if len(value_types) == 1 else f"final_result_{tool_schema.name}")
            if name in output.tools:
                name = f"{name}_{len(output.tools) + 1}"
            output.tools[name] = tool_schema
            description = (
                tool_output.description
                or tool_schema.description
                or "The final response, which ends this conversation."
            )
            output.definitions.append(
                ToolDefinition(name, tool_schema.schema, description, tool_output.strict, kind="output")
            )
    return output


def _member_types(output_type: Any) -> list[Any]:
    if isinstance(output_type, (list, tuple)):
        return [member for type_ in output_type for member in _member_types(type_)]
    if get_origin(output_type) in (Union, types.UnionType) and type(None) not in get_args(output_type):
        return list(get_args(output_type))
    return [output_type]


def _strip_code_fence(text: str) -> str:
    """Return the JSON text that a model put into a code block."""
    text = text.strip()
    if text.startswith("```"):
        text = text.partition("\n")[2].rstrip().removesuffix("```")
    return text
