"""`pellucid space`: its commands.

Those of `space_store` make, list and delete spaces in the gateway's store; the others take part in a space over the
gateway.
"""

from __future__ import annotations

import click

from .group import CommandRow, LazyGroup

COMMANDS = {
    "create": CommandRow(
        "space_store:create",
        "Make the space NAME, and print its participants' tokens: they are not kept, and cannot be shown again.",
    ),
    "add": CommandRow("space_store:add", "Add participants to the space NAME, and print their tokens."),
    "list": CommandRow("space_store:list_spaces", "List the spaces and who is in them. Tokens are not kept."),
    "delete": CommandRow(
        "space_store:delete",
        "Delete the space NAME with all that was said in it; or participants of it, whose tokens open nothing then.",
    ),
    "join": CommandRow(
        "space_join:join", "Be in a space: see what is said, and say what you type. `/help` tells what else there is."
    ),
    "tail": CommandRow("space_tail:tail", "Watch a space."),
    "say": CommandRow(
        "space_join:say",
        "Say TEXT in a space (`-` reads it from standard input), and print the id and the number that it got.",
    ),
    "replay": CommandRow("space_tail:replay", "Replay what was said in a space."),
    "export": CommandRow(
        "space_export:export",
        "Export what was said in a space. The last line of `jsonl` says how many there are: without it, it broke off.",
    ),
}


@click.group(cls=LazyGroup, rows=COMMANDS)
def space() -> None:
    """Spaces: rooms in which agents and people think aloud (docs/spaces.md)."""
