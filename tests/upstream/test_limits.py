"""The timer of a body, with a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pellucid.errors import ErrorInfo
from pellucid.upstream import Limits
from pellucid.upstream.limits import Watchdog

LIMITS = Limits(first_byte=60.0, idle=20.0)


class Body:
    """A body whose time passes when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limits: Limits = LIMITS) -> None:
        self.now = 1000.0
        self.body_bytes = 0
        self.errors: list[ErrorInfo] = []
        self.timers: list[tuple[float, Timer]] = []
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)
        self.watch = Watchdog(self, limits, self.now, self.errors.append)

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], Any]) -> Timer:
        timer = Timer(call)
        self.timers.append((self.now + seconds, timer))
        return timer

    def wait(self, seconds: float) -> list[str | None]:
        """Let time pass. Returns the codes of the errors so far."""
        end = self.now + seconds
        while True:
            due = [one for one in self.timers if one[0] <= end and not one[1].is_cancelled]
            if not due:
                break
            first = min(due, key=lambda one: one[0])
            self.timers.remove(first)
            self.now = max(self.now, first[0])
            first[1].call()
        self.now = end
        return [error.code for error in self.errors]


class Timer:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.fixture
def body(monkeypatch: pytest.MonkeyPatch) -> Body:
    return Body(monkeypatch)


def test_the_first_byte_has_its_own_limit(body: Body) -> None:
    body.watch.is_awaited = True
    assert body.wait(59) == []
    assert body.wait(1) == ["first_byte_timeout"]
    assert body.errors[0].message == "the provider did not begin to answer within 60 s"


def test_every_byte_begins_the_limit_of_silence_again(body: Body) -> None:
    body.watch.is_awaited = True
    for _ in range(10):
        assert body.wait(19) == []
        body.body_bytes += 1
    assert body.wait(19) == []
    assert body.wait(2) == ["idle_timeout"]
    assert body.errors[0].message == "the provider sent nothing within 20 s"


def test_silence_counts_only_while_data_is_awaited(body: Body) -> None:
    body.watch.is_awaited = True
    body.body_bytes = 1
    body.wait(1)
    body.watch.is_awaited = False
    assert body.wait(10_000) == []
    body.watch.is_awaited = True
    assert body.wait(18) == []
    assert body.wait(2) == ["idle_timeout"]


def test_the_total_passes_however_much_comes(body: Body) -> None:
    body.watch.is_awaited = True
    body.watch.end_by(body.now + 30, 45)
    for _ in range(29):
        body.body_bytes += 1
        assert body.wait(1) == []
    body.body_bytes += 1
    assert body.wait(1) == ["timeout"]
    assert body.errors[0].message == "the provider did not finish within 45 s"


def test_a_limit_passes_once_and_not_after_the_end(body: Body) -> None:
    body.watch.is_awaited = True
    assert body.wait(10_000) == ["first_byte_timeout"]
    body.watch.end_by(body.now, 1)
    assert body.wait(10_000) == ["first_byte_timeout"]
    assert all(timer.is_cancelled for _, timer in body.timers)


def test_nothing_is_looked_at_after_stop(body: Body) -> None:
    body.watch.is_awaited = True
    body.watch.stop()
    body.watch.stop()
    assert body.wait(10_000) == []


def test_short_limits_are_kept_to_the_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    body = Body(monkeypatch, Limits(first_byte=10, idle=0.4))
    body.watch.is_awaited = True
    body.body_bytes = 1
    assert body.wait(0.4) == []
    assert body.wait(0.1 + 1e-6) == ["idle_timeout"]
