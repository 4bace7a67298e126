"""Check the types of the Python blocks of README.md and docs/*.md, and the places that docs/architecture.md names.

    python tools/check_docs.py [PAGE]…

The Python blocks of a page are written to one module per example, and `mypy --strict` checks these modules. A block
whose code begins with an import begins an example; other blocks continue the example before them. Code with `await`,
`async for` or `async with` outside a function is checked within a coroutine, as the pages show it without one. An error
is reported with the page and the line of the block. The exit status is 1 if there is one.

A comment of the page gives an example what its text takes for granted (a token, a type):

    <!-- check_docs: token: str = "" -->

Its line goes before the next block. Lines of several such comments are joined.

A place is a path in backticks, relative to the source or to the repository, which must exist; names in backticks in
parentheses behind a Python file (`run.py` (`Run.feed`)) must be defined in it. The table of layers in
docs/architecture.md must have the packages of the layers in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

_FENCE = re.compile(r"^(`{3,})(\w*)\s*$")
_PREAMBLE_LINE = re.compile(r"^<!-- check_docs: (.*) -->$")
_IMPORT = re.compile(r"^(import|from) ")
_MYPY_ERROR = re.compile(r"^(?P<module>[^:]+\.py):(?P<line>\d+): (?P<message>error: .*)$")


_PATH = re.compile(r"`([\w./]+(?:\.\w+|/))`(?: \(([^)]*)\))?")
_NAME = re.compile(r"`([A-Za-z_][\w.]*)`")


class SourceLine(NamedTuple):
    """One line of an example, and the line of the page that it is from."""

    text: str
    number: int


@dataclass
class Example:
    """Blocks of a page that are one program."""

    page: Path
    lines: list[SourceLine] = field(default_factory=list)


def examples_of(page: Path) -> list[Example]:
    """Return the examples of a page, in their order."""
    examples: list[Example] = []
    preamble: list[SourceLine] = []
    for block in python_blocks(page, preamble):
        code = (line.text for line in block if line.text.strip() and not line.text.startswith("#"))
        if not examples or _IMPORT.match(next(code, "")):
            examples.append(Example(page))
        examples[-1].lines += [*preamble, *block]
        preamble.clear()
    return examples


def python_blocks(page: Path, preamble: list[SourceLine]) -> Iterator[list[SourceLine]]:
    """Yield the Python blocks of a page.

    Args:
        page: The file.
        preamble: Receives the lines of `check_docs` comments that stand before the next block.
    """
    fence, language = "", ""
    block: list[SourceLine] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if fence:
            if line.strip() == fence:
                if language == "python":
                    yield block
                fence, block = "", []
            else:
                block.append(SourceLine(line, number))
        elif match := _FENCE.match(line):
            fence, language = match[1], match[2]
        elif match := _PREAMBLE_LINE.match(line):
            preamble.append(SourceLine(match[1], number))


def to_module(example: Example) -> list[SourceLine]:
    """Return an example as a module, with top-level `await` and the like moved into a coroutine."""
    source = "\n".join(line.text for line in example.lines)
    tree = compile(source, str(example.page), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(tree, ast.Module)
    module: list[SourceLine] = []
    end = 0
    for index, node in enumerate(tree.body):
        start = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        assert node.end_lineno is not None
        module += example.lines[end : start - 1]
        lines = example.lines[start - 1 : node.end_lineno]
        end = max(end, node.end_lineno)
        if awaits(node):
            module.append(SourceLine(f"async def _coroutine_{index}() -> None:", lines[0].number))
            lines = [SourceLine(f"    {line.text}", line.number) for line in lines]
        module += lines
    return module + example.lines[end:]


def awaits(statement: ast.stmt) -> bool:
    """Check whether a statement awaits outside a function."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) for node in ast.walk(statement))


def check(pages: list[Path]) -> list[str]:
    """Run mypy over the examples of all pages.

    Returns:
        One line for each error, with page and line.
    """
    with tempfile.TemporaryDirectory() as directory:
        modules: dict[str, list[SourceLine]] = {}
        page_of: dict[str, Path] = {}
        errors: list[str] = []
        for page in pages:
            for example in examples_of(page):
                try:
                    lines = to_module(example)
                except SyntaxError as error:
                    number = example.lines[(error.lineno or 1) - 1].number
                    errors.append(f"{page.relative_to(ROOT)}:{number}: error: {error.msg}")
                    continue
                name = f"{re.sub(r'[^a-z0-9]', '_', page.stem.lower())}_{lines[0].number}.py"
                (Path(directory) / name).write_text("\n".join(line.text for line in lines) + "\n", encoding="utf-8")
                modules[name] = lines
                page_of[name] = page
        done = subprocess.run(
            [
                *(sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")),
                *("--cache-dir", str(ROOT / ".mypy_cache"), "--no-error-summary", *sorted(modules)),
            ],
            cwd=directory,
            env={"MYPYPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        for output in done.stdout.splitlines():
            if (match := _MYPY_ERROR.match(output)) and match["module"] in modules:
                page = page_of[match["module"]]
                number = modules[match["module"]][int(match["line"]) - 1].number
                errors.append(f"{page.relative_to(ROOT)}:{number}: {match['message']}")
            elif ": note: " not in output:
                errors.append(output)
        if done.returncode and not errors:
            errors.append(done.stderr.strip() or f"mypy ended with status {done.returncode}")
    return errors


def check_places(page: Path) -> Iterator[str]:
    """Yield one line for each place that the page names and that does not exist."""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        for path, names in _PATH.findall(line):
            bases = (ROOT / "src/pellucid", ROOT, page.parent)
            place = next((base / path for base in bases if (base / path).exists()), None)
            if place is None:
                if "/" in path.rstrip("/") and not path.startswith("/"):
                    yield f"{page.relative_to(ROOT)}:{number}: error: there is no {path}"
            elif place.suffix == ".py":
                defined = set(defined_names(ast.parse(place.read_text(encoding="utf-8"))))
                for name in _NAME.findall(names):
                    if name not in defined:
                        yield f"{page.relative_to(ROOT)}:{number}: error: {path} does not define {name}"


def check_layers(page: Path) -> Iterator[str]:
    """Yield one line for each package that only the page's table of layers has, or only the contract of layers."""
    importlinter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    [contract] = (one for one in importlinter["contracts"] if one.get("containers") == ["pellucid"])
    layers = {name for layer in contract["layers"] for name in layer.split(" | ")}
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    shown = {name for row in rows for name in _NAME.findall(row)}
    for name in sorted(layers ^ shown):
        there, missing = ("pyproject.toml", page.name) if name in layers else (page.name, "pyproject.toml")
        yield f"{page.relative_to(ROOT)}: error: the layers of {there} have {name}, those of {missing} do not"


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module or one of its classes defines, as `name` and `Class.name`."""
    for node in tree.body:
        yield from _names_of(node)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                for name in _names_of(inner):
                    yield name
                    yield f"{node.name}.{name}"


def _names_of(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def main(arguments: list[str]) -> int:
    pages = [Path(argument).resolve() for argument in arguments]
    errors = check(pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
    architecture = ROOT / "docs" / "architecture.md"
    errors += [*check_places(architecture), *check_layers(architecture)]
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
