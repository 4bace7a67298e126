"""Print line and branch coverage by package, from the JSON that `coverage json` wrote.

    python tools/coverage_by_package.py .coverage/report.json [another.json ...]

With several files, their columns are printed next to each other, for example before and after a change.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

PACKAGE = "pellucid/"
TOP = "(top level)"


def by_package(report: Path) -> dict[str, Counter[str]]:
    """Return the sums of the counts of `coverage json`: for each package, the modules at the top level, and all."""
    packages: dict[str, Counter[str]] = {}
    for file, measured in json.loads(report.read_text())["files"].items():
        below = file.rpartition(PACKAGE)[2]
        name = below.partition("/")[0] if "/" in below else TOP
        for row in (name, "total"):
            packages.setdefault(row, Counter()).update(
                {key: value for key, value in measured["summary"].items() if isinstance(value, int)}
            )
    return packages


def percent(counts: Counter[str], covered: str, of: str) -> str:
    return f"{100 * counts[covered] / counts[of]:6.2f} %" if counts[of] else "       –"


def main(files: list[str]) -> None:
    reports = [by_package(Path(file)) for file in files]
    print(f"{'package':14}" + "      lines   branches" * len(reports))
    for name in sorted({name for report in reports for name in report}, key=lambda name: (name == "total", name)):
        counts = [report.get(name, Counter()) for report in reports]
        lines = [percent(each, "covered_lines", "num_statements") for each in counts]
        branches = [percent(each, "covered_branches", "num_branches") for each in counts]
        cells = (f"   {one}   {other}" for one, other in zip(lines, branches, strict=True))
        print(f"{name:14}" + "".join(cells))


if __name__ == "__main__":
    main(sys.argv[1:])
