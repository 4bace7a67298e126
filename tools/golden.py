"""The golden comparison: compares two versions of the project, byte for byte, from outside.

    python tools/golden.py                       the working tree with commit 01f4b10
    python tools/golden.py --base HEAD~1         with another commit
    python tools/golden.py --short               some minutes instead of an hour
    python tools/golden.py --short --write       and write the digests of the base, after BASE has changed
    python tools/golden.py --only 'turns/*'      some cases only (each difference is printed with the name of its case)

The gateway of each version runs as a process, with the same scripted upstream, and answers the same requests: every
recorded and hand-written response × every protocol and dialect × each view × streamed and whole × three cuts of the
bytes; stored data and its replay; requests to the upstream in later turns; errors; the command line. Ids and times are
replaced by their order of appearance (`golden_kit/normal.py`); everything else is compared unchanged. Then the working
tree opens what the base has stored: a database, sealed tokens, a record, and logs in Redis.

The short form runs the base only if it has to: `tools/golden_short.json` has digests of what the base does.

An intended difference has an entry in `tools/golden_allowed.toml`, which quotes its line in CHANGELOG.md. The exit
status is 1 if there is any other difference, or an entry that matches none.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.golden_kit.captures import BROKEN, Capture, differences
from tools.golden_kit.capturing import capture, leave, reaches
from tools.golden_kit.gateway import Checkout

HERE = Path(__file__).parents[1]
BASE = "01f4b10"
EXTRAS = "mcp,redis,local" if find_spec("xllamacpp") else "mcp,redis"
"""Extras that the cases need. Either both versions have the embedded engine, or neither has it."""
FRESH_SECONDS = 6 * 3600
"""Age up to which a capture of the base is reused. The data in it ages (times, logs that expire)."""
UNUSED_SECONDS = 7 * 86_400
"""Time since its last use after which a checkout is removed from the cache."""
DIGESTS = HERE / "tools" / "golden_short.json"
"""The base, and for each group of cases a digest of all that the short form captures of it."""
REOPENED = "reopened/*"
"""The cases that read what the base has stored."""
SHOWN = 10
"""Number of differences that are printed in full."""


# --- checkouts ----------------------------------------------------------------------------------------------------


def cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid" / "golden"
    root.mkdir(parents=True, exist_ok=True)
    return root


def checkout_of(revision: str) -> Checkout:
    """Return a checkout of a commit in the cache, with a Python that has its dependencies."""
    commit = _git("rev-parse", f"{revision}^{{commit}}").strip()
    root = cache() / commit[:12]
    if not root.is_dir():
        with tempfile.TemporaryDirectory(dir=cache()) as made:
            archive = subprocess.run(["git", "archive", commit], cwd=HERE, capture_output=True, check=True).stdout
            subprocess.run(["tar", "-x", "-C", made], input=archive, check=True)
            shutil.copytree(made, root)
    os.utime(root)  # the time of its last use
    return Checkout(root, _python_for(root))


def _python_for(root: Path) -> str:
    """Return this Python if both versions have the same dependencies, else that of a new virtual environment."""
    if _dependencies(HERE) == _dependencies(root):
        return sys.executable
    environment = root / f".venv-{EXTRAS.replace(',', '-')}"
    if not (environment / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "-c", str(root / "constraints.txt"), "-e", f"{root}[{EXTRAS}]"], check=True)
        (environment / "ready").touch()
    return str(environment / "bin" / "python")


def _dependencies(root: Path) -> tuple[str, ...]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = (project["optional-dependencies"][extra] for extra in EXTRAS.split(","))
    return tuple(sorted([*project["dependencies"], *(requirement for extra in extras for requirement in extra)]))


def _git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=HERE, capture_output=True, text=True, check=True).stdout


# --- captures -----------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Which cases run, with which recordings."""

    recordings: Path | None
    short: bool
    only: list[str]

    def key(self) -> str:
        """Return a digest of the tool, the recordings and this plan: captures with the same key have the same cases."""
        sources = sorted((Path(__file__).parent / "golden_kit").glob("*.py"))
        parts = [*(path.read_bytes() for path in sources), *_listing(self.recordings), repr((self, EXTRAS)).encode()]
        return sha256(b"\0".join(parts)).hexdigest()[:16]


def _listing(directory: Path | None) -> list[bytes]:
    """Return the name, size and modification time of each file of a directory."""
    if directory is None:
        return []
    files = ((path, path.stat()) for path in sorted(directory.rglob("*")) if path.is_file())
    return [f"{path.relative_to(directory)} {stat.st_size} {stat.st_mtime_ns}".encode() for path, stat in files]


def equals_digests(base: Checkout, tree: Checkout, plan: Plan, keep: Path) -> bool:
    """Capture the working tree, and return whether it does what the digests of the base say.

    Of the base, only that group is captured which depends on what the base has stored just now.
    """
    left = keep / "left"
    leave(base, left, plan.recordings, plan.short)
    sides = [(base, keep / "base-reopened.db", plan._replace(only=[REOPENED])), (tree, keep / "tree-all.db", plan)]
    capture_sides(sides, left)
    reopened, groups = (digests_in(file) for _, file, _ in sides)
    expected = {**json.loads(DIGESTS.read_text())["groups"], **reopened}
    different = [key for key in sorted(groups.keys() | expected.keys()) if groups.get(key) != expected.get(key)]
    print(f"groups that differ from {DIGESTS.name}: {', '.join(different) or 'none'}", flush=True)
    return not different


def digests_in(file: Path) -> dict[str, str]:
    with Capture(file) as capture:
        return capture.groups()


def write_digests(base_file: Path) -> None:
    groups = {
        group: digest for group, digest in digests_in(base_file).items() if not fnmatchcase(f"{group}/", REOPENED)
    }
    DIGESTS.write_text(json.dumps({"base": BASE, "groups": groups}, indent=2) + "\n")


def run_captures(base: Checkout, tree: Checkout, plan: Plan, keep: Path, reuse: Path | None) -> tuple[Path, Path]:
    """Capture both versions at the same time, the base only if it is not in the cache.

    Returns:
        The files of the captures.
    """
    left = keep / "left"
    if reuse is not None and _is_fresh(reuse):
        left, base_file = reuse.parent / f"{reuse.name}.left", reuse
        sides = [(tree, keep / "tree.db", plan)]
    else:
        if reaches(plan.only, "reopened"):
            print("the base stores data for the working tree …", flush=True)
            leave(base, left, plan.recordings, plan.short)
        base_file = keep / "base.db"
        sides = [(base, base_file, plan), (tree, keep / "tree.db", plan)]
    capture_sides(sides, left)
    if reuse is not None and base_file != reuse and not plan.only:
        reuse.unlink(missing_ok=True)
        shutil.rmtree(reuse.with_name(f"{reuse.name}.left"), ignore_errors=True)
        shutil.copytree(left, reuse.with_name(f"{reuse.name}.left"))
        shutil.copy(base_file, reuse.with_suffix(".new"))
        reuse.with_suffix(".new").rename(reuse)
    return base_file, keep / "tree.db"


def capture_sides(sides: list[tuple[Checkout, Path, Plan]], left: Path) -> None:
    """Capture versions at the same time, each into its file. Ends the process if one fails."""
    workers = [start_capture(checkout, file, left, plan) for checkout, file, plan in sides]
    statuses = [worker.wait() for worker in workers]
    if any(statuses):
        raise SystemExit("a capture failed")


def start_capture(
    checkout: Checkout, file: Path, left: Path, plan: Plan, *, silent: bool = False
) -> subprocess.Popen[bytes]:
    """Start a process that captures one version. Its exit status is 0 if it succeeded."""
    options = json.dumps({**plan._asdict(), "recordings": str(plan.recordings or "")})
    args = [str(checkout.root), checkout.python, str(file), str(left), options]
    output = subprocess.DEVNULL if silent else None
    return subprocess.Popen([sys.executable, __file__, "--capture", *args], stdout=output, stderr=output)


def tidy(root: Path, used: Path) -> None:
    """Remove captures that are too old from the cache, and checkouts other than `used`."""
    for entry in root.iterdir():
        limit = FRESH_SECONDS if entry.name.endswith((".db", ".left", ".new")) else UNUSED_SECONDS
        if entry == used or time.time() - entry.stat().st_mtime < limit:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _is_fresh(reuse: Path) -> bool:
    """Return whether there is a capture of the base that can be reused."""
    left = reuse.with_name(f"{reuse.name}.left")
    return reuse.exists() and left.is_dir() and time.time() - reuse.stat().st_mtime < FRESH_SECONDS


def _capture_one(root: str, python: str, file: str, left: str, plan: str) -> None:
    """Capture one version, in the process that `start_capture` started."""
    options = json.loads(plan)
    recordings = Path(options["recordings"]) if options["recordings"] else None
    capture(Checkout(Path(root), python), Path(file), Path(left), recordings, options["short"], options["only"])


# --- intended differences -----------------------------------------------------------------------------------------


class Allowed(NamedTuple):
    """An intended difference.

    Attributes:
        cases: a glob of case names.
        records: a glob of record labels.
        before, after: the arguments of `re.sub` that turn the base's text into the tree's. Without them, the records
            may differ in any way.
        changelog: the line of CHANGELOG.md that describes it to users.
    """

    cases: str
    changelog: str
    records: str = "*"
    before: str | None = None
    after: str = ""

    def covers(self, name: str, label: str) -> bool:
        return fnmatchcase(name, self.cases) and fnmatchcase(label, self.records)


def read_allowed(path: Path, changelog: str) -> list[Allowed]:
    """Read the allow-list. Each entry must quote a line of the changelog."""
    entries = (
        [Allowed(**entry) for entry in tomllib.loads(path.read_text()).get("allowed", [])] if path.exists() else []
    )
    flat = " ".join(changelog.split())
    for entry in entries:
        if " ".join(entry.changelog.split()) not in flat:
            raise SystemExit(f"{path.name}: CHANGELOG.md has no line {entry.changelog!r}")
    return entries


def explained(entries: list[Allowed], used: Counter[Allowed], name: str, label: str, one: str, other: str) -> bool:
    """Return whether the entries that cover this record, applied in order, turn one text into the other."""
    for entry in entries:
        if entry.covers(name, label):
            changed = other if entry.before is None else re.sub(entry.before, entry.after, one)
            used[entry] += changed != one
            one = changed
    return one == other


# --- the report ---------------------------------------------------------------------------------------------------


def unexplained_differences(
    base: Capture, tree: Capture, name: str, entries: list[Allowed], used: Counter[Allowed]
) -> list[tuple[str, str, str]]:
    """Return the records of a case that differ without an entry, and a failure: (label, base's text, tree's text)."""
    unexplained_records = [
        difference for difference in differences(base, tree, name) if not explained(entries, used, name, *difference)
    ]
    return unexplained_records + [(label, tree.text(text), "") for label, text in tree.digests(name) if label == BROKEN]


def compare(base_file: Path, tree_file: Path, entries: list[Allowed], *, everything: bool = True) -> int:
    """Print the differences.

    Args:
        base_file: The capture of the base.
        tree_file: The capture of the working tree.
        entries: The allow-list.
        everything: Whether all cases were captured, with the base that the entries are for. Otherwise an entry may
            belong to a case that did not run.

    Returns:
        The number of cases with unexplained differences, plus that of entries that match none.
    """
    used: Counter[Allowed] = Counter()
    unexplained = records = 0
    with Capture(base_file) as base, Capture(tree_file) as tree:
        names = base.names()
        order = names + [name for name in tree.names() if name not in set(names)]
        if not order:
            raise SystemExit("no case matches --only; names begin with their group, such as access/ or turns/")
        for name in order:
            records += len(base.digests(name))
            unexplained_records = unexplained_differences(base, tree, name, entries, used)
            if unexplained_records:
                unexplained += 1
                if unexplained <= SHOWN:
                    _show(name, *unexplained_records[0], len(unexplained_records))
                elif unexplained <= 20 * SHOWN:
                    print(f"differs: {name}: {unexplained_records[0][0]}")
    unused = [entry for entry in entries if everything and not used[entry] and _matches_case(entry, order)]
    for entry in unused:
        print(f"matches no difference: {entry.cases} {entry.records}: {entry.changelog}")
    print(f"{len(order)} cases, {records} records; {unexplained} cases differ, {used.total()} differences are allowed")
    return unexplained + len(unused)


def _matches_case(entry: Allowed, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, entry.cases) for name in names)


def _show(name: str, label: str, one: str, other: str, count: int) -> None:
    print(f"\ndiffers: {name}: {label}" + (f" (and {count - 1} more records)" if count > 1 else ""))
    lines = difflib.unified_diff(_lines(one), _lines(other), "base", "tree", lineterm="", n=1)
    for n, line in enumerate(lines):
        if n > 30:
            print("  …")
            break
        print(f"  {line}")


def _lines(text: str) -> list[str]:
    """Split a text into lines. Long lines are also split at the commas of JSON objects."""
    return [
        piece for line in text.split("\n") for piece in (re.split(r"(?<=,)(?=\")", line) if len(line) > 160 else [line])
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare two versions of the project, byte for byte.")
    parser.add_argument("--base", default=BASE, help=f"a commit, or a directory with a checkout (default: {BASE})")
    parser.add_argument("--tree", default=str(HERE), help="a directory with the other checkout (default: this one)")
    parser.add_argument("--short", action="store_true", help="only the project's own fixtures, in fewer combinations")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="only cases with matching names")
    parser.add_argument("--keep", metavar="DIR", help="keep both captures in this directory")
    parser.add_argument("--write", action="store_true", help="write the digests of the base, if nothing differs")
    options = parser.parse_args()

    default_recordings = HERE.parent / "shared" / "recordings"
    named = os.environ.get("PELLUCID_RECORDINGS") or (default_recordings if default_recordings.is_dir() else None)
    recordings = Path(named) if named and not options.short else None
    plan = Plan(recordings, options.short, options.only)
    entries = read_allowed(HERE / "tools" / "golden_allowed.toml", (HERE / "CHANGELOG.md").read_text())
    is_directory = Path(options.base).is_dir()
    base = Checkout(Path(options.base).resolve()) if is_directory else checkout_of(options.base)
    tree = Checkout(Path(options.tree).resolve())
    tidy(cache(), base.root)
    is_default = options.base == BASE and not options.only
    reuse = None if is_directory or options.only else cache() / f"{base.root.name}-{plan.key()}.db"
    with tempfile.TemporaryDirectory(prefix="golden-") as made:
        keep = Path(options.keep or made)
        keep.mkdir(parents=True, exist_ok=True)
        has_digests = json.loads(DIGESTS.read_text())["base"] == BASE and not (entries or options.write or options.keep)
        if options.short and is_default and has_digests and equals_digests(base, tree, plan, keep):
            return 0
        files = run_captures(base, tree, plan, keep, reuse)
        failed = bool(compare(*files, entries, everything=is_default))
        if options.write and options.short and is_default and not (failed or entries):
            write_digests(files[0])
        return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--capture"]:
        _capture_one(*sys.argv[2:])
    else:
        raise SystemExit(main())
