"""The wires there are, by name: how to write a request, and what reads the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ..errors import ErrorInfo
from ..events import Cause, ModelEvent
from ..parts import Origin
from ..settings import ModelCall
from . import anthropic, bedrock, cohere, google, mistral, ollama, openai_chat, openai_responses
from .profiles import Profile


class Decoder(Protocol):
    """Bytes to events, sans-IO: `feed` what was read, `end` once with why it is over. Total and idempotent."""

    @property
    def done(self) -> bool:
        """Whether the wire said that nothing more will come: then it is not worth waiting for the connection to end."""
        ...

    def feed(self, data: bytes) -> list[ModelEvent]: ...

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]: ...


class Wire(NamedTuple):
    encode: Callable[[ModelCall, Profile, Origin], dict[str, Any]]
    """The request's JSON body."""
    decoder: Callable[[Profile, Origin, str], Decoder]
    """A decoder for one answer of this content type."""


WIRES: dict[str, Wire] = {
    "bedrock": Wire(bedrock.encode, bedrock.decoder),
    "anthropic": Wire(anthropic.encode, anthropic.decoder),
    "google": Wire(google.encode, google.decoder),
    "openai_chat": Wire(openai_chat.encode, openai_chat.decoder),
    "openai_responses": Wire(openai_responses.encode, openai_responses.decoder),
    "mistral": Wire(mistral.encode, mistral.decoder),
    "cohere": Wire(cohere.encode, cohere.decoder),
    "ollama": Wire(ollama.encode, ollama.decoder),
}
