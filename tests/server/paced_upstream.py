"""A model server as a process of its own, which a test kills: `python -m tests.server.paced_upstream`.

It prints its address, and a line for each call. The last message of the user names what a call does, until the end:

    silent      nothing but the head and a chunk without content
    thinks      thoughts, word by word
    speaks      a thought, and then text, word by word
"""

from __future__ import annotations

import asyncio
import sys

from tests.scripted import Call, Upstream, delta

PACE_SECONDS = 0.02


async def answer_without_end(call: Call) -> None:
    behaviour = call.body["messages"][-1]["content"]
    await call.head()
    await call.event(delta(role="assistant"))
    if behaviour == "speaks":
        await call.event(delta(reasoning_content="Hm. "))
        await call.event(delta(content="So. "))
    write("called")
    while not call.connection.closed.is_set():
        await asyncio.sleep(PACE_SECONDS)
        if behaviour == "thinks":
            await call.event(delta(reasoning_content="Hm. "))
        elif behaviour == "speaks":
            await call.event(delta(content="So. "))


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with Upstream() as upstream:
        write(f"{upstream.url} {upstream.plays(answer_without_end)}")
        sys.stdin.read()
