"""Tests the golden comparison: it must detect each of these small faults, which are put into a copy of HEAD one by one.

    python tools/golden_faults.py                       all faults, about 20 seconds each
    python tools/golden_faults.py --only '*signature*'  some, by name
    python tools/golden_faults.py --whole               run the whole short form for each fault, not only its cases
    python tools/golden_faults.py --list

The copy is made with `git archive HEAD`. It is compared with itself first: a difference without a fault is an error. A
fault is a piece of source that occurs exactly once in a file, and its replacement. If the source no longer contains the
piece, the script prints the name of the fault, which must be rewritten, and the exit status is 1, as for a fault that
was not detected.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.golden import HERE, Plan, start_capture, unexplained_differences
from tools.golden_kit.captures import Capture
from tools.golden_kit.capturing import leave, reaches
from tools.golden_kit.gateway import Checkout


class Fault(NamedTuple):
    """One fault.

    Attributes:
        name: its effect.
        file: path in src/pellucid.
        before, after: the text that occurs once in the file, and its replacement.
        cases: globs of the cases that must detect it.
    """

    name: str
    file: str
    before: str
    after: str
    cases: tuple[str, ...]


FAULTS = [
    Fault(
        "a dropped signature",
        "providers/anthropic/blocks.py",
        "text, signature=signature, explicit_end=True)",
        "text, signature=None, explicit_end=True)",
        ("turns/fixture:anthropic*/raw/*",),
    ),
    Fault(
        "another order within a chunk",
        "providers/openai_chat/decode.py",
        "            self._read_reasoning(delta, is_whole)\n            if delta.executed_tools:",
        "            if type(delta.content) is str and delta.content:\n"
        "                self._feed_content(delta.content, None)\n"
        "            self._read_reasoning(delta, is_whole)\n"
        "            delta.content = None\n"
        "            if delta.executed_tools:",
        ("matrix/*vllm*/raw/*",),
    ),
    Fault(
        "another status for the upstream's 429",
        "protocols/errors.py",
        '"too_many_requests": KindNames(429,',
        '"too_many_requests": KindNames(503,',
        ("upstream-errors/*",),
    ),
    Fault(
        "a number lost in AG-UI's usage",
        "protocols/agui/run_end.py",
        '    "cached_input_tokens": "cache_read_tokens",\n',
        "",
        ("matrix/*/agui/1.0/raw/*",),
    ),
    Fault(
        "a replay that begins one event late",
        "server/openresponses/stored_responses.py",
        'parse_int(after, "starting_after", 0)',
        'parse_int(after, "starting_after", 0) + 1',
        ("stored/fixture:deepseek*",),
    ),
    Fault(
        "a signature sent to another provider",
        "providers/history.py",
        "        if same_origin(origin, target) and not is_unfit:",
        "        if True:",
        ("turns/fixture:anthropic*/raw/*",),
    ),
    Fault(
        "no Retry-After",
        "asgi/http.py",
        "return final if seconds is None else",
        "return final if True else",
        ("upstream-errors/429/*",),
    ),
    Fault(
        "a redaction without its name",
        "spaces/runtime/redaction.py",
        'mark = f"[redacted:{name}]"',
        'mark = "[redacted]"',
        ("spaces/*",),
    ),
    Fault(
        "counts for a key that may not see them",
        "view/values.py",
        "    if not viewer.counts:\n        return _NO_USAGE\n",
        "    if not viewer.counts:\n        return usage\n",
        ("requests/guarded/*", "access/policy/*"),
    ),
    Fault(
        "a status of the command line",
        "cli/decode.py",
        '    click.echo(f"Error: {error.full_message}", err=True)\n    return 1',
        '    click.echo(f"Error: {error.full_message}", err=True)\n    return 0',
        ("commands/*",),
    ),
    Fault(
        "a chat without the title of its first question",
        "server/chat/ask.py",
        "title=title_of(request.body.text or _first_name(request)),",
        'title="Chat",',
        ("resources/chat/*",),
    ),
    Fault(
        "a branch that cannot be shown again",
        "server/chat/conversations.py",
        "owner, id, title=title, head=head, instructions=instructions",
        "owner, id, title=title, head=None, instructions=instructions",
        ("resources/chat/*",),
    ),
    Fault(
        "a foreign page that is let in",
        "server/access/origins.py",
        "    if is_own_page(scope) is False:\n        raise _foreign_origin(scope)",
        "    if False:\n        raise _foreign_origin(scope)",
        ("resources/origins/*",),
    ),
    Fault(
        "a code of an item that is gone",
        "server/openresponses/conversations.py",
        'if item_id is None else "item_not_found"',
        'if item_id is None else "conversation_not_found"',
        ("resources/conversation",),
    ),
    Fault(
        "other words for a compaction",
        "server/openresponses/compaction.py",
        "Keep every fact, decision,",
        "Keep facts, decision,",
        ("resources/responses/*",),
    ),
    Fault(
        "an error of an MCP tool that counts as its result",
        "tools/mcp.py",
        "    if result.is_error:",
        "    if False:",
        ("tools/*",),
    ),
    Fault(
        "other words for the writer of summaries",
        "runs/summaries.py",
        "Say in one or two plain sentences",
        "Say in one plain sentence",
        ("tools/summaries/*",),
    ),
    Fault(
        "a cookie that pages of others may send",
        "server/access/session.py",
        "HttpOnly; SameSite={same_site}",
        "SameSite={same_site}",
        ("access/session",),
    ),
    Fault(
        "a status of a wrong configuration",
        "cli/main.py",
        "            ctx.exit(2)\n        except PellucidError",
        "            ctx.exit(1)\n        except PellucidError",
        ("commands/config/*",),
    ),
    Fault(
        "tokens that a key is not charged for",
        "server/access/limits.py",
        '"tokens": float((usage.input_tokens or 0) + (usage.output_tokens or 0)),',
        '"tokens": float(usage.output_tokens or 0),',
        ("access/limit/*",),
    ),
    Fault(
        "what was read waits a little",
        "models/model.py",
        "                self._receive(events)\n"
        "                if decoder.text_template is not self._tried_template:\n",
        "                asyncio.get_running_loop().call_later(0.02, self._receive, events)\n"
        "                if decoder.text_template is not self._tried_template:\n",
        ("pace/fixture:deepseek*",),
    ),
    Fault(
        "events that wait for the next read",
        "protocols/agui/encode.py",
        '        output = b"".join(self._out)\n        self._out.clear()\n        return output\n',
        "        if not self.ended and len(events) < 2:\n"
        '            return b""\n'
        '        output = b"".join(self._out)\n        self._out.clear()\n        return output\n',
        ("pace/fixture:deepseek*",),
    ),
    Fault(
        "an id of ours in the place of the provider's",
        "providers/tool_calls.py",
        "whole, name=name, call_id=self.id, signature=signature)",
        'whole, name=name, call_id=self.id and f"call_{id(self):024x}", signature=signature)',
        ("pace/shape:deepseek:ids-like-ours/*",),
    ),
    Fault(
        "a response that is over before it began",
        "protocols/openresponses/encode.py",
        "response.completed_at = now // 1000",
        "response.completed_at = now // 1000 - 5",
        ("matrix/fixture:deepseek:fields/openresponses/*",),
    ),
    Fault(
        "a text of several parts with lines between them",
        "protocols/agui/encode.py",
        'if isinstance(part, ThinkingPart) or message.form != form else ""',
        "if isinstance(part, ThinkingPart) or message.form != form else PARAGRAPH_BREAK",
        ("pace/shape:openai-responses:texts-of-one-message/*",),
    ),
]


def rewrite(root: Path, fault: Fault) -> str | None:
    """Put a fault into a copy. Return the original text of the file, or None if it does not contain the piece once."""
    path = root / "src" / "pellucid" / fault.file
    text = path.read_text() if path.is_file() else ""
    if text.count(fault.before) != 1:
        return None
    path.write_text(text.replace(fault.before, fault.after))
    return text


class Comparison:
    """A copy of the tree, and captures of it without a fault, by cases."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "tree"
        self.root.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=HERE, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(self.root)], input=archive, check=True)
        self._directory = directory
        self._checkout = Checkout(self.root)
        self._stored_data = directory / "left"
        self._captures: dict[tuple[str, ...], Path] = {}

    def differing(self, one: Path, other: Path) -> list[tuple[str, str]]:
        """Return the name and the label of the first different record of each case."""
        with Capture(one) as a, Capture(other) as b:
            names = dict.fromkeys([*a.names(), *b.names()])
            pairs = ((name, unexplained_differences(a, b, name, [], Counter())) for name in names)
            return [(name, differing[0][0]) for name, differing in pairs if differing]

    def without_fault(self, cases: tuple[str, ...]) -> Path:
        """Return the capture of these cases without a fault. The first call makes it twice, and compares the two."""
        if cases not in self._captures:
            if reaches(list(cases), "reopened") and not self._stored_data.exists():
                leave(self._checkout, self._stored_data, None, short=True)
            files = [self._directory / f"capture-{len(self._captures)}-{n}.db" for n in (1, 2)]
            workers = [self._start(file, cases) for file in files]
            if sum(worker.wait() for worker in workers):
                raise SystemExit(f"the tree cannot be captured: {' '.join(cases)}")
            if differing := self.differing(*files):
                raise SystemExit(f"the tree differs from itself: {differing[0][0]}: {differing[0][1]}")
            self._captures[cases] = files[0]
        return self._captures[cases]

    def with_fault(self, cases: tuple[str, ...]) -> list[tuple[str, str]] | None:
        """Return the differences of the tree from its capture without a fault; None if the gateway does not start."""
        file = self._directory / "faulty.db"
        return None if self._start(file, cases).wait() else self.differing(self._captures[cases], file)

    def _start(self, file: Path, cases: tuple[str, ...]) -> subprocess.Popen[bytes]:
        return start_capture(self._checkout, file, self._stored_data, Plan(None, True, list(cases)), silent=True)


def check(comparison: Comparison, fault: Fault, cases: tuple[str, ...]) -> bool:
    """Insert a fault, compare, and remove it. Return whether it was detected."""
    began = time.monotonic()
    comparison.without_fault(cases)
    before = rewrite(comparison.root, fault)
    if before is None:
        print(f"does not fit: {fault.name}: {fault.file} does not have its text exactly once; rewrite it", flush=True)
        return False
    try:
        differing = comparison.with_fault(cases)
    finally:
        (comparison.root / "src" / "pellucid" / fault.file).write_text(before)
    seconds = f"{time.monotonic() - began:.0f} s"
    if differing is None:
        print(f"does not run: {fault.name}: the gateway does not start with it; rewrite it ({seconds})", flush=True)
    elif differing:
        print(
            f"detected: {fault.name}: {len(differing)} cases, first {differing[0][0]}: {differing[0][1]} ({seconds})",
            flush=True,
        )
    else:
        print(f"NOT detected: {fault.name} in {' '.join(cases) or 'the short form'} ({seconds})", flush=True)
    return bool(differing)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that the golden comparison detects small faults.")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="only faults with matching names")
    parser.add_argument("--cases", action="append", default=[], metavar="GLOB", help="only cases with matching names")
    parser.add_argument("--whole", action="store_true", help="the whole short form for each fault")
    parser.add_argument("--list", action="store_true", help="print the faults' names")
    options = parser.parse_args()
    wanted = [
        fault
        for fault in FAULTS
        if not options.only or any(fnmatchcase(fault.name, pattern) for pattern in options.only)
    ]
    if options.list:
        print("\n".join(f"{fault.name} ({fault.file})" for fault in wanted))
        return 0
    with tempfile.TemporaryDirectory(prefix="golden-faults-") as made:
        comparison = Comparison(Path(made))
        results = [
            check(comparison, fault, () if options.whole else tuple(options.cases) or fault.cases) for fault in wanted
        ]
    print(f"{sum(results)} of {len(results)} faults detected")
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
