"""Regular expressions in the source use only syntax that every supported CPython matches correctly."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pellucid

POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{\d*,?\d*\})\+")


def test_no_possessive_group() -> None:
    """CPython before 3.11.5, as in Debian 12, matches them incorrectly (python/cpython#106052): `(?>(?:…)*)` is
    equivalent, and works."""
    occurrences = [
        f"{path}:{node.lineno}: {node.value!r}"
        for path in Path(pellucid.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str | bytes)
        and POSSESSIVE_GROUP.search(node.value if isinstance(node.value, str) else node.value.decode("latin-1"))
    ]
    assert not occurrences
