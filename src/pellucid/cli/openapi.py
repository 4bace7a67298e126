"""`pellucid openapi`: prints the OpenAPI document that the server has at /openapi.json."""

from __future__ import annotations

import click
import msgspec

from ..server.openapi import build_document


@click.command()
def openapi() -> None:
    """Print the OpenAPI document."""
    click.echo(msgspec.json.format(msgspec.json.encode(build_document()), indent=2).decode())
