"""`pellucid space tail`: what was said last in a space, and what is said now.

`pellucid space replay`: what was said in a space, told again. Nobody acts on it, and nobody is there for it.
"""

from __future__ import annotations

from typing import Any

import click
import uvloop

from ..envelopes.translate import read
from ..envelopes.visibility import SpaceView
from ..spaces.client.remote import SpaceReader
from .space_options import connection_options, json_option, last_option, open_participant, open_reader, view_option
from .transcript import Transcript


@click.command()
@connection_options
@view_option()
@click.option("--speed", type=float, metavar="X", help="1 is the original pace, 2 twice that. Otherwise all at once.")
@click.option("--longest-pause", type=float, metavar="SECONDS", help="With --speed: no pause is longer.")
@click.option("--after-seq", type=int, metavar="N", help="Only what was said after this number.")
@click.option("--before-seq", type=int, metavar="N", help="Only what was said before it.")
@click.option("--since", metavar="TIME", help="Only what was said since: 2026-01-31T12:00:00Z.")
@click.option("--until", metavar="TIME", help="Only what was said until then.")
@json_option
def replay(
    url: str,
    token: str,
    space: str | None,
    view: SpaceView,
    speed: float | None,
    longest_pause: float | None,
    after_seq: int | None,
    before_seq: int | None,
    since: str | None,
    until: str | None,
    as_json: bool,
) -> None:
    """Replay what was said in a space."""

    async def play() -> None:
        async with open_reader(url, token, space) as history:
            async for line in history.lines(
                "/replay",
                view=view,
                speed=speed,
                longest_pause=longest_pause,
                after_seq=after_seq,
                before_seq=before_seq,
                since=since,
                until=until,
            ):
                transcript.show(read(line), is_replay=True)

    with Transcript(as_json) as transcript:
        uvloop.run(play())


@click.command()
@connection_options
@view_option()
@last_option
@click.option("--after-seq", type=int, metavar="N", help="Everything after this number instead.")
@click.option("--before-seq", type=int, metavar="N", help="Only what was said before this number, and no more.")
@click.option("--follow/--no-follow", default=True, help="Whether to stay for what is said next.")
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
    as_json: bool,
) -> None:
    """Watch a space."""

    async def watch() -> None:
        async with open_participant(url, token, space, view=view, history=last, after_seq=after_seq) as participant:
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
        """One page; where the next one begins."""
        page = await history.page(**query, view=view)
        for envelope in page.envelopes:
            transcript.show(envelope, is_replay=True)
        return page.reached if page.has_more and page.reached > query.get("after_seq", 0) else None

    if not follow and after_seq is None and not last:
        return
    with Transcript(as_json) as transcript:
        uvloop.run(watch() if follow and before_seq is None else show_history())
