"""Output types of a run: text, a value of a type, or what a function makes of either.

A value can be requested in three ways. As a tool (the default): the model calls `final_result`, and the arguments of
the call are the value. Every model that calls tools can do this, and can reason before the call. Natively: the provider
forces the text of the answer to match a JSON Schema. By prompt: the schema is in the instructions, and the text is
parsed as JSON.

A function in place of a type is an output function: the model writes its arguments, and its result is the output. It
may raise `ModelRetry`. `TextOutput(function)` is a function of the answer's text.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from ..errors import RequestError
from ..settings import OutputFormat, ToolDefinition, accepted_name, check_tool_name
from ..tools import DeferredToolRequests, ModelRetry, RunContext, TypeAdapter, type_adapter
from ..tools.function_tool import ToolSignature, call_function, tool_signature
from ..tools.type_adapter import inline_root

T = TypeVar("T")

_WRAPPER_FIELD = "response"
"""The field that holds a value which is not an object: arguments and JSON answers are always objects."""

_PROMPT = "Answer with one JSON object of this JSON Schema, and nothing else:\n\n{schema}"


@dataclass(frozen=True)
class ToolOutput(Generic[T]):
    """Requests a type, or the arguments of a function, as the arguments of a tool that the model calls to answer."""

    type_: type[T] | Callable[..., Any]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    max_retries: int | None = None
    """How often in a row it may fail; None: as the agent's `output_retries`."""


@dataclass(frozen=True)
class NativeOutput(Generic[T]):
    """Requests an answer that the provider forces to match the JSON Schema of a type, or of one of several types."""

    outputs: type[T] | Callable[..., Any] | Sequence[Any]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


@dataclass(frozen=True)
class PromptedOutput(Generic[T]):
    """Requests an answer of a type, or of one of several types, that the instructions describe."""

    outputs: type[T] | Callable[..., Any] | Sequence[Any]
    name: str | None = None
    description: str | None = None
    template: str | Literal[False] | None = None
    """The instructions, with `{schema}` where the JSON Schema is to be. False: no instructions."""


@dataclass(frozen=True)
class TextOutput:
    """Requests text, and gives it to a function, whose result is the output: `f(text)` or `f(ctx, text)`."""

    output_function: Callable[..., Any]


def StructuredDict(
    json_schema: dict[str, Any], name: str | None = None, description: str | None = None
) -> type[dict[str, Any]]:
    """Return an output type with a JSON Schema that you write. Its values are dictionaries, and are not validated.

    Args:
        json_schema: The schema of an object.
        name: The type's name, for the model.
        description: The type's description, for the model.
    """
    namespace = {"__doc__": description, "json_schema": json_schema}
    return type(name or json_schema.get("title") or "StructuredDict", (_StructuredDict,), namespace)


class _StructuredDict(dict[str, Any]):
    json_schema: dict[str, Any]


class Candidate(NamedTuple):
    """A value that fits its schema, before its function and the validators got it."""

    value: Any
    function: ToolSignature | None

    async def finish(self, context: RunContext[Any]) -> Any:
        """Return the value, or what the output function makes of it. Raises `ModelRetry` if the function does."""
        return self.value if self.function is None else await self.function.run(context, self.value)


class _Member:
    """One output type or function."""

    def __init__(self, type_: Any) -> None:
        self.function: ToolSignature | None = None
        self.name: str = getattr(type_, "__name__", "output")
        self.description: str | None = (getattr(type_, "__doc__", None) or "").strip() or None
        if inspect.isroutine(type_):
            self.function = tool_signature(type_)
            self.adapter, self.description = self.function.arguments, self.function.description
        elif inspect.isclass(type_) and issubclass(type_, _StructuredDict):
            self.adapter = TypeAdapter(type_.json_schema, dict)
        else:
            self.adapter = type_adapter(type_)
            if getattr(type_, "__module__", "builtins") == "builtins":
                self.description = None

    def validate(self, value: Any) -> Candidate:
        return Candidate(self.adapter.validate(value), self.function)


class OutputSchema:
    """The JSON Schema of one output type, or of several as one; always of an object."""

    def __init__(self, types_: Any, max_retries: int | None = None) -> None:
        self._members = [_Member(type_) for type_ in _member_types(types_)]
        self.max_retries = max_retries
        [first, *others] = self._members
        self.name = first.name
        self.description = None if others else first.description
        if others:
            names = [member.name for member in self._members]
            if len(set(names)) < len(names):
                raise RequestError(f"two of the output types have the same name: {', '.join(names)}")
            value: dict[str, Any] = {"anyOf": [_tagged_schema(member) for member in self._members]}
        elif first.adapter.schema.get("type") == "object":
            self.schema, self._is_wrapped = first.adapter.schema, False
            return
        else:
            value = first.adapter.schema
        wrapper = {"type": "object", "properties": {_WRAPPER_FIELD: value}, "required": [_WRAPPER_FIELD]}
        self.schema, self._is_wrapped = inline_root({**wrapper, "additionalProperties": False}), True

    def validate(self, value: Any) -> Candidate:
        """Convert a JSON value to the type. Raises `ValueError` that says what is wrong."""
        if self._is_wrapped:
            if not isinstance(value, dict) or _WRAPPER_FIELD not in value:
                raise ValueError(f"Object missing required field `{_WRAPPER_FIELD}`")
            value = value[_WRAPPER_FIELD]
        if len(self._members) == 1:
            return self._members[0].validate(value)
        kind = value.get("kind") if isinstance(value, dict) else None
        for member in self._members:
            if member.name == kind:
                return member.validate(value.get("data"))
        raise ValueError(f"`kind` must be one of {', '.join(member.name for member in self._members)}")

    def validate_text(self, text: str) -> Candidate:
        """Convert JSON text to the type. Raises `ValueError` that says what is wrong."""
        try:
            value = msgspec.json.decode(strip_code_fence(text))
        except msgspec.DecodeError as error:
            raise ValueError(f"this is not JSON: {error}") from error
        return self.validate(value)


def _tagged_schema(member: _Member) -> dict[str, Any]:
    """Return the schema of one of several types: an object that says which type its data has."""
    properties = {"kind": {"type": "string", "const": member.name}, "data": member.adapter.schema}
    schema = {"type": "object", "properties": properties, "required": ["kind", "data"], "additionalProperties": False}
    return schema | ({"description": member.description} if member.description else {})


@dataclass
class Output:
    """The outputs that a run may have, derived from an `output_type`."""

    allows_text: bool = False
    """Whether text without a schema is an output."""
    text_function: Callable[..., Any] | None = None
    """Makes the output of such a text."""
    allows_none: bool = False
    """Whether an answer without text is an output: None."""
    tools: dict[str, OutputSchema] = field(default_factory=dict)
    """The output tools by name: a call of one is the answer."""
    definitions: list[ToolDefinition] = field(default_factory=list)
    format: OutputFormat = field(default_factory=OutputFormat)
    text_schema: OutputSchema | None = None
    """The schema of the answer's text, if it must have one."""
    instructions: str | None = None

    @property
    def accepts_text(self) -> bool:
        """Whether an answer can be text, with or without a schema."""
        return self.allows_text or self.text_schema is not None

    async def finish_text(self, text: str, context: RunContext[Any]) -> Any:
        """Return the output of a text. Raises `ModelRetry` that says what is wrong."""
        if self.text_schema is not None:
            try:
                candidate = self.text_schema.validate_text(text)
            except ValueError as error:
                raise ModelRetry(f"The answer has not the right form: {error}\n\nFix it and try again.") from error
            return await candidate.finish(context)
        if not self.allows_text:
            raise ModelRetry(f"Answer by calling {' or '.join(self.tools)}, not in text.")
        return text if self.text_function is None else await call_function(self.text_function, context, text)


def build_output(output_type: Any) -> Output:
    """Derive the outputs from an `output_type`. Raises `RequestError` for a type without a JSON Schema."""
    output = Output()
    types_ = _member_types(output_type)
    output.allows_none = any(type_ in (None, type(None)) or _is_optional(type_) for type_ in types_)
    types_ = [type_ for type_ in types_ if type_ not in (None, type(None), DeferredToolRequests)]
    if not types_:
        raise RequestError("output_type names no type: give str, a type, a function, or a list of these")
    tool_count = sum(not (type_ is str or isinstance(type_, TextOutput)) for type_ in types_)
    for type_ in types_:
        if type_ is str:
            output.allows_text = True
        elif isinstance(type_, TextOutput):
            output.allows_text, output.text_function = True, type_.output_function
        elif isinstance(type_, (NativeOutput, PromptedOutput)):
            _add_text_schema(output, type_)
        else:
            tool = type_ if isinstance(type_, ToolOutput) else ToolOutput(type_)
            schema = OutputSchema(tool.type_, tool.max_retries)
            if tool.name is not None:
                check_tool_name(tool.name, "an output tool")
            name = tool.name or ("final_result" if tool_count == 1 else accepted_name(f"final_result_{schema.name}"))
            if name in output.tools:
                name = f"{name}_{len(output.tools) + 1}"
            output.tools[name] = schema
            description = tool.description or schema.description or "The final response, which ends this conversation."
            output.definitions.append(ToolDefinition(name, schema.schema, description, tool.strict, kind="output"))
    return output


def _add_text_schema(output: Output, type_: NativeOutput[Any] | PromptedOutput[Any]) -> None:
    if output.text_schema is not None:
        raise RequestError("an answer in text can have one form only: give one NativeOutput or PromptedOutput")
    output.text_schema = schema = OutputSchema(type_.outputs)
    name, description = type_.name or schema.name, type_.description or schema.description
    if isinstance(type_, NativeOutput):
        # The name is a label for the model alone.
        output.format = OutputFormat("json_schema", accepted_name(name), schema.schema, description, type_.strict)
        return
    output.format = OutputFormat("json_object")
    if type_.template is not False:
        titled = schema.schema
        if type_.name or type_.description:
            titled = {"title": name} | ({"description": description} if description else {}) | titled
        template = _PROMPT if type_.template is None else type_.template
        output.instructions = template.replace("{schema}", msgspec.json.encode(titled).decode())


def _member_types(output_type: Any) -> list[Any]:
    if isinstance(output_type, (list, tuple)):
        return [member for type_ in output_type for member in _member_types(type_)]
    if get_origin(output_type) in (Union, types.UnionType):
        members = list(get_args(output_type))
        # An optional value is one type of JSON; optional text is no JSON.
        return [output_type] if type(None) in members and str not in members else members
    return [output_type]


def _is_optional(type_: Any) -> bool:
    return get_origin(type_) in (Union, types.UnionType) and type(None) in get_args(type_)


def strip_code_fence(text: str) -> str:
    """Return the JSON text that a model put into a code block."""
    text = text.strip()
    if text.startswith("```"):
        text = text.partition("\n")[2].rstrip().removesuffix("```")
    return text
