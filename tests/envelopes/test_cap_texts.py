"""Regular expressions and globs against those they must mean the same as, and within the steps they have."""

from __future__ import annotations

import re
from contextlib import suppress
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes import globs, jsonpath, regex
from pellucid.envelopes.automaton import Automaton, OutOfSteps, Steps
from pellucid.envelopes.capability import Held, decide, read_capability
from pellucid.envelopes.envelope import Envelope
from pellucid.envelopes.patterns import allows, read
from tests.cases import Cases

# --- regular expressions mean what Python's mean, where both languages have them

_ATOMS = st.sampled_from(
    ["a", "b", ".", "\\.", "[ab]", "[^a]", "[a-c]", "\\d", "\\w", "\\S", "[^\\s/]", "/", "{", "[b-]"]
)


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = inner.map(lambda text: f"(?:{text})")
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda texts: f"(?:{'|'.join(texts)})"),
        st.builds(lambda text, how: text + how, group, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{0,}"])),
    )


_BODIES = st.recursive(_ATOMS, _wider, max_leaves=8)
_EXPRESSIONS = st.builds(
    lambda before, body, after: (f"{before}{body}{after[0]}", f"{before}(?:{body}){after[1]}"),
    st.sampled_from(["", "^"]),
    _BODIES,
    st.sampled_from([("", ""), ("$", "\\Z")]),
)
_TEXTS = st.text("abc/.0{- \n", max_size=8)


@given(_EXPRESSIONS, st.lists(_TEXTS, min_size=1, max_size=8))
def test_a_regular_expression_finds_what_pythons_finds(both: tuple[str, str], texts: list[str]) -> None:
    ours = Automaton(regex.parse(both[0]))
    theirs = re.compile(both[1], re.ASCII)
    for text in texts:
        assert ours.matches(text, Steps(100_000)) is bool(theirs.search(text)), text


FINDS: list[tuple[str, list[str], list[str]]] = [
    ("", ["", "x"], []),
    ("^$", [""], ["x"]),
    ("(^a|b$)", ["ax", "xb"], ["xa", "bx"]),
    ("^(|x)y", ["y", "xy"], ["zy"]),
    ("(^|,)a", ["a", "b,a"], ["ba"]),
    ("[]", [], ["", "a"]),
    ("[^]", ["\n"], [""]),
    ("\\x41\\u0042", ["AB"], ["ab"]),
    ("[\\]\\-x]", ["]", "-"], ["\\"]),
    ("a{,2}", ["a{,2}"], ["aa"]),
    ("(?<name>a)b", ["ab"], ["b"]),
    ("^.$", ["é", "思", "🙂"], ["\n", "\u2028"]),
]


def test_a_regular_expression_finds() -> None:
    with Cases() as case:
        for source, yes, no in FINDS:
            with case(source):
                found = Automaton(regex.parse(source))
                assert [text for text in (*yes, *no) if found.matches(text, Steps(1000))] == yes


REFUSED = [
    "a**",
    "*a",
    "a|*",
    "(",
    ")",
    "(a",
    "a)",
    "[",
    "[a",
    "[b-a]",
    "\\",
    "\\b",
    "\\B",
    "\\1",
    "\\k<a>",
    "\\p{L}",
    "\\q",
]
REFUSED += [
    "(?!a)",
    "(?<=a)b",
    "(?<!a)b",
    "a{2,1}",
    "a{9999}",
    "a^",
    "a$b",
    "(^a)*",
    "(a*^b)",
    "\\x4",
    "\\u12",
    "(" * 99,
]


def test_what_cannot_be_decided_is_refused_in_words() -> None:
    with Cases() as case:
        for source in REFUSED:
            with case(source):
                with pytest.raises(regex.NotRegular) as caught:
                    regex.parse(source)
                assert str(caught.value)


@given(st.text("a|()*+?{}[]^$\\.-,1d", max_size=12))
def test_any_text_is_read_or_refused(source: str) -> None:
    with suppress(regex.NotRegular):
        Automaton(regex.parse(source)).matches("aa-1", Steps(100_000))


# --- globs: what micromatch says of them

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
                assert Automaton(globs.parse(source)).matches(text, Steps(1000)) is expected


_GLOBS = st.text("*?/.ab", max_size=7)
_PATHS = st.text("/.ab", max_size=7)


@given(_GLOBS, _PATHS)
def test_what_is_let_in_is_never_let_out(source: str, text: str) -> None:
    """Whatever a glob allows, its negation denies."""
    if Automaton(globs.parse(source)).matches(text, Steps(10_000)):
        assert Automaton(globs.parse(source, loose=True)).matches(text, Steps(10_000))


@given(_GLOBS, _PATHS)
def test_a_wildcard_never_lets_a_hidden_segment_in(source: str, text: str) -> None:
    hidden = {segment for segment in text.split("/") if segment.startswith(".")}
    if not any(segment.startswith(".") for segment in source.split("/")) and hidden:
        assert not Automaton(globs.parse(source)).matches(text, Steps(10_000))


# --- nobody waits

EVIL = ["/^(a+)+$/", "/(a|a)*$/", "/(a|aa)+$/", "/^(([a-z])+.)+[A-Z]([a-z])+$/", "/(.*a){20}/", "/(a|b)*a(a|b){60}$/"]
EVIL += ["*a*a*a*a*a*a*a*b", "**/a/**/a/**/a/**/a/**/b", "!*a*a*a*a*a*a*b", "/(a?){100}a{100}/"]


@pytest.mark.parametrize("pattern", EVIL)
def test_a_pathological_pattern_ends(pattern: str) -> None:
    with Cases() as case:
        for text in ("a" * 30_000 + "!", "a/" * 15_000, "ab" * 15_000, "aab/" * 250_000):
            with case(f"{len(text)} characters"):
                steps = Steps(100_000)
                compiled = read(pattern, "x")
                begun = thread_time()
                try:
                    allows(compiled, text, steps)
                except OutOfSteps:
                    assert steps.left < 0
                assert thread_time() - begun < 5, "CPU seconds of this thread; it is some 0.05"


def test_what_takes_too_long_is_denied_whichever_way_it_is_written() -> None:
    envelope = Envelope(id="e", ts=0, sender="a", kind="chat", payload={"text": "ab" * 100_000})
    for pattern in ("/(a|b)*a(a|b){60}$/", "!/(a|b)*a(a|b){60}$/"):
        capability = read_capability({"kind": "chat", "payload": {"text": pattern}})
        assert decide([Held(capability, "door")], envelope).why == "undecided"


def test_a_decision_costs_the_same_the_second_time() -> None:
    automaton = Automaton(regex.parse("(a|b)*a(a|b){5}$"))
    costs = []
    for _ in range(2):
        steps = Steps(100_000)
        automaton.matches("abba" * 50, steps)
        costs.append(steps.left)
    assert costs[0] == costs[1]


def test_looking_anywhere_in_a_great_payload_ends() -> None:
    payload: object = "x"
    for _ in range(900):
        payload = {"a": payload, "b": [payload] * 3}
    pattern = read({"**": {"**": {"$..a..b..*": "y"}}}, "payload")
    with pytest.raises(OutOfSteps):
        allows(pattern, payload, Steps(100_000))


@given(st.text("$.[]'*0-ab?", max_size=12))
def test_any_jsonpath_is_followed_or_refused(source: str) -> None:
    try:
        path = jsonpath.parse("$" + source)
    except jsonpath.NotPath:
        return
    jsonpath.select(path, {"a": [{"b": 1}, {"a": 2}], "b": {"a": {}}}, Steps(10_000))
