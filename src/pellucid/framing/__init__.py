"""Framing: bytes to frames, for SSE, NDJSON and Amazon's event stream; and events to SSE bytes.

The decoders do no I/O, give the same frames however the bytes are cut, and have a size limit.
"""

from .eventstream import EventStreamDecoder, EventStreamMessage
from .sse import NDJSONDecoder, SSEDecoder, sse_event

__all__ = [
    "EventStreamDecoder",
    "EventStreamMessage",
    "NDJSONDecoder",
    "SSEDecoder",
    "sse_event",
]
