"""The commands, and how errors leave: one sentence on stderr, exit status 2 for what the caller can mend, 70 for a
fault of our own, else 1.

A command is loaded when it is named: what one needs, another does not wait for.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from .. import __version__
from ..errors import ConfigError, PellucidError
from ..telemetry import place_of

COMMANDS = (
    *("serve", "ask", "decode", "translate", "models", "keys", "seal-keys"),
    *("space", "record", "config", "openapi", "worker"),
)
"""Each is in the module of its name."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"{__package__}.{name}"), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            click.echo("The configuration is wrong:", err=True)
            for mistake in error.mistakes:
                click.echo(f"  {mistake}", err=True)
            ctx.exit(2)
        except PellucidError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(2 if error.info.kind in ("invalid_request", "not_found", "unsupported") else 1)
        except BrokenPipeError:
            # Whoever read our output has had enough. What is still buffered goes nowhere, without a word.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            # The message may quote content; the place is what a report needs.
            click.echo(f"Error: a fault of Pellucid's own, please report it: {place_of(error)}", err=True)
            ctx.exit(70)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pellucid")
def main() -> None:
    """See the model think: the reasoning of any language model, in the protocols that applications already use."""
