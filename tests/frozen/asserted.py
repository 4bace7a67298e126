"""The error codes in tests and docs, each with its locations."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"[a-z]+(_[a-z]+)+")


def codes_in_tests() -> dict[str, set[str]]:
    """Return the constants compared with an error's code, and the columns named `code` of parametrised tests."""
    codes: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            for value in _compared(node) if isinstance(node, ast.Compare) else _column(node):
                for one in ast.walk(value):
                    if isinstance(one, ast.Constant) and isinstance(one.value, str) and CODE.fullmatch(one.value):
                        codes[one.value].add(f"{path.relative_to(ROOT)}:{one.lineno}")
    return codes


def codes_in_docs() -> dict[str, set[str]]:
    """Return the columns named `code` of tables, the codes in examples, and those in the phrase "the code `x`"."""
    locations: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        column = None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
            column = column if cells else None
            names = [cell.strip("`") for cell in cells]
            if column is None and "code" in names:
                column = names.index("code")
            codes = re.findall(r"`([a-z_]+)`", cells[column]) if column is not None else []
            codes += re.findall(r"\bcode `([a-z_]+)`|`?\"?\bcode\"?(?::| ==) \"([a-z_]+)\"", line)
            for code in codes:
                locations[code if isinstance(code, str) else code[0] or code[1]].add(f"{path.name}:{number}")
    locations.pop("code", None)
    return locations


def _compared(node: ast.Compare) -> Iterator[ast.expr]:
    sides = [node.left, *node.comparators]
    for this, other in [*pairwise(sides), *pairwise(sides[::-1])]:
        if _is_code(this):
            yield other
        elif isinstance(this, ast.Tuple) and isinstance(other, ast.Tuple) and len(this.elts) == len(other.elts):
            yield from (its for one, its in zip(this.elts, other.elts, strict=True) if _is_code(one))


def _is_code(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "code"
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) == "code"


def _column(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the column `code` of `parametrize(("body", "code"), [(…, "missing"), …])`."""
    if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize" and len(node.args) > 1):
        return
    names, rows = node.args[:2]
    if isinstance(names, ast.Tuple) and isinstance(rows, ast.List | ast.Tuple):
        columns = [place for place, one in enumerate(names.elts) if getattr(one, "value", "") == "code"]
        for row in rows.elts:
            cells = row.elts if isinstance(row, ast.Tuple) else row.args if isinstance(row, ast.Call) else []
            yield from (cells[place] for place in columns if place < len(cells))
