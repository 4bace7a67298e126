"""Functions that an operator has registered, for tests of the tool loop."""

from __future__ import annotations

import threading
import time

from pellucid import Tool
from pellucid.parts import Image, Text
from tests.waiting import LIMIT_SECONDS

PIXEL = "iVBORw0KGgo="
ran: list[tuple[str, float, float]] = []
"""Executed calls of `nap`: name, start and end in seconds."""
meeting: threading.Barrier | None = None
"""The barrier at which concurrent calls of `nap` wait for each other."""
released = threading.Event()
"""Set to end the calls of `hang`."""


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def weather(city: str) -> dict[str, str]:
    """Say the weather."""
    return {"city": city, "sky": "rain"}


def nap(who: str) -> str:
    """Take a while."""
    began = time.monotonic()
    if meeting is not None:
        meeting.wait(LIMIT_SECONDS)
    ran.append((who, began, time.monotonic()))
    return who


def boom() -> str:
    """Break."""
    raise RuntimeError("hunter2")


def picture() -> list[Text | Image]:
    """Draw."""
    return [Text("see:"), Image(data=PIXEL, media_type="image/png")]


def hang() -> str:
    """Never return in time."""
    released.wait(LIMIT_SECONDS)
    return "late"


slow = Tool(hang, name="slow", timeout=0.2)
every = [add, weather, nap, boom, picture, slow]
