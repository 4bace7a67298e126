"""What the adapter uses of uvicorn and uvicorn does not document is there, in the release that is installed."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

import pellucid
from pellucid.server import uvicorn_adapter
from pellucid.server.uvicorn_adapter import INTERNALS

ADAPTER = Path(uvicorn_adapter.__file__).parent
OWNERS = {"self", "cycle", "socket", "_cycle", "_socket", "flow"}
"""What holds one of uvicorn's objects, in the adapter's source."""


def members(kind: type) -> set[str]:
    """The methods of a class, and what its methods set on `self`."""
    found = set(dir(kind))
    for base in kind.__mro__[:-1]:
        for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(base)))):  # type: ignore[arg-type]
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                found |= {name for owner, name in attributes(node) if owner == "self"}
    return found


def attributes(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The attributes in some source, and what stands before each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            before = node.value
            if isinstance(before, ast.Call) and isinstance(before.func, ast.Name) and before.func.id == "super":
                yield "self", node.attr
            elif isinstance(before, ast.Attribute):
                yield before.attr, node.attr
            elif isinstance(before, ast.Name):
                yield before.id, node.attr


@pytest.mark.parametrize("kind", INTERNALS, ids=lambda kind: kind.__name__)
def test_uvicorn_has_what_is_used_of_it(kind: type) -> None:
    gone = [name for name in INTERNALS[kind] if name not in members(kind)]
    assert not gone, f"uvicorn {uvicorn.__version__} has no {kind.__name__}.{', .'.join(gone)} any more"


def test_the_list_is_whole() -> None:
    listed = {name for names in INTERNALS.values() for name in names}
    for path in (ADAPTER / "http.py", ADAPTER / "websocket.py"):
        tree = ast.parse(path.read_bytes())
        ours = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                if isinstance(target, ast.Name) or (isinstance(target, ast.Attribute) and target.attr.startswith("_")):
                    ours.add(target.id if isinstance(target, ast.Name) else target.attr)
        used = {name for owner, name in attributes(tree) if owner in OWNERS}
        assert used - ours - listed == set(), path.name


def test_nobody_else_uses_uvicorn_s_protocols() -> None:
    for path in Path(pellucid.__file__).parent.rglob("*.py"):
        assert ADAPTER in path.parents or "uvicorn.protocols" not in path.read_text(), path
