"""A model whose turns are written by a function: for tests of agents, and for anything that can answer a conversation.

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ThinkingPart("Simple."), TextPart("42")])

    with agent.override(model=FunctionModel(answer)):
        ...

A `stream_function` yields a turn piece by piece: text, calls (`{0: DeltaToolCall(…)}`) and reasoning
(`{0: DeltaThinkingPart(…)}`), in any order. The names are Pydantic AI's.

* Both are written with an `Emitter`, so that a run, an application or a gateway gets the events of a real model. A
  response that is whole arrives in words.
* What the function raises before the first piece is raised by `open`. A `PellucidError` after it ends the turn as
  failed; any other exception is a fault of the model, and ends the run.
* Tokens are estimated from the text, where the function does not give the usage itself.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..conversation import part_length
from ..emit import Emitter
from ..errors import ErrorInfo, PellucidError
from ..events import ModelEvent, PartDeltaEvent
from ..parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    Origin,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    Usage,
    estimated_tokens,
)
from ..settings import ModelCall, ModelSettings, OutputFormat, ToolDefinition, merge_settings
from ..tools.function_tool import run_in_thread
from .model import ModelEventReceiver, ModelRead, ModelStream, TextReceiver


@dataclass(frozen=True, kw_only=True)
class ModelRequestParameters:
    """The tools and the output of one request, as a model gets them."""

    function_tools: list[ToolDefinition]
    """The functions that the model may call."""
    output_tools: list[ToolDefinition]
    """The tools of which a call is the answer."""
    allow_text_output: bool
    """Whether an answer may be text."""
    output_format: OutputFormat
    """The format of an answer in text."""


@dataclass(frozen=True, kw_only=True)
class AgentInfo:
    """What a function gets in addition to the messages."""

    function_tools: list[ToolDefinition]
    """The functions that the model may call."""
    allow_text_output: bool
    """Whether an answer may be text."""
    output_tools: list[ToolDefinition]
    """The tools of which a call is the answer."""
    model_settings: ModelSettings
    """The settings of the request, with those of the model."""
    model_request_parameters: ModelRequestParameters
    """Tools and output together."""
    instructions: str | None
    """The instructions of the run."""


@dataclass(frozen=True)
class DeltaToolCall:
    """A piece of a function call. The first piece of a call has its name."""

    name: str | None = None
    json_args: str | None = None
    """More of the arguments, as JSON text."""
    tool_call_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class DeltaThinkingPart:
    """A piece of reasoning. A signature replaces an earlier one."""

    content: str | None = None
    signature: str | None = None


DeltaToolCalls: TypeAlias = dict[int, DeltaToolCall]
"""Pieces of calls, by the number of the call."""
DeltaThinkingCalls: TypeAlias = dict[int, DeltaThinkingPart]
"""Pieces of reasoning, by the number of the thought."""
BuiltinToolCallsReturns: TypeAlias = dict[int, BuiltinToolCallPart | BuiltinToolReturnPart]
"""Calls of tools that the provider runs, and their results."""

StreamItem: TypeAlias = (
    str | Mapping[int, DeltaToolCall | DeltaThinkingPart | BuiltinToolCallPart | BuiltinToolReturnPart]
)
"""A piece of a turn: text, or pieces of other parts by their number."""
FunctionDef: TypeAlias = Callable[[list[ModelMessage], AgentInfo], ModelResponse | Awaitable[ModelResponse]]
"""Returns a turn. A function that is not a coroutine runs in a thread."""
StreamFunctionDef: TypeAlias = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[StreamItem]]
"""Yields a turn piece by piece."""

Writing: TypeAlias = Callable[[Emitter], AsyncGenerator[None]]
"""Writes a turn. What it wrote before each `yield` is one read of the stream."""


def agent_info(call: ModelCall) -> AgentInfo:
    """Return what a function gets of a call."""
    parameters = ModelRequestParameters(
        function_tools=[tool for tool in call.tools if tool.kind != "output"],
        output_tools=[tool for tool in call.tools if tool.kind == "output"],
        allow_text_output=call.tool_choice.mode != "required",
        output_format=call.output,
    )
    requests = [message for message in call.messages if isinstance(message, ModelRequest)]
    return AgentInfo(
        function_tools=parameters.function_tools,
        allow_text_output=parameters.allow_text_output,
        output_tools=parameters.output_tools,
        model_settings=call.settings,
        model_request_parameters=parameters,
        instructions=next((request.instructions for request in requests if request.instructions), None),
    )


class FunctionModel:
    """A model whose turns a function writes.

    A `stream_function` takes precedence, because every turn is read as a stream.
    """

    def __init__(
        self,
        function: FunctionDef | None = None,
        *,
        stream_function: StreamFunctionDef | None = None,
        model_name: str | None = None,
        settings: ModelSettings | None = None,
    ) -> None:
        """Create a model.

        Args:
            function: Returns a whole turn.
            stream_function: Yields a turn piece by piece.
            model_name: The model's name; by default, it names the functions.
            settings: Settings of each call; those of the call take precedence.

        Raises:
            TypeError: There is no function.
        """
        if function is None and stream_function is None:
            raise TypeError("FunctionModel needs a function or a stream_function")
        self.function = function
        self.stream_function = stream_function
        self.name = model_name or ":".join(["function", _name_of(function), _name_of(stream_function)])
        self.origin = Origin("function", "function", self.name)
        self.settings = settings

    @property
    def model_name(self) -> str:
        """The model's name."""
        return self.name

    def warnings(self, call: ModelCall) -> list[str]:
        """Return no warnings: the function gets all settings."""
        return []

    async def open(self, call: ModelCall) -> ModelStream:
        """Start a turn. Raises what the function raises before its first piece."""
        info = agent_info(replace(call, settings=merge_settings(self.settings, call.settings)))
        messages = list(call.messages)
        if self.stream_function is not None:
            items = self.stream_function(messages, info)
            if not hasattr(items, "__aiter__"):
                raise TypeError(f"the stream_function must be an async generator, and returned {type(items).__name__}")
            return await open_stream(self.origin, lambda emitter: _write_items(emitter, items), call)
        assert self.function is not None
        return await open_response(self.origin, await _call(self.function, messages, info), call)


async def open_response(origin: Origin, response: ModelResponse, call: ModelCall) -> ModelStream:
    """Return the stream of a whole response, for the call that it answers."""

    async def write(emitter: Emitter) -> AsyncGenerator[None]:
        for _ in _write_response(emitter, response):
            yield

    return await open_stream(origin, write, call, None if response.usage == Usage() else response.usage)


async def open_stream(origin: Origin, write: Writing, call: ModelCall, usage: Usage | None = None) -> ModelStream:
    """Return the stream of a turn, when its first piece is written.

    Args:
        origin: The model and its provider.
        write: Writes the turn.
        call: The call that it answers.
        usage: The usage; None to estimate it.

    Raises:
        Exception: What `write` raises before the first piece.
    """
    stream = _GeneratedStream(origin, write, call, usage)
    try:
        await stream.first_piece
    except BaseException:
        stream.cancel()
        raise
    return stream


class _GeneratedStream:
    """The stream of a turn that a task writes."""

    queued = False
    request_id = None

    def __init__(self, origin: Origin, write: Writing, call: ModelCall, usage: Usage | None) -> None:
        self._emitter = Emitter(origin)
        self._write = write
        self._call = call
        self._usage = usage
        self._characters = self._reasoning_characters = 0
        """The length of what was written, for the estimate of tokens."""
        self._receive: ModelEventReceiver | None = None
        self._is_over = False
        self._is_paused = False
        self._may_continue = asyncio.Event()
        """Whether the turn was started and is not paused."""
        self.first_piece: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name="model function")

    async def _run(self) -> None:
        end: ModelRead
        try:
            async with aclosing(self._write(self._emitter)) as pieces:
                async for _ in pieces:
                    self._settle_first_piece()
                    await self._may_continue.wait()
                    self._deliver(self._take())
                    await asyncio.sleep(0)  # a function without `await` must not stop the loop
                    await self._may_continue.wait()
            self._settle_first_piece()
            end = self._end()
        except PellucidError as error:
            if self._settle_first_piece(error):
                return
            end = self._end(error.info)
        except asyncio.CancelledError as error:
            if self._is_over:
                raise
            # The function waited for something that was cancelled. The turn was not.
            end = RuntimeError("the function of the model was cancelled")
            end.__cause__ = error
            if self._settle_first_piece(end):
                return
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if not isinstance(error, Exception):  # SystemExit, or a panic of native code
                error, cause = RuntimeError(f"the function of the model raised {type(error).__name__}"), error
                error.__cause__ = cause
            if self._settle_first_piece(error):
                return
            end = error
        await self._may_continue.wait()
        self._deliver(end)

    def _settle_first_piece(self, error: Exception | None = None) -> bool:
        """Let the call return, or raise. Returns whether it was still waiting."""
        if self.first_piece.done():
            return False
        if error is None:
            self.first_piece.set_result(None)
        else:
            self.first_piece.set_exception(error)
        return True

    def _take(self) -> list[ModelEvent]:
        events = self._emitter.take()
        for event in events:
            if isinstance(event, PartDeltaEvent):
                delta = event.delta
                length = len(getattr(delta, "content_delta", None) or getattr(delta, "args_delta", None) or "")
                self._characters += length
                self._reasoning_characters += length if isinstance(delta, ThinkingPartDelta) else 0
        return events

    def _end(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        events = self._take()
        self._emitter.usage = self._usage or self._estimated_usage()
        return [*events, *self._emitter.end("eof" if error is None else "error", error)]

    def _estimated_usage(self) -> Usage:
        messages = self._call.messages
        return Usage(
            input_tokens=estimated_tokens(sum(part_length(part) for message in messages for part in message.parts)),
            output_tokens=estimated_tokens(self._characters),
            output_reasoning_tokens=estimated_tokens(self._reasoning_characters) or None,
        )

    def _deliver(self, read: ModelRead) -> None:
        if not self._is_over and self._receive is not None and read != []:
            self._receive(read)

    # --- ModelStream -----------------------------------------------------------------------------------------------

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        self._receive = receive
        if not self._is_paused:
            self._may_continue.set()

    def pause(self) -> None:
        self._is_paused = True
        self._may_continue.clear()

    def resume(self) -> None:
        self._is_paused = False
        if self._receive is not None:
            self._may_continue.set()

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        self._is_over = True
        self._task.cancel()
        self.first_piece.cancel()
        return self._emitter.end("cancelled" if error is None else "error", error)


# --- writing a turn ------------------------------------------------------------------------------------------------


def _write_response(emitter: Emitter, response: ModelResponse) -> Iterator[None]:
    emitter.start(response.provider_response_id, response.model_name)
    for index, part in enumerate(response.parts):
        for _ in _write_part(emitter, index, part):
            yield
    emitter.provider_details |= response.provider_details or {}
    emitter.finish(
        response.finish_reason or ("tool_call" if response.tool_calls else "stop"), response.native_finish_reason
    )


def _write_part(emitter: Emitter, key: int, part: ModelResponsePart) -> Iterator[None]:
    match part:
        case ThinkingPart():
            for text in _words(part.content):
                emitter.thinking(key, text, item=part.item_id, form=part.form, id=part.id)
                yield
            opaque: dict[str, Any] = {"signature": part.signature, "details": part.provider_details}
            emitter.thinking(key, item=part.item_id, form=part.form, id=part.id, **opaque)
        case TextPart():
            item = part.item_id or "message"
            for text in _words(part.content):
                emitter.text(key, text, item=item, id=part.id)
                yield
            opaque = {"signature": part.signature, "details": part.provider_details}
            emitter.text(key, item=item, id=part.id, logprobs=part.logprobs, annotations=part.annotations, **opaque)
        case RefusalPart():
            emitter.refusal(key, part.content)
        case ToolCallPart():
            opaque = {"signature": part.signature, "details": part.provider_details}
            emitter.tool_call(
                key, part.args or {}, name=part.tool_name, call_id=part.tool_call_id, id=part.id, **opaque
            )
        case BuiltinToolCallPart():
            emitter.builtin_call(
                key,
                part.args or {},
                name=part.tool_name,
                call_id=part.tool_call_id,
                id=part.id,
                details=part.provider_details,
            )
        case _:
            emitter.whole_part(part)
    yield


async def _write_items(emitter: Emitter, items: AsyncIterator[StreamItem]) -> AsyncGenerator[None]:
    emitter.start()
    names: dict[int, str] = {}
    try:
        async for item in items:
            if isinstance(item, str):
                emitter.text("text", item)
            elif isinstance(item, Mapping):
                for index, delta in item.items():
                    _write_delta(emitter, index, delta, names)
            else:
                raise TypeError(
                    f"the stream_function yielded a {type(item).__name__}; it may yield text, and dictionaries of "
                    "DeltaToolCall, DeltaThinkingPart or builtin parts by their number"
                )
            yield
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()
    emitter.finish("tool_call" if names else "stop")


def _write_delta(emitter: Emitter, index: int, delta: Any, names: dict[int, str]) -> None:
    """Write one piece. `names` has the names of the calls that have begun."""
    match delta:
        case DeltaThinkingPart():
            emitter.thinking(("thinking", index), delta.content or "", signature=delta.signature)
        case DeltaToolCall():
            name = delta.name if index not in names else None
            if not (name or index in names):
                raise ValueError(f"the first DeltaToolCall of the call {index} has no name")
            names.setdefault(index, name or "")
            emitter.tool_call(("call", index), delta.json_args or "", name=name, call_id=delta.tool_call_id)
        case BuiltinToolCallPart() | BuiltinToolReturnPart():
            for _ in _write_part(emitter, index, delta):
                pass
        case _:
            raise TypeError(f"the stream_function yielded {index}: {type(delta).__name__}, which is no piece of a turn")


def _words(text: str) -> list[str]:
    """Split text into words, each with the white space after it."""
    return re.findall(r"\S+\s*|\s+", text)


async def _call(function: FunctionDef, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        result = function(messages, info)
    else:
        result = await run_in_thread(function, (messages, info))
    response = await result if inspect.isawaitable(result) else result
    if not isinstance(response, ModelResponse):
        raise TypeError(f"the function of a FunctionModel must return a ModelResponse, not a {type(response).__name__}")
    return response


def _name_of(function: Any) -> str:
    return "" if function is None else getattr(function, "__name__", type(function).__name__)
