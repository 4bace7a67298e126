"""The golden comparison: two versions of the project, held against each other to the byte, from outside.

    python tools/golden.py                       the working tree against commit 2589497
    python tools/golden.py --base HEAD~1         against another commit
    python tools/golden.py --short               a few minutes instead of an hour
    python tools/golden.py --only 'turns/*'      some cases alone (names are printed with each difference)

Each version's gateway runs as a process, before the same scripted upstream, and answers the same requests: every
recorded and hand-written response × every protocol and dialect × each view × streamed and whole × three cuts of the
bytes; what is stored and replayed; what goes upstream in later turns; errors; the command line. Ids and times are made
equal by their order of appearance (`golden_kit/normal.py`), and everything else is compared as it is. Then the working
tree opens what the base left behind: a database, sealed tokens, a record, and logs in Redis.

An intended difference has an entry in `tools/golden_allowed.toml`, which quotes its line in CHANGELOG.md. The exit
status is 1 if there is another one, or an entry that is not needed any more.
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
BASE = "2589497"
EXTRAS = "mcp,redis,local" if find_spec("xllamacpp") else "mcp,redis"
"""What the cases need in addition to what is always installed. Both versions have the embedded engine, or none."""
FRESH_SECONDS = 6 * 3600
"""So long a capture of the base can be used again: what the base left in it ages (times, logs that expire)."""
UNUSED_SECONDS = 7 * 86_400
"""So long after it was last used a checkout stays in the cache."""
SHOWN = 10
"""So many differences are shown whole; the rest are counted."""


# --- checkouts ----------------------------------------------------------------------------------------------------


def cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid" / "golden"
    root.mkdir(parents=True, exist_ok=True)
    return root


def checkout_of(revision: str) -> Checkout:
    """A commit's files, in the cache, with a Python that has what they need."""
    commit = _git("rev-parse", f"{revision}^{{commit}}").strip()
    root = cache() / commit[:12]
    if not root.is_dir():
        with tempfile.TemporaryDirectory(dir=cache()) as made:
            archive = subprocess.run(["git", "archive", commit], cwd=HERE, capture_output=True, check=True).stdout
            subprocess.run(["tar", "-x", "-C", made], input=archive, check=True)
            shutil.copytree(made, root)
    os.utime(root)  # it is in use
    return Checkout(root, _python_for(root))


def _python_for(root: Path) -> str:
    """This Python, where that version needs the same packages; otherwise an environment of its own."""
    needs = [_dependencies(place) for place in (HERE, root)]
    if needs[0] == needs[1]:
        return sys.executable
    environment = root / f".venv-{EXTRAS.replace(',', '-')}"
    if not (environment / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = [
            str(environment / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "-c",
            str(root / "constraints.txt"),
        ]
        subprocess.run([*pip, "-e", f"{root}[{EXTRAS}]"], check=True)
        (environment / "ready").touch()
    return str(environment / "bin" / "python")


def _dependencies(root: Path) -> tuple[str, ...]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = (project["optional-dependencies"][extra] for extra in EXTRAS.split(","))
    return tuple(sorted([*project["dependencies"], *(needed for extra in extras for needed in extra)]))


def _git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=HERE, capture_output=True, text=True, check=True).stdout


# --- captures -----------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Which cases are tried, with which recordings."""

    recordings: Path | None
    short: bool
    only: list[str]

    def key(self) -> str:
        """A name for captures that would hold the same cases: of the tool, the recordings, and what is wanted."""
        sources = sorted((Path(__file__).parent / "golden_kit").glob("*.py"))
        parts = [*(path.read_bytes() for path in sources), *_listing(self.recordings), repr((self, EXTRAS)).encode()]
        return sha256(b"\0".join(parts)).hexdigest()[:16]


def _listing(directory: Path | None) -> list[bytes]:
    """Each file of a directory: its name, size and time of change."""
    if directory is None:
        return []
    files = ((path, path.stat()) for path in sorted(directory.rglob("*")) if path.is_file())
    return [f"{path.relative_to(directory)} {stat.st_size} {stat.st_mtime_ns}".encode() for path, stat in files]


def run_captures(base: Checkout, tree: Checkout, plan: Plan, keep: Path, reuse: Path | None) -> tuple[Path, Path]:
    """Capture both sides at once (the base's only where it is not in the cache); the files."""
    left = keep / "left"
    if reuse is not None and _is_fresh(reuse):
        left, base_file = reuse.parent / f"{reuse.name}.left", reuse
        sides = [(tree, keep / "tree.db")]
    else:
        if reaches(plan.only, "reopened"):
            print("the base leaves something to be read …", flush=True)
            leave(base, left, plan.recordings, plan.short)
        base_file = keep / "base.db"
        sides = [(base, base_file), (tree, keep / "tree.db")]
    workers = [start_capture(checkout, file, left, plan) for checkout, file in sides]
    statuses = [worker.wait() for worker in workers]
    if any(statuses):
        raise SystemExit("a capture failed")
    if reuse is not None and base_file != reuse and not plan.only:
        reuse.unlink(missing_ok=True)
        shutil.rmtree(reuse.with_name(f"{reuse.name}.left"), ignore_errors=True)
        shutil.copytree(left, reuse.with_name(f"{reuse.name}.left"))
        shutil.copy(base_file, reuse.with_suffix(".new"))
        reuse.with_suffix(".new").rename(reuse)
    return base_file, keep / "tree.db"


def start_capture(
    checkout: Checkout, file: Path, left: Path, plan: Plan, *, silent: bool = False
) -> subprocess.Popen[bytes]:
    """Capture one side in a process of its own, which ends with status 0 if it could."""
    options = json.dumps({**plan._asdict(), "recordings": str(plan.recordings or "")})
    args = [str(checkout.root), checkout.python, str(file), str(left), options]
    output = subprocess.DEVNULL if silent else None
    return subprocess.Popen([sys.executable, __file__, "--capture", *args], stdout=output, stderr=output)


def tidy(root: Path, used: Path) -> None:
    """Take from the cache what is too old to be used again: captures, and checkouts other than this one."""
    for entry in root.iterdir():
        limit = FRESH_SECONDS if entry.name.endswith((".db", ".left", ".new")) else UNUSED_SECONDS
        if entry == used or time.time() - entry.stat().st_mtime < limit:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _is_fresh(reuse: Path) -> bool:
    """Whether a capture of the base is there and can be used again."""
    left = reuse.with_name(f"{reuse.name}.left")
    return reuse.exists() and left.is_dir() and time.time() - reuse.stat().st_mtime < FRESH_SECONDS


def _capture_one(root: str, python: str, file: str, left: str, plan: str) -> None:
    """One side, in a process of its own."""
    options = json.loads(plan)
    recordings = Path(options["recordings"]) if options["recordings"] else None
    capture(Checkout(Path(root), python), Path(file), Path(left), recordings, options["short"], options["only"])


# --- differences that are meant -----------------------------------------------------------------------------------


class Allowed(NamedTuple):
    """A difference that is meant.

    Attributes:
        cases: a glob of case names.
        records: a glob of record labels.
        before, after: a pattern, and what `re.sub` makes of it: the base's text, so changed, is the tree's. Without
            them, the records may differ in anything.
        changelog: the line of CHANGELOG.md that tells users.
    """

    cases: str
    changelog: str
    records: str = "*"
    before: str | None = None
    after: str = ""

    def covers(self, name: str, label: str) -> bool:
        return fnmatchcase(name, self.cases) and fnmatchcase(label, self.records)


def read_allowed(path: Path, changelog: str) -> list[Allowed]:
    """The entries of the allow-list. Each must name a line that is in the changelog."""
    entries = (
        [Allowed(**entry) for entry in tomllib.loads(path.read_text()).get("allowed", [])] if path.exists() else []
    )
    flat = " ".join(changelog.split())
    for entry in entries:
        if " ".join(entry.changelog.split()) not in flat:
            raise SystemExit(f"{path.name}: CHANGELOG.md has no line {entry.changelog!r}")
    return entries


def explained(entries: list[Allowed], used: Counter[Allowed], name: str, label: str, one: str, other: str) -> bool:
    """Whether the entries that cover this record, one after the other, make the one text the other."""
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
    """What differs in a case and no entry explains, and a case that broke: (label, the base's text, the tree's)."""
    unexplained_records = [
        difference for difference in differences(base, tree, name) if not explained(entries, used, name, *difference)
    ]
    return unexplained_records + [(label, tree.text(text), "") for label, text in tree.digests(name) if label == BROKEN]


def compare(base_file: Path, tree_file: Path, entries: list[Allowed], *, everything: bool = True) -> int:
    """Print what differs; the number of differences that nothing explains, and of entries that nothing needs.

    `everything`: whether all cases were captured, of the base that the entries are for. Otherwise an entry
    may be needed by a case that did not run.
    """
    used: Counter[Allowed] = Counter()
    unexplained = records = 0
    with Capture(base_file) as base, Capture(tree_file) as tree:
        names = base.names()
        order = names + [name for name in tree.names() if name not in set(names)]
        if not order:
            raise SystemExit("there is no case of such a name; a name begins with its group, such as access/ or turns/")
        for name in order:
            records += len(base.digests(name))
            unexplained_records = unexplained_differences(base, tree, name, entries, used)
            if unexplained_records:
                unexplained += 1
                if unexplained <= SHOWN:
                    _show(name, *unexplained_records[0], len(unexplained_records))
                elif unexplained <= 20 * SHOWN:
                    print(f"differs: {name}: {unexplained_records[0][0]}")
    unused = [entry for entry in entries if everything and not used[entry] and _is_met(entry, order)]
    for entry in unused:
        print(f"not needed any more: {entry.cases} {entry.records}: {entry.changelog}")
    print(
        f"{len(order)} cases, {records} records; {unexplained} cases differ, {sum(used.values())} differences are meant"
    )
    return unexplained + len(unused)


def _is_met(entry: Allowed, names: Iterable[str]) -> bool:
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
    """Lines that are short enough to look at: long ones are broken where JSON has a comma."""
    return [
        piece for line in text.split("\n") for piece in (re.split(r"(?<=,)(?=\")", line) if len(line) > 160 else [line])
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold two versions of the project against each other.")
    parser.add_argument("--base", default=BASE, help=f"a commit, or a directory with a checkout (default: {BASE})")
    parser.add_argument("--tree", default=str(HERE), help="a directory with the other checkout (default: this one)")
    parser.add_argument("--recordings", help="a directory of recordings (default: PELLUCID_RECORDINGS, or beside this)")
    parser.add_argument("--short", action="store_true", help="the project's own fixtures alone, and fewer combinations")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="only cases of these names")
    parser.add_argument("--keep", metavar="DIR", help="leave both captures there")
    parser.add_argument("--allowed", default=str(HERE / "tools" / "golden_allowed.toml"), help="the allow-list")
    options = parser.parse_args()

    default_recordings = HERE.parent / "shared" / "recordings"
    named = (
        options.recordings
        or os.environ.get("PELLUCID_RECORDINGS")
        or (str(default_recordings) if default_recordings.is_dir() else None)
    )
    recordings = Path(named) if named and not options.short else None
    plan = Plan(recordings, options.short, options.only)
    entries = read_allowed(Path(options.allowed), (HERE / "CHANGELOG.md").read_text())
    is_directory = Path(options.base).is_dir()
    base = Checkout(Path(options.base).resolve()) if is_directory else checkout_of(options.base)
    tree = Checkout(Path(options.tree).resolve())
    tidy(cache(), base.root)
    reuse = None if is_directory or options.only else cache() / f"{base.root.name}-{plan.key()}.db"
    with tempfile.TemporaryDirectory(prefix="golden-") as made:
        keep = Path(options.keep or made)
        keep.mkdir(parents=True, exist_ok=True)
        files = run_captures(base, tree, plan, keep, reuse)
        everything = options.base == BASE and not options.only
        return 1 if compare(*files, entries, everything=everything) else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--capture"]:
        _capture_one(*sys.argv[2:])
    else:
        raise SystemExit(main())
