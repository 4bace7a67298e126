"""InvokeModel: a model's own wire inside Bedrock's.

The body is the model's own, less the model and the wish to stream, which the path says. A streamed answer is an event
stream of `chunk` messages, each with one event of the model's own wire in base64. `InvokedDecoder` takes them out and
hands them, as server-sent events, to the decoder of that wire, whichever it is.

Where a request goes: the model stands in the path, and whether to stream, too.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from ...errors import ErrorInfo
from ...events import Cause, ModelEvent
from ...framing import sse_event
from ...framing.eventstream import DEFAULT_LIMIT, EventStreamDecoder, EventStreamMessage
from ...settings import ModelCall
from ..fitting import loose_json, loose_object
from ..profile import Profile
from .wrong import fault_of_message, not_this_wire


def path(call: ModelCall, row: Profile) -> str:
    """The URL's path. A model may be an ARN: its slashes are quoted, or the request reaches another operation."""
    return (row.path if call.stream else row.path_whole).replace("{model}", quoted_model(call))


def quoted_model(call: ModelCall) -> str:
    """The model, or the inference profile that stands for it."""
    model: str = call.settings.get("bedrock_inference_profile") or call.model  # type: ignore[assignment]
    return quote(model, safe="")


ANTHROPIC_VERSION = "bedrock-2023-05-31"


def invoke_path(call: ModelCall, row: Profile) -> str:
    """The URL's path."""
    return f"/model/{quoted_model(call)}/{'invoke-with-response-stream' if call.stream else 'invoke'}"


def invoke_body(body: dict[str, Any], *, betas: tuple[str, ...] = ()) -> dict[str, Any]:
    """The body of a Messages request, as Claude takes it here; `betas` are what a header says elsewhere."""
    kept = {name: value for name, value in body.items() if name not in ("model", "stream")}
    versions: dict[str, Any] = {"anthropic_version": ANTHROPIC_VERSION}
    return versions | ({"anthropic_beta": list(betas)} if betas else {}) | kept


class _Inner(Protocol):
    @property
    def done(self) -> bool: ...

    def feed(self, data: bytes) -> list[ModelEvent]: ...

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]: ...


class _Typed(msgspec.Struct):
    type: str | None = None


class InvokedDecoder:
    """A decoder around the decoder of the model's own wire. A body that is no event stream goes through as it is."""

    def __init__(self, inner: _Inner, limit: int = DEFAULT_LIMIT) -> None:
        self._inner = inner
        self._frames = EventStreamDecoder(limit)
        self._plain: bool | None = None
        self._over = False
        self.done = False
        """See `Decoder`."""
        self.text_template = None
        """Never known: frames of an event stream have checksums."""
        self.holds_partial = False

    def add_text(self, text: str, last: bytes) -> None:
        raise AssertionError("no read is like it")

    def texts_of(self, data: bytes) -> tuple[list[str], bytes, bytes]:
        return [], b"", data

    def feed_until_text(self, data: bytes) -> tuple[list[ModelEvent], bytes]:
        return self.feed(data), b""

    def feed(self, data: bytes) -> list[ModelEvent]:
        events = self._feed(data)
        self.done = self._over or self._inner.done
        return events

    def _feed(self, data: bytes) -> list[ModelEvent]:
        if self._plain is None and data:
            self._plain = data[0] >= 8
        if self._plain:
            return self._inner.feed(data)
        events: list[ModelEvent] = []
        ready: list[bytes] = []
        for message in self._frames.feed(data):
            if self._over:
                break
            native = _native_event(message)
            if isinstance(native, bytes):
                ready.append(native)
            else:
                events += self._inner.feed(b"".join(ready))
                events += self._fail(native)
                ready = []
        if ready:
            events += self._inner.feed(b"".join(ready))
        if self._frames.error is not None:
            events += self._fail(self._frames.error)
        return events

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        return self._inner.end(cause, error)

    def _fail(self, error: ErrorInfo) -> list[ModelEvent]:
        self._over = True
        return self._inner.end("error", error)


def _native_event(message: EventStreamMessage) -> bytes | ErrorInfo:
    """The event in a message, as a server-sent event; or what went wrong."""
    fault = fault_of_message(message)
    if fault is not None:
        return fault
    encoded = (loose_object(message.payload) or {}).get("bytes")
    if encoded is None and message.headers.get(":event-type") != "chunk":
        return b""
    try:
        data = b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
        # On one line, whatever the model's server does.
        native = data if b"\n" not in data and b"\r" not in data else msgspec.json.encode(loose_json(data))
        return sse_event(native, msgspec.json.decode(native, type=_Typed).type)
    except (ValueError, msgspec.MsgspecError):
        return not_this_wire(message.payload)
