"""Telemetry of a running gateway: spans with their attributes, and log lines with their fields.

They are those of a run with tool calls, one of which fails, of a background run, of runs whose upstream refuses them
or breaks off, and of an invalid request.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

from tests.scripted import Call, Upstream, delta, say
from tests.telemetry.telemetry_kit import calls, captured_telemetry, config_of
from tests.waiting import LIMIT_SECONDS, wait_until

TOOLS = {"functions": ["tests.telemetry.telemetry_kit:add", "tests.telemetry.telemetry_kit:broken"]}


def observed_names() -> Iterator[str]:
    async def refuses(call: Call) -> None:
        await call.answer(400, b"{}")

    async def breaks(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm."))
        call.reset()

    answered = threading.Event()

    async def waits(call: Call) -> None:
        await asyncio.to_thread(answered.wait, LIMIT_SECONDS)
        await say()(call)

    with Upstream() as upstream:
        model = upstream.plays(calls("add", '{"a": 1, "b": 2}'), calls("broken", '{"words": ""}'), say())
        refused = upstream.plays(refuses)
        broken = upstream.plays(breaks)
        later = upstream.plays(waits)
        with captured_telemetry(config_of(upstream, model, refused, broken, later, tools=TOOLS)) as (gateway, captured):
            gateway.ask(model, stream=True, max_output_tokens=99, temperature=1.0, top_p=1.0)
            gateway.ask(refused)
            gateway.ask(broken, stream=True)
            gateway.ask("no-such-model")
            gateway.ask(later, background=True)
            wait_until(
                lambda: [line["what"] for line in captured.lines].count("request") == 5, "every request has a log line"
            )
            answered.set()  # the run in the background outlives its request
            wait_until(lambda: any(line["what"] == "run" for line in captured.lines), "the run in the background ended")
            gateway.idle()
            spans, lines = captured.spans, captured.lines
    chosen = dict.fromkeys((model, refused, broken, later), "{model}") | dict.fromkeys(("add", "broken"), "{tool}")
    for span in spans:
        name = " ".join(chosen.get(word, word) for word in span.name.split(" "))
        yield f"span {name}"
        yield f"span {name} kind {span.kind.name}"
        yield from (f"span {name} .{attribute}" for attribute in span.attributes or {})
    for line in lines:
        yield from (f"log {line['what']} .{field}" for field in line if field != "what")
