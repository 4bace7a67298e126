"""The AI SDK's UI message stream: what `useChat` sends to `/api/chat`, and what it makes its messages of.

The protocol of the npm packages `ai` and `@ai-sdk/react` (versions 5 to 7) between a page and its server. Reasoning has
blocks of its own in it, and `providerMetadata` carries what is sealed to the page and back.
"""

from ..errors import status_of
from .chunks import error_body
from .encode import Encoder
from .request import PROTOCOL, Request, parse_request, recognises

HEADER = (b"x-vercel-ai-ui-message-stream", b"v1")
"""The header by which a client knows the stream."""

__all__ = [
    "HEADER",
    "PROTOCOL",
    "Encoder",
    "Request",
    "error_body",
    "parse_request",
    "recognises",
    "status_of",
]
