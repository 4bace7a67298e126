"""The page in Chromium with a real gateway, whose models are scripted step by step by the test."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from playwright.sync_api import Browser, BrowserContext, Dialog, Locator, Page, Request, expect, sync_playwright

from tests.scripted import Call, Upstream, delta, event
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS

SECONDS = LIMIT_SECONDS
"""Timeout of each step; browsers are slow on a loaded machine."""

THINKER, OTHER, REASONER, CLAUDE, LOCKED = "thinker", "other", "reasoner", "claude", "locked"
"""The models: two of one server with raw reasoning, one with summaries, one with signed blocks,
and one whose reasoning is sealed for every viewer."""

ARGUMENTS = [
    # A container has no user namespaces and little shared memory.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    # A page in the background gets animation frames, too.
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
]


def chromium() -> str | None:
    """Return the path of Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        expect.set_options(timeout=SECONDS * 1000)
        running = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        try:
            yield running
        finally:
            running.close()


# --- the model -----------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """Something that a model's server does at once. A client may leave after each step; the next call begins with the
    step that follows, so the last data of a call and its end are one."""

    data: bytes = b""
    then: Literal["go on", "end", "reset"] = "go on"


class ModelScript:
    """The script of a model, step by step; each method returns immediately."""

    def __init__(self) -> None:
        self._steps: queue.SimpleQueue[Step] = queue.SimpleQueue()
        self._listener: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._over = False
        self.calls: list[Call] = []

    def think(self, text: str) -> ModelScript:
        return self.frames(delta(reasoning_content=text))

    def say(self, text: str) -> ModelScript:
        return self.frames(delta(content=text))

    def call(self, name: str, args: dict[str, Any] | str, id: str = "call_1", index: int = 0) -> ModelScript:
        """Begin and end a call of a function; `end("tool_calls")` ends the turn, and its result comes with the next."""
        text = args if isinstance(args, str) else json.dumps(args)
        function = {"name": name, "arguments": text}
        return self.frames(delta(tool_calls=[{"index": index, "id": id, "type": "function", "function": function}]))

    def end(self, reason: str = "stop", usage: dict[str, Any] | None = None) -> ModelScript:
        self.frames(delta(reason))
        if usage is not None:
            self.frames({"choices": [], "usage": usage})
        return self._put(Step(event(b"[DONE]"), "end"))

    def answer(self, text: str, thought: str = "") -> ModelScript:
        """Script a complete turn."""
        if thought:
            self.think(thought)
        return self.say(text).end()

    def fail(self, message: str) -> ModelScript:
        """Script an error of the server."""
        return self._put(Step(event({"error": {"message": message}}), "end"))

    def break_off(self) -> ModelScript:
        """Script a connection reset."""
        return self._put(Step(then="reset"))

    def frames(self, *values: Any) -> ModelScript:
        """Script events of a wire without event names."""
        return self.raw(b"".join(event(value) for value in values))

    def raw(self, data: bytes) -> ModelScript:
        return self._put(Step(data))

    def close(self) -> None:
        """End the script: pending calls get no more data."""
        self._over = True
        self._notify()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The request bodies that the model received."""
        return [call.body for call in self.calls]

    def _put(self, step: Step) -> ModelScript:
        self._steps.put(step)
        self._notify()
        return self

    def _notify(self) -> None:
        listener = self._listener
        if listener is not None:
            with suppress(RuntimeError):
                listener[0].call_soon_threadsafe(listener[1].set)

    async def script(self, call: Call) -> None:
        """Serve a call: each one continues the script where the previous one ended."""
        self.calls.append(call)
        news = asyncio.Event()
        self._listener = asyncio.get_running_loop(), news
        disconnect = asyncio.ensure_future(call.wait_for_disconnect())
        disconnect.add_done_callback(lambda _: news.set())
        try:
            await call.head()
            while not disconnect.done():
                try:
                    step = self._steps.get_nowait()
                except queue.Empty:
                    if self._over:
                        return
                    await news.wait()
                    news.clear()
                    continue
                if step.data:
                    await call.data(step.data)
                if step.then == "end":
                    await call.end()
                    return
                if step.then == "reset":
                    call.reset()
                    return
        finally:
            disconnect.cancel()


class ScriptedModels:
    """The upstream servers of all models; they play the script of the current test."""

    def __init__(self, upstream: Upstream) -> None:
        self.model_script = ModelScript()
        self.names = {name: upstream.plays(self._script, family=name) for name in (THINKER, OTHER, REASONER, CLAUDE)}

    async def _script(self, call: Call) -> None:
        await self.model_script.script(call)

    def config(self, upstream: Upstream) -> dict[str, Any]:
        """The gateway's configuration; the default model is the one with raw reasoning."""
        rows = {THINKER: "vllm", OTHER: "vllm", REASONER: "openai-responses", CLAUDE: "anthropic"}
        own = {"base_url": upstream.url, "api_key_env": "A_KEY"}
        return {
            "server": {"default_model": THINKER, "shutdown_seconds": 0.2},
            "limits": {"retries": 0},
            "providers": {row: {"profile": row, **own} for row in set(rows.values())},
            "models": {
                **{name: {"provider": row, "model": self.names[name]} for name, row in rows.items()},
                LOCKED: {"provider": "vllm", "model": self.names[OTHER], "view": "sealed"},
            },
            "tools": {"functions": ["tests.page.page_tools:weather", "tests.page.page_tools:hostile"]},
        }


class PageServer(NamedTuple):
    models: ScriptedModels
    gateway: Served
    store: str
    """The path of its database."""


# --- the page ------------------------------------------------------------------------------------------------------

WATCH = """
window.shifts = []
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.shifts.push({
    value: entry.value,
    input: entry.hadRecentInput,
    of: entry.sources.map((one) => one.node?.className ?? one.node?.parentElement?.className ?? String(one.node)),
  })
}).observe({type: "layout-shift", buffered: true})
window.longTasks = []
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longTasks.push(entry.duration)
}).observe({type: "longtask", buffered: true})
document.addEventListener("securitypolicyviolation", (event) => console.error(
  `refused by policy: ${event.effectiveDirective} ${event.blockedURI}`))
"""

SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))"

LEFT = "one => one.scrollHeight - one.clientHeight - one.scrollTop"
"""JavaScript: the distance of a scroll box from its end, in pixels."""


class Tab:
    """A tab of the browser, and its errors."""

    def __init__(self, context: BrowserContext, gateway: Served, url: str | None = None) -> None:
        self.context = context
        self.gateway = gateway
        self.url = url or gateway.url
        self.errors: list[str] = []
        """Record errors of scripts, of the console and of the content security policy, and requests to other hosts."""
        self._allowed: list[re.Pattern[str]] = []
        self.page: Page = context.new_page()
        self.page.add_init_script(WATCH)
        self.page.set_default_timeout(SECONDS * 1000)
        self.page.on("pageerror", lambda error: self._note(f"error: {error}"))
        self.page.on(
            "console", lambda message: self._note(f"console: {message.text}") if message.type == "error" else None
        )
        self.page.on("dialog", self._dismiss)
        self.page.on("download", lambda download: self._note(f"download: {download.url}"))
        self.page.on("popup", lambda page: self._note(f"window: {page.url}"))
        self.page.on("request", self._request)

    def allow(self, pattern: str) -> None:
        """Ignore errors that the test expects."""
        self._allowed.append(re.compile(pattern))

    @property
    def unexpected_errors(self) -> list[str]:
        return [one for one in self.errors if not any(pattern.search(one) for pattern in self._allowed)]

    def _note(self, fault: str) -> None:
        self.errors.append(fault)

    def _dismiss(self, dialog: Dialog) -> None:
        self._note(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.url + "/", "data:", "blob:")):
            self._note(f"request to another host: {request.url}")

    def store_choices(self, **choices: str) -> None:
        """Store choices for the pickers; they apply from the next load on."""
        stored = json.dumps(json.dumps(choices))
        self.page.add_init_script(f"localStorage.setItem('pellucid.choices', {stored})")

    def open(self, path: str = "/") -> Page:
        self.page.goto(self.url + path)
        self.element("composer").wait_for()
        self.element("model-picker").wait_for()
        return self.page

    def element(self, testid: str) -> Locator:
        return self.page.get_by_test_id(testid)

    def ask(self, text: str = "Why?") -> None:
        self.element("composer").fill(text)
        self.element("send").click()

    def open_and_ask(self, text: str = "Why?") -> None:
        """Open the page and ask."""
        self.open()
        self.ask(text)

    def wait_finished(self, status: str = "completed") -> Locator:
        """Wait until the last answer has ended, and return it."""
        answer = self.page.locator(f"[data-testid=assistant-event][data-status={status}]").last
        answer.wait_for()
        return answer

    def open_reasoning(self) -> Locator:
        """Open the reasoning panel of the last answer, and return it."""
        self.element("show-reasoning").last.click()
        panel = self.element("reasoning-panel").last
        panel.wait_for()
        return panel

    @property
    def conversation(self) -> str:
        """The id of the open chat; waits until it has one."""
        self.page.wait_for_url("**/c/*")
        return self.page.url.rpartition("/")[2]

    def api(self, path: str, method: str = "GET") -> Any:
        """Request the gateway directly and return the JSON."""
        return self.gateway.request(method, path).json

    def wait_scrolled_away(self, box: Locator, by: int = 100) -> None:
        """Wait until the box is scrolled away from its end by more than `by` pixels."""
        self.page.wait_for_function(f"([one, by]) => ({LEFT})(one) > by", arg=[box.element_handle(), by])

    # --- what moved

    def wait_rendered(self) -> None:
        """Wait until the page is rendered and layout shifts are recorded."""
        self.page.evaluate(SETTLED)

    def reset_layout_shifts(self) -> None:
        self.wait_rendered()
        self.page.evaluate("() => { window.shifts.length = 0 }")

    def layout_shifts(self) -> tuple[float, list[Any]]:
        """Return the sum of all layout shifts since `reset_layout_shifts`, also after user input, and the shifts."""
        self.wait_rendered()
        shifts = self.page.evaluate("() => window.shifts")
        return sum(one["value"] for one in shifts), shifts


Tabs = Callable[..., Tab]
"""Factory of tabs: an optional proxy, an optional gateway, and arguments of Playwright's `new_context`."""


def shot(tab: Tab, name: str) -> None:
    """Take a picture, if a person wants to look at them."""
    if folder := os.environ.get("PAGE_SHOTS"):
        tab.page.screenshot(path=Path(folder) / f"{name}.png")


class TCPProxy:
    """A TCP proxy between the browser and the gateway that can cut all connections."""

    def __init__(self, port: int) -> None:
        self._there = port
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._frozen: set[tuple[socket.socket, socket.socket]] = set()
        self._whole = True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        self._whole = False
        for pair in list(self._pairs):
            self._break(pair)

    def mend(self) -> None:
        self._whole = True

    def freeze(self) -> None:
        """Lose what comes from the gateway on the connections of now, without a sign. A new request on one of them is
        reset, so that the browser sends it on another."""
        self._frozen |= self._pairs

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            if not self._whole:
                self._reset(near)
                continue
            pair = near, socket.create_connection(("127.0.0.1", self._there))
            self._pairs.add(pair)
            for one, other in (pair, pair[::-1]):
                threading.Thread(target=self._carry, args=(one, other, pair), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if pair not in self._frozen:
                    other.sendall(data)
                elif one is pair[0]:
                    break
        self._break(pair)

    def _break(self, pair: tuple[socket.socket, socket.socket]) -> None:
        if pair in self._pairs:
            self._pairs.discard(pair)
            for one in pair:
                self._reset(one)

    @staticmethod
    def _reset(one: socket.socket) -> None:
        with suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.shutdown(socket.SHUT_RDWR)
        one.close()


__all__ = [
    "ARGUMENTS",
    "CLAUDE",
    "LEFT",
    "LOCKED",
    "OTHER",
    "REASONER",
    "SECONDS",
    "THINKER",
    "ModelScript",
    "PageServer",
    "ScriptedModels",
    "TCPProxy",
    "Tab",
    "Tabs",
    "browser",
    "chromium",
]
