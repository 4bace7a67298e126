"""Record the page in motion: `docs/images/page.webp`, for the README.

    .venv/bin/python -m pip install pillow
    .venv/bin/python bench/page_motion.py

It shows the real page with a real gateway, whose model is scripted: a question, the thinking, a tool, the answer.
"""

from __future__ import annotations

import io
import time
from typing import NamedTuple

from PIL import Image

from page import page_gateway
from page_images import ANSWER, FIRST, IMAGES, QUESTION, ROOT, SECOND, USAGE, ModelScript, Tab, scene
from tests.page.page_kit import browser
from tests.scripted import Upstream

IMAGE = IMAGES / "page.webp"
MAX_BYTES = 700_000
SIZE = {"width": 860, "height": 600}
STEP_CHARACTERS = 14
LAST_MS = 3000


class Frame(NamedTuple):
    """A picture of the page, and for how long it is shown."""

    image: Image.Image
    milliseconds: int


class Motion:
    """Collects frames."""

    def __init__(self, tab: Tab) -> None:
        self.frames: list[Frame] = []
        self._tab = tab

    def frame(self, milliseconds: int) -> None:
        self._tab.wait_rendered()
        self.frames.append(Frame(Image.open(io.BytesIO(self._tab.page.screenshot())).convert("RGB"), milliseconds))


def record(motion: Motion, tab: Tab, script: ModelScript) -> None:
    for end in range(0, len(QUESTION) + 1, 12):
        tab.element("composer").fill(QUESTION[:end])
        motion.frame(60)
    tab.ask(QUESTION)
    for send, text, milliseconds in ((script.think, FIRST, 70), (script.think, SECOND, 70), (script.say, ANSWER, 60)):
        for start in range(0, len(text), STEP_CHARACTERS):
            send(text[start : start + STEP_CHARACTERS])
            motion.frame(milliseconds)
        if text is FIRST:
            script.call("weather", {"city": "Ur"})
            motion.frame(700)
            script.end("tool_calls")
            motion.frame(500)
    script.end(usage=USAGE)
    tab.wait_finished()
    motion.frame(LAST_MS)
    tab.open_reasoning()
    time.sleep(0.5)  # its animation
    motion.frame(LAST_MS)


def main() -> None:
    with Upstream() as upstream, page_gateway(upstream) as (models, gateway), browser() as chrome:
        tab, script = scene(chrome, models, gateway, viewport=SIZE)
        motion = Motion(tab)
        record(motion, tab, script)
        tab.context.close()
    first, *others = (frame.image for frame in motion.frames)
    first.save(
        IMAGE,
        save_all=True,
        append_images=others,
        duration=[frame.milliseconds for frame in motion.frames],
        loop=0,
        quality=82,
        method=6,
        minimize_size=True,
        allow_mixed=True,
    )
    size = IMAGE.stat().st_size
    seconds = sum(frame.milliseconds for frame in motion.frames) / 1000
    print(f"{IMAGE.relative_to(ROOT)}: {size / 1000:.0f} kB, {len(motion.frames)} frames, {seconds:.0f} s")
    assert size < MAX_BYTES, "it must load quickly"


if __name__ == "__main__":
    main()
