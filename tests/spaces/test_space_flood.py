"""Rate limits of a space: excess envelopes are refused and not stored, and a continuous flood closes the session."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from time import monotonic

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes import close_codes
from pellucid.errors import PellucidError
from pellucid.spaces.runtime import ingest, session
from pellucid.spaces.runtime.ingest import QUIET_SECONDS, FloodLimiter
from pellucid.spaces.runtime.settings import FloodLimits, Rate
from tests.examples import by_circle
from tests.spaces.space_kit import chat, frame, join_space, opened, whole_log
from tests.waiting import eventually, loop_turns

ERRORS = FloodLimits().errors
LIMITS = FloodLimits(chat=Rate(per_second=10, burst=5), bytes=Rate(per_second=1000, burst=2000), patience=3)


@given(attempts=st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 600)), max_size=80))
def test_no_span_admits_more_than_burst_and_rate(attempts: list[tuple[float, int]]) -> None:
    """A refused envelope is accepted after `retry_after`."""
    rate_limiter, now = FloodLimiter(LIMITS), 1000.0
    taken: list[tuple[float, int]] = []
    for pause, size in attempts:
        now += pause
        try:
            rate_limiter.take("chat", size, now)
        except PellucidError as refused:
            now += refused.info.retry_after or 0
            rate_limiter.take("chat", size, now)
        taken.append((now, size))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            span = taken[last][0] - taken[first][0]
            assert last - first + 1 <= 5 + 10 * span + 1e-6
            assert sum(size for _, size in taken[first : last + 1]) <= 2000 + 1000 * span + 1e-6


def test_families_have_separate_limits() -> None:
    rate_limiter = FloodLimiter(LIMITS)
    for _ in range(5):
        rate_limiter.take("chat", 1, 0.0)
    with pytest.raises(PellucidError):
        rate_limiter.take("chat", 1, 0.0)
    rate_limiter.take("mcp", 1, 0.0)
    rate_limiter.take("unheard", 1, 0.0)


def test_patience_is_exceeded_by_continuous_floods_only() -> None:
    rate_limiter, now = FloodLimiter(LIMITS), 0.0

    def send_for(seconds: float) -> None:
        nonlocal now
        until_ = now + seconds
        while now < until_:
            now += 0.01
            with contextlib.suppress(PellucidError):
                rate_limiter.take("chat", 1, now)

    send_for(2.5)
    assert not rate_limiter.exceeds_patience(now)
    now += QUIET_SECONDS + 1
    send_for(2.5)
    assert not rate_limiter.exceeds_patience(now)
    send_for(1.5)
    assert rate_limiter.exceeds_patience(now)


@given(
    sent=st.lists(
        st.tuples(st.floats(0, 0.3), st.sampled_from(["chat", "mcp"]), st.integers(1, 1_500)), min_size=50, max_size=150
    ),
    at_once=st.integers(1, 4),
)
def test_who_waits_for_retry_after_never_exceeds_patience(sent: list[tuple[float, str, int]], at_once: int) -> None:
    """Also if it has a few messages in flight before it knows of a refusal."""
    rate_limiter, now = FloodLimiter(msgspec.structs.replace(LIMITS, patience=1)), 0.0
    while sent:
        refused, wait = [], 0.0
        now += sent[0][0]
        for message in sent[:at_once]:
            try:
                rate_limiter.take(message[1], message[2], now)
            except PellucidError as error:
                refused.append((0.0, *message[1:]))
                wait = max(wait, error.info.retry_after or 0)
                assert not rate_limiter.exceeds_patience(now)
        sent = refused + sent[at_once:]
        now += wait


@given(rounds=st.lists(st.tuples(st.floats(0.01, 1), st.integers(12, 60), st.booleans()), min_size=1, max_size=20))
def test_what_is_accepted_in_between_does_not_excuse_a_flood(rounds: list[tuple[float, int, bool]]) -> None:
    limits = FloodLimits(chat=Rate(per_second=1, burst=1), mcp=Rate(per_second=1, burst=1), patience=3)
    rate_limiter, now, exceeded_at = FloodLimiter(limits), 0.0, float("inf")
    for seconds, count, sends_others in itertools.cycle(rounds):
        now += seconds
        for family in ["mcp"] * sends_others + ["chat"] * count:
            try:
                rate_limiter.take(family, 1, now)
            except PellucidError:
                if rate_limiter.exceeds_patience(now):
                    exceeded_at = min(exceeded_at, now)
        if now > 2 * limits.patience:
            break
    assert limits.patience < exceeded_at <= 2 * limits.patience


def test_a_session_that_waits_for_retry_after_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(ingest, "monotonic", lambda: now[0])
    monkeypatch.setattr(session, "monotonic", lambda: now[0])

    async def scene() -> None:
        limits = {"chat": {"per_second": 2, "burst": 1}, "patience": 5}
        async with opened(settings={"limits": limits}) as (_, space, _store):
            bob, sink = await join_space(space, "bob")
            refused = 0
            while now[0] < 1_020:
                await bob.receive(chat("!"))
                assert sink.closed is None
                errors = sink.of("system/error")[refused:]
                refused += len(errors)
                now[0] += sum(one["payload"]["retry_after"] for one in errors)
            assert refused >= 2 * 20 - 1

    asyncio.run(scene())


def test_a_flood_is_limited_and_does_not_disturb_others() -> None:
    """Excess envelopes are not stored; some refusals are sent, the others counted; other participants go on."""
    count = by_circle(2_500, 20_000)

    async def scene() -> None:
        async with opened(settings={"limits": {"reasoning": {"per_second": 50, "burst": 100}}}) as (_, space, _store):
            bob, mine = await join_space(space, "bob")
            ada, others = await join_space(space, "ada")
            await bob.receive(frame("reasoning/start", {}, id="r"))

            async def talk() -> None:
                for number in range(10):
                    await ada.receive(chat(str(number)))
                    await asyncio.sleep(0)

            begun = monotonic()
            talking = asyncio.create_task(talk())
            thought = frame("reasoning/thought", {"message": "…"}, context="r")
            for _ in range(count):
                await bob.receive(thought)
            await talking
            await eventually(lambda: len(others.of("chat")) == 10)

            def count_refusals() -> int:
                errors = mine.of("system/error")
                dropped: list[int] = [one["payload"].get("dropped", 0) for one in errors]
                return len(errors) + sum(dropped)

            await eventually(lambda: count_refusals() + len(others.of("reasoning/thought")) >= count)
            stored = [one for one in await whole_log(space) if one.envelope.kind == "reasoning/thought"]
            seconds = monotonic() - begun
            assert 99 <= len(stored) <= 100 + 50 * seconds
            assert len(mine.of("system/error")) <= ERRORS.burst + ERRORS.per_second * seconds + 1
            await eventually(lambda: count_refusals() >= count - len(stored))
            assert all(one["payload"]["retry_after"] >= 0 for one in mine.of("system/error"))
            assert mine.closed is None
            assert not others.errors

    asyncio.run(scene())


def test_a_continuous_flood_closes_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(ingest, "monotonic", lambda: now[0])

    async def scene() -> None:
        limits = {"chat": {"per_second": 1, "burst": 1}, "patience": 0.2}
        async with opened(settings={"limits": limits}) as (_, space, _store):
            bob, sink = await join_space(space, "bob")
            while sink.closed is None:
                await bob.receive(chat("!"))
                now[0] += 0.01
            assert 0.2 < now[0] - 1_000 < 0.3
            assert sink.closed[0] == close_codes.POLICY_VIOLATION
            await bob.leave()
            await space.catch_up()
            assert "bob" not in space._live.state.present_since

    asyncio.run(scene())


def test_unreadable_frames_are_rate_limited() -> None:
    async def scene() -> None:
        async with opened(settings={"limits": {"other": {"per_second": 1, "burst": 5}}}) as (_, space, _store):
            bob, sink = await join_space(space, "bob")
            for _ in range(10):
                await bob.receive(b"{")
            assert sink.errors == ["invalid_json"] * 5 + ["rate_limited"] * 5

    asyncio.run(scene())


def test_the_error_names_a_frame_that_cannot_be_read() -> None:
    """Its sender waits for an answer to this id."""
    deep = '{"a":' * 70 + "1" + "}" * 70
    cases: dict[str, bytes | str] = {
        "too_deep": f'{{"kind": "chat", "id": "too_deep", "payload": {deep}}}',
        "invalid_json": '{"kind": "chat", "id": "invalid_json", "payload": }',
        "too_large": chat("x" * 3_000, id="too_large"),
        "unknown_protocol": chat("x", id="unknown_protocol", protocol="smoke-signals"),
        "rate_limited": '{"kind": "chat", "id": "rate_limited", "payload": }',
    }

    async def scene() -> None:
        limits = {"other": {"per_second": 0.001, "burst": 4}, "frame_bytes": 2_000}
        async with opened(settings={"limits": limits}) as (_, space, _store):
            bob, sink = await join_space(space, "bob")
            for frame_text in cases.values():
                await bob.receive(frame_text)
            await eventually(lambda: len(sink.of("system/error")) == len(cases))
            errors = sink.of("system/error")
            assert [one["payload"]["code"] for one in errors] == list(cases)
            assert [one.get("correlation_id") for one in errors] == [[code] for code in cases]
            assert {one["payload"]["attempted_kind"] for one in errors} == {"chat"}

    asyncio.run(scene())


def test_contexts_and_connections_are_limited() -> None:
    async def scene() -> None:
        async with opened(settings={"limits": {"open_contexts": 2, "seats": 2}}) as (_, space, _store):
            bob, sink = await join_space(space, "bob")
            for number in range(3):
                await bob.receive(frame("reasoning/start", {}, id=f"r-{number}"))
            await eventually(lambda: sink.errors)
            assert sink.errors == ["too_many_contexts"]
            await join_space(space, "bob")
            with pytest.raises(PellucidError, match="connections"):
                await join_space(space, "bob")

    asyncio.run(scene())


def test_pending_envelopes_of_a_session_are_bounded() -> None:
    """The number of envelopes that are not judged yet is bounded."""

    async def scene() -> None:
        rates = {"reasoning": {"per_second": 1e6, "burst": 1e6}, "bytes": {"per_second": 1e12, "burst": 1e12}}
        async with opened(settings={"limits": rates}) as (_, space, _store):
            bob, _ = await join_space(space, "bob")
            await bob.receive(frame("reasoning/start", {}, id="r"))
            gate = asyncio.Event()
            real = space.writer._spaces.append

            async def append(append: object) -> object:
                await gate.wait()
                return await real(append)  # type: ignore[arg-type]

            space.writer._spaces = StoreWithAppend(space.writer._spaces, append)  # type: ignore[assignment]

            async def talk() -> None:
                for _ in range(5 * session.MAX_PENDING):
                    await bob.receive(frame("reasoning/thought", {"message": "x"}, context="r"))

            talking = asyncio.create_task(talk())
            await eventually(lambda: bob._pending_count == session.MAX_PENDING)
            await loop_turns(20)
            assert not talking.done()
            assert bob._pending_count == session.MAX_PENDING
            gate.set()
            await talking
            await space.catch_up()
            assert len(await whole_log(space)) > 5 * session.MAX_PENDING

    asyncio.run(scene())


class StoreWithAppend:
    def __init__(self, real: object, append: object) -> None:
        self._real = real
        self.append = append

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)
