"""Leases: one holder at a time, increasing tokens, and no append with an old token after a new claim."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.relay import FencedError, Relay
from tests.relay.relay_kit import Replicas, new_name, read_all

steps = st.lists(
    st.tuples(
        st.sampled_from(["claim", "claim", "take over", "renew", "release", "append", "append"]),
        st.sampled_from(["ann", "bob", "cid"]),
        st.sampled_from([0.0, 100.0]),  # it expires at once, or not within this test
        st.integers(0, 100),
    ),
    max_size=30,
)


@given(steps=steps)
def test_leases_follow_the_model(replicas: Replicas, steps: list[tuple[str, str, float, int]]) -> None:
    """Compare with a simple model; above all, an append with an older token never succeeds after a newer claim."""

    async def scene() -> None:
        name, tokens, written = new_name(), list[int](), list[bytes]()
        holder, live = "", False
        for number, (verb, claimer, seconds, pick) in enumerate(steps):
            relay = replicas.one if number % 2 else replicas.two
            token = tokens[pick % len(tokens)] if tokens else 1
            newest = bool(tokens) and token == tokens[-1]
            if verb in ("claim", "take over"):
                lapsed = verb == "take over"
                may = bool(holder) and not live if lapsed else not (live and holder != claimer)
                new_token = await relay.claim(name, claimer, seconds, lapsed=lapsed)
                assert (new_token is not None) == may
                if new_token is not None:
                    assert new_token > max(tokens, default=0)
                    tokens.append(new_token)
                    holder, live = claimer, seconds > 0
            elif verb == "renew":
                may = newest and bool(holder)
                assert await relay.renew(name, token, seconds) == may
                live = seconds > 0 if may else live
            elif verb == "release":
                await relay.release(name, token)
                holder, live = ("", False) if newest else (holder, live)
            elif tokens:
                try:
                    await relay.append(name, [b"%d" % token], token)
                except FencedError:
                    assert not newest
                else:
                    assert newest
                    written.append(b"%d" % token)
            assert (name in await relay.lapsed_leases(limit=10_000)) == (bool(holder) and not live)
        if tokens:
            await replicas.one.append(name, [], tokens[-1], last=True)
            assert await read_all(replicas.two.follow(name)) == written == sorted(written, key=int)
            await replicas.one.release(name, tokens[-1])

    replicas.run(scene())


def test_one_of_many_survivors_takes_over(replicas: Replicas) -> None:
    async def scene() -> None:
        name = new_name()
        first = await replicas.one.claim(name, "dead", 0)
        assert first is not None

        async def try_to_take_over(relay: Relay, holder: str) -> int | None:
            if name not in await relay.lapsed_leases(limit=10_000):
                return None
            token = await relay.claim(name, holder, 10, lapsed=True)
            if token is not None:  # it releases the lease while others still try to claim it
                await relay.append(name, [b"failed"], token, last=True)
                await relay.release(name, token)
            return token

        tries = [try_to_take_over(relay, f"{number}") for number in range(20) for relay in (replicas.one, replicas.two)]
        won = [token for token in await asyncio.gather(*tries) if token is not None]
        assert len(won) == 1
        with pytest.raises(FencedError):
            await replicas.two.append(name, [b"I am back"], first)
        assert await read_all(replicas.two.follow(name)) == [b"failed"]

    replicas.run(scene())


def test_expired_leases_are_listed_oldest_first(replicas: Replicas) -> None:
    async def scene() -> None:
        names = [new_name() for _ in range(3)]
        for name, seconds in zip(names, (1.2, 1.1, 1.0), strict=True):
            assert await replicas.one.claim(name, "a", seconds)
        assert not set(names) & set(await replicas.two.lapsed_leases())
        assert await replicas.two.claim(names[0], "b", 1) is None
        await replicas.let_pass(1.3)
        assert [name for name in await replicas.two.lapsed_leases() if name in names] == names[::-1]
        assert len(await replicas.two.lapsed_leases(limit=1)) == 1
        assert await replicas.two.lapsed_leases(names[0], limit=1) == names[:1]
        assert await replicas.two.lapsed_leases("nobody's") == []
        for name in names:
            assert await replicas.two.claim(name, "b", 100)
        assert not set(names) & set(await replicas.one.lapsed_leases())

    replicas.run(scene())


def test_a_renewed_lease_does_not_expire(replicas: Replicas) -> None:
    async def scene() -> None:
        name = new_name()
        token = await replicas.one.claim(name, "a", 1.5)
        assert token is not None
        for _ in range(3):
            await replicas.let_pass(0.75)
            assert await replicas.one.renew(name, token, 1.5)
            assert await replicas.two.claim(name, "b", 1) is None

    replicas.run(scene())
