"""A model for tests: it calls every tool with arguments that fit its schema, and then answers.

    with agent.override(model=TestModel()):
        result = agent.run_sync("Anything.")  # '{"weather":"rain"}': the results of the tools

In the first turn of a conversation it calls all tools. In the next, it calls those again that asked for it, or answers:
in text, with the results of the tools as JSON; in text of the wanted schema; or by a call of an output tool. It thinks
before its answer if it has a `custom_thinking_text`, or if thinking is switched on. The names are Pydantic AI's.

`SchemaValues` makes the values: the same ones each time, the smallest that a schema allows. Another seed gives others.
"""

from __future__ import annotations

import math
from datetime import date, timedelta
from itertools import chain
from typing import Any, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from ..errors import RequestError
from ..parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    Origin,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    json_text,
)
from ..settings import ModelCall, ModelSettings, ToolDefinition, merge_settings
from .function import ModelRequestParameters, agent_info, open_response
from .model import ModelStream

DEFAULT_THINKING_TEXT = "I call every tool, and then I answer."


class TestModel:
    """A model that calls every tool, and then answers. It makes no request."""

    __test__: ClassVar = False  # pytest must not collect it

    def __init__(
        self,
        *,
        call_tools: list[str] | Literal["all"] = "all",
        custom_output_text: str | None = None,
        custom_output_args: Any = None,
        custom_thinking_text: str | None = None,
        seed: int = 0,
        model_name: str = "test",
        settings: ModelSettings | None = None,
    ) -> None:
        """Create a model.

        Args:
            call_tools: The names of the tools to call, or `all`.
            custom_output_text: The answer, in text.
            custom_output_args: The answer as a value: the arguments of the output tool, or the JSON of the text.
            custom_thinking_text: What it thinks before each answer; by default it thinks only if thinking is on.
            seed: Another seed gives other arguments.
            model_name: The model's name.
            settings: Settings of each call; those of the call take precedence.
        """
        self.call_tools = call_tools
        self.custom_output_text = custom_output_text
        self.custom_output_args = custom_output_args
        self.custom_thinking_text = custom_thinking_text
        self.seed = seed
        self.name = model_name
        self.origin = Origin("test", "test", model_name)
        self.settings = settings
        self.last_model_request_parameters: ModelRequestParameters | None = None
        """The tools and the output of the last request; None before the first."""

    @property
    def model_name(self) -> str:
        """The model's name."""
        return self.name

    def warnings(self, call: ModelCall) -> list[str]:
        """Return no warnings: it ignores the settings, except for `thinking`."""
        return []

    async def open(self, call: ModelCall) -> ModelStream:
        """Start a turn.

        Raises:
            RequestError: `call_tools` names a tool that the request does not have, or the custom output is not one that
                the request accepts.
        """
        call = replace(call, settings=merge_settings(self.settings, call.settings))
        parameters = self.last_model_request_parameters = agent_info(call).model_request_parameters
        parts = self._parts(call.messages, parameters)
        if thinking_text := self._thinking_text(call.settings):
            parts = [ThinkingPart(thinking_text), *parts]
        return await open_response(self.origin, ModelResponse(parts, model_name=self.name), call)

    def _thinking_text(self, settings: ModelSettings) -> str | None:
        if self.custom_thinking_text is not None:
            return self.custom_thinking_text
        return None if settings.get("thinking") in (None, False, "none") else DEFAULT_THINKING_TEXT

    def _parts(self, messages: list[ModelMessage], parameters: ModelRequestParameters) -> list[ModelResponsePart]:
        tools = self._tools_to_call(parameters)
        if not any(isinstance(message, ModelResponse) for message in messages):
            if tools:
                return [self._call(tool) for tool in tools]
        elif retried := _retried_tools(messages):
            calls: list[ModelResponsePart] = [self._call(tool) for tool in tools if tool.name in retried]
            calls += [self._output_call(tool) for tool in parameters.output_tools if tool.name in retried]
            if calls:
                return calls
        return [self._answer(messages, parameters)]

    def _tools_to_call(self, parameters: ModelRequestParameters) -> list[ToolDefinition]:
        if self.call_tools == "all":
            return parameters.function_tools
        tools = {tool.name: tool for tool in parameters.function_tools}
        for name in self.call_tools:
            if name not in tools:
                raise RequestError(f"call_tools: there is no tool {name!r}; there are: {', '.join(tools) or 'none'}")
        return [tools[name] for name in self.call_tools]

    def _call(self, tool: ToolDefinition) -> ToolCallPart:
        values = SchemaValues({"type": "object"} | tool.parameters_json_schema, self.seed)
        return ToolCallPart(tool.name, values.value(), _call_id(tool))

    def _output_call(self, tool: ToolDefinition) -> ToolCallPart:
        if self.custom_output_args is None:
            return self._call(tool)
        arguments = _wrapped(_plain(self.custom_output_args), tool.parameters_json_schema)
        return ToolCallPart(tool.name, arguments, _call_id(tool))

    def _answer(self, messages: list[ModelMessage], parameters: ModelRequestParameters) -> ModelResponsePart:
        if self.custom_output_text is not None:
            if not parameters.allow_text_output:
                names = ", ".join(tool.name for tool in parameters.output_tools)
                raise RequestError(f"custom_output_text: this agent answers by a call of {names}, not in text")
            return TextPart(self.custom_output_text)
        output, output_tools = parameters.output_format, parameters.output_tools
        if output_tools and (self.custom_output_args is not None or not parameters.allow_text_output):
            return self._output_call(output_tools[self.seed % len(output_tools)])
        if self.custom_output_args is not None:
            if output.kind == "text":
                raise RequestError("custom_output_args: this agent answers in text; use custom_output_text")
            return TextPart(json_text(_wrapped(_plain(self.custom_output_args), output.schema or {})))
        if output.schema is not None:
            return TextPart(json_text(SchemaValues(output.schema, self.seed).value()))
        results = {
            part.tool_name: part.content
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        }
        return TextPart(json_text(results) if results else "success (no tool calls)")


def _call_id(tool: ToolDefinition) -> str:
    """Return the id of the first call of a tool, as Pydantic AI's `TestModel` makes it: tests may expect it.

    A run replaces an id that the conversation has already.
    """
    return f"pyd_ai_tool_call_id__{tool.name}"


def _retried_tools(messages: list[ModelMessage]) -> set[str]:
    """Return the names of the tools that the last message asks to call again."""
    last = messages[-1] if messages else None
    parts = last.parts if isinstance(last, ModelRequest) else []
    return {part.tool_name for part in parts if isinstance(part, RetryPromptPart) and part.tool_name is not None}


def _plain(value: Any) -> Any:
    """Return the JSON value of dataclasses, Structs and pydantic models."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else msgspec.to_builtins(value)


def _wrapped(value: Any, schema: dict[str, Any]) -> Any:
    """Return the value as an object, as a schema with one field (`agent.output`) wants a value that is none."""
    names = list(schema.get("properties", {}))
    if len(names) == 1 and not (isinstance(value, dict) and names[0] in value):
        return {names[0]: value}
    return value


# --- values for a schema -------------------------------------------------------------------------------------------


class _TooDeep(Exception):
    """A schema refers to itself, and no smaller value was found."""


class SchemaValues:
    """Makes values that fit a JSON Schema. (It does not read `pattern`, `not`, `if` and `contains`.)

    Args:
        schema: The schema, with its definitions.
        seed: Another seed gives other values.
    """

    MAX_DEPTH = 12

    def __init__(self, schema: dict[str, Any], seed: int = 0) -> None:
        self._schema = schema
        self._seed = seed

    def value(self) -> Any:
        """Return a value.

        Raises:
            RequestError: The schema allows no value of limited depth.
        """
        try:
            return self._value(self._schema, 0)
        except _TooDeep:
            raise RequestError("the JSON Schema has no value that ends: it requires itself") from None

    def _value(self, schema: Any, depth: int) -> Any:
        if depth > self.MAX_DEPTH:
            raise _TooDeep
        if not isinstance(schema, dict):
            return self._text({})
        if "const" in schema:
            return schema["const"]
        for name in ("enum", "examples"):
            if schema.get(name):
                return schema[name][self._seed % len(schema[name])]
        if "$ref" in schema:
            rest = {name: value for name, value in schema.items() if name != "$ref"}
            return self._value({**self._definition(schema["$ref"]), **rest}, depth + 1)
        if schema.get("allOf"):
            return self._value(self._merged(schema), depth + 1)
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            return self._first_option(schema, options, depth)
        types = schema.get("type", "object" if "properties" in schema else "string")
        type_ = types[self._seed % len(types)] if isinstance(types, list) else types
        match type_:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return bool(self._seed % 2)
            case "null":
                return None
            case _:
                return self._text(schema)

    def _definition(self, reference: str) -> dict[str, Any]:
        """Return what a reference within the schema (`#/$defs/NAME`) names."""
        definition: Any = self._schema
        for name in filter(None, reference.removeprefix("#").split("/")):
            definition = (
                definition.get(name.replace("~1", "/").replace("~0", "~"), {}) if isinstance(definition, dict) else {}
            )
        return definition if isinstance(definition, dict) else {}

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return one schema for `allOf`."""
        merged = {name: value for name, value in schema.items() if name != "allOf"}
        for member in schema["allOf"]:
            member = self._definition(member["$ref"]) if "$ref" in member else member
            properties = {**merged.get("properties", {}), **member.get("properties", {})}
            required = [*merged.get("required", []), *member.get("required", [])]
            merged = {**member, **merged, "properties": properties, "required": required}
        if not merged["properties"]:
            del merged["properties"]
        return merged

    def _first_option(self, schema: dict[str, Any], options: list[Any], depth: int) -> Any:
        """Return a value for one of the options: of those that end, the first from the seed on."""
        rest = {name: value for name, value in schema.items() if name in ("properties", "required")}
        start = self._seed % len(options)
        for option in chain(options[start:], options[:start]):
            try:
                return self._value({"allOf": [option], **rest} if rest else option, depth + 1)
            except _TooDeep:
                pass
        raise _TooDeep

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), set(schema.get("required", []))
        # The tag of a type is often a constant with a default, and not required; a union is read by it.
        out = {
            name: self._value(inner, depth + 1)
            for name, inner in properties.items()
            if name in required or (isinstance(inner, dict) and "const" in inner)
        }
        for name in required - properties.keys():
            out[name] = self._value(schema.get("additionalProperties", {}), depth + 1)
        names = (f"property_{number}" for number in range(1, 1000))
        others = iter([*(name for name in properties if name not in out), *names])
        while len(out) < schema.get("minProperties", 0):
            name = next(others)
            out[name] = self._value(properties.get(name, schema.get("additionalProperties", {})), depth + 1)
        return out

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        prefix, items = schema.get("prefixItems", []), schema.get("items", {})
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        length = max(least, len(prefix) or (1 if items else 0))
        out: list[Any] = []
        seed = self._seed
        try:
            for index in range(int(min(length, most))):
                out.append(self._value(prefix[index] if index < len(prefix) else items, depth + 1))
                if schema.get("uniqueItems"):
                    self._seed += 1
        except _TooDeep:
            if len(out) < least:
                raise
        finally:
            self._seed = seed
        return out

    def _integer(self, schema: dict[str, Any]) -> int:
        low: float = schema.get("minimum", -math.inf)
        high: float = schema.get("maximum", math.inf)
        if "exclusiveMinimum" in schema:
            low = max(low, math.floor(schema["exclusiveMinimum"]) + 1)
        if "exclusiveMaximum" in schema:
            high = min(high, math.ceil(schema["exclusiveMaximum"]) - 1)
        step: int = max(1, math.ceil(schema.get("multipleOf", 1)))
        last = math.floor(high / step) if math.isfinite(high) else None
        if math.isinf(low) and last is not None:
            return (last - self._seed) * step
        first = math.ceil(low / step) if math.isfinite(low) else 0
        count = self._seed + 1 if last is None else max(1, last - first + 1)
        return (first + self._seed % count) * step

    def _number(self, schema: dict[str, Any]) -> float:
        step = schema.get("multipleOf")
        if step:
            bounds = {name: value / step for name, value in schema.items() if name.lower().endswith("imum")}
            return float(self._integer(bounds) * step)
        low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
        high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
        if math.isfinite(low) and math.isfinite(high):
            return float(low + (high - low) * (1 + self._seed % 7) / 8)
        if math.isfinite(low):
            return float(low + self._seed + ("exclusiveMinimum" in schema))
        if math.isfinite(high):
            return float(high - self._seed - ("exclusiveMaximum" in schema))
        return float(self._seed)

    def _text(self, schema: dict[str, Any]) -> str:
        example = self._formatted(schema.get("format"))
        if example is not None:
            return example
        letters, number = "", self._seed
        while not letters or number:
            letters, number = chr(ord("a") + number % 26) + letters, number // 26
        length = max(len(letters), schema.get("minLength", 0))
        return letters.rjust(length, letters[0])[-length:][: schema.get("maxLength")]

    def _formatted(self, format_: Any) -> str | None:
        """Return a text of a format, or None if the format has no rules here."""
        number = self._seed
        day = date(2024, 1, 1) + timedelta(days=number % 10_000)
        match format_:
            case "date":
                return day.isoformat()
            case "date-time":
                return f"{day.isoformat()}T12:00:00Z"
            case "time":
                return f"12:00:{number % 60:02}Z"
            case "duration":
                return f"PT{number + 1}S"
            case "uuid" | "uuid4":
                return f"{number % 2**32:08x}-0000-4000-8000-000000000000"
            case "email":
                return f"a{number}@example.com"
            case "uri" | "url":
                return f"https://example.com/{number}"
            case "hostname":
                return f"a{number}.example.com"
            case "ipv4":
                return f"192.0.2.{number % 256}"
            case "ipv6":
                return f"2001:db8::{number % 65_536:x}"
            case "binary" | "byte" | "base64":
                return "YQ=="
            case "decimal":
                return str(number)
            case _:
                return None
