"""`pellucid ask`: asks a model one question, and prints its reasoning and its answer while they are generated."""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import click
import msgspec
import uvloop
from rich.console import Console

from ..data_directory import default_connections
from ..errors import ModelError
from ..events import Event, PartDeltaEvent, PartStartEvent, RunEndEvent, SideEvent
from ..models.embedded import EmbeddedModel
from ..parts import (
    ModelRequest,
    RefusalPartDelta,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    UserPromptPart,
)
from ..run import Minter
from ..runs import LiveRun
from ..server.catalog import Catalog
from ..server.config import Config
from ..server.connections import ConnectionClients, ConnectionFile
from ..settings import EFFORTS, Effort, ModelCall, ModelSettings
from ..upstream import UpstreamClient
from .local import embedded_model
from .options import model_options, read_options, strip_controls


@click.command()
@click.argument("question")
@model_options
@click.option("--model", metavar="M", help="Which of the configured models to ask.")
@click.option("--effort", type=click.Choice(EFFORTS), help="How much it reasons.")
@click.option("--json", "as_json", is_flag=True, help="Print the events, one JSON object a line.")
def ask(question: str, model: str | None, effort: Effort | None, as_json: bool, **where: Any) -> None:
    """Ask a model QUESTION (`-` reads it from standard input), and see it think before it answers."""
    text = sys.stdin.read() if question == "-" else question
    config = read_options(**where)
    show = _print_json if as_json else _Terminal().show
    raise SystemExit(uvloop.run(_ask(config, text, model, effort, show)))


async def _ask(
    config: Config, text: str, name: str | None, effort: Effort | None, show: Callable[[list[Event]], None]
) -> int:
    settings: ModelSettings = {"thinking": effort} if effort is not None else {}
    async with _models(config) as catalog:
        public_name, model = catalog.find(name)
        call = ModelCall(public_name, [ModelRequest([UserPromptPart(text)])], settings)
        run = LiveRun(model, call, Minter(secrets.token_bytes(16)))
        await run.open()
        try:
            await run.deliver(lambda batch: show(batch.events))
        finally:
            await run.stop()
    ended = run.ended
    if ended is not None and ended.error is not None:
        raise ModelError(ended.error)
    return 0 if ended is not None and ended.status == "completed" else 1


@asynccontextmanager
async def _models(config: Config) -> AsyncIterator[Catalog]:
    transport = UpstreamClient(config.limits)
    embedded: EmbeddedModel | None = None
    try:
        if config.uses_local_model:
            embedded = await embedded_model(config.local, transport)
            await embedded.start()
        connected = ConnectionFile(default_connections(), config).current()
        async with aclosing(ConnectionClients(config)) as clients:
            yield Catalog(config, transport, embedded, connected=connected, connection_clients=clients)
    finally:
        if embedded is not None:
            await embedded.stop()
        await transport.aclose()


def _print_json(events: list[Event]) -> None:
    """Print one JSON object for each event, for programs."""
    for event in events:
        click.echo(msgspec.json.encode(event).decode())


class _Terminal:
    """Prints for people: the reasoning dim, the answer plain. If stdout is a pipe, only the answer is written to it."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True, emoji=False)
        self._side_console = self._console
        if not self._console.is_terminal:
            self._side_console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        self._is_thinking = False
        self._has_answered = False

    def show(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case PartStartEvent(part=ThinkingPart()):
                    self._is_thinking = True
                case PartStartEvent(part=ToolCallPart() as call):
                    self._side_console.print(f"\n[{strip_controls(call.tool_name)}]", style="yellow", markup=False)
                case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                    self._side_console.print(strip_controls(text), style="dim", end="", markup=False)
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text) | RefusalPartDelta(content_delta=text)):
                    if self._is_thinking:
                        self._side_console.print("\n")
                        self._is_thinking = False
                    self._console.print(strip_controls(text), end="", markup=False)
                    self._has_answered = True
                case SideEvent(namespace="queue", name="loading"):
                    self._side_console.print("loading the model …", style="dim")
                case SideEvent(namespace="queue", name="position", value=int(waiting)) if waiting:
                    self._side_console.print(f"waiting; requests before this one: {waiting}", style="dim")
                case RunEndEvent():
                    if self._has_answered or self._is_thinking:
                        self._console.print()
                    if event.status == "incomplete":
                        self._side_console.print(f"(cut off: {event.incomplete_reason})", style="yellow")
                case _:
                    pass
