"""OpenResponses: `POST /v1/responses`, streamed and whole.

The specification of 2026-04-24, with its names for raw reasoning (`response.reasoning.delta` / `.done`) or OpenAI's
(`response.reasoning_text.*`), which have the same fields.
"""

from .encode import Dialect, Encoder
from .errors import error_body, status_of
from .request import Request, parse_request

__all__ = ["Dialect", "Encoder", "Request", "error_body", "parse_request", "status_of"]
