"""A function as a tool: its JSON Schema comes from its type hints, its descriptions from its docstring.

A first parameter for a `RunContext` is not shown to the model. Functions that are not coroutines run in a
thread of their own, so that a slow one blocks nothing else. `type_adapter` says which types parameters may have.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_origin, get_type_hints

import docstring_parser
from docstring_parser import DocstringStyle

from ..errors import RequestError
from ..settings import ToolDefinition
from .context import RunContext
from .type_adapter import Argument, TypeAdapter, arguments_adapter


class ModelRetry(Exception):
    """Raised by a function or a validator: the model gets this message and may try again."""

    @property
    def message(self) -> str:
        """The message to the model."""
        return str(self)


DocstringFormat = Literal["auto", "google", "numpy", "sphinx"]

_DOCSTRING_STYLES = {
    "auto": DocstringStyle.AUTO,
    "google": DocstringStyle.GOOGLE,
    "numpy": DocstringStyle.NUMPYDOC,
    "sphinx": DocstringStyle.REST,
}


@dataclass(frozen=True)
class ToolSignature:
    """A function, with its parameters and its description."""

    function: Callable[..., Any]
    takes_context: bool
    arguments: TypeAdapter
    """Validates the arguments to a dictionary by parameter."""
    description: str | None
    positional_names: frozenset[str] = frozenset()
    """The parameters that have no keyword."""

    async def run(self, context: RunContext[Any], arguments: dict[str, Any]) -> Any:
        """Call the function; a function that is no coroutine function runs in a thread."""
        leading = (context,) if self.takes_context else ()
        positional = [value for name, value in arguments.items() if name in self.positional_names]
        named = {name: value for name, value in arguments.items() if name not in self.positional_names}
        call = partial(self.function, *leading, *positional, **named)
        if _is_async(self.function):
            return await _await_guarded(call())
        value = await run_in_thread(call, ())
        return await _await_guarded(value) if inspect.isawaitable(value) else value


def _name_of(function: Callable[..., Any]) -> str:
    """Return a function's name; for a partial, that of its function; for an object, that of its class."""
    inner = getattr(function, "func", function)
    return getattr(inner, "__name__", None) or type(inner).__name__


def takes_context(function: Callable[..., Any], arguments: int | None = None) -> bool:
    """Check that a function takes a `RunContext` first.

    Args:
        function: The function.
        arguments: With how many other arguments it is called: a function that requires one more takes a context,
            whether or not it is annotated. None: the annotation alone decides.
    """
    parameters = list(inspect.signature(function).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    if arguments is not None and len(required) > arguments:
        return True
    try:
        hint = _hints(function).get(parameters[0].name) if parameters else None
    except RequestError:
        if arguments is None:
            raise
        return False  # the number of its parameters said enough
    return hint is RunContext or get_origin(hint) is RunContext


async def call_function(function: Callable[..., Any], context: RunContext[Any], *arguments: Any) -> Any:
    """Call a function of an agent with `arguments`, and with the context first if it takes one. Awaits the value."""
    takes = takes_context(function, len(arguments))
    value = function(context, *arguments) if takes else function(*arguments)
    return await value if inspect.isawaitable(value) else value


def _first_hint(function: Callable[..., Any]) -> Any:
    """Return the hint of the first parameter; Any if it has no hint, None if there is no parameter."""
    names = list(inspect.signature(function).parameters)
    return _hints(function).get(names[0], Any) if names else None


def tool_signature(
    function: Callable[..., Any],
    takes_ctx: bool | None = None,
    *,
    docstring_format: DocstringFormat = "auto",
    require_descriptions: bool = False,
) -> ToolSignature:
    """Inspect a function.

    Args:
        function: The function.
        takes_ctx: Whether it takes a context first; None: as its annotation says.
        docstring_format: The form in which its docstring describes the parameters.
        require_descriptions: Whether each parameter must have a description.

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
    docstring = docstring_parser.parse(inspect.getdoc(function) or "", _DOCSTRING_STYLES[docstring_format])
    descriptions = {parameter.arg_name: parameter.description for parameter in docstring.params}
    missing = [parameter.name for parameter in parameters if not descriptions.get(parameter.name)]
    if require_descriptions and missing:
        raise RequestError(f"the docstring of the tool {name} does not describe {', '.join(missing)}")
    arguments: list[Argument] = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RequestError(
                f"the tool {name} takes *{parameter.name}: a model must know each parameter by its name",
                kind="unsupported",
            )
        description = descriptions.get(parameter.name)
        arguments.append(Argument(parameter.name, hints.get(parameter.name, Any), parameter.default, description))
    adapter = arguments_adapter(name, arguments)
    positional_names = frozenset(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)
    description = (
        "\n\n".join(text for text in (docstring.short_description, docstring.long_description) if text) or None
    )
    return ToolSignature(function, with_context, adapter, description, positional_names)


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        raise RequestError(
            f"a type hint of {getattr(function, '__name__', function)!s} cannot be read: {error}; "
            "names in hints must be importable where the function is defined"
        ) from error


class FunctionExit(RuntimeError):
    """A function raised what is no `Exception`, such as `SystemExit`, which is the cause."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the function raised {type(cause).__name__}")


def _call_guarded(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except StopIteration as error:
        # A future cannot hold StopIteration: its waiter would wait for ever.
        raise RuntimeError("the function raised StopIteration") from error
    except Exception:
        raise
    except BaseException as error:
        # SystemExit and KeyboardInterrupt would stop the server. Panics of native code are of such a class, too.
        raise FunctionExit(error) from error


async def _await_guarded(value: Awaitable[Any]) -> Any:
    """Await what an async function returned. A cancellation is passed on."""
    try:
        return await value
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise FunctionExit(error) from error


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


ToolPrepare = Callable[[RunContext[Any], ToolDefinition], ToolDefinition | Awaitable[ToolDefinition | None] | None]


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
        prepare: Called before each request to the model with the context and a copy of the tool's definition; returns
            the definition for this request, or None if the model shall not have the tool.
        metadata: Your own data, for functions that filter or prepare tools.
        docstring_format: The form in which the docstring describes the parameters.
        require_parameter_descriptions: Whether a parameter without a description is an error.

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
        prepare: ToolPrepare | None = None,
        metadata: dict[str, Any] | None = None,
        docstring_format: DocstringFormat = "auto",
        require_parameter_descriptions: bool = False,
    ) -> None:
        self._signature = tool_signature(
            function,
            takes_ctx,
            docstring_format=docstring_format,
            require_descriptions=require_parameter_descriptions,
        )
        self.function = function
        self.name: str = name or _name_of(function)
        self.max_retries = max_retries
        self.timeout = timeout
        self.sequential = sequential
        self.prepare = prepare
        self.definition = ToolDefinition(
            self.name,
            self._signature.arguments.schema,
            description or self._signature.description,
            strict,
            kind="unapproved" if requires_approval else "function",
            metadata=metadata,
        )

    @classmethod
    def from_schema(
        cls,
        function: Callable[..., Any],
        name: str,
        description: str | None,
        json_schema: dict[str, Any],
        takes_ctx: bool = False,
        sequential: bool = False,
    ) -> Tool:
        """Return a tool with a JSON Schema that you write. Its arguments are not validated.

        Args:
            function: The function. It is called with keyword arguments.
            name: The tool's name.
            description: The tool's description.
            json_schema: The schema of the arguments object.
            takes_ctx: Whether the function takes a `RunContext` first.
            sequential: Whether it must run alone.
        """
        tool = cls(_no_arguments, name=name, sequential=sequential)
        tool.function = function
        tool._signature = ToolSignature(function, takes_ctx, TypeAdapter(json_schema, dict), description)
        tool.definition = ToolDefinition(name, json_schema, description)
        return tool

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate the arguments. Raises `ValueError` that says what is wrong."""
        validated: dict[str, Any] = self._signature.arguments.validate(arguments)
        return validated

    async def call(self, context: RunContext[Any], arguments: dict[str, Any]) -> Any:
        """Call the function with validated arguments. Raises what the function raises."""
        return await self._signature.run(context, arguments)


def _no_arguments() -> None:
    """A function without parameters."""
