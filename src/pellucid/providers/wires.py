"""Table of all wires by name: the encoder of requests and the decoder of responses of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

from ..emit import CutReason, TurnLimit, TurnLimits
from ..errors import ErrorInfo
from ..events import Cause, ModelEvent
from ..parts import Origin
from ..settings import ModelCall
from . import anthropic, bedrock, cohere, google, mistral, ollama, openai_chat, openai_responses
from .frame_template import Template
from .profile import Profile
from .setting_fields import SettingFields, Settings


class Decoder(Protocol):
    """Decoder of one response, without I/O: `feed` the bytes of each read, then `end` once with the cause.

    It accepts any bytes and never raises; a second `end` returns nothing.
    """

    @property
    def unread_fields(self) -> Counter[str]:
        """How many of the frames that were examined had each field that nothing reads, by its path."""
        ...

    def examine_all_frames(self) -> None:
        """Count unread fields in all frames, which takes more time. Call it before `feed`."""
        ...

    @property
    def done(self) -> bool:
        """Whether the wire reported that no more data will follow, so that the connection's end need not be awaited."""
        ...

    @property
    def text_template(self) -> Template | None:
        """The template of a read that is one more delta of the open part and nothing else; None if unknown."""
        ...

    def add_text(self, text: str, last: bytes) -> None:
        """Record the text of reads that matched `text_template` and whose deltas were delivered without `feed`.

        Args:
            text: The texts, joined.
            last: The last of these reads.
        """
        ...

    def texts_of(self, data: bytes) -> tuple[list[str], bytes, bytes]:
        """Read the deltas at the beginning of a read that match `text_template`.

        An incomplete frame at the end is kept.

        Returns:
            The texts, the last such frame, and the remaining bytes, which have other content.
        """
        ...

    def feed_until_text(self, data: bytes) -> tuple[list[ModelEvent], bytes]:
        """Decode at least the first frame, and no more than are needed to know `text_template`.

        Returns:
            The events, and the remaining bytes, for `texts_of` or `feed`.
        """
        ...

    @property
    def holds_partial(self) -> bool:
        """Whether the next read continues an incomplete frame."""
        ...

    def feed(self, data: bytes) -> list[ModelEvent]: ...

    def set_limits(self, limits: TurnLimits) -> None:
        """Set the most that the turn may contain. Call it before `feed`."""
        ...

    def set_offered_tools(self, names: Iterable[str]) -> None:
        """Set the functions that the request offered. Call it before `feed`."""
        ...

    @property
    def reached_limit(self) -> CutReason | None:
        """The limit at which the turn was cut."""
        ...

    def exceeded_limit(self) -> TurnLimit | None:
        """Return the limit that the content so far exceeds, if any."""
        ...

    def cut(self, limit: CutReason) -> list[ModelEvent]:
        """End the turn because it has reached a limit, and return the remaining events."""
        ...

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]: ...


Amend: TypeAlias = Callable[[dict[str, Any], dict[str, str]], tuple[dict[str, Any], dict[str, str]] | None]
"""Takes the body and the headers of a request, and returns them changed; None if it cannot be changed."""


class Wire(NamedTuple):
    """One provider API: its encoder, its decoder, and the address and headers of requests."""

    name: str
    encode: Callable[[ModelCall, Profile, Origin], dict[str, Any]]
    """Encodes the request's JSON body."""
    decoder: Callable[[Profile, Origin, str], Decoder]
    """Makes the decoder of one response with this content type."""
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


WIRES = {
    wire.name: wire
    for wire in (
        Wire(
            "openai_chat",
            openai_chat.encode,
            openai_chat.decoder,
            openai_chat.setting_fields,
            recoverable_errors=openai_chat.RECOVERABLE_ERRORS,
        ),
        Wire("openai_responses", openai_responses.encode, openai_responses.decoder, openai_responses.setting_fields),
        Wire(
            "anthropic",
            anthropic.encode,
            anthropic.decoder,
            anthropic.setting_fields,
            anthropic.path,
            anthropic.headers,
            second_request=anthropic.second_request,
            count_fields=anthropic.COUNT_FIELDS,
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
"""The wires by name. This is the only list of them: a profile's `wire` is one of these names."""


def decode(profile: Profile, data: bytes, content_type: str = "text/event-stream") -> list[ModelEvent]:
    """Decode one captured response, streamed or whole.

    Args:
        profile: The profile.
        data: The response body.
        content_type: The body's content type.

    Returns:
        The events of the turn.
    """
    decoder = _capture_decoder(profile, content_type)
    return [*decoder.feed(data), *decoder.end()]


def count_unread_fields(profile: Profile, data: bytes, content_type: str = "text/event-stream") -> Counter[str]:
    """Count the fields of one captured response that nothing reads.

    Args:
        profile: The profile.
        data: The response body.
        content_type: The body's content type.

    Returns:
        The number of frames with each field, by its path (`choices[].delta.thoughts`).
    """
    decoder = _capture_decoder(profile, content_type)
    decoder.examine_all_frames()
    decoder.feed(data)
    decoder.end()
    return decoder.unread_fields


def _capture_decoder(profile: Profile, content_type: str) -> Decoder:
    """Return the decoder of a captured response, whose model is not known."""
    return WIRES[profile.wire].decoder(profile, Origin(profile.name, profile.wire, ""), content_type)
