"""The embedded model: the engine in `local/`, used like any other llama.cpp server, one request at a time.

The turn of a request that must wait, until the engine is loaded or other requests are finished, begins with side
events that report the wait (`queue`: `loading`, `position`).
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec.structs import replace

from ..emit import Emitter
from ..errors import ErrorInfo, ModelError, PellucidError, RequestError
from ..events import ModelEvent, PartDeltaEvent, PartStartEvent, ResponseEndEvent, SideEvent
from ..local import LOCAL_PROVIDER, model_index
from ..local.engine_sharing import RemoteEngine
from ..local.model_index import EngineError
from ..local.request import adapt_body, enforces_effort, explain_error, wants_thinking
from ..local.supervisor import Engine
from ..offload import offload
from ..parts import (
    Audio,
    File,
    Image,
    ModelMessage,
    Origin,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolReturnPart,
    Usage,
    UserPromptPart,
    Video,
)
from ..providers.profile import Profile
from ..providers.profiles import builtin_profiles
from ..providers.setting_fields import SettingFields
from ..providers.setting_warnings import setting_warnings
from ..providers.wires import WIRES
from ..settings import ModelCall, ModelSettings, merge_settings, settings_for_wire
from ..upstream import Limits, UpstreamClient
from .model import (
    MAX_ERROR_BODY_BYTES,
    HTTPModelStream,
    ModelEventReceiver,
    ModelRead,
    ModelStream,
    TextReceiver,
    weight_of,
)

LOAD_SECONDS = 300.0
"""Seconds that a request waits for the engine to load."""
ENGINE_LIMITS = Limits(connect=5, retries=0)
"""Limits of requests to the engine. There are no retries: an engine that does not answer has stopped, and the request
waits for its restart instead."""


def default_settings(local_model: model_index.Model) -> ModelSettings:
    """Return the settings of calls that have none."""
    return {"temperature": local_model.temperature}


def embedded_profile() -> Profile:
    """Return the profile of the engine."""
    return builtin_profiles()["llama.cpp"]


def embedded_origin(model: str) -> Origin:
    """Return the origin of the engine's output."""
    return Origin(LOCAL_PROVIDER, embedded_profile().wire, model)


def request_body(call: ModelCall, origin: Origin, local_model: model_index.Model) -> dict[str, Any]:
    """Return the body of the request for a call. Raises `RequestError` for what this model does not support."""
    profile = embedded_profile()
    _check_text_only(call.messages)
    return adapt_body(
        WIRES[profile.wire].encode(call, profile, origin),
        grammar=local_model.grammar,
        max_tokens=local_model.max_tokens,
    )


def _check_text_only(messages: list[ModelMessage]) -> None:
    """Raise `RequestError` for media. The check is here, because the wire would name them in its own terms."""
    for part in (part for message in messages for part in message.parts):
        content = part.content if isinstance(part, UserPromptPart | ToolReturnPart) else None
        for entry in content if isinstance(content, list) else ():
            if isinstance(entry, Image | Audio | Video | File):
                raise RequestError(
                    f"the embedded model accepts only text, not {_MEDIA_NAMES[type(entry)]}; use a model that "
                    "accepts it, or describe its content in text",
                    kind="unsupported",
                    code="unsupported_by_embedded_model",
                )


_MEDIA_NAMES = {Image: "an image", Audio: "audio", Video: "a video", File: "a file"}


def embedded_warnings(
    call: ModelCall, model_settings: ModelSettings | None, origin: Origin, local_model: model_index.Model
) -> list[str]:
    """Return one sentence for each setting, of the call or of the model, that the engine does not support as it is."""
    profile = embedded_profile()
    grammar = local_model.grammar
    settings = merge_settings(
        default_settings(local_model) if model_settings is None else model_settings, call.settings
    )
    settings = settings_for_wire(settings, profile.native_wire)
    fields = WIRES[profile.wire].setting_fields(settings, profile)
    sent_fields = fields.body
    # Levels depend on what else the request has. The content of these two does not matter.
    if call.tools and call.tool_choice.mode != "none":
        sent_fields = {"tools": [{}]} | sent_fields
    if call.output.kind != "text":
        sent_fields = {"response_format": {"type": call.output.kind}} | sent_fields
    try:
        fields.body = adapt_body(sent_fields, grammar=grammar)
    except RequestError:
        return []
    switched_on = sent_fields | {"chat_template_kwargs": {"enable_thinking": True}}
    _claim_thinking(fields, has_levels=enforces_effort(switched_on, grammar))
    return call.native_tool_warnings(profile.native_wire) + setting_warnings(
        fields, profile, origin.model or profile.title, call.assumed_settings
    )


def _claim_thinking(fields: SettingFields, has_levels: bool) -> None:
    """Record which settings act after the body was adjusted.

    Thinking is a switch, which is on unless a setting switches it off. With levels, an effort acts, too, by the
    grammar, if thinking is on. Without them, for example with tools, it does not.
    """
    efforts = [write for write in fields.writes if write.path == "reasoning_effort"]
    switch = efforts[-1].setting if efforts and efforts[-1].value == "none" else None
    is_declined = fields.settings.get("thinking") in (False, "none")
    is_left_on = switch is None and not is_declined
    is_on = wants_thinking(fields.body)
    fields.writes = [
        write
        for write in fields.writes
        if write.path not in ("reasoning_effort", "stream") and not (is_left_on and write.setting == "thinking")
    ]
    for write in efforts if has_levels else ():
        if write.setting == switch:
            fields.bar(switch, "grammar")
        elif is_on:
            fields.claim(write.setting, "grammar", write.value)
        elif write.setting != "thinking":
            fields.withhold(write.setting, "grammar", by=["thinking"] if is_declined or switch is None else [switch])
    fields.set_thinking_paths("chat_template_kwargs", before=True)
    if switch is not None and "thinking" in fields.settings:
        fields.withhold(switch, "chat_template_kwargs.enable_thinking", by=["thinking"])
        if is_declined:
            fields.withdraw(("chat_template_kwargs",), by=[switch])
    elif switch is not None:
        fields.claim(switch, "chat_template_kwargs.enable_thinking")


class EmbeddedModel:
    """The engine's model as a `ChatModel`."""

    def __init__(
        self, engine: Engine | RemoteEngine, transport: UpstreamClient, settings: ModelSettings | None = None
    ) -> None:
        self.engine = engine
        self.name = engine.model.name
        self.origin = embedded_origin(self.name)
        self.settings: ModelSettings = settings if settings is not None else default_settings(engine.model)
        self._transport = transport

    @property
    def is_ready(self) -> bool:
        return self.engine.state == "ready"

    @property
    def is_loading(self) -> bool:
        """Whether it will be ready soon, if all goes well."""
        return self.engine.state in ("fetching", "starting", "restarting")

    @property
    def is_fetching(self) -> bool:
        """Whether its weights are being downloaded."""
        return self.engine.state == "fetching"

    async def check(self) -> None:
        """Check that the engine answers.

        Raises:
            PellucidError: It does not.
        """
        try:
            await self.engine.check()
        except OSError as error:
            raise EngineError("the embedded engine does not answer", "unreachable") from error

    async def start(self) -> None:
        await self.engine.start()

    async def stop(self) -> None:
        await self.engine.stop()

    def end_waits(self, error: ErrorInfo) -> None:
        """End requests that wait for the engine to load with this error, now and later."""
        self.engine.end_waits(error)

    async def open(self, call: ModelCall) -> ModelStream:
        """Start a turn, now or when a slot is free. Raises `RequestError` for what this model does not support."""
        settings = merge_settings(self.settings, call.settings)
        call = replace(call, model=self.name, settings=settings, stream=True).for_wire(embedded_profile().native_wire)
        data = await offload(weight_of(call), self._encoded_request, call)
        queue = self.engine.queue
        if self.is_ready and queue.running < queue.slots and not queue.waiting:
            await queue.acquire()
            try:
                return await self.send(data)
            except ModelError as error:
                if error.info.code != "unreachable":
                    raise
                # The engine has just stopped. It is restarted, and the request waits as for the first start.
        return _QueuedStream(self, data)

    def _encoded_request(self, call: ModelCall) -> bytes:
        return msgspec.json.encode(request_body(call, self.origin, self.engine.model))

    def warnings(self, call: ModelCall) -> list[str]:
        """Return one sentence for each setting, of the call or of the model, that it does not support as it is."""
        return embedded_warnings(call, self.settings, self.origin, self.engine.model)

    async def send(self, body: bytes) -> ModelStream:
        """Send a request. The caller holds a slot; the end of the turn releases it, or this method if it raises."""
        profile = embedded_profile()
        try:
            engine = self.engine
            headers = {
                "Content-Type": "application/json",
                "Authorization": f"Bearer {engine.api_key}",
                # The engine closes the connection after a stream, although it announces keep-alive.
                "Connection": "close",
            }
            response = await self._transport.open(f"{engine.base_url}{profile.path}", headers, body, ENGINE_LIMITS)
            if response.status != 200:
                raise ModelError(_error_info(response.status, await response.read_all(MAX_ERROR_BODY_BYTES)))
        except BaseException:
            self.engine.queue.release()
            raise
        decoder = WIRES[profile.wire].decoder(profile, self.origin)
        return _SlotStream(HTTPModelStream(response, decoder), self)


def _error_info(status: int, body: bytes) -> ErrorInfo:
    try:
        return explain_error(status, msgspec.json.decode(body))
    except msgspec.DecodeError:
        return explain_error(status, body.decode("utf-8", "replace"))


class RepetitionDetector:
    """Detects text whose end is one piece over and over again.

    A small model that begins to repeat itself does not stop, while other requests wait. Pieces are compared to the
    character, so that tables and lists whose lines differ in a digit are none.
    """

    MIN_CHARACTERS, MIN_COPIES = 800, 4
    """The repeated text has at least this many characters, and copies of the piece."""
    _MAX_CHARACTERS = 4000
    _CHECK_CHARACTERS = 200
    """Characters after which the text is compared again."""

    def __init__(self) -> None:
        self._end = ""
        self._unchecked = 0

    def add(self, text: str) -> bool:
        """Add text, and return whether the end of all of it repeats itself."""
        self._end = (self._end + text)[-self._MAX_CHARACTERS :]
        self._unchecked += len(text)
        if self._unchecked < self._CHECK_CHARACTERS:
            return False
        self._unchecked = 0
        end = self._end
        before = end.rfind(end[-self._CHECK_CHARACTERS // 2 :], 0, len(end) - 1)
        size = len(end) - self._CHECK_CHARACTERS // 2 - before
        length = max(self.MIN_CHARACTERS, self.MIN_COPIES * size)
        return before >= 0 and length <= len(end) and end[-length:-size] == end[size - length :]


class _SlotStream:
    """A stream that holds one of the engine's slots until its turn ends, and ends it if its text repeats itself."""

    queued = False
    request_id = None

    def __init__(self, stream: HTTPModelStream, model: EmbeddedModel) -> None:
        self._stream = stream
        self._detector = RepetitionDetector()
        self._queue = model.engine.queue
        self._has_slot = True
        self._receive: ModelEventReceiver | None = None

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        self._receive = receive
        self._stream.start(self._on_events)

    def _on_events(self, events: ModelRead) -> None:
        if events is None or isinstance(events, Exception) or (events and type(events[-1]) is ResponseEndEvent):
            self._release()
        assert self._receive is not None
        self._receive(events)
        if self._has_slot and self._repeats(events):
            self._stream.cut("repetition")

    def _repeats(self, events: ModelRead) -> bool:
        texts: list[str] = []
        for event in events if isinstance(events, list) else ():
            if type(event) is PartStartEvent:
                self._detector = RepetitionDetector()
                texts.clear()
                if isinstance(event.part, TextPart | ThinkingPart):
                    texts.append(event.part.content)
            elif type(event) is PartDeltaEvent and isinstance(event.delta, TextPartDelta | ThinkingPartDelta):
                texts.append(event.delta.content_delta or "")
        return bool(texts) and self._detector.add("".join(texts))

    def pause(self) -> None:
        self._stream.pause()

    def resume(self) -> None:
        self._stream.resume()

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        try:
            return self._stream.cancel(error)
        finally:
            self._release()

    def _release(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._queue.release()


class _QueuedStream:
    """A stream whose turn has not begun: first the wait, as side events, then the turn."""

    request_id = None

    def __init__(self, model: EmbeddedModel, body: bytes) -> None:
        self._model = model
        self._body = body
        self._stream: ModelStream | None = None
        self._receive: ModelEventReceiver | None = None
        self._undelivered: list[ModelRead] = []
        """Reads that arrived before a receiver was set."""
        self._paused = False
        self._is_over = False
        self._was_sent = False
        """Whether the engine may have read the request."""
        self._task = asyncio.create_task(self._wait_and_open())

    @property
    def queued(self) -> bool:
        return self._stream is None

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        self._receive = receive
        undelivered, self._undelivered = self._undelivered, []
        for read in undelivered:
            receive(read)
        if self._stream is not None:
            self._stream.start(receive)

    def pause(self) -> None:
        self._paused = True
        if self._stream is not None:
            self._stream.pause()

    def resume(self) -> None:
        self._paused = False
        if self._stream is not None:
            self._stream.resume()

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if self._stream is not None:
            return self._stream.cancel(error)
        if self._is_over:
            return []
        self._is_over = True
        self._task.cancel()
        emitter = Emitter(self._model.origin)
        if not self._was_sent:
            emitter.usage = Usage(0, 0, 0)  # it waited until now, so this is known
        return emitter.end("cancelled" if error is None else "error", error)

    async def _wait_and_open(self) -> None:
        try:
            stream = await self._open_until_reachable()
        except PellucidError as error:
            self._is_over = True
            self._deliver(Emitter(self._model.origin).end("error", error.info))
            return
        except Exception as fault:
            self._is_over = True
            self._deliver(fault)
            return
        if self._is_over:
            stream.cancel()
            return
        self._stream = stream
        if self._paused:
            stream.pause()
        if self._receive is not None:
            stream.start(self._receive)

    async def _open_until_reachable(self) -> ModelStream:
        for _ in range(4):
            try:
                return await self._open_once()
            except ModelError as error:
                if error.info.code != "unreachable":
                    raise
                unreachable = error
                self._was_sent = False
            # The engine has stopped; its supervisor notices this shortly.
            await asyncio.sleep(0.25)
        raise unreachable

    async def _open_once(self) -> ModelStream:
        engine = self._model.engine
        await engine.queue.acquire(self._on_position)
        if not self._model.is_ready:
            self._deliver([SideEvent("queue", "loading")])
            try:
                await engine.wait_ready(LOAD_SECONDS)
            except BaseException:
                engine.queue.release()
                raise
        self._was_sent = True
        return await self._model.send(self._body)

    def _on_position(self, position: int) -> None:
        self._deliver([SideEvent("queue", "position", position)])

    def _deliver(self, events: ModelRead) -> None:
        if self._receive is not None:
            self._receive(events)
        else:
            self._undelivered.append(events)
