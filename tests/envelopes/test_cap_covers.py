"""`covers` is true only if the pattern allows everything that the other one allows, and is true in the common cases."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes import Envelope
from pellucid.envelopes.capability import (
    COVER_STEPS,
    MAX_EXCEPTIONS,
    is_covered,
    read_capabilities,
    read_capability,
    subtract,
)
from pellucid.envelopes.patterns import allows, are_disjoint, covers, read_pattern
from pellucid.envelopes.regex import StepBudget, StepBudgetExceeded
from pellucid.errors import RequestError
from tests.cases import Cases
from tests.examples import many

_WORDS = ["a", "b", "ab", "a/b", "b/a", "", ".a", "a/.b", "aa"]
_TEXTS = ["a", "b", "a*", "*", "**", "a/*", "a/**", "?", "!a", "!a*", "!b", "!!a*", "/a/", "/^a/", "/^a*$/", "!/b/"]
_SCALARS = st.sampled_from([1, True, None, 0])
_KEYS = st.sampled_from(["a", "b", "a*", "*", "**", "$.a", "$.a.b", "$[*]", "$..a"])

VALUES = st.recursive(
    st.one_of(st.sampled_from(_WORDS), _SCALARS),
    lambda inner: st.one_of(st.dictionaries(st.sampled_from("abc"), inner, max_size=3), st.lists(inner, max_size=2)),
    max_leaves=6,
)
PATTERNS = st.recursive(
    st.one_of(st.sampled_from(_TEXTS), _SCALARS),
    lambda inner: st.one_of(st.dictionaries(_KEYS, inner, max_size=2), st.lists(inner, max_size=3)),
    max_leaves=5,
)


def _steps() -> StepBudget:
    return StepBudget(200_000)


@many
@given(PATTERNS, PATTERNS, st.lists(VALUES, min_size=4, max_size=12))
def test_a_pattern_allows_what_a_covered_pattern_allows(wide: Any, narrow: Any, values: list[Any]) -> None:
    a, b = read_pattern(wide, "a"), read_pattern(narrow, "b")
    if covers(a, b, _steps()):
        for value in [*values, *_WORDS]:
            assert allows(a, value, _steps()) or not allows(b, value, _steps()), (wide, narrow, value)


@given(PATTERNS)
def test_every_pattern_covers_itself(written: Any) -> None:
    assert covers(read_pattern(written, "a"), read_pattern(written, "b"), _steps())


def test_a_text_pattern_covers_only_subsets() -> None:
    """If a pattern covers another one, it allows every text that the other one allows."""
    texts = [*_TEXTS, "a/b*", "a/b/*", "a/?b", "a/**/b", "a/.b/*", "a**", "a/***", "*a", "b/*", "!a/**", "!b?", "!ab"]
    short = ["", *(x + y + z + w for x in "ab/.c" for y in ["", *"ab/."] for z in ["", *"ab/."] for w in ["", *"b/."])]
    allowed = {text: {one for one in short if allows(read_pattern(text, "a"), one, _steps())} for text in texts}
    covered_count = 0
    with Cases() as case:
        for wide, narrow in itertools.product(texts, repeat=2):
            with case(f"{wide} covers {narrow}"):
                if covers(read_pattern(wide, "a"), read_pattern(narrow, "b"), _steps()):
                    covered_count += 1
                    assert allowed[narrow] <= allowed[wide]
    assert covered_count > len(texts), "each covers itself, and some cover others"


COVERS: list[tuple[Any, Any, bool]] = [
    ("*", "reasoning/*", True),
    ("reasoning/*", "*", False),
    ("reasoning/*", "reasoning/step", True),
    ("reasoning/*", "reasoning.start", True),
    ("reasoning/step", "reasoning/thought", True),
    ("reasoning/step", "reasoning/start", False),
    ("reasoning/step", "reasoning/*", False),
    ("mcp/**", "mcp/*", True),
    ("mcp/*", "mcp/**", False),
    ("mcp/**", "mcp/tools/read_*", True),
    ({"kind": "chat", "payload": {"a": "/b/**"}}, {"kind": "chat", "payload": {"a": "/b/c/*"}}, True),
    ({"kind": "chat", "payload": {"a": "/b/**"}}, {"kind": "chat", "payload": {"a": "/b/.c/*"}}, False),
    ("mcp/re*", "mcp/read_*", True),
    ("mcp/re*", "mcp/re*/x", False),
    ("*/request", "mcp/*", False),
    # a regular expression covers itself, and single texts
    ("/^mcp/", "/^mcp/", True),
    ("/^mcp/", "mcp/request", True),
    ("/^mcp/", "/^mcp\\/request$/", False),
    ("/^mcp/", "mcp/*", False),
    ("!chat", "mcp/request", True),
    ("!chat", "!*", True),
    ("!chat", "*", False),
    ({"kind": ["chat", "mcp/*"]}, {"kind": ["mcp/request", "chat"]}, True),
    ("mcp/request", {"kind": "mcp/request", "payload": {"method": "tools/call"}}, True),
    ({"kind": "mcp/request", "payload": {"method": "tools/call"}}, "mcp/request", False),
    ({"kind": "mcp/request", "payload": {}}, "mcp/request", True),
    (
        {"kind": "mcp/request", "payload": {"method": "tools/*"}},
        {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "x"}}},
        True,
    ),
    (
        {"kind": "mcp/request", "payload": {"params": {"name": "!delete_*"}}},
        {"kind": "mcp/request", "payload": {"params": {"name": ["read_*", "list"]}}},
        True,
    ),
    (
        {"kind": "mcp/request", "payload": {"params": {"name": "!delete_*"}}},
        {"kind": "mcp/request", "payload": {"params": {"name": "d*"}}},
        False,
    ),
    (
        {"kind": "mcp/request", "payload": {"params": {"name": "/^read_[a-z]+$/"}}},
        {"kind": "mcp/request", "payload": {"$.params.name": "read_file"}},
        True,
    ),
    ({"kind": "chat", "payload": {"par*": "x*"}}, {"kind": "chat", "payload": {"params": "xy"}}, True),
    ({"kind": "chat", "payload": {"**": "x*"}}, {"kind": "chat", "payload": {"a": {"b": "xy"}}}, True),
    ({"kind": "chat", "to": "b*"}, {"kind": "chat", "to": ["bob", "ben"]}, True),
    ({"kind": "chat", "to": "b*"}, "chat", False),
    ("chat", {"kind": "chat", "to": "bob"}, True),
    ({"kind": "chat", "payload": {"n": 1}}, {"kind": "chat", "payload": {"n": True}}, False),
    ({"kind": "chat", "payload": {"n": 1}}, {"kind": "chat", "payload": {"n": 1.0}}, True),
]


def test_capabilities_cover_narrower_ones() -> None:
    with Cases() as case:
        for wide, narrow, expected in COVERS:
            with case(f"{wide} covers {narrow}"):
                assert is_covered([read_capability(wide)], read_capability(narrow), _steps()) is expected


def test_several_capabilities_cover_a_list_together() -> None:
    held = read_capabilities(["chat", "mcp/request", "reasoning/start", "reasoning/step"])
    assert is_covered(held, read_capability({"kind": ["chat", "mcp/request"]}), _steps())
    assert is_covered(held, read_capability({"kind": ["reasoning/start", "reasoning/thought"]}), _steps())
    assert not is_covered(held, read_capability("reasoning/*"), _steps())


KINDS = ["chat", "chat/cancel", "mcp/request", "mcp/response", "reasoning/start", "reasoning/thought"]
CAPABILITIES = st.fixed_dictionaries(
    {
        "kind": st.one_of(
            st.sampled_from(["*", "chat", "chat**", "mcp/*", "!chat", "reasoning/*", "reasoning.step", "/^m/"]),
            st.lists(st.sampled_from(["chat", "mcp/request", "reasoning/start"]), min_size=1, max_size=2),
        )
    },
    optional={
        "payload": st.dictionaries(st.sampled_from(["a", "b", "*", "**", "$.a"]), PATTERNS, max_size=2),
        "to": st.sampled_from(["a", "a*", "!a", ["a", "b"]]),
    },
)
ENVELOPES = st.builds(
    lambda kind, payload, to: Envelope(id="e", ts=0, sender="s", kind=kind, payload=payload, to=tuple(to)),
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3),
    st.lists(st.sampled_from(["a", "b", "ab", "c"]), max_size=2),
)


@given(st.lists(CAPABILITIES, max_size=3), CAPABILITIES, st.lists(ENVELOPES, min_size=4, max_size=12))
def test_a_covered_capability_allows_only_what_a_holding_allows(
    held: list[Any], wanted: Any, envelopes: list[Envelope]
) -> None:
    holdings, one = read_capabilities(held), read_capability(wanted)
    if is_covered(holdings, one, _steps()):
        for envelope in envelopes:
            if one.allows(envelope, _steps()):
                assert any(capability.allows(envelope, _steps()) for capability in holdings)


def test_a_comparison_beyond_the_step_budget_is_not_covered() -> None:
    wide = read_capability({"kind": "chat", "payload": {"**": {"**": "x*"}}})
    narrow = read_capability({"kind": "chat", "payload": {f"{n}": {"a": {"b": "y"}} for n in range(60)}})
    with pytest.raises(StepBudgetExceeded):
        covers(wide.payload or read_pattern({}, "x"), narrow.payload or read_pattern({}, "x"), StepBudget(100))
    assert not is_covered([wide], narrow, StepBudget(100))


# --- exceptions


@many
@given(one=PATTERNS, other=PATTERNS, values=st.lists(VALUES, max_size=12))
def test_disjoint_patterns_share_no_value(one: Any, other: Any, values: list[Any]) -> None:
    first, second = read_pattern(one, "one"), read_pattern(other, "other")
    if are_disjoint(first, second, _steps()):
        assert are_disjoint(second, first, _steps())
        for value in (*_WORDS, *values):
            assert not (allows(first, value, _steps()) and allows(second, value, _steps())), value


_PARTS = ["chat", "mcp/*", "mcp/request", "reasoning/*", "*", ["chat", "mcp/proposal"], "!chat", "/^mcp/"]
_PAYLOADS: list[Any] = [
    None,
    {"method": "tools/*"},
    {"method": "!tools/call"},
    {"params": {"name": ["a", "b"]}},
    {"n": 1},
]
_TARGETS: list[Any] = [None, "bob", ["bob", "cat"], "!bob"]
_WRITTEN: list[dict[str, Any]] = [
    {"kind": kind} | ({} if payload is None else {"payload": payload}) | ({} if to is None else {"to": to})
    for kind in _PARTS
    for payload in _PAYLOADS
    for to in _TARGETS
]
_SENT = [
    Envelope(id="e", ts=0, sender="ann", kind=kind, payload=payload, to=to)
    for kind in ("chat", "mcp/request", "mcp/proposal", "reasoning/start", "x/y")
    for payload in ({}, {"method": "tools/call"}, {"method": "tools/list", "params": {"name": "a"}}, {"n": 1}, {"n": 2})
    for to in ((), ("bob",), ("cat",), ("bob", "cat"))
]


@given(written=st.sampled_from(_WRITTEN), removed=st.lists(st.sampled_from(_WRITTEN), min_size=1, max_size=3))
def test_what_is_left_allows_exactly_the_rest(written: dict[str, Any], removed: list[dict[str, Any]]) -> None:
    """And the capability covers what is left, while what is left covers nothing of what was removed."""
    whole, gone = read_capability(written), read_capabilities(removed)
    rest = subtract(whole, gone, StepBudget(COVER_STEPS))
    again = rest and read_capability(rest.written)
    assert again == rest
    for envelope in _SENT:
        allowed = [one.allows(envelope, StepBudget(10_000)) for one in (whole, *gone)]
        left = again is not None and again.allows(envelope, StepBudget(10_000))
        assert left == (allowed[0] and not any(allowed[1:])), envelope
        for one in gone:
            if again is not None and one.allows(envelope, StepBudget(10_000)) and allowed[0]:
                assert not is_covered([again], one, StepBudget(COVER_STEPS))
    if rest is not None:
        assert is_covered([whole], rest, StepBudget(COVER_STEPS))


@given(held=st.sampled_from(_WRITTEN), less=st.sampled_from(_WRITTEN), wanted=st.sampled_from(_WRITTEN))
def test_a_capability_with_an_exception_covers_no_more_than_it_allows(
    held: dict[str, Any], less: dict[str, Any], wanted: dict[str, Any]
) -> None:
    own, narrow = read_capability({**held, "except": [less]}), read_capability(wanted)
    if is_covered([own], narrow, StepBudget(COVER_STEPS)):
        for envelope in _SENT:
            if narrow.allows(envelope, StepBudget(10_000)):
                assert own.allows(envelope, StepBudget(10_000)), envelope


@pytest.mark.parametrize(
    ("written", "param"),
    [
        ({"kind": "*", "except": []}, "capability.except"),
        ({"kind": "*", "except": "chat"}, "capability.except"),
        ({"kind": "*", "except": ["chat"] * (MAX_EXCEPTIONS + 1)}, "capability.except"),
        ({"kind": "*", "except": [{"kind": "mcp/*", "except": ["chat"]}]}, "capability.except[0].except"),
        ({"kind": "*", "except": [{}]}, "capability.except[0]"),
    ],
)
def test_invalid_exceptions_are_refused(written: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_capability(written)
    assert (refused.value.info.code, refused.value.info.param) == ("invalid_capability", param)
