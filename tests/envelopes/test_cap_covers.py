"""`covers` is true only if the pattern allows everything that the other one allows, and is true in the common cases."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes import Envelope
from pellucid.envelopes.capability import is_covered, read_capabilities, read_capability
from pellucid.envelopes.patterns import allows, covers, read_pattern
from pellucid.envelopes.regex import StepBudget, StepBudgetExceeded
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
