"""Check out another commit of the project, so that one run measures both versions."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from processes import BenchError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BASES = HERE / "base"


class Checkout(NamedTuple):
    """A commit's files, and a Python that has the packages that they need."""

    commit: str
    source: Path
    python: str


def check_out(revision: str) -> Checkout:
    """Write the files of `revision` to `bench/base/`, if they are not there yet.

    The Python is this one, unless that version needs other packages: then an environment is made for it.

    Raises:
        BenchError: There is no such commit, or its packages cannot be installed.
    """
    commit = _git("rev-parse", "--verify", f"{revision}^{{commit}}").decode().strip()
    directory = BASES / commit[:12]
    if not directory.is_dir():
        BASES.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BASES) as unpacked:
            archive = _git("archive", commit, "src", "pyproject.toml", "constraints.txt", "README.md", "LICENSE")
            subprocess.run(["tar", "-x", "-C", unpacked], input=archive, check=True)
            Path(unpacked).rename(directory)
            Path(unpacked).mkdir()  # which TemporaryDirectory removes
    return Checkout(commit, directory / "src", _python(directory))


def _python(directory: Path) -> str:
    if _dependencies(directory) == _dependencies(ROOT):
        return sys.executable
    python = directory / ".venv" / "bin" / "python"
    ready = directory / ".venv" / "ready"
    if not ready.exists():
        print(f"Installing what the base needs into {directory.relative_to(ROOT)}/.venv …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(directory / ".venv")], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command = [*pip, "-c", str(directory / "constraints.txt"), "-e", f"{directory}[redis]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"the packages of the base cannot be installed:\n{done.stderr}")
        ready.touch()
    return str(python)


def _dependencies(directory: Path) -> tuple[str, ...]:
    project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    return tuple(sorted([*project["dependencies"], *project["optional-dependencies"].get("redis", [])]))


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise BenchError(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
