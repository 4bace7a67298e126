"""The AI SDK's UI message stream: what `useChat` sends to `/api/chat`, and the stream that it reads.

The protocol of the npm packages `ai` and `@ai-sdk/react` (versions 5 to 7) between a page and its server. Reasoning is
in blocks of its own, and `providerMetadata` carries sealed tokens to the page and back.
"""

from .chunks import error_body
from .encode import Encoder
from .request import PROTOCOL, Request, parse_request, recognises

HEADER = (b"x-vercel-ai-ui-message-stream", b"v1")
"""The header that identifies the stream to clients."""

__all__ = [
    "HEADER",
    "PROTOCOL",
    "Encoder",
    "Request",
    "error_body",
    "parse_request",
    "recognises",
]
