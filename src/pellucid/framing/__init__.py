"""Bytes to frames and back: SSE, NDJSON. Sans-IO, independent of how the bytes were cut, with a size limit."""

from .ndjson import NDJSONDecoder
from .sse import SSEDecoder, sse_event

__all__ = ["NDJSONDecoder", "SSEDecoder", "sse_event"]
