"""`pellucid space tail`: prints the last envelopes of a space, and new ones as they arrive.

`pellucid space replay`: prints the history of a space again. It does not join the space, and has no effect on it.
"""

from __future__ import annotations

from typing import Any

import click
import uvloop

from ..envelopes.translate import read
from ..envelopes.visibility import SpaceView
from ..spaces.client.participant import Participant
from ..spaces.client.remote import SpaceReader
from .space_options import connection_options, discovery_option, json_option, last_option, open_reader, view_option
from .transcript import Transcript


@click.command()
@connection_options
@view_option
@click.option("--speed", type=float, metavar="X", help="1 is the original speed, 2 is twice that (all at once).")
@click.option("--longest-pause", type=float, metavar="SECONDS", help="With --speed: the longest pause.")
@click.option("--after-seq", type=int, metavar="N", help="Only envelopes after this number.")
@click.option("--before-seq", type=int, metavar="N", help="Only envelopes before this number.")
@click.option("--since", metavar="TIME", help="Only envelopes since this time: 2026-01-31T12:00:00Z.")
@click.option("--until", metavar="TIME", help="Only envelopes until this time.")
@discovery_option
@json_option
def replay(url: str, token: str, space: str | None, with_discovery: bool, as_json: bool, **query: Any) -> None:
    """Replay the history of a space."""

    async def play() -> None:
        async with open_reader(url, token, space) as history:
            async for line in history.lines("/replay", **query):
                transcript.show(read(line), is_replay=True)

    with Transcript(as_json, with_discovery) as transcript:
        uvloop.run(play())


@click.command()
@connection_options
@view_option
@last_option
@click.option("--after-seq", type=int, metavar="N", help="All envelopes after this number, instead of the last ones.")
@click.option("--before-seq", type=int, metavar="N", help="Only envelopes before this number, and no new ones.")
@click.option("--follow/--no-follow", default=True, help="Whether to wait for new envelopes.")
@discovery_option
@json_option
def tail(
    url: str,
    token: str,
    space: str | None,
    view: SpaceView,
    last: int,
    after_seq: int | None,
    before_seq: int | None,
    follow: bool,
    with_discovery: bool,
    as_json: bool,
) -> None:
    """Watch a space."""

    async def watch() -> None:
        async with Participant(
            url, token=token, space=space, view=view, history=last, after_seq=after_seq
        ) as participant:
            async for envelope in participant:
                transcript.show(envelope)

    async def show_history() -> None:
        async with open_reader(url, token, space) as history:
            if after_seq is None:
                await show_page(history, before_seq=before_seq, newest=True, limit=last)
                return
            reached: int | None = after_seq
            while reached is not None:
                reached = await show_page(history, after_seq=reached, before_seq=before_seq)

    async def show_page(history: SpaceReader, **query: Any) -> int | None:
        """Print one page of the history. Returns the number after which the next one begins; None after the last."""
        page = await history.page(**query, view=view)
        for envelope in page.envelopes:
            transcript.show(envelope, is_replay=True)
        return page.reached if page.has_more and page.reached > query.get("after_seq", 0) else None

    if not follow and after_seq is None and not last:
        return
    with Transcript(as_json, with_discovery) as transcript:
        uvloop.run(watch() if follow and before_seq is None else show_history())
