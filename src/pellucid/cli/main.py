"""The table of commands, and the form of errors: one sentence on stderr.

Exit status: 2 for an error that the user can fix, 70 for a fault of Pellucid, 130 after Ctrl-C (without a message), 1
for any other error.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import click

from ..errors import ConfigError, PellucidError
from ..telemetry import error_location
from ..version import __version__
from .group import CommandRow, LazyGroup

INTERRUPTED = 128 + signal.SIGINT
"""The exit status after Ctrl-C, which ends commands that wait: it is what a shell reports for `tail -f`."""

COMMANDS = {
    "serve": CommandRow(
        "serve:serve",
        "Start the gateway. Without any configuration, it answers with a small model of its own (the extra `local`).",
    ),
    "ask": CommandRow(
        "ask:ask", "Ask a model QUESTION (`-` reads it from standard input), and see it think before it answers."
    ),
    "decode": CommandRow(
        "decode:decode", "Decode a provider's answer, streamed or whole, and print it as one JSON object."
    ),
    "translate": CommandRow("translate:translate", "Translate a provider's answer to the form of a client protocol."),
    "check": CommandRow("check:check", "Check a stream of any server against the rules of a client protocol."),
    "models": CommandRow("models:models", "The models that can run inside the gateway."),
    "keys": CommandRow("keys:keys", "API keys of the gateway: who may use it, and for what."),
    "usage": CommandRow("usage:usage", "What was used and what it cost (docs/spend.md)."),
    "seal-keys": CommandRow(
        "seal_keys:seal_keys",
        "The keys that seal reasoning. The first one seals; each opens what it has sealed until it is retired.",
    ),
    "space": CommandRow("space:space", "Spaces, in which agents and people reason in the open (docs/spaces.md)."),
    "record": CommandRow("record:record", "The tamper-evident record of what is stored (docs/record.md)."),
    "status": CommandRow(
        "status:status", "Show what a running gateway does: models, runs that have not ended, failures."
    ),
    "config": CommandRow("config:config", "The configuration file."),
    "openapi": CommandRow("openapi:openapi", "Print the OpenAPI document."),
    "worker": CommandRow("worker:worker", None),
}


class _MainGroup(LazyGroup):
    """The top-level group. It prints errors, and sets the exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            click.echo(error.heading, err=True)
            for mistake in error.mistakes:
                click.echo(f"  {mistake}", err=True)
            ctx.exit(2)
        except PellucidError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(2 if error.info.kind in ("invalid_request", "not_found", "unsupported") else 1)
        except BrokenPipeError:
            # The reader of the output has closed the pipe. Buffered output is discarded without a message.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            # The message may quote content, so only the place in the code is printed.
            click.echo(f"Error: a fault of Pellucid's own, please report it: {error_location(error)}", err=True)
            ctx.exit(70)


@click.group(cls=_MainGroup, rows=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pellucid")
def main() -> None:
    """See the model think: the reasoning of any language model, in the protocols that applications already use."""
