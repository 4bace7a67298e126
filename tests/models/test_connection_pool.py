"""The shared pool: one for each event loop, closed with the loop, without warnings."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from textwrap import dedent

from pellucid.models.connection_pool import PerLoop, _shared_pool, close_shared_pool, shared_pool
from tests.scripted import Upstream
from tests.scripted.upstream import Call, delta
from tests.waiting import loop_turns

SCRIPT = """
import asyncio, gc, sys
from pellucid.models import StreamReader, close_shared_pool
from pellucid.models.connection_pool import _shared_pool
from pellucid.models.openai import OpenAIChatModel
from pellucid.parts import ModelRequest, UserPromptPart
from pellucid.settings import ModelCall

url, name, *ways = sys.argv[1:]
model = OpenAIChatModel(name, base_url=url, api_key="k")

async def main(how):
    asyncio.get_running_loop().slow_callback_duration = 3600  # what takes long on a loaded machine is no fault
    turn = StreamReader(await model.open(ModelCall("", [ModelRequest([UserPromptPart("q")])])))
    await turn.read()
    if how == "left":
        return  # in mid-answer, and the turn is not even cancelled
    while await turn.read() is not None:
        pass
    if how == "closed":
        await close_shared_pool()
        await close_shared_pool()
    if how == "error":
        raise SystemExit(0)

for how in ways:
    for _ in range(2):
        try:
            asyncio.run(main(how))
        except SystemExit:
            pass
        assert not _shared_pool._entries
    gc.collect()
    print(how)
"""


async def hello(call: Call) -> None:
    await call.head()
    for word in ("a ", "b ", "c"):
        await call.event(delta(content=word))
    await call.event(delta("stop"))
    await call.end()


ENDINGS = ("read", "left", "closed", "error")


def test_a_program_ends_without_a_warning(upstream: Upstream) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-X",
            "dev",
            "-c",
            dedent(SCRIPT),
            upstream.url,
            upstream.plays(hello),
            *ENDINGS,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr, done.returncode) == ([*ENDINGS], "", 0)


def test_each_loop_has_one_pool_shared_by_its_tasks() -> None:
    async def two() -> object:
        first, second = await asyncio.gather(shared_pool(), shared_pool())
        assert first is second
        assert await shared_pool() is first
        return first

    one, other = asyncio.run(two()), asyncio.run(two())
    assert one is not other
    assert not _shared_pool._entries


def test_after_close_a_new_pool_is_created() -> None:
    async def main() -> None:
        first = await shared_pool()
        await close_shared_pool()
        assert await shared_pool() is not first

    asyncio.run(main())


def test_a_failed_creation_is_tried_again_by_the_next_caller() -> None:
    log: list[str] = []

    async def make() -> int:
        log.append("made")
        await loop_turns()
        if len(log) == 1:
            raise OSError("not yet")
        return len(log)

    async def close(value: int) -> None:
        await loop_turns()
        log.append(f"closed {value}")

    per_loop = PerLoop(make, close)

    async def main() -> None:
        first, *others = await asyncio.gather(*(per_loop.get() for _ in range(3)), return_exceptions=True)
        assert isinstance(first, OSError)
        assert others == [2, 2]

    asyncio.run(main())
    assert log == ["made", "made", "closed 2"]


def test_the_pool_of_a_closed_loop_is_removed() -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(shared_pool())
    loop.close()
    assert loop in _shared_pool._entries
    asyncio.run(open_shared_pool())
    assert not _shared_pool._entries


async def open_shared_pool() -> None:
    await shared_pool()
