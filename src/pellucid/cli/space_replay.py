"""`pellucid space replay`: what was said in a space, told again. Nobody acts on it, and nobody is there for it."""

from __future__ import annotations

import click
import uvloop

from ..envelopes.shown import SpaceView
from ..envelopes.translate import read
from .space_lanes import Lanes
from .space_options import json_option, reader, view_option, where


@click.command()
@where
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
        async with reader(url, token, space) as there:
            async for line in there.lines(
                "/replay",
                view=view,
                speed=speed,
                longest_pause=longest_pause,
                after_seq=after_seq,
                before_seq=before_seq,
                since=since,
                until=until,
            ):
                lanes.show(read(line), as_said=True)

    with Lanes(as_json) as lanes:
        uvloop.run(play())
