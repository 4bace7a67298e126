"""Bytes to frames and back: SSE, NDJSON, Amazon's event stream.

Sans-IO, independent of how the bytes were cut, with a size limit.
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
