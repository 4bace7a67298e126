"""`pellucid space join`: joins a space from a terminal. Lines are chats; a line that begins with `/` is a command.

`pellucid space say`: sends one envelope to a space.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import click
import msgspec
import uvloop

from ..envelopes import DEFAULT_DIALECT, kinds
from ..envelopes import context as paths
from ..envelopes.envelope import Envelope
from ..envelopes.visibility import SpaceView, space_view
from ..errors import PellucidError, RequestError
from ..spaces.client.errors import SpaceClosed
from ..spaces.client.participant import Participant
from ..unicode import did_you_mean
from .space_options import connection_options, discovery_option, json_option, last_option, open_reader, view_option
from .transcript import Transcript


@click.command()
@click.argument("text", required=False)
@connection_options
@click.option("--to", multiple=True, metavar="ID", help="A recipient; can be repeated (all).")
@click.option("--answers", multiple=True, metavar="ID", help="The id of an envelope that it answers; can be repeated.")
@click.option("--context", metavar="PATH", help="The context of reasoning that it belongs to.")
@click.option("--kind", default=kinds.CHAT, show_default=True, help="Its kind: reasoning/cancel, mcp/request …")
@click.option("--payload", metavar="JSON", help="The whole payload, instead of TEXT.")
@click.option("--json", "as_json", is_flag=True, help="Print the gateway's response.")
def say(
    text: str | None,
    url: str,
    token: str,
    space: str | None,
    to: tuple[str, ...],
    answers: tuple[str, ...],
    context: str | None,
    kind: str,
    payload: str | None,
    as_json: bool,
) -> None:
    """Send TEXT to a space (`-` reads it from standard input), and print the id and the number of the envelope."""
    envelope: dict[str, Any] = {
        "protocol": DEFAULT_DIALECT,
        "id": uuid.uuid4().hex,
        "kind": kind,
        "payload": _payload(kind, text, payload),
    }
    addressing = {"to": list(to), "correlation_id": list(answers), "context": context}
    envelope |= {name: value for name, value in addressing.items() if value}

    async def post() -> dict[str, Any]:
        async with open_reader(url, token, space) as remote:
            return await remote.post(envelope)

    response = uvloop.run(post())
    click.echo(msgspec.json.encode(response) if as_json else f"{response.get('id')}\t{response.get('seq')}")


def _payload(kind: str, text: str | None, payload: str | None) -> dict[str, Any]:
    if (text is None) == (payload is None):
        if text is None and kind == kinds.CANCEL:
            return {}
        raise click.UsageError("Give TEXT or --payload, and only one of them")
    if payload is None:
        content = sys.stdin.read() if text == "-" else text or ""
        if not content.strip():
            raise click.UsageError("TEXT is empty")
        return {kinds.kind_of(kind).input_field: content}
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"it is not valid JSON: {error}", param_hint="--payload") from None
    if not isinstance(value, dict):
        raise click.BadParameter("it must be an object", param_hint="--payload")
    return value


HELP = """\
TEXT                      send it to all            //TEXT   the same, if it begins with a slash
/to ID TEXT               send it to one participant
/cancel [ID|CONTEXT] …    cancel a reasoning: the newest one, or the newest one of a participant; then the reason
/view full|collapsed|main how much of the reasoning is shown
/who                      list the participants
/quit                     leave"""


@click.command()
@connection_options
@view_option
@last_option
@discovery_option
@json_option
def join(
    url: str, token: str, space: str | None, view: SpaceView, last: int, with_discovery: bool, as_json: bool
) -> None:
    """Join a space: see its envelopes, and send what you type. `/help` lists the commands."""

    async def run() -> None:
        async with Participant(url, token=token, space=space, view=view, history=last) as participant:
            await TerminalSession(participant, transcript).run()

    with Transcript(as_json, with_discovery) as transcript:
        uvloop.run(run())


class TerminalSession:
    """A participant that is controlled by lines on stdin, from a person at a terminal or from a program."""

    def __init__(self, participant: Participant, transcript: Transcript) -> None:
        self._participant = participant
        self._transcript = transcript
        self._is_interactive = sys.stdin.isatty()
        self._open_reasoning: dict[str, str] = {}
        """Contexts of reasoning that are open, as far as they were seen, and the participant of each."""
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "to": self._to,
            "cancel": self._cancel,
            "view": self._view,
            "who": self._who,
            "help": self._help,
        }

    async def run(self) -> None:
        """Take part in the space until stdin ends, `/quit` is entered, or the space is closed."""
        participant = self._participant
        others = ", ".join(sorted(participant.participants)) or "no others"
        self._transcript.print_notice(
            f"You are {participant.id} in {participant.space}, with {others}. /help lists the commands."
        )
        watching, reading = asyncio.create_task(self._watch()), asyncio.create_task(self._read_input())
        done, pending = await asyncio.wait((watching, reading), return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()

    async def _watch(self) -> None:
        async for envelope in self._participant:
            self._track_reasoning(envelope)
            if not (self._is_interactive and envelope.sender == self._participant.id and envelope.kind == kinds.CHAT):
                self._transcript.show(envelope)

    def _track_reasoning(self, envelope: Envelope) -> None:
        if envelope.kind == kinds.START and paths.is_segment(envelope.id):
            path = f"{envelope.context}/{envelope.id}" if envelope.context in self._open_reasoning else envelope.context
            self._open_reasoning[path or envelope.id] = envelope.sender
        elif envelope.kind in (kinds.CONCLUSION, kinds.CANCEL) and envelope.context is not None:
            for path in [one for one in self._open_reasoning if paths.is_within(one, envelope.context)]:
                del self._open_reasoning[path]

    async def _read_input(self) -> None:
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line.rstrip("\n"))
            loop.call_soon_threadsafe(lines.put_nowait, None)

        threading.Thread(target=read, daemon=True).start()
        while (line := await lines.get()) is not None:
            if line.strip() in ("/quit", "/exit"):
                return
            try:
                await self._handle_line(line)
            except SpaceClosed:
                raise
            except PellucidError as error:
                self._transcript.print_notice(f"! {error.info.message}")

    async def _handle_line(self, line: str) -> None:
        if not line.strip():
            return
        if not line.startswith("/") or line.startswith("//"):
            await self._participant.say(line.removeprefix("/") if line.startswith("//") else line)
            return
        name, _, rest = line[1:].partition(" ")
        command = self._commands.get(name)
        if command is None:
            raise RequestError(
                f"there is no /{name}; {did_you_mean('/' + name, [f'/{one}' for one in (*self._commands, 'quit')])}"
            )
        await command(rest.strip())

    async def _to(self, rest: str) -> None:
        who, _, text = rest.partition(" ")
        if not text:
            raise RequestError("/to needs an id and a text")
        await self._participant.say(text, to=who)

    async def _cancel(self, rest: str) -> None:
        target, _, reason = rest.partition(" ")
        others = [path for path, owner in self._open_reasoning.items() if owner != self._participant.id]
        matching = [path for path in self._open_reasoning if target in (path, self._open_reasoning[path])]
        if target and not matching and target not in self._open_reasoning.values():
            matching, reason = ([target], reason) if paths.is_segment(target.partition("/")[0]) else ([], reason)
        chosen = matching if target else others
        if not chosen:
            raise RequestError("no open reasoning was seen")
        await self._participant.cancel(chosen[-1], reason or None)

    async def _view(self, rest: str) -> None:
        await self._participant.look(space_view(rest))
        self._transcript.print_notice(f"You see {rest} from now on.")

    async def _who(self, _: str) -> None:
        for id in sorted((self._participant.id, *self._participant.participants)):
            self._transcript.print_notice(f"{id}{' (you)' if id == self._participant.id else ''}")

    async def _help(self, _: str) -> None:
        self._transcript.print_notice(HELP)
