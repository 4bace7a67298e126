"""The protocols that `translate` speaks, as data: how each tells a run, its dialects, and how its streams are checked.

Whoever asks is made up: one message, no keys (so nothing is sealed), everything may be seen. Ids and times are made up
the same way each time, so that two translations can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, get_args

import msgspec

from ..errors import ErrorInfo, RequestError
from ..events import Event, ModelEvent
from ..framing import SSEDecoder
from ..parts import ModelRequest, UserPromptPart
from ..protocols import agui, ai_sdk, chat, chat_completions, openresponses
from ..protocols.agui.sequence import RULES
from ..protocols.agui.verify import Verifier
from ..protocols.ai_sdk.verify import verify as verify_ai_sdk
from ..protocols.chat.verify import verify as verify_chat
from ..protocols.chat_completions.verify import verify as verify_chat_completions
from ..protocols.openresponses.verify import verify as verify_openresponses
from ..run import Mint, Minter, Run
from ..settings import ModelCall

SEED, EPOCH = bytes(16), 0
ASKED = "(captured)"


class Played(NamedTuple):
    """What a model said, as a run told it."""

    batches: list[list[Event]]
    mint: Mint
    model: str
    error: ErrorInfo | None
    """Why the answer is an error, if it is one."""


class Told(NamedTuple):
    """The same in a protocol: what a client would get."""

    stream: bytes
    whole: bytes | None
    """What one gets that asks for no stream, where that can be asked for."""


class Protocol(NamedTuple):
    tell: Callable[[Played, str, bool], Told]
    """In a dialect; as chunks, where there are any."""
    check: Callable[[bytes, str], list[str]]
    """The rules that a stream in this dialect breaks, as `rule: what is wrong`."""
    dialects: tuple[str, ...] = ()
    """The first is what is spoken if none is named."""
    chunks: bool = False
    whole: bool = True


def play(read: Iterable[list[ModelEvent]]) -> Played:
    """The run of a model that says this, one batch for each read of it."""
    mint = Minter(SEED)
    run = Run(ModelCall("", [ModelRequest([UserPromptPart(ASKED)])]), mint)
    run.start()
    told, model = [], "unknown"
    for events in read:
        told.append(run.feed(events)[0])
        model = next((name for event in events if (name := getattr(event, "model_name", None))), model)
    told.append(run.end())
    return Played(told, mint, model, run.ended.error if run.ended is not None else None)


def protocol(name: str, dialect: str | None, *, chunks: bool, stream: bool) -> tuple[Protocol, str]:
    """The protocol and its dialect. Raises `RequestError` for what it has not."""
    row = PROTOCOLS[name]
    if dialect is not None and dialect not in row.dialects:
        known = f"no dialect {dialect!r}; there are: {', '.join(row.dialects)}" if row.dialects else "no dialects"
        raise RequestError(f"--dialect: {name} has {known}")
    if chunks and not row.chunks:
        known = ", ".join(name for name, row in PROTOCOLS.items() if row.chunks)
        raise RequestError(f"--chunks: {name} has no other way to tell a message; there is one in: {known}")
    if not stream and not row.whole:
        raise RequestError(f"--no-stream: {name} has nothing but streams")
    return row, dialect or next(iter(row.dialects), "")


# --- each of them --------------------------------------------------------------------------------------------------


def _openresponses(played: Played, dialect: Any, chunks: bool) -> Told:
    request = openresponses.parse_request(msgspec.json.encode({"input": ASKED}))
    encoder = openresponses.Encoder(request.response(played.mint("resp"), played.model, EPOCH), dialect)
    stream = _fed(encoder, played)
    return Told(stream, msgspec.json.encode(encoder.response))


def _chat_completions(played: Played, dialect: str, chunks: bool) -> Told:
    encoder = chat_completions.Encoder(played.mint("chatcmpl"), played.model, EPOCH, include_usage=True)
    stream = _fed(encoder, played)
    error = encoder.error
    return Told(stream, msgspec.json.encode(encoder.whole if error is None else chat_completions.error_body(error)))


def _chat(played: Played, dialect: str, chunks: bool) -> Told:
    encoder = chat.Encoder(played.mint(chat.ANSWER), played.mint(chat.CONVERSATION), played.model, EPOCH)
    stream = _fed(encoder, played)
    return Told(stream, msgspec.json.encode(encoder.event))


def _ai_sdk(played: Played, dialect: str, chunks: bool) -> Told:
    return Told(_fed(ai_sdk.Encoder(played.mint("msg"), played.model), played), None)


def _agui(played: Played, dialect: Any, chunks: bool) -> Told:
    history = [agui.UserMessage(id="captured", content=ASKED)]
    encoder = agui.Encoder(
        played.mint("thread"), played.mint("run"), dialect, chunks=chunks, model=played.model, history=history
    )
    return Told(_fed(encoder, played), None)


def _fed(
    encoder: openresponses.Encoder | chat_completions.Encoder | agui.Encoder | ai_sdk.Encoder | chat.Encoder,
    played: Played,
) -> bytes:
    return encoder.start() + b"".join([encoder.feed(batch, EPOCH) for batch in played.batches])


def _check_agui(stream: bytes, dialect: Any) -> list[str]:
    verifier, broken = Verifier(dialect), []
    for name, data in SSEDecoder(limit=len(stream) + 1).feed(stream):
        if name:
            broken.append(f"framing: an event with the name {name}")
        try:
            event = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            event = None
        broken += [f"{one} ({RULES[one.rule].told})" for one in verifier.feed(event)]
    return broken + [f"{one} ({RULES[one.rule].told})" for one in verifier.end()]


PROTOCOLS: dict[str, Protocol] = {
    "agui": Protocol(_agui, _check_agui, get_args(agui.DialectName), chunks=True, whole=False),
    "ai-sdk": Protocol(_ai_sdk, lambda stream, _: verify_ai_sdk(stream), whole=False),
    "chat": Protocol(_chat, lambda stream, _: verify_chat(stream)),
    "chat_completions": Protocol(_chat_completions, lambda stream, _: verify_chat_completions(stream)),
    "openresponses": Protocol(
        _openresponses,
        lambda stream, dialect: verify_openresponses(stream, dialect),  # type: ignore[arg-type]
        get_args(openresponses.Dialect),
    ),
}
