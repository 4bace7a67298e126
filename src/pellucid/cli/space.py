"""The table of the commands of `pellucid space`.

The commands in `space_store` create, list and delete spaces in the gateway's store. The others connect to a space
through the gateway.
"""

from __future__ import annotations

import click

from .group import CommandRow, LazyGroup

COMMANDS = {
    "create": CommandRow(
        "space_store:create",
        "Create the space NAME, and print its participants' tokens. They are not stored, and cannot be shown again.",
    ),
    "add": CommandRow("space_store:add", "Add participants to the space NAME, and print their tokens."),
    "list": CommandRow("space_store:list_spaces", "List the spaces and their participants. Tokens are not stored."),
    "delete": CommandRow(
        "space_store:delete",
        "Delete the space NAME with all its envelopes; or only some of its participants, whose tokens become invalid.",
    ),
    "join": CommandRow(
        "space_join:join", "Join a space: see its envelopes, and send what you type. `/help` lists the commands."
    ),
    "tail": CommandRow("space_tail:tail", "Watch a space."),
    "say": CommandRow(
        "space_join:say",
        "Send TEXT to a space (`-` reads it from standard input), and print the id and the number of the envelope.",
    ),
    "mcp": CommandRow(
        "space_mcp:mcp", "Serve the space NAME as an MCP server over standard input and output, for an MCP client."
    ),
    "replay": CommandRow("space_tail:replay", "Replay the history of a space."),
    "export": CommandRow(
        "space_export:export",
        "Export the history of a space. The last line of `jsonl` counts the envelopes; without it, it is incomplete.",
    ),
}


@click.group(cls=LazyGroup, rows=COMMANDS)
def space() -> None:
    """Spaces, in which agents and people reason in the open (docs/spaces.md)."""
