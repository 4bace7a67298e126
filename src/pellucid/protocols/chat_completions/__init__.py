"""Chat Completions: `POST /v1/chat/completions`, streamed and whole.

OpenAI's protocol with the fields that related providers added for reasoning: `reasoning_content` (DeepSeek),
`reasoning` (OpenRouter, vLLM), and `reasoning_details` (OpenRouter), in which sealed reasoning goes to the client and
comes back.
"""

from .encode import Encoder
from .request import Request, parse_request
from .types import ReasoningFields, error_body, error_payload

__all__ = ["Encoder", "ReasoningFields", "Request", "error_body", "error_payload", "parse_request"]
