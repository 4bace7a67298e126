"""Write docs/compatibility.md: what was tested with which version, and what came out.

    PELLUCID_RECORDINGS=… .venv/bin/python bench/compatibility.py

It runs the tests of each row, and counts their outcomes. The rows say what the tests are; their files say how.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from document import COMPATIBILITY, ROOT, commit, write_section


class Row(NamedTuple):
    """What is compared with what."""

    group: str
    what: str
    tests: tuple[str, ...]
    """Files or folders."""
    packages: tuple[str, ...] = ()
    """Packages whose versions are named."""


ROWS = (
    Row("Providers", "Recorded responses of every wire, each decoded whole and at every cut", ("tests/providers",)),
    Row("Providers", "Anthropic's wire", ("tests/providers_anthropic",), ("anthropic",)),
    Row("Providers", "Gemini's wire", ("tests/providers_google",), ("google-genai",)),
    Row("Providers", "Bedrock's wire", ("tests/providers_bedrock",), ("botocore",)),
    Row("Providers", "Mistral's wire", ("tests/providers_mistral",), ("mistralai",)),
    Row("Providers", "Cohere's wire", ("tests/providers_cohere",), ("cohere",)),
    Row("Providers", "Ollama's wire", ("tests/providers_ollama",)),
    Row("Providers", "The wire of Responses", ("tests/providers_openai_responses",), ("openai",)),
    Row(
        "Specifications",
        "OpenResponses: the checks of the public compliance suite, and the text's rules for every event",
        ("tests/server/test_compliance.py",),
    ),
    Row("Specifications", "AG-UI: the official client's verifier", ("tests/agui",), ("ag-ui-protocol",)),
    Row(
        "Specifications",
        "MEW, MEUP: the literal flows, and MEW's own scenarios",
        ("tests/spaces_server/test_spaces_mew.py", "tests/spaces_server/test_spaces_seed_flows.py"),
    ),
    Row("Clients", "SDKs and frameworks ([each](clients.md))", ("tests/clients/test_client_matrix.py",)),
    Row("Clients", "Coding agents ([each](clients.md#coding-agents))", ("tests/clients/test_coding_agents.py",)),
    Row("Clients", "CopilotKit", ("tests/clients/test_copilotkit.py",)),
    Row("Clients", "MCP clients in a space", ("tests/spaces_server/test_spaces_mcp.py",), ("mcp",)),
    Row("Libraries", "Pydantic AI: messages, agents, models, requests", ("tests/interop",), ("pydantic-ai-slim",)),
)


class Outcome(NamedTuple):
    """How many tests passed, failed, and were not run."""

    passed: int
    failed: int
    skipped: int


def outcome_of(row: Row) -> Outcome:
    """Run the tests of a row."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--circle", "all", f"--junitxml={report}", *row.tests]
        subprocess.run(command, cwd=ROOT, env=os.environ, stdout=subprocess.DEVNULL, check=False)
        suite = ElementTree.parse(report).getroot()[0].attrib
    total, skipped = int(suite["tests"]), int(suite["skipped"])
    failed = int(suite["failures"]) + int(suite["errors"])
    return Outcome(total - failed - skipped, failed, skipped)


def versions_of(row: Row) -> str:
    names = []
    for package in row.packages:
        try:
            names.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            names.append(f"{package}: not installed")
    return ", ".join(names)


def recordings_count() -> int | None:
    """Return how many recorded responses of real providers were there; None: there is no such directory."""
    from tests.recordings import recordings, recordings_root

    return None if recordings_root() is None else len(recordings())


def main() -> None:
    argparse.ArgumentParser(description="Write docs/compatibility.md from the outcomes of tests.").parse_args()
    sys.path.insert(0, str(ROOT))
    lines = ["| | | passed | failed | not run | with |", "|---|---|---:|---:|---:|---|"]
    group = ""
    for row in ROWS:
        outcome = outcome_of(row)
        print(row.what, json.dumps(outcome._asdict()), flush=True)
        shown = row.group if row.group != group else ""
        group = row.group
        counts = " | ".join(str(count) for count in outcome)
        lines.append(f"| {shown} | {row.what} | {counts} | {versions_of(row)} |")
    count = recordings_count()
    recorded = "without a directory of recorded responses" if count is None else f"with {count} recorded responses"
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    note = f"Written on {day} at commit {commit()}, with Python {platform.python_version()}, {recorded}."
    write_section(COMPATIBILITY, "bench/compatibility.py", f"{note}\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
