"""`pellucid decode`: captured provider bytes in, one JSON object of parts out.

An answer that is an error is printed like any other, with what was said before it, and is the exit status 1.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import click
import msgspec

from ..errors import ErrorInfo, RequestError
from ..events import ModelEvent
from ..fold import Fold, fold
from ..parts import Usage
from ..providers.lenient_json import decode_lenient_json
from ..providers.profile import Profile
from ..providers.profiles import builtin_profiles
from ..providers.wires import decode as decode_answer
from ..unicode import did_you_mean


@click.command()
@click.option("--from", "provider", required=True, metavar="PROVIDER", help="Whose bytes they are.")
@click.option("--content-type", metavar="T", help="The answer's Content-Type, if it cannot be told from the bytes.")
@click.argument("file", type=click.File("rb"), default="-")
def decode(provider: str, content_type: str | None, file: BinaryIO) -> None:
    """Decode a provider's answer, streamed or whole, and print it as one JSON object.

    An answer that is an error is told once more on standard error, with exit status 1.
    """
    folded = fold(list(decode_bytes(provider, content_type, file.read())))
    click.echo(_as_json(folded))
    raise SystemExit(exit_status(folded.error))


def exit_status(error: ErrorInfo | None) -> int:
    """The exit status for an answer that ended so; why it failed is told on standard error."""
    if error is None:
        return 0
    click.echo(f"Error: {error.full_message}", err=True)
    return 1


def decode_bytes(provider: str, content_type: str | None, data: bytes) -> list[ModelEvent]:
    """The events of one captured answer. Raises `RequestError` for an unknown provider."""
    row = find_profile(provider)
    if provider in NATIVE_PROVIDERS and is_native(content_type, data):
        row = find_profile(NATIVE_PROVIDERS[provider])
    return decode_answer(row, data, content_type or guess_content_type(data))


def find_profile(provider: str) -> Profile:
    """The provider's row. Raises `RequestError` naming what there is."""
    rows = builtin_profiles()
    row = rows.get(provider)
    if row is None:
        raise RequestError(f"--from: no provider {provider!r}; {did_you_mean(provider, rows)}")
    return row


NATIVE_PROVIDERS = {"ollama": "ollama-native"}
"""Providers that speak a wire of their own beside a compatible one, and the row of that."""


def is_native(content_type: str | None, data: bytes) -> bool:
    """Whether an answer is of a provider's own wire: lines of JSON, each of which says whether it is the last."""
    if content_type is not None and content_type.startswith("application/x-ndjson"):
        return True
    for start in (data.strip().partition(b"\n")[0], data):
        try:
            value = decode_lenient_json(start)
        except ValueError:
            continue
        return isinstance(value, dict) and "done" in value
    return False


def guess_content_type(data: bytes) -> str:
    """JSON begins with a bracket, and a stream never does."""
    return "application/json" if data.lstrip()[:1] in (b"{", b"[") else "text/event-stream"


def _as_json(folded: Fold) -> str:
    response = folded.response
    assert response is not None
    value: dict[str, Any] = {
        "parts": msgspec.to_builtins(response.parts),
        "usage": {name: getattr(response.usage, name) for name in Usage.__struct_fields__},
        # A turn that only pauses has not finished.
        "finish_reason": None if response.finish_reason == "pause" else response.finish_reason,
        "native_finish_reason": response.native_finish_reason,
        "model_name": response.model_name,
        "provider_name": response.origin.provider if response.origin else None,
        "provider_response_id": response.provider_response_id,
    }
    if folded.error is not None:
        value["error"] = {name: x for name, x in msgspec.to_builtins(folded.error).items() if name != "native"}
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
