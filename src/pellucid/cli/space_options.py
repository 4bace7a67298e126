"""Which space, and as whom: what the commands that take part in one share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..envelopes.shown import SPACE_VIEWS, SpaceView
from ..spaces.client.address import Address, address
from ..spaces.client.participant import Participant
from ..spaces.client.remote import SpaceReader

F = TypeVar("F", bound=Callable[..., Any])

URL, TOKEN = "PELLUCID_SPACE_URL", "PELLUCID_SPACE_TOKEN"


def where(command: F) -> F:
    """`url`, `token` and `space`."""
    for option in (
        click.option("--space", metavar="NAME", help="The space, where the URL is that of the gateway."),
        click.option(
            "--token",
            envvar=TOKEN,
            required=True,
            metavar="TOKEN",
            help=f"Who you are there. Best given as {TOKEN}: a command line can be read by others.",
        ),
        click.option(
            "--url",
            envvar=URL,
            required=True,
            metavar="URL",
            help=f"Where the space is, like ws://127.0.0.1:8000/spaces/review/ws [{URL}].",
        ),
    ):
        command = option(command)
    return command


def view_option(usually: SpaceView = "full") -> Callable[[F], F]:
    return click.option(
        "--view",
        type=click.Choice(SPACE_VIEWS),
        default=usually,
        show_default=True,
        help="How much of the reasoning: all of it; how each begins and ends; none.",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print each envelope as JSON, one a line.")


def participant(url: str, token: str, space: str | None, **more: Any) -> Participant:
    return Participant(url, token=token, space=space, **more)


def reader(url: str, token: str, space: str | None) -> SpaceReader:
    return SpaceReader(_address(url, space), token)


def _address(url: str, space: str | None) -> Address:
    return address(url, space)


__all__ = ["TOKEN", "URL", "json_option", "participant", "reader", "view_option", "where"]
