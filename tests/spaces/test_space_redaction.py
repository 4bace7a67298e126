"""Matches of the operator's patterns are not judged, stored or delivered; and no pattern blocks the space."""

from __future__ import annotations

import asyncio
import re
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes import EnvelopeError
from pellucid.errors import RequestError
from pellucid.spaces.runtime.redaction import PatternFinder
from pellucid.spaces.runtime.settings import read_settings
from tests.spaces.space_kit import frame, join_space, opened, whole_log
from tests.waiting import eventually

parts = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "ab"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        inner.map(lambda one: f"(?:{one})*"),
        inner.map(lambda one: f"(?:{one})?"),
        inner.map(lambda one: f"(?:{one}){{1,3}}"),
    ),
    max_leaves=5,
)


@given(source=parts, text=st.text(alphabet="abc", max_size=12))
def test_the_leftmost_longest_match_is_found(source: str, text: str) -> None:
    """Compared with Python's engine, which is applied at every position."""
    pattern = re.compile(source)
    if pattern.fullmatch(""):
        with pytest.raises(ValueError, match="everywhere"):
            PatternFinder(source)
        return
    expected, at = [], 0
    while at < len(text):
        ends = [end for end in range(len(text), at, -1) if pattern.fullmatch(text, at, end)]
        if ends:
            expected.append((at, ends[0]))
        at = ends[0] if ends else at + 1
    assert PatternFinder(source).spans(text) == expected


@pytest.mark.parametrize("source", ["(a*)*b", "(a|aa)+c", "a.*b|a", "([a-z]+)+@", "(x+x+)+y", "(.{0,100}a){4}b"])
def test_every_pattern_finishes_in_time(source: str) -> None:
    """The search succeeds or gives up in time."""
    for text in ("a" * 20_000, "xa" * 10_000, "ab@" * 5_000):
        PatternFinder(source).spans(text)


def test_a_search_out_of_time_redacts_everything() -> None:
    seconds = count()
    finder = PatternFinder("a.*b|a", clock=lambda: float(next(seconds)))
    assert finder.spans("a" * 500) is None
    assert PatternFinder("(.{0,100}a){4}b").spans("a" * 50_000) is None
    assert finder.spans("half \ud800") is None
    assert finder.spans("a" * 50) == [(n, n + 1) for n in range(50)]


@pytest.mark.parametrize("pattern", ["a*", "(", "^", r"(.)\1", "(?=a)"])
def test_an_unsupported_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_settings({"redact": [{"name": "ok", "pattern": "x"}, {"name": "no", "pattern": pattern}]})
    assert refused.value.info.param == "settings.redact[1].pattern"


def test_redacted_text_is_neither_delivered_nor_stored() -> None:
    """Not in payloads, their keys, unknown fields, or resends."""
    secret = "sk-0123456789abcdef"

    async def scene() -> None:
        redact = [{"name": "key", "pattern": "sk-[0-9a-f]{8,}"}]
        async with opened(settings={"redact": redact}) as (_, space, _store):
            bob, mine = await join_space(space, "bob")
            _, others = await join_space(space, "ada")
            envelope = frame(
                "chat",
                {"text": f"use {secret}!", secret: [{"deep": secret}]},
                id="m",
                context={"topic": secret},
                more={"token": secret},
            )
            await bob.receive(envelope)
            await bob.receive(envelope)
            await eventually(lambda: len(mine.of("chat")) == 2)
            assert len({one["seq"] for one in mine.of("chat")}) == 1
            assert mine.of("chat")[0]["payload"]["text"] == "use [redacted:key]!"
            for names in ({"id": secret}, {"context": f"a/{secret}"}, {"id": "n", "context": secret}):
                await bob.receive(frame("chat", {"text": "a"}, **names))
            await eventually(lambda: len(mine.of("system/error")) == 3)
            assert {one["payload"]["code"] for one in mine.of("system/error")} == {"redacted_name"}
            assert [one.get("correlation_id") for one in mine.of("system/error")] == [None, None, ["n"]]
            log = await whole_log(space)
            assert log[-1].note.count(b'"redacted":["key"]') == 1
            everything = b"".join([repr(log).encode(), *(one.text for one in mine.frames + others.frames)])
            assert secret.encode() not in everything

    asyncio.run(scene())


def test_an_envelope_with_a_match_in_a_name_is_refused() -> None:
    secret = "sk-0123456789abcdef"

    async def scene() -> None:
        async with opened(settings={"redact": [{"name": "key", "pattern": "sk-[0-9a-f]{8,}"}]}) as (_, space, _store):
            _, others = await join_space(space, "dee")
            named: list[dict[str, Any]] = [
                {"id": secret},
                {"kind": f"chat/{secret}"},
                {"to": ["dee", secret]},
                {"correlation_id": ["m", secret]},
                {"context": f"a/{secret}"},
            ]
            for fields in named:
                with pytest.raises(EnvelopeError) as refused:
                    await space.post("ada", frame(**{"kind": "chat", "payload": {"text": "a"}, **fields}))
                assert (refused.value.info.code, refused.value.info.param) == ("redacted_name", next(iter(fields)))
                assert secret not in refused.value.info.message
            everything = b"".join([repr(await whole_log(space)).encode(), *(one.text for one in others.frames)])
            assert secret.encode() not in everything

    asyncio.run(scene())


def test_an_id_that_the_gateway_generated_can_be_answered_whatever_the_patterns_are() -> None:
    async def scene() -> None:
        async with opened(settings={"redact": [{"name": "number", "pattern": "[0-9a-f]{4,}"}]}) as (_, space, _store):
            started = (await space.post("bob", frame("reasoning/start", {"message": "hm"}))).stored.envelope
            await space.post("bob", frame("reasoning/thought", {"message": "hm"}, context=started.id))
            await space.post("ada", frame("chat", {"text": "why?"}, correlation_id=[started.id]))
            with pytest.raises(EnvelopeError):
                await space.post("ada", frame("chat", {"text": "why?"}, correlation_id=["r-20261129"]))

    asyncio.run(scene())
