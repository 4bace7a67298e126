"""The grammars of custom tools are checked in a bounded time, whatever a client sends."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.protocols.openresponses.grammars import MAX_WORK, NotDecided, read_grammar
from tests.openresponses.test_client_tools import request

PATCH_GRAMMAR = """
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

%import common.LF
"""
SUM = 'start: sum\n?sum: sum "+" sum | NUMBER\nNUMBER: "0".."9"+\n%ignore " "'


def permits(definition: str, text: str, syntax: str = "lark") -> bool | None:
    grammar, problem, _ = read_grammar(syntax, definition)
    assert problem == ""
    return None if grammar is None else grammar.permits(text)


@pytest.mark.parametrize(
    ("definition", "text", "is_permitted"),
    [
        (PATCH_GRAMMAR, "*** Begin Patch\n*** Add File: a\n+hi\n+\n*** Delete File: b\n*** End Patch\n", True),
        (PATCH_GRAMMAR, "*** Begin Patch\n*** Add File: a\n*** End Patch\n", False),
        (SUM, " 1 + 22+3 ", True),
        (SUM, "1 + + 2", False),
        ('start: "a"~2..3 ["b"]', "aab", True),
        ('start: "a"~2..3', "aaaa", False),
        ('start: ("a" | "b"i)* // x\n# y\n', "aBb", True),
        ('start: A?\nA.2: "a"\n  | /b\\/\\n/s', "b/\n", True),
        ('start: "\\"\\\\\\u00e9\\t" ', '"\\é\t', True),
        ("start: WORD\n%import common (WORD, INT -> I)", "1", False),
        ('start: \n | "a" start', "aaa", True),
        ('start: "" start "" | "a"', "a", True),
    ],
)
def test_a_text_is_checked(definition: str, text: str, is_permitted: bool) -> None:
    assert permits(definition, text) == is_permitted


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ("start: x", "'x'"),
        ("start: X", "'X'"),
        ('other: "a"', "'start'"),
        ('start: "a', "line 1"),
        ('start: "a"\nstart: "b"', "twice"),
        ('start: "a"\n)', "line 2"),
        ('start: ("a"', "line 1"),
        ("start: /(/", "missing )"),
        ('start: A\nA: A "a"', "itself"),
        ("start: A\nA: start", "rule"),
        ('start: "b".."a"', "range"),
        ('start: "\\ud800"', "character"),
    ],
)
def test_the_error_of_an_invalid_grammar_says_what_is_wrong(definition: str, says: str) -> None:
    assert says in read_grammar("lark", definition).problem


@pytest.mark.parametrize(
    ("syntax", "definition"),
    [
        ("lark", "start: item{x}"),
        ("lark", "start: A\n%import .other.A"),
        ("lark", 'start: A\nA: "a" & /b/'),
        ("lark", 'start: A\nA: ~"a"'),
        ("lark", 'start: "a"~1..1000000'),
        ("lark", "start: /(?=a)/"),
        ("regex", "(?x) a"),
        ("regex", "a{5000}"),
        ("regex", "\\u1234"),
    ],
)
def test_what_is_not_known_here_is_accepted_and_not_checked(syntax: str, definition: str) -> None:
    assert permits(definition, "x", syntax) is None


HOSTILE = {
    "ambiguous": 'start: start start | "a" | ',
    "empty": 'start: x x x x x x x x\nx: | x x | "a"',
    "many symbols": "start: " + "r " * 3000 + '\nr: "a" | ',
    "long chain": "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(3000)) + '\nr3000: "a"',
    "doubled": "start: A0\n" + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(300)) + '\nA300: "a"',
    "nested repeats": "start: " + "(" * 9 + '"a"' + "~1..100)" * 9,
    "parentheses": "start: " + "(" * 5000 + '"a"' + ")" * 5000,
    "expressions": "start: " + " ".join(f"/x{i}.*y|(a|b)*a(a|b){{60}}/" for i in range(500)),
    "right recursion": 'start: "a" start | "a"',
    "endless": "start: " + "|".join(f'"{i}"' for i in range(15_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_takes_a_bounded_time(name: str) -> None:
    began = time.thread_time()
    grammar, problem, _ = read_grammar("lark", HOSTILE[name])
    assert problem == ""
    for text in ("a" * 30_000, "ab" * 15_000, "a" * 50):
        with contextlib.suppress(NotDecided):
            assert grammar is None or grammar.permits(text) in (True, False)
    assert time.thread_time() - began < 5, "CPU seconds of this thread; it is some 0.1"


@given(st.text(alphabet='startabAB:|()[]?*+~"/\\.%\n 12', max_size=60))
def test_any_text_is_a_grammar_or_an_error(definition: str) -> None:
    for grammar, problem, _ in (read_grammar("lark", definition), read_grammar("lark", f"start: {definition}")):
        if grammar is not None:
            assert problem == ""
            assert grammar.permits("aab") in (True, False)


def test_ten_thousand_grammars_take_as_much_work_as_one() -> None:
    tools = [
        {
            "type": "custom",
            "name": f"t{i}",
            "format": {"type": "grammar", "syntax": "regex", "definition": f"a{i}.*" * 99},
        }
        for i in range(10_000)
    ]
    already_read = read_grammar.cache_info().misses
    request(tools=tools)
    work_of_one = read_grammar("regex", "a0.*" * 99).work
    assert 1 < read_grammar.cache_info().misses - already_read <= MAX_WORK / work_of_one + 2
    broken = {"type": "grammar", "syntax": "regex", "definition": "("}
    with pytest.raises(RequestError):
        request(tools=[{"type": "custom", "name": "x", "format": broken}, *tools])
