"""The gateway's own tools in these tests."""

from __future__ import annotations


def weather(city: str) -> dict[str, object]:
    """The weather in a city.

    Args:
        city: Its name.
    """
    if city == "Nowhere":
        raise ValueError("there is no such city")
    return {"city": city, "sky": "clear", "degrees": 21}


def hostile() -> str:
    """A text written by an untrusted party."""
    return "<img src=x onerror=alert(1)><script>alert(2)</script>[a](javascript:alert(3))\u202etxt.exe\x1b[31m"
