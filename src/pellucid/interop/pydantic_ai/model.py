"""Use a model of Pellucid in a Pydantic AI agent.

    agent = Agent(PellucidModel(model))
    result = await agent.run("Why is the sky blue?")

Every request is read as a stream, also for `request`, so both ways give the same parts. The parts carry opaque data
(signatures, details of the provider) and what Pydantic AI has no field for. So the next request of a tool loop returns
to the provider what it sent, byte for byte.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace
from pydantic_ai import RunContext
from pydantic_ai import messages as theirs
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile, ModelProfileSpec
from pydantic_ai.settings import ModelSettings as TheirSettings

from ... import parts as ours
from ...errors import ErrorInfo, PellucidError
from ...events import ErrorEvent, ItemEndEvent, ModelEvent, PartDeltaEvent, PartStartEvent, ResponseEndEvent
from ...fold import Fold
from ...models import ChatModel, StreamReader
from ...parts import PartDelta, RefusalPartDelta, TextPartDelta, ThinkingPartDelta
from ...settings import ModelCall
from . import conventions, to_pydantic_ai
from . import settings as conversion
from .messages import KEY_IN_THEIRS, part_remainder, read_message, store_on_part, to_pydantic

PROFILE: ModelProfile = {"supports_json_schema_output": True, "supports_thinking": True}
"""What all our models support in terms of Pydantic AI. A wire that does not support it raises an error."""


class PellucidModel(Model[Any]):
    """A Pydantic AI model that calls a model of Pellucid.

    Args:
        model: The model (any `ChatModel`).
        profile: Pydantic AI's profile; it replaces what is known of the model.
        settings: Pydantic AI's settings for every request.
    """

    def __init__(
        self, model: ChatModel, *, profile: ModelProfileSpec | None = None, settings: TheirSettings | None = None
    ) -> None:
        super().__init__(settings=settings, profile=profile)
        self.chat_model = model

    def _provider_model_profile(self) -> ModelProfile:
        return PROFILE

    @property
    def model_name(self) -> str:
        return self.chat_model.name

    @property
    def system(self) -> str:
        """Pydantic AI's name of the provider, so that its own model continues a history of this one."""
        return _provider_name(self.chat_model)

    async def request(
        self,
        messages: list[theirs.ModelMessage],
        model_settings: TheirSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> theirs.ModelResponse:
        async with self.request_stream(messages, model_settings, model_request_parameters) as stream:
            async for _ in stream:
                pass
        return stream.get()

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[theirs.ModelMessage],
        model_settings: TheirSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        call = ModelCall(
            self.chat_model.name,
            self._messages(messages, parameters),
            settings=conversion.settings_from(settings, parameters),
            tools=conversion.tools_from(parameters),
            tool_choice=conversion.choice_from(settings, parameters),
            output=conversion.output_from(parameters),
        )
        try:
            stream = await self.chat_model.open(call)
        except PellucidError as error:
            raise _model_error(self.model_name, error.info) from error
        try:
            yield PellucidStreamedResponse(parameters, _chat_model=self.chat_model, _reader=StreamReader(stream))
        finally:
            stream.cancel()

    def _messages(
        self, messages: list[theirs.ModelMessage], parameters: ModelRequestParameters
    ) -> list[ours.ModelMessage]:
        converted = [read_message(message) for message in messages]
        parts = self._get_instruction_parts(messages, parameters) or ()
        instructions = "\n\n".join(part.content for part in parts if part.content)
        # Pydantic AI repeats the instructions in each request of a conversation. Here they are set once.
        first_request = next(
            (index for index, message in enumerate(converted) if isinstance(message, ours.ModelRequest)), None
        )
        for index, message in enumerate(converted):
            if isinstance(message, ours.ModelRequest) and message.instructions is not None:
                converted[index] = replace(message, instructions=None)
        if instructions and first_request is not None:
            converted[first_request] = replace(converted[first_request], instructions=instructions)
        return converted


@dataclass
class PellucidStreamedResponse(StreamedResponse):
    """The stream of one turn, as Pydantic AI reads it."""

    _chat_model: ChatModel
    _reader: StreamReader
    _fold: Fold = field(default_factory=Fold)
    _timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    _opened_parts: dict[int, ours.ModelResponsePart] = field(default_factory=dict)
    """The parts of the open item as they started, by their index in the turn."""
    _shown_indexes: set[int] = field(default_factory=set)
    """The indexes of parts that Pydantic AI has."""
    _finished_parts: int = 0
    """Number of parts before the open item."""

    async def _get_event_iterator(self) -> AsyncIterator[theirs.ModelResponseStreamEvent]:
        while not self._cancelled:
            if (events := await self._reader.read()) is None:
                return
            for event in events:
                for their_event in self._process(event):
                    yield their_event

    async def close_stream(self) -> None:
        self._reader.cancel()

    @property
    def model_name(self) -> str:
        response = self._fold.response or self._fold.snapshot()
        return (response.model_name if response is not None else None) or self._chat_model.name

    @property
    def provider_name(self) -> str:
        return _provider_name(self._chat_model)

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self._timestamp

    @property
    def _source(self) -> conventions.Source | None:
        return conventions.source_of(self._chat_model.origin, None)

    def _process(self, event: ModelEvent) -> Iterator[theirs.ModelResponseStreamEvent]:
        self._fold.feed(event)
        match event:
            case PartDeltaEvent():
                yield from self._delta(event.index, event.delta)
            case PartStartEvent():
                yield from self._start(event.index, event.part)
            case ItemEndEvent():
                yield from self._item_end()
            case ErrorEvent():
                raise _model_error(self._chat_model.name, event.error, in_stream=True)
            case ResponseEndEvent():
                self._end()

    def _start(self, index: int, part: ours.ModelResponsePart) -> Iterator[theirs.ModelResponseStreamEvent]:
        """Show a call when it starts. Other parts are shown with their first content."""
        self._opened_parts[index] = part
        if isinstance(part, ours.ToolCallPart):
            self._shown_indexes.add(index)
            yield self._parts_manager.handle_tool_call_part(
                vendor_part_id=index,
                tool_name=part.tool_name,
                args=None,
                tool_call_id=part.tool_call_id or None,
                id=part.id,
                provider_name=conventions.their_provider(part.provider_name),
            )
        elif isinstance(part, ours.BuiltinToolCallPart):
            self._shown_indexes.add(index)
            their_part = to_pydantic_ai.response_part(replace(part, args=None), self._source)
            assert their_part is not None
            yield self._parts_manager.handle_part(vendor_part_id=index, part=their_part)

    def _delta(self, index: int, delta: PartDelta) -> Iterator[theirs.ModelResponseStreamEvent]:
        manager = self._parts_manager
        if isinstance(delta, ThinkingPartDelta) and delta.content_delta is None and not delta.provider_details:
            # A signature alone is shown at the end of its item, in the part where Pydantic AI has it.
            return
        fields: dict[str, Any] = {"vendor_part_id": index}
        if index not in self._shown_indexes:
            self._shown_indexes.add(index)
            part: Any = self._opened_parts[index]
            their_part: Any = to_pydantic_ai.response_part(part, self._source)
            fields |= {"id": their_part.id, "provider_name": their_part.provider_name}
        if isinstance(delta, ThinkingPartDelta):
            yield from manager.handle_thinking_delta(
                content=delta.content_delta, provider_details=delta.provider_details, **fields
            )
        elif isinstance(delta, RefusalPartDelta):
            yield from manager.handle_text_delta(content=delta.content_delta, **fields)
        elif isinstance(delta, TextPartDelta):
            yield from manager.handle_text_delta(
                content=delta.content_delta, provider_details=delta.provider_details, **fields
            )
        elif delta.args_delta or delta.provider_details:
            yield from manager.handle_tool_call_delta_events(
                args=delta.args_delta or None, provider_details=delta.provider_details, **fields
            )

    def _item_end(self) -> Iterator[theirs.ModelResponseStreamEvent]:
        """Complete the parts of an item: add what came late, and what Pydantic AI has no field for."""
        snapshot = self._fold.snapshot()
        assert snapshot is not None
        parts = snapshot.parts[self._finished_parts :]
        their_parts = to_pydantic_ai.response_parts(parts, self._chat_model.origin, None)
        # A thought without any content has no events of its own.
        indexes: list[int | None] = [*self._opened_parts] or [None] * len(parts)
        for index, part, their_part in zip(indexes, parts, their_parts, strict=True):
            if index is not None and index in self._shown_indexes:
                yield from self._finish_part(index, part, their_part)
            elif their_part is not None:
                remainder = part_remainder(part, their_part, self._chat_model.origin)
                if remainder is not None:
                    store_on_part(their_part, remainder)
                yield self._parts_manager.handle_part(vendor_part_id=index, part=their_part)
        self._finished_parts = len(snapshot.parts)
        self._opened_parts = {}

    def _finish_part(
        self, index: int, part: ours.ModelResponsePart, their_part: Any
    ) -> Iterator[theirs.ModelResponseStreamEvent]:
        """Add to a part that was shown what came late; `their_part` is the part as it is stored."""
        shown_part: Any = self._parts_manager.get_part_by_vendor_id(index)
        if isinstance(part, ours.ToolCallPart | ours.BuiltinToolCallPart):
            # Pydantic AI made an id if there was none, and converted arguments that came as an object to text.
            part = replace(part, tool_call_id=shown_part.tool_call_id, args=shown_part.args)
        shown_details = shown_part.provider_details or {}
        details = {
            name: value
            for name, value in (their_part.provider_details or {}).items()
            if shown_details.get(name) != value
        }
        late_fields: dict[str, Any] = {"provider_details": {**shown_details, **details} or None}
        if shown_part.provider_name is None and their_part.provider_name is not None:
            late_fields["provider_name"] = their_part.provider_name
        signature = None
        if isinstance(part, ours.ThinkingPart) and their_part.signature != shown_part.signature:
            late_fields["signature"] = signature = their_part.signature
        remainder = part_remainder(part, dataclass_replace(shown_part, **late_fields), self._chat_model.origin)
        if remainder is not None:
            details[KEY_IN_THEIRS] = remainder
        late: dict[str, Any] = {"vendor_part_id": index, "provider_name": late_fields.get("provider_name")}
        manager = self._parts_manager
        if isinstance(part, ours.ThinkingPart):
            if signature is not None or details:
                yield from manager.handle_thinking_delta(signature=signature, provider_details=details or None, **late)
        elif details and isinstance(shown_part, theirs.TextPart):
            yield from manager.handle_text_delta(content="", provider_details=details, **late)
        elif details:
            yield from manager.handle_tool_call_delta_events(provider_details=details, **late)

    def _end(self) -> None:
        response = self._fold.response
        assert response is not None
        [converted] = to_pydantic([replace(response, timestamp=self._timestamp)])
        assert isinstance(converted, theirs.ModelResponse)
        self._usage = converted.usage
        self.provider_response_id = converted.provider_response_id
        self.provider_details = converted.provider_details
        self.finish_reason = converted.finish_reason
        self.metadata = converted.metadata


def _provider_name(model: ChatModel) -> str:
    return conventions.their_provider(model.origin.provider) or model.origin.provider


def _model_error(model: str, error: ErrorInfo, *, in_stream: bool = False) -> ModelAPIError:
    """Return an error as Pydantic AI raises it; with the HTTP status, if there is one."""
    fields: Any = {"provider_error_code": error.code, "retry_after": error.retry_after, "in_stream": in_stream}
    if error.status is None:
        return ModelAPIError(model, error.full_message, **fields)
    return ModelHTTPError(error.status, model, error.native or error.full_message, **fields)
