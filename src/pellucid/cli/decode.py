"""`pellucid decode`: decodes the captured bytes of a provider's response to one JSON object with its parts.

A response that is an error is printed like any other, with the parts before the error. The exit status is then 1.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import click
import msgspec

from ..errors import ErrorInfo, RequestError
from ..events import ModelEvent
from ..fold import Fold, fold
from ..parts import TOKEN_COUNTS
from ..providers.lenient_json import decode_lenient_json
from ..providers.profile import Profile
from ..providers.profiles import hidden_row, named_profiles
from ..providers.wires import count_unread_fields
from ..providers.wires import decode as decode_answer
from ..unicode import did_you_mean


@click.command()
@click.option("--from", "provider", required=True, metavar="PROVIDER", help="The provider that sent the bytes.")
@click.option("--content-type", metavar="T", help="Its Content-Type, which tells Ollama's two APIs apart.")
@click.option("--unread", is_flag=True, help="List the fields that nothing reads, with their counts.")
@click.argument("file", type=click.File("rb"), default="-")
def decode(provider: str, content_type: str | None, unread: bool, file: BinaryIO) -> None:
    """Decode a provider's answer, streamed or whole, and print it as one JSON object.

    If the answer is an error, it is also printed on standard error, and the exit status is 1.
    """
    data = file.read()
    if unread:
        profile = profile_of_response(provider, content_type, data)
        counts = count_unread_fields(profile, data)
        for path, count in counts.most_common():
            click.echo(f"{count:7} {path}")
        return
    folded = fold(decode_bytes(provider, content_type, data))
    click.echo(_as_json(folded))
    raise SystemExit(exit_status(folded.error))


def exit_status(error: ErrorInfo | None) -> int:
    """Return the exit status for an answer. An error is printed on standard error."""
    if error is None:
        return 0
    click.echo(f"Error: {error.full_message}", err=True)
    return 1


def decode_bytes(provider: str, content_type: str | None, data: bytes) -> list[ModelEvent]:
    """Decode a captured response to its events.

    Args:
        provider: A name of a profile (see `named_profiles`).
        content_type: Its `Content-Type`, which tells the two wires of Ollama apart; None: its bytes do.
        data: The bytes of the response.

    Raises:
        RequestError: The provider is unknown.
    """
    profile = profile_of_response(provider, content_type, data)
    return decode_answer(profile, data)


def profile_of_response(provider: str, content_type: str | None, data: bytes) -> Profile:
    """Return the profile that decodes a response of a provider with one name for two wires (`openai`, `ollama`).

    The first frame shows which wire it is. Any other name is one profile.

    Raises:
        RequestError: The provider is unknown.
    """
    profiles = named_profiles()
    if provider not in profiles:
        raise RequestError(f"--from: no provider {provider!r}; {did_you_mean(provider, profiles)}")
    first = _first_object(data)
    for profile in (hidden_row(provider), profiles.get(f"{provider}-native")):
        if profile is not None and (_WIRE_MARKS[profile.wire] in first or _is_content_of(profile, content_type)):
            return profile
    return profiles[provider]


_WIRE_MARKS = {"openai_chat": "choices", "ollama": "done"}
"""A field of each frame on these wires that the other wire of their providers does not have."""


def _is_content_of(profile: Profile, content_type: str | None) -> bool:
    return profile.wire == "ollama" and (content_type or "").startswith("application/x-ndjson")


def _first_object(data: bytes) -> dict[str, Any]:
    """Return the first JSON object of a response (a line, an event's data, or the whole body); empty if it has none."""
    for text in (*data.splitlines(), data):
        try:
            value = decode_lenient_json(text.removeprefix(b"data:"))
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}


def _as_json(folded: Fold) -> str:
    response = folded.response
    assert response is not None
    value: dict[str, Any] = {
        "parts": msgspec.to_builtins(response.parts),
        "usage": {name: getattr(response.usage, name) for name in (*TOKEN_COUNTS, "details")},
        # A turn that is paused has not finished.
        "finish_reason": None if response.finish_reason == "pause" else response.finish_reason,
        "native_finish_reason": response.native_finish_reason,
        "model_name": response.model_name,
        "provider_name": response.origin.provider if response.origin else None,
        "provider_response_id": response.provider_response_id,
    }
    if folded.error is not None:
        value["error"] = {name: x for name, x in msgspec.to_builtins(folded.error).items() if name != "native"}
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
