"""The page in Chromium before a real gateway, whose model says what a test tells it to, when it tells it to."""

from __future__ import annotations

import asyncio
import json
import queue
import re
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple

from playwright.sync_api import Browser, BrowserContext, Dialog, Locator, Page, Request, expect, sync_playwright

from tests.scripted import Call, Upstream, delta, event
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS

SECONDS = LIMIT_SECONDS
"""How long the page has for each step: on a loaded machine, a browser takes its time."""

THINKER, OTHER, REASONER, CLAUDE, LOCKED = "thinker", "other", "reasoner", "claude", "locked"
"""The models: two of one server that show what they think, one that tells it in summaries and one in signed blocks,
and one of whose thoughts nobody may see more than that they are there."""

ARGUMENTS = [
    # A container has no user namespaces and little shared memory.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    # A page that nobody looks at gets frames all the same.
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
]


def chromium() -> str | None:
    """Where Chromium is, if it is anywhere."""
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
    """What a model says, word by word as the test wants it: each call returns at once."""

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
        """A whole turn."""
        if thought:
            self.think(thought)
        return self.say(text).end()

    def fail(self, message: str) -> ModelScript:
        """The server says that it cannot go on."""
        return self._put(Step(event({"error": {"message": message}}), "end"))

    def break_off(self) -> ModelScript:
        """The connection goes, in the middle."""
        return self._put(Step(then="reset"))

    def frames(self, *values: Any) -> ModelScript:
        """Events of any wire without names."""
        return self.raw(b"".join(event(value) for value in values))

    def raw(self, data: bytes) -> ModelScript:
        return self._put(Step(data))

    def close(self) -> None:
        """Whoever still waits for a word waits in vain."""
        self._over = True
        self._notify()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What the model was asked."""
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
        """Each call of the model goes on where the one before ended."""
        self.calls.append(call)
        news = asyncio.Event()
        self._listener = asyncio.get_running_loop(), news
        gone = asyncio.ensure_future(call.gone())
        gone.add_done_callback(lambda _: news.set())
        try:
            await call.head()
            while not gone.done():
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
            gone.cancel()


class Stage:
    """Where all models of the gateway play what the test at hand says."""

    def __init__(self, upstream: Upstream) -> None:
        self.model_script = ModelScript()
        self.names = {name: upstream.plays(self._script, family=name) for name in (THINKER, OTHER, REASONER, CLAUDE)}

    async def _script(self, call: Call) -> None:
        await self.model_script.script(call)

    def config(self, upstream: Upstream) -> dict[str, Any]:
        """The gateway before them; its default model is the one that thinks aloud."""
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


class House(NamedTuple):
    stage: Stage
    gateway: Served
    store: str
    """The path of its database."""


# --- the page ------------------------------------------------------------------------------------------------------

WATCH = """
window.shifts = []
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.shifts.push({
    value: entry.value,
    of: entry.sources.map((one) => one.node?.className ?? one.node?.parentElement?.className ?? String(one.node)),
  })
}).observe({type: "layout-shift", buffered: true})
document.addEventListener("securitypolicyviolation", (event) => console.error(
  `refused by policy: ${event.effectiveDirective} ${event.blockedURI}`))
"""

SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))"

LEFT = "one => one.scrollHeight - one.clientHeight - one.scrollTop"
"""How far a box is from its end."""


class Tab:
    """A tab of the browser, and what went wrong in it."""

    def __init__(self, context: BrowserContext, gateway: Served, url: str | None = None) -> None:
        self.context = context
        self.gateway = gateway
        self.url = url or gateway.url
        self.wrong: list[str] = []
        """Errors of scripts, of the console, and of the page's security policy; whatever left for elsewhere."""
        self._allowed: list[re.Pattern[str]] = []
        self.page: Page = context.new_page()
        self.page.add_init_script(WATCH)
        self.page.set_default_timeout(SECONDS * 1000)
        self.page.on("pageerror", lambda error: self._note(f"error: {error}"))
        self.page.on("console", lambda said: self._note(f"console: {said.text}") if said.type == "error" else None)
        self.page.on("dialog", self._dismiss)
        self.page.on("download", lambda download: self._note(f"download: {download.url}"))
        self.page.on("popup", lambda page: self._note(f"window: {page.url}"))
        self.page.on("request", self._request)

    def allow(self, pattern: str) -> None:
        """What would be wrong, but is what this test is about."""
        self._allowed.append(re.compile(pattern))

    @property
    def faults(self) -> list[str]:
        return [one for one in self.wrong if not any(pattern.search(one) for pattern in self._allowed)]

    def _note(self, fault: str) -> None:
        self.wrong.append(fault)

    def _dismiss(self, dialog: Dialog) -> None:
        self._note(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.url + "/", "data:", "blob:")):
            self._note(f"asked elsewhere: {request.url}")

    def chooses(self, **choices: str) -> None:
        """What the pickers were left at, from the next load on."""
        kept = json.dumps(json.dumps(choices))
        self.page.add_init_script(f"localStorage.setItem('pellucid.choices', {kept})")

    def open(self, path: str = "/") -> Page:
        self.page.goto(self.url + path)
        self.there("composer").wait_for()
        self.there("model-picker").wait_for()
        return self.page

    def there(self, testid: str) -> Locator:
        return self.page.get_by_test_id(testid)

    def ask(self, text: str = "Why?") -> None:
        self.there("composer").fill(text)
        self.there("send").click()

    def asks(self, text: str = "Why?") -> None:
        """On a page of its own."""
        self.open()
        self.ask(text)

    def finished(self, status: str = "completed") -> Locator:
        """The last answer, once it is over."""
        answer = self.page.locator(f"[data-testid=assistant-event][data-status={status}]").last
        answer.wait_for()
        return answer

    def opened(self) -> Locator:
        """The panel of the last answer, opened."""
        self.there("show-reasoning").last.click()
        panel = self.there("reasoning-panel").last
        panel.wait_for()
        return panel

    @property
    def conversation(self) -> str:
        """The id of the chat that is open; waits until it has one."""
        self.page.wait_for_url("**/c/*")
        return self.page.url.rpartition("/")[2]

    def api(self, path: str, method: str = "GET") -> Any:
        """What the gateway says, not the page."""
        return self.gateway.request(method, path).json

    def away(self, box: Locator, by: int = 100) -> None:
        """Wait until the box was scrolled away from its end."""
        self.page.wait_for_function(f"([one, by]) => ({LEFT})(one) > by", arg=[box.element_handle(), by])

    # --- what moved

    def settled(self) -> None:
        """What was to be drawn is drawn, and what moved by it is known."""
        self.page.evaluate(SETTLED)

    def mark(self) -> None:
        self.settled()
        self.page.evaluate("() => { window.shifts.length = 0 }")

    def shifted(self) -> tuple[float, list[Any]]:
        """By how much the page moved since `mark`, whoever's doing that was, and what moved."""
        self.settled()
        found = self.page.evaluate("() => window.shifts")
        return sum(one["value"] for one in found), found


Tabs = Callable[..., Tab]
"""Makes a tab: behind which cable, before which gateway, and whatever else Playwright's `new_context` takes."""


class Cable:
    """Stands between the browser and the gateway, and can be cut."""

    def __init__(self, port: int) -> None:
        self._there = port
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._whole = True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every connection breaks, and no new one comes about."""
        self._whole = False
        for pair in list(self._pairs):
            self._break(pair)

    def mend(self) -> None:
        self._whole = True

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
                other.sendall(data)
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
    "CLAUDE",
    "LEFT",
    "LOCKED",
    "OTHER",
    "REASONER",
    "SECONDS",
    "THINKER",
    "Cable",
    "House",
    "ModelScript",
    "Stage",
    "Tab",
    "Tabs",
    "browser",
    "chromium",
]
