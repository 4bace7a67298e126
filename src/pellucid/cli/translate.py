"""`pellucid translate`: translates the captured bytes of a provider's response to those that a client would receive.

The request is synthetic: one message, no seal keys (so nothing is sealed), the full view. Ids and times are generated
in the same way each time, so that two translations can be compared.

With `--check`, the exit status is 1 if the events break a rule, and also if the response is an error: its events are
valid then, but there is no answer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from ..errors import ErrorInfo, RequestError
from ..events import Event, Mint, ModelEvent
from ..parts import ModelRequest, UserPromptPart
from ..protocols import CAPTURED_PROMPT, CAPTURED_TIME
from ..protocols.client_protocols import CLIENT_PROTOCOLS, ClientProtocol
from ..run import Minter, Run
from ..settings import ModelCall
from .decode import decode_bytes, exit_status

_SEED = bytes(16)


class DecodedRun(NamedTuple):
    """A decoded response as the events of a run, with one batch for each read."""

    batches: list[list[Event]]
    mint: Mint
    model: str
    error: ErrorInfo | None
    """The error of the response, if it is one."""


class EncodedRun(NamedTuple):
    """The bytes that a client would receive."""

    stream: bytes
    whole: bytes | None
    """The response without streaming; None if the protocol only has streams."""


def decode_run(reads: Iterable[list[ModelEvent]]) -> DecodedRun:
    """Run a model that gives these events, with one batch for each read."""
    mint = Minter(_SEED)
    run = Run(ModelCall("", [ModelRequest([UserPromptPart(CAPTURED_PROMPT)])]), mint)
    run.start()
    batches, model = [], "unknown"
    for events in reads:
        batches.append(run.feed(events)[0])
        model = next((name for event in events if (name := getattr(event, "model_name", None))), model)
    batches.append(run.end())
    return DecodedRun(batches, mint, model, run.run_end.error if run.run_end is not None else None)


def encode_run(protocol: ClientProtocol, decoded: DecodedRun, dialect: str, *, chunks: bool = False) -> EncodedRun:
    """Encode a run in a client protocol and one of its dialects."""
    encoder = protocol.make_encoder(decoded.mint, decoded.model, dialect, chunks)
    stream = encoder.start() + b"".join([encoder.feed(batch, CAPTURED_TIME) for batch in decoded.batches])
    if protocol.response_of is None:
        return EncodedRun(stream, None)
    whole: Any = protocol.response_of(encoder)
    if isinstance(whole, ErrorInfo):
        whole = protocol.error_format.body(whole)
    return EncodedRun(stream, msgspec.json.encode(whole))


def protocol_and_dialect(name: str, dialect: str | None) -> tuple[ClientProtocol, str]:
    """Return a protocol and its dialect, by default the first. Raises `RequestError` if it has no such dialect."""
    protocol = CLIENT_PROTOCOLS[name]
    if dialect is not None and dialect not in protocol.dialects:
        known = (
            f"no dialect {dialect!r}; there are: {', '.join(protocol.dialects)}" if protocol.dialects else "no dialects"
        )
        raise RequestError(f"--dialect: {name} has {known}")
    return protocol, dialect or next(iter(protocol.dialects), "")


def _check_form(name: str, protocol: ClientProtocol, *, chunks: bool, stream: bool) -> None:
    """Raise `RequestError` for a form that the protocol does not have."""
    if chunks and not protocol.supports_chunks:
        known = ", ".join(name for name, protocol in CLIENT_PROTOCOLS.items() if protocol.supports_chunks)
        raise RequestError(f"--chunks: {name} has no chunks; these protocols have them: {known}")
    if not stream and protocol.response_of is None:
        raise RequestError(f"--no-stream: {name} has only streams")


def echo_violations(violations: list[str], *, err: bool) -> None:
    """Print the rules that a stream breaks, and how many, or that it breaks none."""
    for violation in violations:
        click.echo(violation, err=err)
    count = f"{len(violations)} rule{'s' if len(violations) > 1 else ''} broken"
    click.echo(count if violations else "legal", err=err)


DIALECTS_HELP = "; ".join(
    f"{name}: {', '.join(protocol.dialects)}" for name, protocol in CLIENT_PROTOCOLS.items() if protocol.dialects
)


@click.command()
@click.option("--from", "provider", required=True, metavar="PROVIDER", help="The provider that sent the bytes.")
@click.option("--to", "to", required=True, type=click.Choice(list(CLIENT_PROTOCOLS)), help="The client's protocol.")
@click.option("--dialect", metavar="D", help=f"The protocol's dialect, by default the first ({DIALECTS_HELP}).")
@click.option("--chunks", is_flag=True, help="Messages and calls as AG-UI's chunks.")
@click.option("--stream/--no-stream", default=True, help="As a stream of events, or as the whole response.")
@click.option("--check", is_flag=True, help="Also check the events: fail if one breaks a rule, or on an error.")
@click.option("--content-type", metavar="T", help="Its Content-Type, which tells Ollama's two APIs apart.")
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
    """Translate a provider's answer to the form of a client protocol."""
    protocol, chosen = protocol_and_dialect(to, dialect)
    _check_form(to, protocol, chunks=chunks, stream=stream)
    decoded = decode_run([decode_bytes(provider, content_type, file.read())])
    answer = encode_run(protocol, decoded, chosen, chunks=chunks)
    whole = msgspec.json.format(answer.whole, indent=2) + b"\n" if answer.whole is not None else b""
    sys.stdout.buffer.write(answer.stream if stream else whole)
    sys.stdout.buffer.flush()
    if check:
        violations = protocol.verify(answer.stream, chosen)
        echo_violations(violations, err=True)
        raise SystemExit(exit_status(decoded.error) or (1 if violations else 0))
