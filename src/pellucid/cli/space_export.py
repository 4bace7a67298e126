"""`pellucid space export`: writes the envelopes of a space that the participant may see, as lines of JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import click
import uvloop

from ..errors import RequestError
from ..spaces.history.export import EXPORT_FORMATS
from ..spaces.history.training import REASONING_FORMS
from .space_options import connection_options, open_reader


@click.command()
@connection_options
@click.option(
    "--format",
    "form",
    type=click.Choice(EXPORT_FORMATS),
    default="jsonl",
    show_default=True,
    help="Every envelope; one line for each context of reasoning, as training data; or OpenTelemetry's messages.",
)
@click.option(
    "--reasoning",
    type=click.Choice(REASONING_FORMS),
    help="Where a chat-jsonl line has the reasoning.",
)
@click.option("--complete", is_flag=True, help="Only reasoning that has a question and an answer (chat-jsonl).")
@click.option("--no-metadata", is_flag=True, help="Without Pellucid's own field (chat-jsonl), for some trainers.")
@click.option("--after-seq", type=int, metavar="N", help="Only envelopes after this number.")
@click.option("--before-seq", type=int, metavar="N", help="Only envelopes before this number.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file, instead of standard output.")
def export(
    url: str,
    token: str,
    space: str | None,
    form: str,
    reasoning: str | None,
    complete: bool,
    no_metadata: bool,
    after_seq: int | None,
    before_seq: int | None,
    output: Path | None,
) -> None:
    """Export the history of a space. The last line of `jsonl` counts the envelopes; without it, it is incomplete."""
    if form != "chat-jsonl" and (reasoning or complete or no_metadata):
        raise click.UsageError("--reasoning, --complete and --no-metadata apply only to --format chat-jsonl")

    async def write(out: BinaryIO) -> None:
        async with open_reader(url, token, space) as remote:
            async for line in remote.lines(
                "/export",
                format=form,
                reasoning=reasoning,
                complete=complete or None,
                metadata=False if no_metadata else None,
                after_seq=after_seq,
                before_seq=before_seq,
            ):
                out.write(line + b"\n")
        out.flush()

    if output is None:
        uvloop.run(write(sys.stdout.buffer))
    else:
        try:
            with output.open("wb") as file:
                uvloop.run(write(file))
        except OSError as error:
            raise RequestError(f"{output}: {error.strerror or error}") from None
