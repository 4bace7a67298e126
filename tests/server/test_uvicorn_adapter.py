"""The installed releases of uvicorn and websockets have the undocumented names that the adapter uses."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

import pellucid
from pellucid.server import uvicorn_adapter
from pellucid.server.uvicorn_adapter import INTERNALS

ADAPTER = Path(uvicorn_adapter.__file__).parent
OWNERS = {"self", "cycle", "socket", "_cycle", "_socket", "flow", "conn"}
"""Names of uvicorn's and websockets' objects in the adapter's source."""


def members(kind: type) -> set[str]:
    """Return the members of a class, and the attributes that its methods set on `self`."""
    names = set(dir(kind))
    for base in kind.__mro__[:-1]:
        for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(base)))):  # type: ignore[arg-type]
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                names |= {name for owner, name in attributes(node) if owner == "self"}
    return names


def attributes(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each attribute access in some source, as (owner, attribute)."""
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
def test_every_listed_internal_exists(kind: type) -> None:
    missing = [name for name in INTERNALS[kind] if name not in members(kind)]
    package = kind.__module__.partition(".")[0]
    assert not missing, f"{package} {version(package)} has no {kind.__name__}.{', .'.join(missing)} any more"


def test_every_used_internal_is_listed() -> None:
    listed = {name for names in INTERNALS.values() for name in names}
    for path in (ADAPTER / "http.py", ADAPTER / "websocket.py"):
        tree = ast.parse(path.read_bytes())
        ours = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        # The attributes of our own classes.
        ours |= {
            str(element.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"
            for element in ast.walk(node.value)
            if isinstance(element, ast.Constant)
        }
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                if isinstance(target, ast.Name) or (isinstance(target, ast.Attribute) and target.attr.startswith("_")):
                    ours.add(target.id if isinstance(target, ast.Name) else target.attr)
        used = {name for owner, name in attributes(tree) if owner in OWNERS}
        assert used - ours - listed == set(), path.name


def test_only_the_adapter_uses_uvicorn_s_protocols() -> None:
    for path in Path(pellucid.__file__).parent.rglob("*.py"):
        assert ADAPTER in path.parents or "uvicorn.protocols" not in path.read_text(), path
