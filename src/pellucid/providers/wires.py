"""The wires there are, by name: how to write a request, and what reads the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from ..errors import ErrorInfo
from ..events import Cause, ModelEvent
from ..parts import Origin
from ..settings import ModelCall
from . import anthropic, bedrock, cohere, google, mistral, ollama, openai_chat, openai_responses
from .frame_template import Template
from .profile import Profile
from .setting_fields import SettingFields, Settings


class Decoder(Protocol):
    """Bytes to events, sans-IO: `feed` what was read, `end` once with why it is over. Total and idempotent."""

    @property
    def done(self) -> bool:
        """Whether the wire said that nothing more will come: then it is not worth waiting for the connection to end."""
        ...

    @property
    def text_template(self) -> Template | None:
        """Of a read that is one more delta of the open part and nothing else; None if that is not known just now."""
        ...

    def add_text(self, text: str, last: bytes) -> None:
        """Take the text of reads like `text_template` that were not fed, and whose deltas are on their way already.
        `last` is the latest of them."""
        ...

    def texts_of(self, data: bytes) -> tuple[list[str], bytes, bytes]:
        """The texts of the deltas like `text_template` that a read begins with, the last such frame, and the bytes that
        were not taken: they bring something else. What is not whole at the end is kept."""
        ...

    def feed_until_text(self, data: bytes) -> tuple[list[ModelEvent], bytes]:
        """Feed the first frame at least, and no more than it takes to know `text_template`: the events, and the bytes
        that were not taken, for `texts_of` or `feed`."""
        ...

    @property
    def holds_partial(self) -> bool:
        """Whether the next read goes on with a frame that has begun."""
        ...

    def feed(self, data: bytes) -> list[ModelEvent]: ...

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]: ...


class Wire(NamedTuple):
    """One provider API: what is sent where, and what reads the answer."""

    name: str
    encode: Callable[[ModelCall, Profile, Origin], dict[str, Any]]
    """The request's JSON body."""
    decoder: Callable[[Profile, Origin, str], Decoder]
    """A decoder for one answer of this content type."""
    setting_fields: Callable[[Settings, Profile], SettingFields]
    """The fields of the body that come from settings, as `encode` writes them: what the model takes of them. Raises
    `RequestError` where `encode` would because of the settings."""
    path: Callable[[ModelCall, Profile], str] = lambda call, row: row.path_of(quote(call.model), stream=call.stream)
    """Where below the base address it goes."""
    headers: Callable[[Profile, str | None, ModelCall], dict[str, str]] = lambda row, api_key, call: row.credentials(
        api_key
    )
    """The credentials, and the other headers that the API wants."""
    thinking: frozenset[str] | None = None
    """The values of a row's `thinking` that `encode` can write; None: all of them."""


WIRES = {
    wire.name: wire
    for wire in (
        Wire("openai_chat", openai_chat.encode, openai_chat.decoder, openai_chat.setting_fields),
        Wire("openai_responses", openai_responses.encode, openai_responses.decoder, openai_responses.setting_fields),
        Wire(
            "anthropic",
            anthropic.encode,
            anthropic.decoder,
            anthropic.setting_fields,
            anthropic.path,
            anthropic.headers,
        ),
        Wire("google", google.encode, google.decoder, google.setting_fields, google.path, google.headers),
        Wire("mistral", mistral.encode, mistral.decoder, mistral.setting_fields, thinking=mistral.THINKING),
        Wire("cohere", cohere.encode, cohere.decoder, cohere.setting_fields),
        Wire(
            "bedrock",
            bedrock.encode,
            bedrock.decoder,
            bedrock.setting_fields,
            bedrock.path,
            thinking=bedrock.THINKING,
        ),
        Wire("ollama", ollama.encode, ollama.decoder, ollama.setting_fields),
    )
}
"""There is no other list of their names: a profile's `wire` is one of these."""


def decode(row: Profile, data: bytes, content_type: str = "text/event-stream") -> list[ModelEvent]:
    """The events of one captured answer, streamed or whole."""
    decoder = WIRES[row.wire].decoder(row, Origin(row.name, row.wire, ""), content_type)
    return decoder.feed(data) + decoder.end()
