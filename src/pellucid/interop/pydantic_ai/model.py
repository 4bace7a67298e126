"""Any of our models under a Pydantic AI agent.

    agent = Agent(PellucidModel(model))
    result = await agent.run("Why is the sky blue?")

Every request is read as a stream, whichever way it was asked for, so both ways give the same parts. What a part
carries beside its text (a signature, the provider's own data, what Pydantic AI has no field for) goes with it, so
that the next request of a tool loop gives the provider back what it said, byte for byte.
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
from . import outward
from . import settings as said
from .messages import HELD_THERE, hold_on_part, kept_of_part, read_message, to_pydantic

PROFILE: ModelProfile = {"supports_json_schema_output": True, "supports_thinking": True}
"""What our models can do as far as Pydantic AI asks; a wire that cannot says so itself."""


class PellucidModel(Model[Any]):
    """A model of ours (anything that can be `Asked`) as a Pydantic AI model.

    `profile` and `settings` are Pydantic AI's own, and go over what is known of the model.
    """

    def __init__(
        self, asked: ChatModel, *, profile: ModelProfileSpec | None = None, settings: TheirSettings | None = None
    ) -> None:
        super().__init__(settings=settings, profile=profile)
        self.asked = asked

    def _provider_model_profile(self) -> ModelProfile:
        return PROFILE

    @property
    def model_name(self) -> str:
        return self.asked.name

    @property
    def system(self) -> str:
        return self.asked.origin.provider

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
        settings, asked = self.prepare_request(model_settings, model_request_parameters)
        call = ModelCall(
            self.asked.name,
            self._messages(messages, asked),
            settings=said.settings_from(settings, asked),
            tools=said.tools_from(asked),
            tool_choice=said.choice_from(settings, asked),
            output=said.output_from(asked),
        )
        try:
            stream = await self.asked.open(call)
        except PellucidError as error:
            raise _raised(self.model_name, error.info) from error
        try:
            yield PellucidStreamedResponse(asked, _asked=self.asked, _reader=StreamReader(stream))
        finally:
            stream.cancel()

    def _messages(self, messages: list[theirs.ModelMessage], asked: ModelRequestParameters) -> list[ours.ModelMessage]:
        made = [self._own(message, read_message(message)) for message in messages]
        parts = self._get_instruction_parts(messages, asked) or ()
        instructions = "\n\n".join(part.content for part in parts if part.content)
        # Each request of a conversation repeats them; they hold once, for all of it.
        place = next((index for index, message in enumerate(made) if isinstance(message, ours.ModelRequest)), None)
        for index, message in enumerate(made):
            if isinstance(message, ours.ModelRequest) and message.instructions is not None:
                made[index] = replace(message, instructions=None)
        if instructions and place is not None:
            made[place] = replace(made[place], instructions=instructions)
        return made

    def _own(self, message: theirs.ModelMessage, read: ours.ModelMessage) -> ours.ModelMessage:
        """What Pydantic AI's own model for this provider said is this provider's too, if it was this model.

        Its signatures go back then; Pydantic AI itself asks for no more than the provider's name.
        """
        origin = self.asked.origin
        if not isinstance(message, theirs.ModelResponse) or not isinstance(read, ours.ModelResponse):
            return read
        same = message.provider_name == origin.provider and (message.model_name or "").startswith(origin.model)
        return replace(read, origin=origin) if read.origin is None and same else read


@dataclass
class PellucidStreamedResponse(StreamedResponse):
    """One turn of our model, as Pydantic AI streams it."""

    _asked: ChatModel
    _reader: StreamReader
    _fold: Fold = field(default_factory=Fold)
    _at: datetime = field(default_factory=lambda: datetime.now(UTC))
    _starts: dict[int, ours.ModelResponsePart] = field(default_factory=dict)
    """The parts of the item under way, as they opened, by their index in the turn."""
    _shown: set[int] = field(default_factory=set)
    """Those that Pydantic AI knows of."""
    _before: int = 0
    """How many parts came before the item under way."""

    async def _get_event_iterator(self) -> AsyncIterator[theirs.ModelResponseStreamEvent]:
        while not self._cancelled:
            if (events := await self._reader.read()) is None:
                return
            for event in events:
                for made in self._told(event):
                    yield made

    async def close_stream(self) -> None:
        self._reader.cancel()

    @property
    def model_name(self) -> str:
        response = self._fold.response or self._fold.snapshot()
        return (response.model_name if response is not None else None) or self._asked.name

    @property
    def provider_name(self) -> str:
        return self._asked.origin.provider

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self._at

    def _told(self, event: ModelEvent) -> Iterator[theirs.ModelResponseStreamEvent]:
        self._fold.feed(event)
        match event:
            case PartDeltaEvent():
                yield from self._delta(event.index, event.delta)
            case PartStartEvent():
                yield from self._start(event.index, event.part)
            case ItemEndEvent():
                yield from self._item_end()
            case ErrorEvent():
                raise _raised(self._asked.name, event.error, in_stream=True)
            case ResponseEndEvent():
                self._end()

    def _start(self, index: int, part: ours.ModelResponsePart) -> Iterator[theirs.ModelResponseStreamEvent]:
        """Calls are told of when they open; other parts when there is something in them."""
        self._starts[index] = part
        if isinstance(part, ours.ToolCallPart):
            self._shown.add(index)
            yield self._parts_manager.handle_tool_call_part(
                vendor_part_id=index,
                tool_name=part.tool_name,
                args=None,
                tool_call_id=part.tool_call_id or None,
                id=part.id,
                provider_name=part.provider_name,
            )
        elif isinstance(part, ours.BuiltinToolCallPart):
            self._shown.add(index)
            made = outward.response_part(replace(part, args=None))
            assert made is not None
            yield self._parts_manager.handle_part(vendor_part_id=index, part=made)

    def _delta(self, index: int, delta: PartDelta) -> Iterator[theirs.ModelResponseStreamEvent]:
        manager = self._parts_manager
        more: dict[str, Any] = {"vendor_part_id": index}
        if index not in self._shown:
            self._shown.add(index)
            part: Any = self._starts[index]
            more |= {"id": part.id, "provider_name": part.provider_name}
        if isinstance(delta, ThinkingPartDelta):
            more |= {"signature": delta.signature_delta, "provider_details": delta.provider_details}
            yield from manager.handle_thinking_delta(content=delta.content_delta, **more)
        elif isinstance(delta, RefusalPartDelta):
            yield from manager.handle_text_delta(content=delta.content_delta, **more)
        elif isinstance(delta, TextPartDelta):
            yield from manager.handle_text_delta(
                content=delta.content_delta, provider_details=delta.provider_details, **more
            )
        elif delta.args_delta or delta.provider_details:
            yield from manager.handle_tool_call_delta_events(
                args=delta.args_delta or None, provider_details=delta.provider_details, **more
            )

    def _item_end(self) -> Iterator[theirs.ModelResponseStreamEvent]:
        """Now all is known of the item's parts: what came late, and what Pydantic AI has no field for, goes along."""
        snapshot = self._fold.snapshot()
        assert snapshot is not None
        parts = snapshot.parts[self._before :]
        # A thought of which only the fact is known has no events of its own.
        indexes: list[int | None] = [*self._starts] or [None] * len(parts)
        for index, part in zip(indexes, parts, strict=True):
            if index is not None and index in self._shown:
                yield from self._rest(index, part)
            elif (made := outward.response_part(part)) is not None:
                kept = kept_of_part(part, made)
                if kept is not None:
                    hold_on_part(made, kept)
                yield self._parts_manager.handle_part(vendor_part_id=index, part=made)
        self._before = len(snapshot.parts)
        self._starts = {}

    def _rest(self, index: int, part: ours.ModelResponsePart) -> Iterator[theirs.ModelResponseStreamEvent]:
        there: Any = self._parts_manager.get_part_by_vendor_id(index)
        if isinstance(part, ours.ToolCallPart | ours.BuiltinToolCallPart):
            # An id that was missing is Pydantic AI's now, and an object that came whole is the text of it.
            part = replace(part, tool_call_id=there.tool_call_id, args=there.args)
        known = there.provider_details or {}
        details = {name: value for name, value in (_details(part) or {}).items() if known.get(name) != value}
        late: dict[str, Any] = {"provider_details": {**known, **details} or None}
        signature = None
        if isinstance(part, ours.ThinkingPart) and part.signature != there.signature:
            late["signature"] = signature = part.signature
        kept = kept_of_part(part, dataclass_replace(there, **late))
        if kept is not None:
            details[HELD_THERE] = kept
        manager = self._parts_manager
        if isinstance(part, ours.ThinkingPart):
            if signature is not None or details:
                yield from manager.handle_thinking_delta(
                    vendor_part_id=index, signature=signature, provider_details=details or None
                )
        elif details and isinstance(there, theirs.TextPart):
            yield from manager.handle_text_delta(vendor_part_id=index, content="", provider_details=details)
        elif details:
            yield from manager.handle_tool_call_delta_events(vendor_part_id=index, provider_details=details)

    def _end(self) -> None:
        response = self._fold.response
        assert response is not None
        [whole] = to_pydantic([replace(response, timestamp=self._at)])
        assert isinstance(whole, theirs.ModelResponse)
        self._usage = whole.usage
        self.provider_response_id = whole.provider_response_id
        self.provider_details = whole.provider_details
        self.finish_reason = whole.finish_reason
        self.metadata = whole.metadata


def _details(part: ours.ModelResponsePart) -> dict[str, Any] | None:
    details: dict[str, Any] | None = getattr(part, "provider_details", None)
    return details


def _raised(model: str, error: ErrorInfo, *, in_stream: bool = False) -> ModelAPIError:
    """The error as Pydantic AI raises it, with its category where there is a status to tell it by."""
    more: Any = {"provider_error_code": error.code, "retry_after": error.retry_after, "in_stream": in_stream}
    if error.status is None:
        return ModelAPIError(model, error.full_message, **more)
    return ModelHTTPError(error.status, model, error.native or error.full_message, **more)
