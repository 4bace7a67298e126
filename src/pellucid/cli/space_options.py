"""Options of the commands that connect to a space: its URL, and the participant's token."""

from __future__ import annotations

import click

from ..envelopes.visibility import SPACE_VIEWS
from ..errors import RequestError
from ..spaces.client.remote import TOKEN_RULE, SpaceReader, parse_address, parse_token
from .options import option_group

URL, TOKEN = "PELLUCID_SPACE_URL", "PELLUCID_SPACE_TOKEN"


def _require_value(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    if value := (value or "").strip():
        try:
            return parse_token(value) if param.name == "token" else value
        except RequestError:
            raise click.UsageError(f"The token is not valid: {TOKEN_RULE}") from None
    raise click.UsageError(
        f"The space is missing. Set {URL} to its address, like http://127.0.0.1:8080/spaces/NAME, or give --url"
        if param.name == "url"
        else f"The token is missing. Set {TOKEN} to your token in this space (`pellucid space create` prints it)"
    )


address_options = option_group(
    click.option(
        "--token",
        envvar=TOKEN,
        metavar="TOKEN",
        callback=_require_value,
        help=f"Your token. Set {TOKEN} instead if possible, because other users can read a command line.",
    ),
    click.option(
        "--url",
        envvar=URL,
        metavar="URL",
        callback=_require_value,
        help=f"The address of the space, like http://127.0.0.1:8080/spaces/review (or set {URL}).",
    ),
)
"""The options `url` and `token`."""

connection_options = option_group(
    click.option("--space", metavar="NAME", help="The space, if the URL is that of the gateway."), address_options
)
"""The options `url`, `token` and `space`."""

view_option = click.option(
    "--view",
    type=click.Choice(SPACE_VIEWS),
    default="full",
    show_default=True,
    help="How much of the reasoning is shown: all of it; its beginning and end; none.",
)


MAX_ENVELOPES = 10_000
"""Limit for the number of envelopes that a gateway returns at once."""

last_option = click.option(
    "-n",
    "--last",
    type=click.IntRange(0, MAX_ENVELOPES),
    default=20,
    show_default=True,
    metavar="N",
    help="How many of the last envelopes to show first.",
)
discovery_option = click.option(
    "--discovery",
    "with_discovery",
    is_flag=True,
    help="Also show requests that only ask what there is (tools/list …), and their responses.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print each envelope as JSON, one a line.")


def open_reader(url: str, token: str, space: str | None) -> SpaceReader:
    return SpaceReader(parse_address(url, space), token)
