"""`pellucid space mcp`: a space as an MCP server over standard streams.

The participant is in the space as long as the command runs, which is as long as the MCP client runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import uvloop

from ..envelopes.visibility import SpaceView
from ..errors import RequestError
from .space_options import address_options, view_option

if TYPE_CHECKING:
    from ..spaces.client.participant import Participant


@click.command()
@click.argument("name", required=False)
@address_options
@view_option
def mcp(name: str | None, url: str, token: str, view: SpaceView) -> None:
    """Serve the space NAME as an MCP server over standard input and output, for an MCP client.

    NAME may be left out if the URL is that of the space.
    """
    try:
        import mcp.server.lowlevel  # noqa: F401
    except ImportError as error:
        raise RequestError(
            "this command needs the package mcp: install pellucid[mcp]", kind="unsupported", code="missing_extra"
        ) from error
    from ..spaces.client.participant import Participant

    uvloop.run(_serve(Participant(url, token=token, space=name, view=view)))


async def _serve(participant: Participant) -> None:
    from mcp.server.stdio import stdio_server

    from ..spaces.agents.mcp_server import create_server
    from ..spaces.agents.space_tools import SpaceTools

    async with participant:
        tools = SpaceTools(participant)
        server = create_server(lambda ctx: tools)
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())
