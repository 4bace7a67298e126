"""One model at one upstream: called with a `ModelCall`, it answers with a `ModelStream` of events.

The request is a pure function of the call (`Model.request`); `Model.warnings` names the settings that the request does
not support. A `ModelStream` pushes events to a receiver; `StreamReader` reads one by awaiting, and pauses the upstream
unless the program waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sized
from contextlib import suppress
from http import HTTPStatus
from time import time_ns
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from .. import models
from ..conversation import count_parts
from ..emit import CutReason, TurnLimits
from ..errors import ErrorInfo, ModelError, RequestError
from ..events import ErrorEvent, ModelEvent, PartDeltaEvent, ResponseEndEvent
from ..offload import offload
from ..parts import Origin
from ..providers.errors import error_from_response
from ..providers.frame_template import Template
from ..providers.history import count_unsigned
from ..providers.profile import Profile
from ..providers.setting_warnings import setting_warnings
from ..providers.stream_decoder import StreamDecoder
from ..providers.wires import WIRES, Amend
from ..settings import ModelCall, ModelSettings, merge_settings, settings_for_wire
from ..telemetry import log
from ..telemetry.names import UPSTREAM_ID_HEADERS
from ..upstream import TURN_TOO_LONG, Limits, UpstreamClient, UpstreamResponse
from .connection_pool import shared_pool
from .sigv4 import sign


class StreamReader:
    """Reads the events of one turn, one read of the upstream at a time."""

    def __init__(self, stream: ModelStream) -> None:
        self._stream = stream
        self._started = False
        self._queue: deque[list[ModelEvent]] = deque()
        self._error: Exception | None = None
        self._is_complete = False
        self._has_news = asyncio.Event()

    async def read(self) -> list[ModelEvent] | None:
        """Return the events of the next read; None after the end of the turn."""
        if not self._started:
            self._started = True
            self._stream.start(self._receive)
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._is_complete:
                return None
            self._has_news.clear()
            self._stream.resume()
            if not self._queue:
                await self._has_news.wait()
        return self._queue.popleft()

    def cancel(self) -> None:
        """Stop now. `read` returns the events that have arrived, and then None. Idempotent."""
        self._stream.cancel()
        self._is_complete = True
        self._has_news.set()

    def _receive(self, events: ModelRead) -> None:
        if events is None:
            self._is_complete = True
        elif isinstance(events, Exception):
            self._error = events
        else:
            self._queue.append(events)
            self._is_complete = bool(events) and type(events[-1]) is ResponseEndEvent
            self._stream.pause()
        self._has_news.set()


MAX_ERROR_BODY_BYTES = 64 * 1024

MIN_SECRET_CHARACTERS = 8
"""Keys that are shorter are placeholders, and may be words of a message."""

ModelRead: TypeAlias = list[ModelEvent] | Exception | None
"""The events of one read. None: the stream stopped without the end of its turn. An exception: an internal error, after
which nothing follows."""

ModelEventReceiver: TypeAlias = Callable[[ModelRead], None]
"""Receives the result of one read."""


class ModelStream(Protocol):
    """One turn of a model: the events of each read are pushed to a receiver, in the call that read them.

    A remote model, the embedded model and an agent of another library have the same interface for the driver of a run.
    """

    @property
    def queued(self) -> bool:
        """Whether the turn has not begun because it waits for the model."""
        ...

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request, if it sends one."""
        ...

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        """Deliver the events so far, and then each read. The last events end with `ResponseEndEvent`.

        Args:
            receive: Receives the events of each read.
            texts: May get the texts of deltas in place of their events. A stream may ignore it.
        """
        ...

    def pause(self) -> None:
        """Stop reading from the upstream until `resume`. Idempotent."""
        ...

    def resume(self) -> None:
        """Read again. Idempotent."""
        ...

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        """Stop now, release the connection, and return the events that close the turn.

        Nothing is delivered afterwards. Idempotent. It is also called after the end of a turn, to release resources.

        Args:
            error: The error with which the turn ends as failed; None to end it as cancelled.
        """
        ...


class ChatModel(Protocol):
    """Anything that can produce a turn: a remote model, the embedded model with its queue, an agent."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def origin(self) -> Origin:
        """The model and provider. If it has several deployments, those of the one that was called last."""
        ...

    async def open(self, call: ModelCall) -> ModelStream:
        """Start a turn.

        Args:
            call: The messages, tools and settings.

        Raises:
            ModelError: There was no answer, or one with an error status.
            RequestError: The model does not support the call.
        """
        ...

    def warnings(self, call: ModelCall) -> list[str]:
        """Return one sentence for each setting that it does not support as it is."""
        ...


class Request(NamedTuple):
    """The HTTP request for a call, before it is signed."""

    url: str
    headers: dict[str, str]
    body: dict[str, Any]
    timeout_seconds: float | None


class Model:
    """A model at an HTTP server."""

    def __init__(
        self,
        name: str,
        profile: Profile,
        transport: UpstreamClient | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        account: str | None = None,
        settings: ModelSettings | None = None,
        limits: Limits | None = None,
        headers: dict[str, str] | None = None,
        provider: str | None = None,
    ) -> None:
        """Create a model.

        Args:
            name: The model's name at the upstream.
            profile: The profile of the server.
            transport: The client for requests; by default the running loop's connection pool (`shared_pool`).
            base_url: Base URL of the server; by default the profile's.
            api_key: The key to send.
            account: Label of the account, to distinguish signatures of several accounts.
            settings: Settings of each call; those of the call take precedence.
            limits: Limits of requests.
            headers: Headers of each request.
            provider: Provider name in the origin; by default the profile's name.
        """
        self.name = name
        """The model's name at the upstream."""
        self.profile = profile.for_model(name)
        self.origin = Origin(provider or profile.name, profile.wire, name, account)
        self.settings: ModelSettings = settings or {}
        self._wire = WIRES[profile.wire]
        self._transport = transport
        self._limits = limits
        self._base_url = (base_url or self.profile.base_url).rstrip("/")
        self._api_key = api_key
        self._headers = headers or {}

    async def open(self, call: ModelCall) -> ModelStream:
        """Send the request of a call, and start a turn.

        Args:
            call: The messages, tools and settings. Its settings take precedence over the model's.

        Raises:
            ModelError: There was no answer, or one with an error status.
            RequestError: The model has no key or base URL, or its wire cannot carry the call.
            RuntimeError: Requests are not allowed (`pellucid.models.ALLOW_MODEL_REQUESTS`).
        """
        models.check_allow_model_requests()
        api_key = self.api_key()
        url, headers, data, timeout_seconds = await offload(weight_of(call), self._encoded_request, call, api_key)
        response = await self._send(url, data, headers, timeout_seconds, api_key)
        if not _has_content(response):
            # Where a redirect leads is for the operator alone: it may be an internal address.
            location = response.headers.get("Location") if response.status < 400 else None
            error = await _response_error(response, self.name, api_key)
            amend = self._wire.second_request(error)
            amended = None if amend is None else await offload(weight_of(call), _amended, amend, data, headers)
            if amended is not None:
                response = await self._send(url, *amended, timeout_seconds, api_key)
                if _has_content(response):
                    return HTTPModelStream(response, self._decoder(call))
                error = await _response_error(response, self.name, api_key)
            if error.code in self._wire.recoverable_errors:
                decoder = self._decoder(call)
                events = [*decoder.feed(msgspec.json.encode(error.native)), *decoder.end()]
                if not any(isinstance(event, ErrorEvent) for event in events):
                    return _RecoveredStream(events, _request_id(response))
            raise ModelError(error, _request_id(response), location)
        return HTTPModelStream(response, self._decoder(call))

    async def _send(
        self, url: str, data: bytes, headers: dict[str, str], timeout_seconds: float | None, api_key: str | None
    ) -> UpstreamResponse:
        if self.profile.auth == "aws" and api_key is None:
            # In a thread, because a request may be needed to get the credentials.
            headers = await asyncio.to_thread(sign, "POST", url, headers, data)
        transport = self._transport or await shared_pool()
        return await transport.open(url, headers, data, self._limits, timeout_seconds)

    def _decoder(self, call: ModelCall) -> StreamDecoder:
        decoder = self._wire.decoder(self.profile, self.origin)
        decoder.set_offered_tools(tool.name for tool in call.tools)
        return decoder

    def _encoded_request(self, call: ModelCall, api_key: str | None) -> tuple[str, dict[str, str], bytes, float | None]:
        """Return the request of a call with its body encoded. Raises `RequestError`."""
        url, headers, body, timeout_seconds = self.request(self._with_settings(call), api_key)
        return url, headers, msgspec.json.encode(body), timeout_seconds

    def _with_settings(self, call: ModelCall) -> ModelCall:
        """Return the call with the model's name and settings, as its wire gets it."""
        call = replace(call, model=self.name, settings=merge_settings(self.settings, call.settings))
        return call.for_wire(self.profile.native_wire)

    @property
    def counts_tokens(self) -> bool:
        """Whether the provider counts the tokens of requests."""
        return bool(self.profile.count_path)

    async def count_tokens(self, call: ModelCall) -> int | None:
        """Ask a provider that counts how many tokens the model would read for a call.

        Returns:
            The number; None if the answer is not a count.

        Raises:
            ModelError: There was no answer in time.
            RequestError: The model has no key or base URL, or its wire cannot carry the call.
            RuntimeError: Requests are not allowed (`pellucid.models.ALLOW_MODEL_REQUESTS`).
        """
        models.check_allow_model_requests()
        headers, data = await offload(weight_of(call), self._encoded_count_request, call)
        transport = self._transport or await shared_pool()
        response = await transport.open(
            self._base_url + self.profile.count_path,
            headers,
            data,
            self._limits,
            COUNT_SECONDS,
        )
        answer = await response.read_all(MAX_COUNT_BYTES)
        try:
            return _decode_count(answer).input_tokens if response.status == HTTPStatus.OK else None
        except msgspec.DecodeError:
            return None

    def _encoded_count_request(self, call: ModelCall) -> tuple[dict[str, str], bytes]:
        _, headers, body, _ = self.request(self._with_settings(call), self.api_key())
        counted = {name: value for name, value in body.items() if name in self._wire.count_fields}
        return headers, msgspec.json.encode(counted)

    @property
    def address(self) -> tuple[str | None, int | None]:
        """Return the upstream's host and port."""
        parts = urlsplit(self._base_url)
        return parts.hostname, parts.port

    def api_key(self) -> str | None:
        """Return the key to send, or None. Raises `RequestError` if a key is needed and missing."""
        return self._api_key

    def request(self, call: ModelCall, api_key: str | None = None) -> Request:
        """Return the HTTP request for a call.

        Args:
            call: The call, with its settings already merged with the model's.
            api_key: The key to send.

        Raises:
            RequestError: The model has no base URL, or the wire cannot carry the call.
        """
        if not self._base_url:
            raise RequestError(
                f"{self.profile.title or self.profile.name} has no default address: set base_url",
                code="missing_base_url",
            )
        return Request(
            self._base_url + self._wire.path(call, self.profile),
            {
                "Content-Type": "application/json",
                **self._wire.headers(self.profile, api_key, call),
                **self._headers,
                **call.settings.get("extra_headers", {}),
            },
            self._wire.encode(call, self.profile, self.origin),
            call.settings.get("timeout"),
        )

    async def served_models(self) -> list[ServedModel]:
        """Ask the provider which models it serves. It does not depend on this model's name.

        Returns:
            The models; empty if the provider has no such list, or one in a form that is not known here.

        Raises:
            ModelError: The provider does not answer, or with an error status.
        """
        path = self.profile.models_path
        if not (self._base_url and path) or self.profile.auth == "aws":
            return []
        headers = {**self._wire.headers(self.profile, self.api_key(), ModelCall("", [])), **self._headers}
        transport = self._transport or await shared_pool()
        status, body = await transport.get(self._base_url + path, headers)
        if status != HTTPStatus.OK:
            raise ModelError(error_from_response(status, _without_key(body[:MAX_ERROR_BODY_BYTES], self.api_key())))
        return served_models(body)

    def warnings(self, call: ModelCall) -> list[str]:
        """Return one sentence for each setting, of the call or of the model, that it does not support as it is."""
        settings = settings_for_wire(merge_settings(self.settings, call.settings), self.profile.native_wire)
        if not self._base_url:
            return []  # `request` rejects such a call.
        profile = self.profile.for_functions() if call.tools else self.profile
        try:
            fields = self._wire.setting_fields(settings, profile)
        except RequestError:
            return []
        fields.claim_request_settings()
        warnings = call.native_tool_warnings(self.profile.native_wire) + setting_warnings(
            fields, profile, self.origin.model or self.profile.title, call.assumed_settings
        )
        if unsigned := count_unsigned(call.messages, self.profile):
            warnings.append(f"{unsigned} thought(s) without a signature are left out: this model takes no others back")
        return warnings


def weight_of(call: ModelCall) -> int:
    """Return the size of a call (see `offload`)."""
    return len(call.tools) + count_parts(call.messages)


COUNT_SECONDS, MAX_COUNT_BYTES = 10.0, 64 * 1024
"""Limits of the answer of a provider that counts tokens."""


class _TokenCount(msgspec.Struct):
    input_tokens: Annotated[int, Meta(ge=0)]


_decode_count = msgspec.json.Decoder(_TokenCount).decode


class ServedModel(NamedTuple):
    """A model that a provider lists."""

    name: str
    context_tokens: int | None = None
    """The size of its context, if the list has it."""


_CONTEXT_FIELDS = (
    *("context_length", "context_window", "max_model_len", "max_context_length", "inputTokenLimit"),
    "max_input_tokens",
)
"""The names of the size of a model's context, in the lists of several providers."""


def served_models(body: bytes) -> list[ServedModel]:
    """Read a provider's list of models, in the form of OpenAI, Anthropic, Google, Cohere, Mistral or Ollama."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return []
    rows = document.get("data", document.get("models")) if isinstance(document, dict) else document
    models: dict[str, ServedModel] = {}
    for row in rows if isinstance(rows, list) else ():
        name = (row.get("id") or row.get("name")) if isinstance(row, dict) else None
        if isinstance(name, str) and (name := name.removeprefix("models/")):
            sizes = (row.get(field) for field in _CONTEXT_FIELDS)
            size = next((size for size in sizes if type(size) is int and size > 0), None)
            models[name] = ServedModel(name, size)
    return list(models.values())


class TextWriter(NamedTuple):
    """Functions that pass on the text of one delta, `write(encode(text, time_ms))`, or of several from one read."""

    encode: Callable[[str, int], Any]
    write: Callable[[Any], object]
    write_all: Callable[[list[Any]], object]


class TextReceiver(Protocol):
    """Receiver of the texts of deltas in place of their events."""

    @property
    def pending_events(self) -> Sized:
        """Events that must be sent before the next delta. While there are any, the text path is not used."""
        ...

    def open_text(self, last_delta: PartDeltaEvent, close: Callable[[], None]) -> TextWriter | None:
        """Return a writer for texts whose deltas differ from `last_delta` in text alone; None to receive events.

        Args:
            last_delta: The last event that was received.
            close: Makes the stream deliver events again. Idempotent. The writer is valid until it is called, or until
                another event is received.
        """
        ...

    def add_texts(self, texts: list[tuple[str, int]]) -> None:
        """Record texts that were passed on, each with its time in milliseconds since the epoch."""
        ...

    def fail_text(self, error: BaseException) -> None:
        """Handle an error that the writer raised."""
        ...


MAX_PENDING_TEXTS = 16
"""Number of texts that may be passed on before they are recorded."""

CHECK_BYTES = 65_536
"""Bytes that are decoded between two checks of the limits of a turn. On the text path they are checked whenever texts
are recorded."""


class HTTPModelStream:
    """A turn that is read from a connection: the `BodyReceiver` of its response.

    The text path: while each read holds only deltas of the open part, their texts go to the receiver's writer, and no
    event is created. Any other read is decoded into events, after the texts before it were recorded.

    A turn that reaches one of its limits (`upstream.Limits`) ends there as incomplete, and the connection is closed.
    """

    __slots__ = (
        "_decoder",
        "_encode",
        "_is_cut",
        "_is_over",
        "_last_read",
        "_pending_events",
        "_pending_texts",
        "_receive",
        "_response",
        "_template",
        "_text_receiver",
        "_tried_template",
        "_unchecked_bytes",
        "_write",
        "_write_all",
        "request_id",
    )

    queued = False

    def __init__(self, response: UpstreamResponse, decoder: StreamDecoder) -> None:
        self.request_id = _request_id(response)
        """The upstream's id of the request, if it sends one."""
        self._response = response
        self._decoder = decoder
        limits = response.limits
        decoder.set_limits(TurnLimits(limits.turn_characters, limits.tool_argument_characters, limits.turn_items))
        self._unchecked_bytes = 0
        """Bytes that were decoded since the limits were checked."""
        self._receive: ModelEventReceiver | None = None
        self._is_over = False
        self._text_receiver: TextReceiver | None = None
        self._template: Template | None = None
        """Template of the reads on the text path; None while the path is closed."""
        self._tried_template: Template | None = None
        """Template with which the path was opened, or could not be opened; None after it was closed."""
        self._encode: Callable[[str, int], Any]
        self._write: Callable[[Any], object]
        self._write_all: Callable[[list[Any]], object]
        self._is_cut = False
        """Whether the next read continues a frame."""
        self._pending_events: Sized
        self._pending_texts: list[tuple[str, int]] = []
        """Texts that are not recorded yet, with their times in milliseconds."""
        self._last_read = b""

    @property
    def unread_fields(self) -> Iterable[str]:
        """The paths of fields of the response that nothing reads."""
        return self._decoder.unread_fields

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        self._receive, self._text_receiver = receive, texts
        self._response.start(self)

    def _open_text_path(self, last_event: ModelEvent) -> None:
        """Open the text path, if deltas like `last_event` can use it."""
        template = self._tried_template = self._decoder.text_template
        receiver = self._text_receiver
        if template is None or receiver is None or self._is_over or type(last_event) is not PartDeltaEvent:
            return
        writer = receiver.open_text(last_event, self.close_text_path)
        if writer is not None and self._response.redirect(self._text_received):
            self._template = template
            self._is_cut = self._decoder.holds_partial
            self._encode, self._write, self._write_all = writer
            self._pending_events = receiver.pending_events

    def close_text_path(self) -> None:
        """Record the texts that used the path; later reads are decoded into events. Idempotent."""
        if self._template is not None:
            self._template = self._tried_template = None
            self._response.redirect(self.data_received)
            self._add_texts()

    def _add_texts(self) -> None:
        texts, self._pending_texts = self._pending_texts, []
        if texts and self._text_receiver is not None:
            self._decoder.add_text("".join([text for text, _ in texts]), self._last_read)
            self._text_receiver.add_texts(texts)

    def _text_received(self, data: bytes) -> None:
        """Receive a read while the text path is open: nearly always one delta."""
        template, texts = self._template, self._pending_texts
        time_ms = time_ns() // 1_000_000
        try:
            text = None if template is None or self._pending_events or self._is_cut else template.text_of(data)
        except Exception as fault:
            self._fail_text_path(fault)
            return
        if text is None:
            self.data_received(data)
            return
        self._last_read = data
        texts.append((text, time_ms))
        encode, write = self._encode, self._write
        try:
            write(encode(text, time_ms))
            if len(texts) >= MAX_PENDING_TEXTS:
                self._add_texts()
                self._check_limits()
        except BaseException as error:  # an error of the receiver, which the transport must not handle
            self._fail_writing(error)

    def _take_texts(self, data: bytes) -> bytes:
        """Pass on the texts of the deltas at the start of `data`, and return the bytes after them."""
        try:
            if self._pending_events:
                self.close_text_path()
                return data
            texts, last, rest = self._decoder.texts_of(data)
        except Exception as fault:
            self._fail_text_path(fault)
            return b""
        self._is_cut = self._decoder.holds_partial
        if texts:
            self._last_read = last
            time_ms = time_ns() // 1_000_000
            self._pending_texts += [(text, time_ms) for text in texts]
            encode = self._encode
            try:
                self._write_all([encode(text, time_ms) for text in texts])
                if len(self._pending_texts) >= MAX_PENDING_TEXTS:
                    self._add_texts()
                    self._check_limits()
            except BaseException as error:  # an error of the receiver, which the transport must not handle
                self._fail_writing(error)
        if rest:
            try:
                self.close_text_path()
            except Exception as fault:
                self._fail_text_path(fault)
        return rest

    def _fail_text_path(self, fault: Exception) -> None:
        with suppress(Exception):
            self.close_text_path()
        self._fail(fault)

    def _fail_writing(self, error: BaseException) -> None:
        with suppress(Exception):
            self.close_text_path()
        if self._text_receiver is not None:
            self._text_receiver.fail_text(error)

    def pause(self) -> None:
        if not self._is_over:
            self._response.pause_reading()

    def resume(self) -> None:
        if self._template is None:
            self._tried_template = None  # the receiver that could not take texts may be another one now
        if not self._is_over:
            self._response.resume_reading()

    def data_received(self, data: bytes) -> None:
        decoder = self._decoder
        while data and not self._is_over:
            if self._template is not None:
                data = self._take_texts(data)
                continue
            rest = b""
            is_refused = self._tried_template is not None and decoder.text_template is self._tried_template
            try:
                if self._text_receiver is None or is_refused:
                    events = decoder.feed(data)
                else:
                    events, rest = decoder.feed_until_text(data)
                if events and type(events[-1]) is ErrorEvent:
                    # Content after an error would not be shown.
                    self._is_over = True
                    self._response.close()
                    events += decoder.end("cancelled")
                elif decoder.done:
                    self._is_over = True
                    limit = decoder.reached_limit
                    if limit is None:
                        self._response.finish()
                    else:
                        self._close_at(limit)
                    events += decoder.end()
            except Exception as fault:
                self._fail(fault)
                return
            if events and self._receive is not None:
                self._receive(events)
                if decoder.text_template is not self._tried_template:
                    self._open_text_path(events[-1])
            self._unchecked_bytes += len(data) - len(rest)
            data = rest
        if self._unchecked_bytes > CHECK_BYTES:
            self._check_limits()

    def _check_limits(self) -> None:
        """End the turn if what was received exceeds a limit."""
        self._unchecked_bytes = 0
        limit: CutReason | None
        is_too_large = self._response.body_bytes > self._response.limits.turn_bytes
        limit = "turn_bytes" if is_too_large else self._decoder.exceeded_limit()
        if limit is not None and not self._is_over:
            self.cut(limit)

    def cut(self, limit: CutReason) -> None:
        """End the turn as incomplete, with the content so far. The receiver gets its end."""
        try:
            self.close_text_path()
            self._is_over = True
            self._close_at(limit)
            events = self._decoder.cut(limit)
        except Exception as fault:
            self._fail(fault)
            return
        if self._receive is not None:
            self._receive(events)

    def _close_at(self, limit: CutReason) -> None:
        if limit == "repetition":
            log.warning("a turn of a model was ended, because it repeated itself")
        else:
            log.warning("a turn of a model was ended at limits.%s", limit)
        self._response.close()

    def body_ended(self, error: ErrorInfo | None) -> None:
        if not self._is_over and self._receive is not None:
            # The content so far is kept; the turn ends with the error.
            if error is not None and error.code == TURN_TOO_LONG:
                self.cut("turn_seconds")
                return
            try:
                self.close_text_path()
                self._is_over = True
                events = self._decoder.end() if error is None else self._decoder.end("error", error)
            except Exception as fault:
                self._fail(fault)
                return
            self._receive(events)

    def _fail(self, fault: Exception) -> None:
        self._is_over = True
        self._response.close()
        if self._receive is not None:
            self._receive(fault)

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        self.close_text_path()
        if not self._is_over:
            self._is_over = True
            self._response.close()
        return self._decoder.end("cancelled" if error is None else "error", error)


class _RecoveredStream:
    """A turn that was found in an error response."""

    queued = False

    def __init__(self, events: list[ModelEvent], request_id: str | None) -> None:
        self.request_id = request_id
        self._events = events

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        events, self._events = self._events, []
        receive(events)

    def pause(self) -> None:
        """Do nothing: there is nothing to read."""

    def resume(self) -> None:
        """Do nothing: there is nothing to read."""

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        events, self._events = self._events, []
        return events


def _request_id(response: UpstreamResponse) -> str | None:
    return next((response.headers[name] for name in UPSTREAM_ID_HEADERS if name in response.headers), None)


_NO_CONTENT_STATUSES = (204, 205)
"""Success statuses without a body."""


def _has_content(response: UpstreamResponse) -> bool:
    """Whether a response has the answer of a model."""
    return 200 <= response.status < 300 and response.status not in _NO_CONTENT_STATUSES


def _amended(amend: Amend, data: bytes, headers: dict[str, str]) -> tuple[bytes, dict[str, str]] | None:
    """Return the body and the headers of a request that is sent again; None if it is not."""
    amended = amend(msgspec.json.decode(data), headers)
    return None if amended is None else (msgspec.json.encode(amended[0]), amended[1])


def _without_key(body: bytes, api_key: str | None) -> bytes:
    """Return an error's body without the key that was sent: some servers quote it, and clients see what they say."""
    return body.replace(api_key.encode(), b"[key]") if api_key and len(api_key) >= MIN_SECRET_CHARACTERS else body


async def _response_error(response: UpstreamResponse, model: str, api_key: str | None) -> ErrorInfo:
    status = response.status
    if status < 400:
        response.close()
        if status >= 300 and response.headers.get("Location") is not None:
            message = f"the provider answered {status}, a redirect; base_url must be the address that it leads to"
            return ErrorInfo("model_error", message, code="redirect", status=status)
        reason = "a status without content" if status in _NO_CONTENT_STATUSES else "which is not a valid answer"
        message = f"the provider answered {status}, {reason}; base_url must be the address of a model API"
        return ErrorInfo("model_error", message, code="not_an_answer", status=status)
    body = _without_key(await response.read_all(MAX_ERROR_BODY_BYTES), api_key)
    fault = error_from_response(status, body, model)
    return replace(fault, retry_after=response.retry_after)
