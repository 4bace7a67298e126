"""Which space, and as whom: what the commands share that take part in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..envelopes.visibility import SPACE_VIEWS, SpaceView
from ..spaces.client.participant import Participant
from ..spaces.client.remote import SpaceReader, parse_address

F = TypeVar("F", bound=Callable[..., Any])

URL, TOKEN = "PELLUCID_SPACE_URL", "PELLUCID_SPACE_TOKEN"


def _require_value(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    if value:
        return value
    raise click.UsageError(
        f"Which space? Set {URL} to its address, like http://127.0.0.1:8080/spaces/NAME, or give --url"
        if param.name == "url"
        else f"As whom? Set {TOKEN} to your token in this space (`pellucid space create` and `add` print them)"
    )


def connection_options(command: F) -> F:
    """`url`, `token` and `space`."""
    for option in (
        click.option("--space", metavar="NAME", help="The space, where the URL is that of the gateway."),
        click.option(
            "--token",
            envvar=TOKEN,
            metavar="TOKEN",
            callback=_require_value,
            help=f"Who you are there. Best given as {TOKEN}: a command line can be read by others.",
        ),
        click.option(
            "--url",
            envvar=URL,
            metavar="URL",
            callback=_require_value,
            help=f"Where the space is, like http://127.0.0.1:8080/spaces/review, or {URL}.",
        ),
    ):
        command = option(command)
    return command


def view_option(default_view: SpaceView = "full") -> Callable[[F], F]:
    return click.option(
        "--view",
        type=click.Choice(SPACE_VIEWS),
        default=default_view,
        show_default=True,
        help="How much of the reasoning: all of it; how each begins and ends; none.",
    )


MAX_ENVELOPES = 10_000
"""Envelopes that a gateway gives at once."""

last_option = click.option(
    "-n",
    "--last",
    type=click.IntRange(0, MAX_ENVELOPES),
    default=20,
    show_default=True,
    metavar="N",
    help="How many of the last envelopes first.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print each envelope as JSON, one a line.")


def open_participant(url: str, token: str, space: str | None, **more: Any) -> Participant:
    return Participant(url, token=token, space=space, **more)


def open_reader(url: str, token: str, space: str | None) -> SpaceReader:
    return SpaceReader(parse_address(url, space), token)
