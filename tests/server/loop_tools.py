"""Functions that an operator has registered, for tests of the loop."""

from __future__ import annotations

import time

from pellucid import Tool
from pellucid.parts import Image, Text

PIXEL = "iVBORw0KGgo="
ran: list[tuple[str, float, float]] = []
"""What ran, from when to when."""


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def weather(city: str) -> dict[str, str]:
    """Say the weather."""
    return {"city": city, "sky": "rain"}


def nap(who: str) -> str:
    """Take a while."""
    began = time.monotonic()
    time.sleep(0.15)
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
    time.sleep(2)
    return "late"


slow = Tool(hang, name="slow", timeout=0.2)
every = [add, weather, nap, boom, picture, slow]
