"""Messages: `POST /v1/messages` and `POST /v1/messages/count_tokens`, Anthropic's API for any model."""

from .encode import Encoder, estimate_tokens
from .request import FORWARDED_HEADERS, VERSION_HEADER, Request, parse_request
from .types import error_body

__all__ = [
    "FORWARDED_HEADERS",
    "VERSION_HEADER",
    "Encoder",
    "Request",
    "error_body",
    "estimate_tokens",
    "parse_request",
]
