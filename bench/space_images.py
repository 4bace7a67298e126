"""Record the screenshots of a space in docs/images.

    .venv/bin/python bench/space_images.py

They show the real page with a real gateway. The five agents of the review are scripted; the three frameworks are those
of `examples/space_frameworks`, whose models are scripted.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "space_frameworks"
sys.path[:0] = [str(ROOT), str(EXAMPLE)]

import session  # noqa: E402
from playwright.sync_api import Browser, expect  # noqa: E402

from page_images import IMAGES  # noqa: E402
from tests.page.page_kit import Tab, browser  # noqa: E402
from tests.page.page_space_kit import SPACE, ScriptedParticipants, gateway_with_spaces, join_space, lane, play_review  # noqa: E402
from tests.scripted.gateway import Gateway, Served  # noqa: E402

MAX_BYTES = 200_000
"""More than for a picture of a chat: these show more."""


def scene(chrome: Browser, gateway: Served, **context_options: object) -> Tab:
    context_options = {
        "viewport": {"width": 1240, "height": 740},
        "color_scheme": "light",
        "reduced_motion": "reduce",
        **context_options,
    }
    tab = Tab(chrome.new_context(**context_options), gateway)  # type: ignore[arg-type]
    join_space(tab)
    expect(tab.element("context-line")).to_have_count(4)
    return tab


def picture(tab: Tab, name: str, max_bytes: int = MAX_BYTES) -> None:
    tab.page.mouse.move(0, 0)
    # The target of a link is highlighted for a moment.
    tab.page.wait_for_timeout(300)
    path = IMAGES / f"{name}.png"
    tab.page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)} {size / 1000:.0f} kB")
    assert size < max_bytes, "a picture for the docs must be smaller"
    tab.context.close()


@contextmanager
def frameworks_session() -> Iterator[tuple[str, str]]:
    """Run the session of three frameworks; yield the URL of its gateway, and the token of the person."""
    ready: Future[tuple[str, str]] = Future()
    done = asyncio.Event()

    async def run(folder: Path) -> None:
        async with session.a_gateway(folder) as (url, tokens):
            await session.session(url, tokens, lambda envelope: None)
            ready.set_result((f"http://{urlsplit(url).netloc}", tokens["person"]))
            await done.wait()

    loop = asyncio.new_event_loop()
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        running = pool.submit(loop.run_until_complete, run(Path(folder)))
        try:
            yield ready.result(60)
        finally:
            loop.call_soon_threadsafe(done.set)
            running.result(60)
            loop.close()


def frameworks(chrome: Browser) -> None:
    with frameworks_session() as (url, token):
        context = chrome.new_context(viewport={"width": 1440, "height": 720}, reduced_motion="reduce")
        tab = Tab(context, Gateway(urlsplit(url).port), url)  # type: ignore[arg-type]
        tab.page.goto(f"{url}/spaces/release")
        tab.element("join-token").fill(token)
        tab.element("join-send").click()
        expect(tab.element("context-line")).to_have_count(4)
        # The person has asked one of them alone, who thinks about it.
        tab.element("scrub").fill("29")
        expect(tab.element("room")).to_have_attribute("data-live", "false")
        tab.element("scrub").blur()
        picture(tab, "space-frameworks", max_bytes=150_000)


def main() -> None:
    with TemporaryDirectory() as folder, gateway_with_spaces(Path(folder), (SPACE,)) as gateway, browser() as chrome:
        participants = ScriptedParticipants(gateway)
        play_review(participants)
        tab = scene(chrome, gateway)
        tab.element("message").filter(has_text="I strongly").get_by_test_id("to-reasoning").click()
        picture(tab, "space")

        tab = scene(chrome, gateway, color_scheme="dark")
        tab.element("scrub").fill("21")
        expect(tab.element("room")).to_have_attribute("data-live", "false")
        picture(tab, "space-past")

        phone = {"viewport": {"width": 390, "height": 780}, "device_scale_factor": 1.5, "is_mobile": True}
        tab = scene(chrome, gateway, has_touch=True, **phone)
        tab.element("to-lane").filter(has_text="security-agent").click()
        expect(lane(tab, "security-agent")).to_be_in_viewport(ratio=0.9)
        picture(tab, "space-phone")
        participants.close()
        frameworks(chrome)


if __name__ == "__main__":
    main()
