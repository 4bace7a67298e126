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
from ..protocols.client_protocols import CAPTURED_PROMPT, CAPTURED_TIME, CLIENT_PROTOCOLS, ClientProtocol
from ..run import Mint, Minter, Run
from ..settings import ModelCall
from .decode import decode_bytes, exit_status

_SEED = bytes(16)


class DecodedRun(NamedTuple):
    """An answer as a run gave it, a batch for each read."""

    batches: list[list[Event]]
    mint: Mint
    model: str
    error: ErrorInfo | None
    """Why the answer is an error, if it is one."""


class EncodedRun(NamedTuple):
    """What a client would get."""

    stream: bytes
    whole: bytes | None
    """What a client gets that asks for no stream, where that can be asked for."""


def decode_run(reads: Iterable[list[ModelEvent]]) -> DecodedRun:
    """The run of a model that answers with this, one batch for each read of it."""
    mint = Minter(_SEED)
    run = Run(ModelCall("", [ModelRequest([UserPromptPart(CAPTURED_PROMPT)])]), mint)
    run.start()
    batches, model = [], "unknown"
    for events in reads:
        batches.append(run.feed(events)[0])
        model = next((name for event in events if (name := getattr(event, "model_name", None))), model)
    batches.append(run.end())
    return DecodedRun(batches, mint, model, run.run_end.error if run.run_end is not None else None)


def encode_run(row: ClientProtocol, decoded: DecodedRun, dialect: str, *, chunks: bool = False) -> EncodedRun:
    """The answer in a protocol and one of its dialects."""
    encoder = row.make_encoder(decoded.mint, decoded.model, dialect, chunks)
    stream = encoder.start() + b"".join([encoder.feed(batch, CAPTURED_TIME) for batch in decoded.batches])
    if row.response_of is None:
        return EncodedRun(stream, None)
    whole: Any = row.response_of(encoder)
    if isinstance(whole, ErrorInfo):
        whole = row.error_format.error_body(whole)
    return EncodedRun(stream, msgspec.json.encode(whole))


def _protocol_and_dialect(name: str, dialect: str | None, *, chunks: bool, stream: bool) -> tuple[ClientProtocol, str]:
    """The protocol and its dialect. Raises `RequestError` for what it has not."""
    row = CLIENT_PROTOCOLS[name]
    if dialect is not None and dialect not in row.dialects:
        known = f"no dialect {dialect!r}; there are: {', '.join(row.dialects)}" if row.dialects else "no dialects"
        raise RequestError(f"--dialect: {name} has {known}")
    if chunks and not row.supports_chunks:
        known = ", ".join(name for name, row in CLIENT_PROTOCOLS.items() if row.supports_chunks)
        raise RequestError(f"--chunks: {name} has no other way to tell a message; there is one in: {known}")
    if not stream and row.response_of is None:
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
    row, chosen = _protocol_and_dialect(to, dialect, chunks=chunks, stream=stream)
    decoded = decode_run([decode_bytes(provider, content_type, file.read())])
    answer = encode_run(row, decoded, chosen, chunks=chunks)
    whole = msgspec.json.format(answer.whole, indent=2) + b"\n" if answer.whole is not None else b""
    sys.stdout.buffer.write(answer.stream if stream else whole)
    sys.stdout.buffer.flush()
    if check:
        violations = row.verify(answer.stream, chosen)
        for rule in violations:
            click.echo(rule, err=True)
        count = f"{len(violations)} rule{'s' if len(violations) > 1 else ''} broken"
        click.echo(count if violations else "legal", err=True)
        raise SystemExit(exit_status(decoded.error) or (1 if violations else 0))
