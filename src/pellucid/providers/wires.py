"""Table of all wires by name: the encoder of requests and the decoder of responses of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from ..errors import ErrorInfo
from ..events import ModelEvent
from ..parts import Origin
from ..settings import ModelCall
from .anthropic import encode as anthropic
from .anthropic.decode import MessageReader
from .bedrock import encode as bedrock
from .bedrock.decode import ConverseReader
from .bedrock.thinking import THINKING as BEDROCK_THINKING
from .cohere import encode as cohere
from .cohere.decode import CohereReader
from .google import encode as google
from .google.decode import GeminiReader
from .mistral import encode as mistral
from .mistral.decode import MistralReader
from .ollama import encode as ollama
from .ollama.decode import OllamaReader
from .openai_chat import encode as openai_chat
from .openai_chat.calls import RECOVERABLE_ERRORS
from .openai_chat.decode import ChatCompletionsReader
from .openai_responses import encode as openai_responses
from .openai_responses.decode import ResponsesReader
from .profile import Profile
from .setting_fields import SettingFields, Settings
from .stream_decoder import StreamDecoder, WireReader

Amend: TypeAlias = Callable[[dict[str, Any], dict[str, str]], tuple[dict[str, Any], dict[str, str]] | None]
"""Takes the body and the headers of a request, and returns them changed; None if it cannot be changed."""


class Wire(NamedTuple):
    """One provider API: its encoder, its reader, and the address and headers of requests."""

    name: str
    encode: Callable[[ModelCall, Profile, Origin], dict[str, Any]]
    """Encodes the request's JSON body."""
    reader: Callable[[Profile, Origin], WireReader]
    """Makes the reader of one response, streamed or whole: the first byte shows which it is."""
    setting_fields: Callable[[Settings, Profile], SettingFields]
    """Returns the fields of the body that come from settings, as `encode` writes them. They show which settings the
    model takes. It raises `RequestError` where `encode` would because of the settings."""
    path: Callable[[ModelCall, Profile], str] = lambda call, profile: profile.path_of(
        quote(call.model), stream=call.stream
    )
    """Returns the request's path below the base address."""
    headers: Callable[[Profile, str | None, ModelCall], dict[str, str]] = lambda profile, api_key, call: (
        profile.credentials(api_key)
    )
    """Returns the request's headers: the credentials, and other headers that the API requires."""
    thinking: frozenset[str] | None = None
    """The values of a profile's `thinking` that `encode` can write; None for all of them."""
    recoverable_errors: frozenset[str] = frozenset()
    """The codes of error responses that may quote what the model wrote, so that the decoder may find a turn in them."""
    second_request: Callable[[ErrorInfo], Amend | None] = lambda error: None
    """Returns how a request that was answered with this error is changed and sent again; None if it is not."""
    count_fields: frozenset[str] = frozenset()
    """The fields of the body that are sent to have the tokens of a request counted (`Profile.count_path`)."""

    def decoder(self, profile: Profile, origin: Origin) -> StreamDecoder:
        """Return the decoder of one response."""
        return StreamDecoder(self.reader(profile, origin))


WIRES = {
    wire.name: wire
    for wire in (
        Wire(
            "openai_chat",
            openai_chat.encode,
            ChatCompletionsReader,
            openai_chat.setting_fields,
            recoverable_errors=RECOVERABLE_ERRORS,
        ),
        Wire("openai_responses", openai_responses.encode, ResponsesReader, openai_responses.setting_fields),
        Wire(
            "anthropic",
            anthropic.encode,
            MessageReader,
            anthropic.setting_fields,
            anthropic.path,
            anthropic.headers,
            second_request=anthropic.second_request,
            count_fields=anthropic.COUNT_FIELDS,
        ),
        Wire("google", google.encode, GeminiReader, google.setting_fields, google.path, google.headers),
        Wire("mistral", mistral.encode, MistralReader, mistral.setting_fields, thinking=mistral.THINKING),
        Wire("cohere", cohere.encode, CohereReader, cohere.setting_fields),
        Wire(
            "bedrock",
            bedrock.encode,
            ConverseReader,
            bedrock.setting_fields,
            bedrock.path,
            thinking=BEDROCK_THINKING,
        ),
        Wire("ollama", ollama.encode, OllamaReader, ollama.setting_fields),
    )
}
"""The wires by name. This is the only list of them: a profile's `wire` is one of these names."""


def decode(profile: Profile, data: bytes) -> list[ModelEvent]:
    """Decode one captured response, streamed or whole (its first byte shows which), to the events of its turn."""
    decoder = _capture_decoder(profile)
    return [*decoder.feed(data), *decoder.end()]


def count_unread_fields(profile: Profile, data: bytes) -> Counter[str]:
    """Count the fields of one captured response that nothing reads.

    Returns:
        The number of frames with each field, by its path (`choices[].delta.thoughts`).
    """
    decoder = _capture_decoder(profile)
    decoder.examine_all_frames()
    decoder.feed(data)
    decoder.end()
    return decoder.unread_fields


def _capture_decoder(profile: Profile) -> StreamDecoder:
    """Return the decoder of a captured response, whose model is not known."""
    return WIRES[profile.wire].decoder(profile, Origin(profile.name, profile.wire, ""))
