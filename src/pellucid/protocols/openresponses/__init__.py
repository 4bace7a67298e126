"""OpenResponses: `POST /v1/responses`, streamed and whole.

The specification of 2026-04-24. Events of raw reasoning have its names (`response.reasoning.delta` / `.done`), OpenAI's
(`response.reasoning_text.*`, with the same fields), or those of summaries (`response.reasoning_summary_text.*`).
"""

from ..decoding import read_json
from .client_tools import ClientTool
from .dialects import DIALECTS, PROTOCOL, Dialect, client_dialect
from .encode import Encoder, Framing
from .items import KnownCall, ReferenceContext, item_messages, tool_items
from .request import FORWARDED_HEADERS, MCPServerSpec, Request, parse_request, request_from
from .types import error_body, error_payload

__all__ = [
    "DIALECTS",
    "FORWARDED_HEADERS",
    "PROTOCOL",
    "ClientTool",
    "Dialect",
    "Encoder",
    "Framing",
    "KnownCall",
    "MCPServerSpec",
    "ReferenceContext",
    "Request",
    "client_dialect",
    "error_body",
    "error_payload",
    "item_messages",
    "parse_request",
    "read_json",
    "request_from",
    "tool_items",
]
