"""`pellucid translate`: captured provider bytes in, what a client would get out.

The caller is made up: one message, no keys (so nothing is sealed), everything may be seen. Ids and times are made up
the same way each time, so that two translations can be compared.

With `--check`, the exit status is 1 where the events break a rule, and also where the answer is an error: what a client
would get is legal then, and still no answer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from ..errors import ErrorInfo, RequestError
from ..events import Event, ModelEvent
from ..parts import ModelRequest, UserPromptPart
from ..protocols.client_protocols import CAPTURED, CLIENT_PROTOCOLS, EPOCH, ClientProtocol
from ..run import Mint, Minter, Run
from ..settings import ModelCall
from .decode import decode_bytes, status_of

_SEED = bytes(16)


class Captured(NamedTuple):
    """An answer as a run gave it, a batch for each read."""

    batches: list[list[Event]]
    mint: Mint
    model: str
    error: ErrorInfo | None
    """Why the answer is an error, if it is one."""


class Translated(NamedTuple):
    """What a client would get."""

    stream: bytes
    whole: bytes | None
    """What a client gets that asks for no stream, where that can be asked for."""


def run_of(reads: Iterable[list[ModelEvent]]) -> Captured:
    """The run of a model that answers with this, one batch for each read of it."""
    mint = Minter(_SEED)
    run = Run(ModelCall("", [ModelRequest([UserPromptPart(CAPTURED)])]), mint)
    run.start()
    batches, model = [], "unknown"
    for events in reads:
        batches.append(run.feed(events)[0])
        model = next((name for event in events if (name := getattr(event, "model_name", None))), model)
    batches.append(run.end())
    return Captured(batches, mint, model, run.ended.error if run.ended is not None else None)


def translated(row: ClientProtocol, captured: Captured, dialect: str, *, chunks: bool = False) -> Translated:
    """The answer in a protocol and one of its dialects."""
    encoder = row.captured(captured.mint, captured.model, dialect, chunks)
    stream = encoder.start() + b"".join([encoder.feed(batch, EPOCH) for batch in captured.batches])
    if row.whole is None:
        return Translated(stream, None)
    whole: Any = row.whole(encoder)
    if isinstance(whole, ErrorInfo):
        whole = row.form.error_body(whole)
    return Translated(stream, msgspec.json.encode(whole))


def _row(name: str, dialect: str | None, *, chunks: bool, stream: bool) -> tuple[ClientProtocol, str]:
    """The protocol and its dialect. Raises `RequestError` for what it has not."""
    row = CLIENT_PROTOCOLS[name]
    if dialect is not None and dialect not in row.dialects:
        known = f"no dialect {dialect!r}; there are: {', '.join(row.dialects)}" if row.dialects else "no dialects"
        raise RequestError(f"--dialect: {name} has {known}")
    if chunks and not row.chunks:
        known = ", ".join(name for name, row in CLIENT_PROTOCOLS.items() if row.chunks)
        raise RequestError(f"--chunks: {name} has no other way to tell a message; there is one in: {known}")
    if not stream and row.whole is None:
        raise RequestError(f"--no-stream: {name} has nothing but streams")
    return row, dialect or next(iter(row.dialects), "")


_DIALECTS = "; ".join(f"{name}: {', '.join(row.dialects)}" for name, row in CLIENT_PROTOCOLS.items() if row.dialects)


@click.command()
@click.option("--from", "provider", required=True, metavar="PROVIDER", help="Whose bytes they are.")
@click.option("--to", "to", required=True, type=click.Choice(list(CLIENT_PROTOCOLS)), help="The client's protocol.")
@click.option("--dialect", metavar="D", help=f"The protocol's dialect, by default the first ({_DIALECTS}).")
@click.option("--chunks", is_flag=True, help="Messages and calls as AG-UI's chunks.")
@click.option("--stream/--no-stream", default=True, help="As a stream of events, or as the whole response.")
@click.option("--check", is_flag=True, help="Also check the events: fail if one breaks a rule, or on an error.")
@click.option("--content-type", metavar="T", help="The answer's Content-Type, if it cannot be told from the bytes.")
@click.argument("file", type=click.File("rb"), default="-")
def translate(
    provider: str,
    to: str,
    dialect: str | None,
    chunks: bool,
    stream: bool,
    check: bool,
    content_type: str | None,
    file: BinaryIO,
) -> None:
    """Translate a provider's answer into what a client of a protocol would get."""
    row, chosen = _row(to, dialect, chunks=chunks, stream=stream)
    captured = run_of([decode_bytes(provider, content_type, file.read())])
    answer = translated(row, captured, chosen, chunks=chunks)
    whole = msgspec.json.format(answer.whole, indent=2) + b"\n" if answer.whole is not None else b""
    sys.stdout.buffer.write(answer.stream if stream else whole)
    sys.stdout.buffer.flush()
    if check:
        broken = row.check(answer.stream, chosen)
        for rule in broken:
            click.echo(rule, err=True)
        count = f"{len(broken)} rule{'s' if len(broken) > 1 else ''} broken"
        click.echo(count if broken else "legal", err=True)
        raise SystemExit(status_of(captured.error) or (1 if broken else 0))
