"""`pellucid space say`: one envelope into a space, and out again."""

from __future__ import annotations

import sys
import uuid
from typing import Any

import click
import msgspec
import uvloop

from ..envelopes import kinds
from .space_options import reader, where


@click.command()
@click.argument("text", required=False)
@where
@click.option("--to", multiple=True, metavar="ID", help="Whom it is for; can be repeated. Otherwise everybody.")
@click.option("--answers", multiple=True, metavar="ID", help="The id of what it answers; can be repeated.")
@click.option("--context", metavar="PATH", help="The reasoning in which it stands.")
@click.option("--kind", default=kinds.CHAT, show_default=True, help="What it is: reasoning/cancel, mcp/request …")
@click.option("--payload", metavar="JSON", help="All that it says, instead of TEXT.")
@click.option("--json", "as_json", is_flag=True, help="Print what the gateway answers.")
def say(
    text: str | None,
    url: str,
    token: str,
    space: str | None,
    to: tuple[str, ...],
    answers: tuple[str, ...],
    context: str | None,
    kind: str,
    payload: str | None,
    as_json: bool,
) -> None:
    """Say TEXT in a space (`-` reads it from standard input), and print the id and the number that it got."""
    envelope: dict[str, Any] = {
        "protocol": "mew/v0.4",
        "id": uuid.uuid4().hex,
        "kind": kind,
        "payload": _payload(kind, text, payload),
    }
    more = {"to": list(to), "correlation_id": list(answers), "context": context}
    envelope |= {name: value for name, value in more.items() if value}

    async def post() -> dict[str, Any]:
        async with reader(url, token, space) as there:
            return await there.post(envelope)

    told = uvloop.run(post())
    click.echo(msgspec.json.encode(told) if as_json else f"{told.get('id')}\t{told.get('seq')}")


def _payload(kind: str, text: str | None, payload: str | None) -> dict[str, Any]:
    if (text is None) == (payload is None):
        if text is None and kind == kinds.CANCEL:
            return {}
        raise click.UsageError("Say what? Give TEXT, or --payload, and one of them only")
    if payload is None:
        words = sys.stdin.read() if text == "-" else text
        return {"text" if kind == kinds.CHAT else "reason" if kind == kinds.CANCEL else "message": words}
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"it is no JSON: {error}", param_hint="--payload") from None
    if not isinstance(value, dict):
        raise click.BadParameter("it must be an object", param_hint="--payload")
    return value
