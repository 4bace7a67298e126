"""OpenResponses: `POST /v1/responses`, streamed and whole.

The specification of 2026-04-24. Events of raw reasoning have its names (`response.reasoning.delta` / `.done`) or
OpenAI's (`response.reasoning_text.*`), with the same fields.
"""

from ..decoding import read_json
from .dialects import DIALECTS, PROTOCOL, Dialect
from .encode import Encoder, Framing
from .items import KnownCall, ReferenceContext, item_messages
from .request import MCPServerSpec, Request, parse_request, request_from
from .types import error_body, error_payload

__all__ = [
    "DIALECTS",
    "PROTOCOL",
    "Dialect",
    "Encoder",
    "Framing",
    "KnownCall",
    "MCPServerSpec",
    "ReferenceContext",
    "Request",
    "error_body",
    "error_payload",
    "item_messages",
    "parse_request",
    "read_json",
    "request_from",
]
