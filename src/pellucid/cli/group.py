"""Command groups that import a command only when it is run, so the imports of one command do not slow down another."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click


class CommandRow(NamedTuple):
    """A command of a group."""

    target: str
    """The command, as `module:name` within this package."""
    help: str | None
    """The first paragraph of its help. None: the list of commands does not show it."""


class LazyGroup(click.Group):
    """A group with a table of commands. Listing them imports none of them."""

    def __init__(self, *args: Any, rows: Mapping[str, CommandRow], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = rows

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.rows:
            return None
        module, _, name = self.rows[cmd_name].target.partition(":")
        command: click.Command = getattr(import_module(f".{module}", __package__), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        visible_commands = [
            click.Command(name, help=row.help) for name, row in sorted(self.rows.items()) if row.help is not None
        ]
        max_width = formatter.width - 6 - max(len(str(command.name)) for command in visible_commands)
        with formatter.section("Commands"):
            formatter.write_dl(
                [(str(command.name), command.get_short_help_str(max_width)) for command in visible_commands]
            )
