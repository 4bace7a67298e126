"""Globs match what micromatch matches, and no pattern exceeds its budget of steps."""

from __future__ import annotations

from contextlib import suppress
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes import jsonpath
from pellucid.envelopes.capability import HeldCapability, call_capability, decide, read_capability
from pellucid.envelopes.envelope import Envelope
from pellucid.envelopes.patterns import allows, glob_to_regex, read_pattern
from pellucid.envelopes.regex import Regex, RegexError, StepBudget, StepBudgetExceeded
from pellucid.errors import RequestError
from tests.cases import Cases

# --- globs: results of micromatch

MICROMATCH = [
    ("*", "a", True),
    ("*", "a/b", False),
    ("*", "", False),
    ("*", ".", False),
    ("**", "a/b", True),
    ("**", "..", False),
    ("/public/**", "/public", True),
    ("/public/**", "/public/", True),
    ("/public/**", "/public/a/b", True),
    ("/public/**", "/public/.env", False),
    ("/public/**", "/public/a/../x", False),
    ("foo**", "foo/bar", False),
    ("foo/**z", "foo/bar/baz", False),
    ("a/**/b", "a/b", True),
    ("a/**/b", "a/x/y/b", True),
    ("a/**/*", "a/b/c", True),
    ("a/**", "a//b", True),
    ("**/b", "b", True),
    ("**/b", "x/b", True),
    ("**/b", "xb", False),
    ("*.js", ".js", False),
    ("*.js", "a.js", True),
    ("?a", ".a", False),
    ("*?", ".", False),
    ("mcp/**", "mcp", True),
    ("mcp/*", "mcp/", False),
    ("read_*", "read_", True),
    ("delete_*", "delete_x/", False),
    ("a*", "a.b", True),
    ("a?", "a", False),
    ("?", "/", False),
    ("a*", "a\nb", True),
    ("a\\*", "a*", True),
    ("a\\*", "ab", False),
]


def test_a_glob_matches_what_micromatch_matches() -> None:
    with Cases() as case:
        for source, text, expected in MICROMATCH:
            with case(f"{source} matches {text!r}"):
                assert Regex(glob_to_regex(source)).matches(text, StepBudget(1000)) is expected


_GLOBS = st.text("*?/.ab", max_size=7)
_PATHS = st.text("/.ab", max_size=7)


@given(_GLOBS, _PATHS)
def test_a_loose_glob_matches_what_the_strict_one_matches(source: str, text: str) -> None:
    """Negations use loose globs, so that a negation denies whatever the glob allows."""
    if Regex(glob_to_regex(source)).matches(text, StepBudget(10_000)):
        assert Regex(glob_to_regex(source, loose=True)).matches(text, StepBudget(10_000))


@given(_GLOBS, _PATHS)
def test_wildcards_do_not_match_hidden_segments(source: str, text: str) -> None:
    hidden = {segment for segment in text.split("/") if segment.startswith(".")}
    if not any(segment.startswith(".") for segment in source.split("/")) and hidden:
        assert not Regex(glob_to_regex(source)).matches(text, StepBudget(10_000))


# --- bounded time

EVIL = ["/^(a+)+$/", "/(a|a)*$/", "/(a|aa)+$/", "/^(([a-z])+.)+[A-Z]([a-z])+$/", "/(.*a){20}/", "/(a|b)*a(a|b){60}$/"]
EVIL += ["*a*a*a*a*a*a*a*b", "**/a/**/a/**/a/**/a/**/b", "!*a*a*a*a*a*a*b", "/(a?){100}a{100}/"]


@pytest.mark.parametrize("pattern", EVIL)
def test_a_pathological_pattern_ends(pattern: str) -> None:
    with Cases() as case:
        for text in ("a" * 30_000 + "!", "a/" * 15_000, "ab" * 15_000, "aab/" * 250_000):
            with case(f"{len(text)} characters"):
                steps = StepBudget(100_000)
                compiled = read_pattern(pattern, "x")
                began = thread_time()
                try:
                    allows(compiled, text, steps)
                except StepBudgetExceeded:
                    assert steps.remaining < 0
                assert thread_time() - began < 5, "CPU seconds of this thread; it is some 0.05"


def test_a_match_beyond_the_step_budget_is_undecided() -> None:
    envelope = Envelope(id="e", ts=0, sender="a", kind="chat", payload={"text": "ab" * 100_000})
    for pattern in ("/.{100}x/", "!/.{100}x/"):
        capability = read_capability({"kind": "chat", "payload": {"text": pattern}})
        assert decide([HeldCapability(capability, "door")], envelope).why == "undecided"


@given(st.text("a|()*+?{}[]^$\\.-,1d\ud800", max_size=12))
def test_any_expression_is_compiled_or_refused(source: str) -> None:
    with suppress(RegexError):
        Regex(source).matches("aa-1", StepBudget(100_000))


def test_invalid_unicode_is_allowed_by_no_pattern() -> None:
    envelope = Envelope(id="e", ts=0, sender="a", kind="chat", payload={"text": "half \ud800"})
    for pattern in ("/half/", "!/half/", "h*", "!h*"):
        capability = read_capability({"kind": "chat", "payload": {"text": pattern}})
        assert decide([HeldCapability(capability, "door")], envelope).why == "undecided"


def test_a_deep_search_in_a_large_payload_ends() -> None:
    payload: object = "x"
    for _ in range(900):
        payload = {"a": payload, "b": [payload] * 3}
    pattern = read_pattern({"**": {"**": {"$..a..b..*": "y"}}}, "payload")
    with pytest.raises(StepBudgetExceeded):
        allows(pattern, payload, StepBudget(100_000))


@given(st.text("$.[]'*0-ab?", max_size=12))
def test_any_jsonpath_is_parsed_or_refused(source: str) -> None:
    try:
        path = jsonpath.parse("$" + source)
    except jsonpath.PathSyntaxError:
        return
    jsonpath.select(path, {"a": [{"b": 1}, {"a": 2}], "b": {"a": {}}}, StepBudget(10_000))


# --- the capability for one call


@pytest.mark.parametrize(
    "payload",
    [
        {"method": "*"},
        {},
        {"method": "tools/call"},
        {"method": "tools/call", "params": {}},
        *({"method": "tools/call", "params": {"name": name}} for name in ("*", "/.*/", "!x", "a?", "!", "read_*", 7)),
        {"method": "resources/read", "params": {"uri": "**"}},
        {"method": "resources/read", "params": {"uri": ["a", "b"]}},
        {"method": "resources/read", "params": {"**": "a"}},
        {"method": "resources/read", "params": {"$.x": "a"}},
        {"method": "resources/read", "params": {"u*": "a"}},
    ],
)
def test_a_call_whose_texts_would_be_patterns_is_not_granted(payload: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        call_capability(Envelope(id="p", ts=0, sender="eve", kind="mcp/proposal", payload=payload))


_names = st.text(max_size=8) | st.text("*?!/a\\[]{}()$.", max_size=6)
_calls = st.builds(lambda name: {"method": "tools/call", "params": {"name": name}}, _names) | st.builds(
    lambda method, params: {"method": method, "params": params},
    _names,
    st.dictionaries(_names, st.recursive(_names | st.integers(), lambda inner: st.dictionaries(_names, inner))),
)


@given(_calls, _calls)
def test_a_capability_for_a_call_allows_no_other_call(call: dict[str, Any], other: dict[str, Any]) -> None:
    def of(payload: dict[str, Any]) -> Envelope:
        return Envelope(id="p", ts=0, sender="eve", kind="mcp/request", payload=payload)

    try:
        held = [HeldCapability(read_capability(call_capability(of(call))), "grant")]
    except RequestError:
        return
    assert decide(held, of(call)).allowed
    assert not decide(held, of(other)).allowed or _contains(other, call)


def _contains(wide: Any, narrow: Any) -> bool:
    if isinstance(wide, dict) and isinstance(narrow, dict):
        return all(key in wide and _contains(wide[key], value) for key, value in narrow.items())
    return bool(wide == narrow)
