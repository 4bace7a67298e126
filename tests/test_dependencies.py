"""The dependencies: every module can be imported, commands import only what they need, versions match the ranges."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import pellucid

ROOT = Path(__file__).parents[1]
IMPORTED_BY_ALEMBIC = "pellucid.storage.migrations."
CONTAINER_EXTRAS = ("postgres", "redis", "mcp", "otel", "bedrock")


def test_every_module_can_be_imported() -> None:
    modules = [module.name for module in pkgutil.walk_packages(pellucid.__path__, "pellucid.")]
    assert len(modules) > 100
    for name in modules:
        if not (name.endswith("__main__") or name.startswith(IMPORTED_BY_ALEMBIC)):
            importlib.import_module(name)


COMMAND = "from pellucid.cli import main; main({!r}.split())"
ANYWHERE = {"pellucid", "msgspec", "typing_extensions"}
HTTP_CLIENT = {"yarl", "multidict", "propcache", "idna", "httptools", "aiohappyeyeballs"}


@pytest.mark.parametrize(
    ("code", "packages"),
    [
        ("from pellucid import Agent", {*HTTP_CLIENT, "docstring_parser"}),
        (COMMAND.format("--help"), {"click"}),
        (COMMAND.format("serve --help"), {"click"}),
        (COMMAND.format("space --help"), {"click"}),
        (COMMAND.format("decode --from openai -"), {"click"}),
    ],
)
def test_what_starts_often_starts_light(code: str, packages: set[str]) -> None:
    """A command that serves nothing, and an agent, wait for no server, database, cryptography or metrics."""
    loaded = {name.partition(".")[0] for name in loaded_modules(code)}
    assert "pellucid" in loaded
    installed = loaded & set(packages_distributions())
    assert installed <= ANYWHERE | packages


def test_a_gateway_does_not_load_what_few_need() -> None:
    """aiohttp takes 9 MB of memory: a gateway of which nothing is fetched, and no space is read, needs none of it."""
    loaded = loaded_modules("from pellucid.server.app import *")
    assert "starlette" in loaded
    assert loaded.isdisjoint({"aiohttp", "websockets.asyncio.client", "mcp", "numpy", "pydantic"})


def loaded_modules(code: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after this code."""
    report = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    args = [sys.executable, "-S", "-E", "-c", f"import sys; sys.path[:] = {sys.path!r}; {report}{code}"]
    done = subprocess.run(args, input="{}", capture_output=True, text=True, check=False)
    return set(done.stderr.splitlines()[-1].split())


def versions(file: str) -> dict[str, str]:
    """Return the version of each package in a file of requirements."""
    text = (ROOT / file).read_text().lower().replace("_", "-")
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.MULTILINE))


def declared(*more_extras: str) -> Iterator[Requirement]:
    """Yield what the package needs, with the extras of a container and `more_extras`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    rows = [row for extra in (*CONTAINER_EXTRAS, *more_extras) for row in extras[extra]]
    for row in [*project["dependencies"], *rows]:
        yield Requirement(row)


def test_the_locked_versions_are_in_the_declared_ranges() -> None:
    locked = versions("requirements.lock")
    for requirement in declared():
        assert requirement.specifier.contains(locked[requirement.name]), requirement


def test_the_locked_versions_are_those_of_the_tests() -> None:
    assert versions("requirements.lock").items() <= versions("constraints.txt").items()


def test_the_lowest_declared_versions_are_those_of_the_tests() -> None:
    lowest = versions("constraints-lowest.txt")
    for requirement in declared("pydantic-ai", "langgraph"):
        bounds = [Version(row.version) for row in requirement.specifier if row.operator == ">="]
        assert bounds == [Version(lowest[requirement.name])], requirement


def test_every_locked_package_has_a_hash_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    for entry in re.split(r"\n(?=\S)", text):
        assert re.fullmatch(r"[a-z0-9-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n?", entry), entry[:80]


def test_every_docstring_can_be_encoded() -> None:
    # Python 3.13 does not compile a module with a docstring that has half of a character.
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node) or ""
                assert not any("\ud800" <= character <= "\udfff" for character in docstring), path
