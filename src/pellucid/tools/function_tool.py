"""A function as a tool: its JSON Schema comes from its type hints, its descriptions from its docstring.

A first parameter annotated with `RunContext` is not shown to the model. Functions that are not coroutines run in a
thread of their own, so that a slow one blocks nothing else.

`TypeAdapter` holds the JSON Schema of a Python type, and converts JSON values to the type.

msgspec reads annotations: builtins, dataclasses, TypedDicts, NamedTuples, enums, Literals, Structs, unions, dates,
`Annotated[…, Meta(…)]`. A pydantic model inside any of these validates itself, where pydantic is installed. Conversion
is lenient: models write "3" where 3 is meant.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, get_origin, get_type_hints

import docstring_parser
import msgspec

from ..errors import RequestError
from ..settings import ToolDefinition
from .context import RunContext

_DEFINITIONS = "$defs"


class TypeAdapter(NamedTuple):
    """The JSON Schema and the validation of one type."""

    schema: dict[str, Any]
    """The JSON Schema, an object with all its definitions inside."""
    validate: Callable[[Any], Any]
    """Converts JSON values to the type. Raises `ValueError` that says what is wrong, and where."""


def type_adapter(type_: Any) -> TypeAdapter:
    """Return the adapter of a type. Raises `RequestError` for a type without a JSON Schema."""
    try:
        schema = msgspec.json.schema(type_, schema_hook=_pydantic_schema)
    except (TypeError, NotImplementedError) as error:
        raise RequestError(
            f"{getattr(type_, '__name__', type_)!s} cannot be described by a JSON Schema: {error}",
            kind="unsupported",
        ) from error

    def validate(value: Any) -> Any:
        try:
            return msgspec.convert(value, type_, strict=False, dec_hook=_validate_pydantic)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error

    return TypeAdapter(_inline_root(schema), validate)


def _inline_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace a reference at the root of the schema by its definition, and collect all other definitions next to it."""
    definitions: dict[str, Any] = {}
    _collect_definitions(schema, definitions)
    reference = schema.get("$ref")
    if isinstance(reference, str) and set(schema) <= {"$ref", _DEFINITIONS}:
        name = reference.rpartition("/")[2]
        schema = dict(definitions[name])
        if f'"#/$defs/{name}"' not in msgspec.json.encode([schema, definitions]).decode():
            del definitions[name]
    schema.pop(_DEFINITIONS, None)
    return schema | ({_DEFINITIONS: definitions} if definitions else {})


def _collect_definitions(value: Any, definitions: dict[str, Any]) -> None:
    """Move definitions, which pydantic puts inside its models, to one place."""
    if isinstance(value, dict):
        for name, definition in value.pop(_DEFINITIONS, {}).items():
            _collect_definitions(definition, definitions)
            if definitions.setdefault(name, definition) != definition:
                raise RequestError(f"there are two types with the name {name}: a JSON Schema can hold one", code="name")
        for inner in value.values():
            _collect_definitions(inner, definitions)
    elif isinstance(value, list):
        for inner in value:
            _collect_definitions(inner, definitions)


def _is_pydantic(type_: Any) -> bool:
    return inspect.isclass(type_) and hasattr(type_, "model_validate") and hasattr(type_, "model_json_schema")


def _pydantic_schema(type_: Any) -> dict[str, Any]:
    if not _is_pydantic(type_):
        raise NotImplementedError("JSON cannot hold this type")
    schema: dict[str, Any] = type_.model_json_schema()
    return schema


def _validate_pydantic(type_: Any, value: Any) -> Any:
    if _is_pydantic(type_):
        return type_.model_validate(value)
    raise NotImplementedError


class ModelRetry(Exception):
    """Raised by a function or a validator: the model gets this message and may try again."""


@dataclass(frozen=True)
class ToolSignature:
    """The parameters and the description of a function."""

    takes_context: bool
    arguments: TypeAdapter
    call: Callable[..., Any]
    """`call(arguments)` or `call(context, arguments)`; returns the value, or an awaitable."""
    description: str | None


def _name_of(function: Callable[..., Any]) -> str:
    """Return a function's name; for a partial, that of its function; for an object, that of its class."""
    inner = getattr(function, "func", function)
    return getattr(inner, "__name__", None) or type(inner).__name__


def takes_context(function: Callable[..., Any]) -> bool:
    """Check that the first parameter is annotated with `RunContext`."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    hint = _hints(function).get(parameters[0].name)
    return hint is RunContext or get_origin(hint) is RunContext


def _first_hint(function: Callable[..., Any]) -> Any:
    """Return the hint of the first parameter; Any if it has no hint, None if there is no parameter."""
    names = list(inspect.signature(function).parameters)
    return _hints(function).get(names[0], Any) if names else None


def tool_signature(function: Callable[..., Any], takes_ctx: bool | None = None) -> ToolSignature:
    """Inspect a function.

    Args:
        function: The function.
        takes_ctx: Whether it takes a context first; None: as its annotation says.

    Raises:
        RequestError: The parameters cannot be described to a model.
    """
    name = _name_of(function)
    is_annotated = takes_context(function)
    with_context = is_annotated if takes_ctx is None else takes_ctx
    if is_annotated and not with_context:
        raise RequestError(f"the tool {name} takes a RunContext, but a plain tool gets none: use @agent.tool")
    if with_context and not is_annotated and (_first_hint(function) is not Any):
        raise RequestError(f"the tool {name} must take a RunContext first, or be a plain one: use @agent.tool_plain")
    parameters = list(inspect.signature(function).parameters.values())[1 if with_context else 0 :]
    hints = _hints(function)
    docstring = docstring_parser.parse(inspect.getdoc(function) or "")
    descriptions = {parameter.arg_name: parameter.description for parameter in docstring.params}
    fields: list[Any] = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RequestError(
                f"the tool {name} takes *{parameter.name}: a model must know each parameter by its name",
                kind="unsupported",
            )
        type_: Any = hints.get(parameter.name, Any)
        if (description := descriptions.get(parameter.name)) is not None:
            type_ = Annotated[type_, msgspec.Meta(description=description)]
        required = parameter.default is parameter.empty
        fields.append((parameter.name, type_) if required else (parameter.name, type_, _default(parameter.default)))
    struct = msgspec.defstruct(
        name if name.isidentifier() else "Arguments", fields, kw_only=True, forbid_unknown_fields=True
    )
    adapter = type_adapter(struct)
    schema = {key: value for key, value in adapter.schema.items() if key != "title"}
    positional_names = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    keyword_names = [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]

    def call(*arguments: Any) -> Any:
        *leading, validated = arguments
        values = [getattr(validated, field) for field in positional_names]
        return function(*leading, *values, **{field: getattr(validated, field) for field in keyword_names})

    description = (
        "\n\n".join(text for text in (docstring.short_description, docstring.long_description) if text) or None
    )
    return ToolSignature(
        with_context, TypeAdapter({**schema, "additionalProperties": False}, adapter.validate), call, description
    )


def _default(value: Any) -> Any:
    """Return the default of a field. msgspec needs a factory for mutable defaults."""
    if isinstance(value, (list, dict, set)):
        return msgspec.field(default_factory=lambda: value)
    return value


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        raise RequestError(
            f"a type hint of {getattr(function, '__name__', function)!s} cannot be read: {error}; "
            "names in hints must be importable where the function is defined"
        ) from error


def _call_guarded(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except (StopIteration, KeyboardInterrupt) as error:
        # A future cannot hold StopIteration: its waiter would wait for ever. KeyboardInterrupt would stop the server,
        # although no user pressed a key.
        raise RuntimeError(f"the function raised {type(error).__name__}") from error


async def run_in_thread(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a function in a daemon thread of its own.

    The process does not wait for it when it exits. A shared pool would be blocked by threads that hang, and could then
    resolve no more host names.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        value, raised = None, None
        try:
            value = context.run(_call_guarded, function, arguments)
        except BaseException as error:
            raised = error
        with suppress(RuntimeError):  # the loop may have been closed
            loop.call_soon_threadsafe(settle, value, raised)

    threading.Thread(target=run, name=_name_of(function), daemon=True).start()
    return await future


class Tool:
    """A function that a model may call.

    Args:
        function: The function.
        name: The tool's name; by default, the function's.
        description: The tool's description; by default, from the docstring.
        takes_ctx: Whether the function takes a `RunContext` first; None: as its annotation says.
        max_retries: How often in a row it may fail; None: as the agent's `retries`.
        timeout: Seconds for each call; None: as the agent's `tool_timeout`.
        sequential: Whether it must run alone.
        strict: Whether the provider must force the arguments to match the schema.
        requires_approval: Whether each call needs an approval (see `ApprovalRequired`).

    Raises:
        RequestError: The function's parameters cannot be described to a model.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        takes_ctx: bool | None = None,
        max_retries: int | None = None,
        timeout: float | None = None,
        sequential: bool = False,
        strict: bool | None = None,
        requires_approval: bool = False,
    ) -> None:
        signature = tool_signature(function, takes_ctx)
        self.function = function
        self.name: str = name or _name_of(function)
        self.max_retries = max_retries
        self.timeout = timeout
        self.sequential = sequential
        self.requires_approval = requires_approval
        self._signature = signature
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )
        self.definition = ToolDefinition(
            self.name, signature.arguments.schema, description or signature.description, strict
        )

    def validate(self, arguments: dict[str, Any]) -> Any:
        """Validate the arguments. Raises `ValueError` that says what is wrong."""
        return self._signature.arguments.validate(arguments)

    async def call(self, context: RunContext[Any], arguments: Any) -> Any:
        """Call the function with validated arguments. Raises what the function raises."""
        call_arguments = (context, arguments) if self._signature.takes_context else (arguments,)
        if self._is_async:
            return await self._signature.call(*call_arguments)
        value = await run_in_thread(self._signature.call, call_arguments)
        return await value if inspect.isawaitable(value) else value
