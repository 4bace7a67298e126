"""Check that names and prose use the field's terms.

    python tools/names.py

A name that stands for many things cannot be searched for, guessed, or translated. So no name that the project defines
contains one of `REFUSED_WORDS`, or consists of one of `REFUSED_NAMES`; and no docstring or comment contains one of
`REFUSED_IN_PROSE`. docs/glossary.md has the terms to use. A line of a docstring that is not indented has no two gaps of
spaces: such a line is from a table whose rows a formatter has joined. The exit status is 1 if there is such a name or
text.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tools", "tests", "bench", "examples")

_ABOUT_PEOPLE = ("anybody", "nobody", "somebody", "whoever", "whom")
REFUSED_WORDS = frozenset({"anew", "asked", "beside", "heard", "said", "tell", "telling", "told", *_ABOUT_PEOPLE})
"""Words that no identifier contains, as in `tell_all` and `isAsked`."""

REFUSED_NAMES = frozenset({"found", "given", "kept"})
"""Words that are no identifier by themselves. `found_at` is one: it names what it is."""

REFUSED_IN_PROSE = frozenset({"anew", "beside", "told", *_ABOUT_PEOPLE})

_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[a-z]+")
_GAPS = re.compile(r"[^\s|].* {3,}\S.* {3,}\S")


class Finding(NamedTuple):
    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.message}"


def words_of(identifier: str) -> list[str]:
    """Split an identifier in snake case or camel case into its words, in lower case."""
    return [word.lower() for word in _CAMEL_CASE.sub("_", identifier).split("_") if word]


def refused_word(identifier: str) -> str | None:
    """Return the word for which an identifier is refused, or None if it is allowed."""
    words = words_of(identifier)
    if len(words) == 1 and words[0] in REFUSED_NAMES:
        return words[0]
    return next((word for word in words if word in REFUSED_WORDS), None)


def definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every name that a module defines, with its line: also parameters, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def docstrings(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Yield every docstring (also those of attributes), with its line and its indentation."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value, node.lineno, node.col_offset


def prose(source: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every comment and every docstring, with its line."""
    for text, line, _ in docstrings(tree):
        yield text, line
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string, token.start[0]


def check_names(path: Path, tree: ast.Module) -> Iterator[Finding]:
    yield from check_name(path, path.stem, 1)
    for name, line in definitions(tree):
        yield from check_name(path, name, line)


def check_name(path: Path, name: str, line: int) -> Iterator[Finding]:
    if word := refused_word(name):
        yield Finding(path, line, f"the name {name} contains '{word}': say what the thing is (docs/glossary.md)")


def check_prose(path: Path, source: str, tree: ast.Module) -> Iterator[Finding]:
    if REFUSED_IN_PROSE.isdisjoint(_WORD.findall(source.lower())):
        return  # most files; to find their comments takes long
    for text, start in prose(source, tree):
        for offset, line in enumerate(text.lower().split("\n")):
            for word in sorted(REFUSED_IN_PROSE.intersection(_WORD.findall(line))):
                yield Finding(path, start + offset, f"'{word}' in a docstring or comment: say who or what is meant")


def check_tables(path: Path, tree: ast.Module) -> Iterator[Finding]:
    """Find tables whose rows were joined. Tables are in indented blocks, or have a `|` at the start of each row."""
    for text, start, indentation in docstrings(tree):
        for offset, line in enumerate(text.split("\n")):
            if _GAPS.match(line[indentation:] if offset else line):
                yield Finding(path, start + offset, "a line with two gaps of spaces: write the table as a list")


def findings() -> Iterator[Finding]:
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        if any(part.startswith(".") for part in path.relative_to(ROOT).parts):
            continue  # an environment of a bench
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        yield from check_names(path, tree)
        yield from check_prose(path, source, tree)
        yield from check_tables(path, tree)


def main() -> int:
    status = 0
    for finding in findings():
        print(finding)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
