"""Measure the page: bytes loaded, time to the first paint, how smoothly it renders a stream, and what moves.

    .venv/bin/python bench/page.py [--seconds 10]

Chromium, the gateway and a scripted model share this machine's CPUs, so the figures are those of a busy machine, and
not the best possible ones. It needs Chromium (`apt-get install chromium`). What is measured: docs/page.md.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from playwright.sync_api import Browser  # noqa: E402

from pellucid.server import page  # noqa: E402
from pellucid.server.config import check_config  # noqa: E402
from tests.page.page_kit import ModelScript, ScriptedModels, Tab, browser  # noqa: E402
from tests.scripted import Call, Upstream, delta  # noqa: E402
from tests.scripted.gateway import Served, serve  # noqa: E402

LOADS = 7
SIZES = ((390, 844), (1440, 900))
"""A phone, and a screen."""
RATE = 100
SENTENCE = "The sea rises twice a day because the moon pulls at it, and the earth turns beneath. "
ANSWER = (
    "Some **bold** words, `code`, a [link](https://example.org).\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
)

FRAMES = """() => {
  window.frames_ = []
  let last = performance.now()
  const next = (now) => { window.frames_.push(now - last); last = now; window.request_ = requestAnimationFrame(next) }
  window.request_ = requestAnimationFrame((now) => { last = now; window.request_ = requestAnimationFrame(next) })
}"""
STOPPED = "() => { cancelAnimationFrame(window.request_); return window.frames_ }"
TRANSFERRED = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .filter((one) => !new URL(one.name).pathname.startsWith("/api/"))
  .map((one) => [new URL(one.name).pathname, one.encodedBodySize, one.decodedBodySize])"""
PAINTS = "() => Object.fromEntries(performance.getEntriesByType('paint').map((one) => [one.name, one.startTime]))"


@contextmanager
def page_gateway(upstream: Upstream) -> Iterator[tuple[ScriptedModels, Served]]:
    """A gateway with an empty home, whose models answer by their scripts."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["XDG_DATA_HOME"] = home
        models = ScriptedModels(upstream)
        with serve(check_config(models.config(upstream), {"A_KEY": "k"})) as gateway:
            yield models, gateway


def paced(texts: Iterator[str], field: str, seconds: float, before: str = "") -> Callable[[Call], Any]:
    """Return a script of a model that sends `before` at once, and then texts at a fixed rate."""

    async def script(call: Call) -> None:
        await call.head()
        for start in range(0, len(before), 8192):
            await call.event(delta(reasoning_content=before[start : start + 8192]))
        loop = asyncio.get_running_loop()
        begun = loop.time() + 1
        for n in range(int(seconds * RATE)):
            await asyncio.sleep(max(0.0, begun + n / RATE - loop.time()))
            await call.event(delta(**{field: next(texts)}))
        if field == "reasoning_content":
            await call.event(delta(content="Done."))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    return script


def in_words(text: str) -> Iterator[str]:
    words = text.split(" ")
    return (f"{word} " for word in itertools.cycle(words))


def frames(
    chrome: Browser, models: ScriptedModels, gateway: Served, script: Callable[[Call], Any], seen: str
) -> list[float]:
    """How long each frame took from when `seen` was there until the answer was over."""
    models.model_script.script = script  # type: ignore[method-assign]
    context = chrome.new_context(viewport={"width": 1100, "height": 800})
    tab = Tab(context, gateway)
    tab.open_and_ask()
    tab.element(seen).wait_for()
    tab.wait_rendered()
    tab.page.evaluate(FRAMES)
    tab.page.wait_for_selector("[data-status=completed]", timeout=120_000)
    took: list[float] = tab.page.evaluate(STOPPED)
    context.close()
    return took


def time_to_open(chrome: Browser, models: ScriptedModels, gateway: Served, text: str) -> float:
    """Milliseconds from the press on “Show Reasoning” until that text is drawn."""

    async def script(call: Call) -> None:
        await call.head()
        for start in range(0, len(text), 65_536):
            await call.event(delta(reasoning_content=text[start : start + 65_536]))
        await call.event(delta(content="Done."))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    models.model_script.script = script  # type: ignore[method-assign]
    context = chrome.new_context(viewport={"width": 1100, "height": 800})
    tab = Tab(context, gateway)
    tab.open_and_ask()
    tab.page.wait_for_selector("[data-status=completed]", timeout=120_000)
    took: float = tab.page.evaluate("""() => new Promise((done) => {
      const begun = performance.now()
      document.querySelector("[data-testid=show-reasoning]").click()
      requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)))
    })""")
    context.close()
    return took


class Movement(NamedTuple):
    """What moved while a reader watched, by the browser's own measurements."""

    shift: float
    """The sum of all layout shifts."""
    unexpected: float
    """Those that did not follow an input of the user within half a second."""
    longest_task: float
    """The longest task of the page, in milliseconds."""
    long_tasks: int
    """Tasks of more than 50 ms."""


def movement(tab: Tab) -> Movement:
    """What moved in a tab since its page was loaded."""
    total, shifts = tab.layout_shifts()
    tasks: list[float] = tab.page.evaluate("() => window.longTasks")
    unexpected = sum(one["value"] for one in shifts if not one["input"])
    return Movement(total, unexpected, max(tasks, default=0.0), len(tasks))


def tools_then_text(chrome: Browser, models: ScriptedModels, gateway: Served, width: int, height: int) -> Movement:
    """A model thinks, calls tools between its thoughts, and writes."""
    models.model_script = script = ModelScript()
    context = chrome.new_context(viewport={"width": width, "height": height}, has_touch=width < 500)
    tab = Tab(context, gateway)
    tab.open()
    tab.ask()
    tab.page.wait_for_timeout(600)
    tab.reset_layout_shifts()
    for n in range(3):
        for word in (SENTENCE * 4).split(" "):
            script.think(f"{word} ")
            tab.page.wait_for_timeout(8)
        script.call("weather", {"city": f"Ur {n}"}, id=f"call_{n}").end("tool_calls")
        tab.element("overlay-tool").nth(n).wait_for()
    for word in (ANSWER * 3).split(" "):
        script.say(f"{word} ")
        tab.page.wait_for_timeout(8)
    script.call("weather", {"city": "Uruk"}, id="call_later").end("tool_calls")
    tab.element("overlay-tool").nth(3).wait_for()
    script.think(SENTENCE * 3).say(ANSWER).end()
    tab.page.wait_for_selector("[data-status=completed]")
    moved = movement(tab)
    context.close()
    return moved


def reopened(chrome: Browser, models: ScriptedModels, gateway: Served, turns: int, width: int, height: int) -> Movement:
    """A long chat with formulas, tables and code in its answers is opened again, in a browser that has no files yet."""
    formulas = "\n\n".join(
        f"So $x_{n}^2$ is:\n\n$$\\sum_{{k=1}}^{{{n}}} \\frac{{k^2}}{{2}} = \\int_0^{n} x\\,dx$$" for n in range(12)
    )
    models.model_script = script = ModelScript()
    for _ in range(turns):
        script.answer(f"{formulas}\n\n{ANSWER}\n\n```py\nx = 1\n```", SENTENCE)
    wide: Any = {"viewport": {"width": width, "height": height}}
    first = chrome.new_context(**wide)
    tab = Tab(first, gateway)
    tab.open()
    for n in range(turns):
        tab.ask(f"And {n}?")
        tab.element("show-reasoning").nth(n).wait_for()
    path = f"/c/{tab.conversation}"
    first.close()
    again = chrome.new_context(**wide)
    tab = Tab(again, gateway)
    tab.open(path)
    tab.element("show-reasoning").nth(turns - 1).wait_for()
    tab.page.locator("math").first.wait_for()
    tab.page.wait_for_timeout(500)
    moved = movement(tab)
    again.close()
    return moved


def loads(chrome: Browser, gateway: Served) -> tuple[dict[str, tuple[int, int]], float, float]:
    """What a first visit transfers (packed, unpacked), and the medians of first and first contentful paint."""
    paints, files = [], {}
    for _ in range(LOADS):
        context = chrome.new_context()
        tab = Tab(context, gateway)
        tab.open()
        tab.wait_rendered()
        files = {name: (packed, size) for name, packed, size in tab.page.evaluate(TRANSFERRED)}
        paints.append(tab.page.evaluate(PAINTS))
        context.close()
    return files, *(statistics.median(one[f"first-{name}"] for one in paints) for name in ("paint", "contentful-paint"))


def row(name: str, took: list[float]) -> str:
    ordered = sorted(took)
    late = sum(one > 33.4 for one in took) / len(took)
    p95 = ordered[int(len(ordered) * 0.95)]
    return f"| {name} | {len(took)} | {statistics.median(took):.1f} | {p95:.1f} | {ordered[-1]:.0f} | {late:.1%} |"


def moved_row(name: str, moved: Movement) -> str:
    return f"| {name} | {moved.shift:.3f} | {moved.unexpected:.3f} | {moved.long_tasks} | {moved.longest_task:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each stream is watched (10)")
    seconds = parser.parse_args().seconds
    million = "\n\n".join(f"{n}. {SENTENCE * 3}" for n in range(4000))
    with Upstream() as upstream, page_gateway(upstream) as (models, gateway), browser() as chrome:
        files, first, contentful = loads(chrome, gateway)
        print(f"Chromium {chrome.version}; {os.cpu_count()} CPUs\n")
        print("| first load | packed, kB | unpacked, kB |\n|---|---:|---:|")
        for name, (packed, size) in files.items():
            print(f"| {name} | {packed / 1000:.1f} | {size / 1000:.1f} |")
        print(f"| in all | {sum(one for one, _ in files.values()) / 1000:.1f} | |")
        later = {
            name: file for name, file in page.built_files().items() if f"/{name}" not in files and name != page.INDEX
        }
        for name, file in later.items():
            sizes = len(file.bodies.get("gzip", file.bodies["identity"])), len(file.bodies["identity"])
            print(f"| later, when it is needed: /{name} | {sizes[0] / 1000:.1f} | {sizes[1] / 1000:.1f} |")
        print()
        print(f"First paint after {first:.0f} ms, first contentful paint after {contentful:.0f} ms (of {LOADS}).\n")
        print("| frames, in ms | frames | median | 95 % | longest | over 33 ms |\n|---|---:|---:|---:|---:|---:|")
        thought = paced(in_words(SENTENCE), "reasoning_content", seconds)
        print(row(f"{RATE} deltas/s of reasoning", frames(chrome, models, gateway, thought, "overlay-part")))
        answer = paced(in_words(ANSWER), "content", seconds)
        print(row(f"{RATE} deltas/s of answer", frames(chrome, models, gateway, answer, "answer-text")))
        after = paced(in_words(SENTENCE), "reasoning_content", seconds, before=million)
        print(row(f"{RATE} deltas/s behind 1 MB of reasoning", frames(chrome, models, gateway, after, "overlay-part")))
        print("\n| | layout shift | without input | long tasks | longest, ms |\n|---|---:|---:|---:|---:|")
        for width, height in SIZES:
            print(moved_row(f"tools, then text, {width} px", tools_then_text(chrome, models, gateway, width, height)))
            again = reopened(chrome, models, gateway, 12, width, height)
            print(moved_row(f"a long chat with formulas, opened again, {width} px", again))
        print(f"\n1 MB of reasoning opens in {time_to_open(chrome, models, gateway, million):.0f} ms.")


if __name__ == "__main__":
    main()
