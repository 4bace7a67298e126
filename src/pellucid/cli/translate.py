"""`pellucid translate`: captured provider bytes in, what a client would get out.

With `--check`, the exit status is 1 where the events break a rule, and also where the answer is an error: what a client
would get is legal then, and still no answer.
"""

from __future__ import annotations

import sys
from typing import BinaryIO

import click
import msgspec

from .decode import decode_bytes, status_of
from .protocols import PROTOCOLS, play, protocol

_DIALECTS = "; ".join(f"{name}: {', '.join(row.dialects)}" for name, row in PROTOCOLS.items() if row.dialects)


@click.command()
@click.option("--from", "provider", required=True, metavar="PROVIDER", help="Whose bytes they are.")
@click.option("--to", "to", required=True, type=click.Choice(list(PROTOCOLS)), help="The client's protocol.")
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
    row, spoken = protocol(to, dialect, chunks=chunks, stream=stream)
    played = play([decode_bytes(provider, content_type, file.read())])
    told = row.tell(played, spoken, chunks)
    whole = msgspec.json.format(told.whole, indent=2) + b"\n" if told.whole is not None else b""
    sys.stdout.buffer.write(told.stream if stream else whole)
    sys.stdout.buffer.flush()
    if check:
        broken = row.check(told.stream, spoken)
        for rule in broken:
            click.echo(rule, err=True)
        count = f"{len(broken)} rule{'s' if len(broken) > 1 else ''} broken"
        click.echo(count if broken else "legal", err=True)
        raise SystemExit(status_of(played.error) or (1 if broken else 0))
