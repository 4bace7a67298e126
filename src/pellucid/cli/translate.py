"""`pellucid translate`: captured provider bytes in, what a client would get out.

With `--check`, the exit status is 1 where the events break a rule, and also where the answer is an error: what a client
would get is legal then, and still no answer.
"""

from __future__ import annotations

import sys
from typing import BinaryIO

import click
import msgspec

from ..errors import ErrorInfo
from ..events import ModelEvent
from ..parts import ModelRequest, UserPromptPart
from ..protocols.openresponses import Dialect, Encoder, parse_request
from ..protocols.openresponses.verify import verify
from ..run import Minter, Run
from ..settings import ModelCall
from .decode import decode_bytes, status_of

# Ids and times are made up the same way each time, so that two translations can be compared.
SEED, EPOCH = bytes(16), 0

PROTOCOLS: dict[str, Dialect] = {"openresponses": "openresponses", "openresponses-openai": "openai"}


@click.command()
@click.option("--from", "provider", required=True, metavar="PROVIDER", help="Whose bytes they are.")
@click.option(
    "--to",
    "protocol",
    required=True,
    type=click.Choice(sorted(PROTOCOLS)),
    help="The client's protocol; openresponses-openai has OpenAI's names for reasoning events.",
)
@click.option("--stream/--no-stream", default=True, help="As a stream of events, or as the whole response.")
@click.option("--check", is_flag=True, help="Also check the events: fail if one breaks a rule, or on an error.")
@click.option("--content-type", metavar="T", help="The answer's Content-Type, if it cannot be told from the bytes.")
@click.argument("file", type=click.File("rb"), default="-")
def translate(
    provider: str, protocol: str, stream: bool, check: bool, content_type: str | None, file: BinaryIO
) -> None:
    """Translate a provider's answer into what a client of PROTOCOL would get."""
    dialect = PROTOCOLS[protocol]
    body, whole, error = openresponses(decode_bytes(provider, content_type, file.read()), dialect)
    sys.stdout.buffer.write(body if stream else msgspec.json.format(whole, indent=2) + b"\n")
    sys.stdout.buffer.flush()
    if check:
        broken = verify(body, dialect)
        for rule in broken:
            click.echo(rule, err=True)
        click.echo("legal" if not broken else f"{len(broken)} rules broken", err=True)
        raise SystemExit(status_of(error) or (1 if broken else 0))


def openresponses(events: list[ModelEvent], dialect: Dialect) -> tuple[bytes, bytes, ErrorInfo | None]:
    """The stream, the whole response, and why the answer is an error, if it is one."""
    request = parse_request(b'{"input": "(captured)"}')
    mint = Minter(SEED)
    encoder = Encoder(request.response(mint("resp"), _model_of(events), EPOCH), dialect)
    run = Run(ModelCall("", [ModelRequest([UserPromptPart("(captured)")])]), mint)
    run.start()
    told, _ = run.feed(events)
    body = encoder.start() + encoder.feed(told + run.end(), EPOCH)
    return body, msgspec.json.encode(encoder.response), run.ended.error if run.ended is not None else None


def _model_of(events: list[ModelEvent]) -> str:
    return next((name for event in events if (name := getattr(event, "model_name", None))), "unknown")
