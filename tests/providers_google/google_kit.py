"""Helpers of the tests of the Google wire: they write answers and compare decoded events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pellucid.errors import ErrorInfo
from pellucid.events import Cause, ModelEvent
from pellucid.fold import Fold, fold
from pellucid.parts import BuiltinToolReturnPart, ModelResponse, OpaquePart, Origin, RefusalPart
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from tests.cutting import cut as cut
from tests.cutting import merged as merged

ROWS = {name: row for name, row in builtin_profiles().items() if row.wire == "google"}

GEMINI_3, GEMINI_25 = "gemini-3.1-pro-preview", "gemini-2.5-flash"


# --- answers of the provider -------------------------------------------------------------------------------------


def answer(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a chunk or an answer with these parts; `more` are fields of the candidate."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0, **more}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-3", "responseId": "r1"}


def text(content: str, signature: str | None = None) -> dict[str, Any]:
    return {"text": content} | ({"thoughtSignature": signature} if signature else {})


def thought(content: str, signature: str | None = None) -> dict[str, Any]:
    return {**text(content, signature), "thought": True}


def call(name: str, signature: str | None = None, **args: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args}} | ({"thoughtSignature": signature} if signature else {})


def sse(*chunks: Any, end: str = "\r\n") -> bytes:
    """Encode chunks as server-sent events, with Google's line ends."""
    return "".join(f"data: {json.dumps(chunk)}{end}{end}" for chunk in chunks).encode()


def array(*chunks: Any, closed: bool = True) -> bytes:
    """Encode chunks as one JSON array, in Google's layout."""
    return ("[" + ",\r\n".join(json.dumps(chunk, indent=2) for chunk in chunks) + ("\n]\n" if closed else "")).encode()


def body(*parts: dict[str, Any], finish: str | None = "STOP", **more: Any) -> bytes:
    return json.dumps(answer(*parts, finish=finish, **more)).encode()


def stream(*fragments: dict[str, Any], finish: str | None = "STOP", **more: Any) -> bytes:
    """Return a stream with one part in each chunk and the finish reason in the last one."""
    chunks = [answer(fragment) for fragment in fragments]
    if finish is not None:
        chunks.append(answer(text(""), finish=finish, **more))
    return sse(*chunks)


# --- decoding ----------------------------------------------------------------------------------------------------


def origin(row: Profile | str = "google", model: str = GEMINI_3) -> Origin:
    return Origin(row if isinstance(row, str) else row.name, "google", model)


def events_of(
    data: bytes | Sequence[bytes],
    *,
    row: str = "google",
    model: str = GEMINI_3,
    cause: Cause = "eof",
    error: ErrorInfo | None = None,
) -> list[ModelEvent]:
    """Decode these reads and return the events."""
    reader = WIRES["google"].decoder(ROWS[row].for_model(model), origin(row, model))
    events = [event for read in ([data] if isinstance(data, bytes) else data) for event in reader.feed(read)]
    events += reader.end(cause, error)
    assert reader.end(cause) == [], "end is idempotent"
    return events


def folded(data: bytes | Sequence[bytes], **how: Any) -> Fold:
    """Decode and fold; raise if the events are illegal or the turn is left open."""
    result = fold(list(events_of(data, **how)))
    assert result.response is not None, "the turn was left open"
    assert result.snapshot() is None, "the turn was left open"
    return result


def response_of(data: bytes | Sequence[bytes], **how: Any) -> ModelResponse:
    """Return the response of a turn that must not fail."""
    result = folded(data, **how)
    assert result.error is None, result.error
    assert result.response is not None
    return result.response


def part_contents(response: ModelResponse) -> list[tuple[Any, ...]]:
    """Return the kind, the content and the signature (if any) of every part."""
    return [
        (part.part_kind, getattr(part, "args" if hasattr(part, "args") else "content", None))
        + ((signature,) if (signature := signature_in(part)) else ())
        for part in response.parts
    ]


def signature_in(part: Any) -> str | None:
    """Return the signature of a part; it is also in the details, or only there for some kinds."""
    own_signature, details_signature = (
        getattr(part, "signature", None),
        (getattr(part, "provider_details", None) or {}).get("thought_signature"),
    )
    assert own_signature == details_signature or isinstance(part, RefusalPart | BuiltinToolReturnPart | OpaquePart)
    return details_signature
