#!/usr/bin/env python3
"""Measure the cost of decoding a delta: Pellucid, each vendor's SDK, and Pydantic AI, with the same bytes.

    .venv/bin/python bench/decode.py [--quick] [--rounds N] [--wire NAME] [--write] [--strict]

The bytes are synthetic (`answers`), 400 deltas of reasoning and 400 of text in the format of each wire, and are read
from memory: no sockets. The figure is the CPU time of the one thread that does all the work. In each round, all
decoders take turns on a wire, and a ratio is computed within the round, before the median over rounds, so that both
sides ran under the same conditions. The other decoders have a virtual environment of their own (`bench/.venv`),
created on the first run.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import document
from environment import BENCH, ENVIRONMENT, PYTHON, prepare, versions

TOGETHER = (1, 16)
"""How many writes of the server are in one read."""

OURS, SDK, PYDANTIC_AI = "pellucid", "sdk", "pydantic_ai"

MOST_MICROSECONDS = 5.0
LEAST_TIMES = {
    (PYDANTIC_AI, None): 20.0,
    (SDK, "openai_chat"): 15.0,
    (SDK, "openai_responses"): 15.0,
    (SDK, "anthropic"): 4.0,
}
"""How many times as much another reader is to cost, on this wire or on all."""

NOT_JSON = ("bedrock",)
"""Wires whose frames are binary: no target."""

Sample = dict[tuple[str, int, str], float]
"""One round: microseconds a delta by wire, writes in a read, and reader."""


# --- measuring ----------------------------------------------------------------------------------------------------


class Readers:
    """Everything that reads an answer, and why some do not."""

    def __init__(self) -> None:
        import vendors
        from pellucid.events import PartDeltaEvent
        from pellucid.parts import Origin
        from pellucid.providers.profiles import builtin_profiles
        from pellucid.providers.wires import WIRES

        self._others = {SDK: vendors.SDKS, PYDANTIC_AI: vendors.PYDANTIC_AI}
        self._profiles, self._wires, self._origin, self._delta = builtin_profiles(), WIRES, Origin, PartDeltaEvent
        self.missing: dict[str, str] = {}

    def seconds(self, reader: str, answer: Any, reads: list[bytes]) -> float | None:
        """What this reader needs for the answer; None if it cannot read it."""
        from answers import DELTAS

        if reader == OURS:
            return self._ours(answer, reads)
        candidate = self._others[reader].get(answer.name)
        about = f"{answer.name}, {reader}"
        if candidate is None or about in self.missing:
            return None
        try:
            run = candidate(reads, answer.content_type)
        except Exception as error:
            self.missing[about] = f"{type(error).__name__}: {str(error)[:200]}"
            return None
        if run.events < DELTAS - 1:
            self.missing[about] = f"only {run.events} events came"
            return None
        return run.seconds

    def _ours(self, answer: Any, reads: list[bytes]) -> float:
        from answers import DELTAS

        profile = self._profiles[answer.profile]
        origin = self._origin(profile.name, profile.wire, "")
        decoder = self._wires[profile.wire].decoder(profile, origin)
        started = time.thread_time()
        batches = [decoder.feed(read) for read in reads]
        batches.append(decoder.end())
        took = time.thread_time() - started
        count = sum(isinstance(event, self._delta) for batch in batches for event in batch)
        if count < DELTAS:
            raise SystemExit(f"bench: {answer.name}: only {count} of {DELTAS} deltas were decoded; this is a bug")
        return took


def measure(rounds: int, wires: Sequence[str]) -> tuple[list[Sample], dict[str, str]]:
    from answers import DELTAS, answers

    warnings.simplefilter("ignore")
    readers = Readers()
    chosen = [answer for answer in answers() if not wires or answer.name in wires]
    samples: list[Sample] = []
    for number in range(rounds + 1):
        if number == 1:
            gc.collect()
            gc.freeze()  # what was imported is no garbage
        sample: Sample = {}
        for answer in chosen:
            for together in TOGETHER:
                progress(f"round {number} of {rounds}: {answer.name}, {together} a read")
                reads = answer.reads(together)
                for reader in (OURS, SDK, PYDANTIC_AI):
                    gc.collect()
                    # Ours takes a few milliseconds for it all: too little for one look.
                    took = [readers.seconds(reader, answer, reads) for _ in range(9 if reader == OURS else 1)]
                    if took[0] is not None:
                        sample[answer.name, together, reader] = median(t or 0.0 for t in took) / DELTAS * 1e6
        if number:  # the first is to warm up
            samples.append(sample)
    progress("")
    return samples, readers.missing


def progress(text: str) -> None:
    """One line on a terminal, written over again and again; nothing in a log file."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


# --- the table ----------------------------------------------------------------------------------------------------


def times(samples: Iterable[Sample], wire: str, together: int, reader: str) -> float | None:
    """How many times ours this reader needs."""
    of = [sample[wire, together, reader] / sample[wire, together, OURS]
          for sample in samples if (wire, together, reader) in sample]  # fmt: skip
    return median(of) if of else None


def table(samples: list[Sample]) -> str:
    costs: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for sample in samples:
        for key, value in sample.items():
            costs[key].append(value)
    lines = [
        "| wire | deltas/read | Pellucid µs | SDK µs | x | Pydantic AI µs | x |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for wire, together in dict.fromkeys((wire, together) for wire, together, _ in costs):
        cells = [wire, str(together), f"{median(costs[wire, together, OURS]):.1f}"]
        for reader in (SDK, PYDANTIC_AI):
            of, ratio = costs.get((wire, together, reader)), times(samples, wire, together, reader)
            cells += ["", ""] if of is None or ratio is None else [f"{median(of):.0f}", f"{ratio:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts(samples: list[Sample]) -> list[tuple[bool, str]]:
    """Return for each target whether it is met, and its least favourable figure."""
    wires = list(dict.fromkeys(wire for wire, _, _ in samples[0]))
    cost, slowest, together = max(
        (median(sample[wire, together, OURS] for sample in samples), wire, together)
        for wire in wires
        for together in TOGETHER
        if wire not in NOT_JSON or wires == [*NOT_JSON]
    )
    worst = f"{cost:.1f} ({slowest}, {together} a read)"
    judged = [(cost <= MOST_MICROSECONDS, f"at most {MOST_MICROSECONDS:.0f} µs a delta on every JSON wire: {worst}")]
    for (reader, on), least in LEAST_TIMES.items():
        ratios = [
            (ratio, wire, together)
            for wire in wires
            for together in TOGETHER
            if on in (None, wire) and (ratio := times(samples, wire, together, reader)) is not None
        ]
        if ratios:
            ratio, wire, together = min(ratios)
            name = {SDK: "the SDK", PYDANTIC_AI: "Pydantic AI"}[reader]
            text = f"{name} needs at least {least:.0f} x as much: {ratio:.1f} x ({wire}, {together} a read)"
            judged.append((ratio >= least, text))
    return judged


def inside(options: argparse.Namespace) -> int:
    """In the environment that has everything."""
    started = datetime.now(UTC)
    samples, missing = measure(options.rounds or (2 if options.quick else 7), options.wire or ())
    targets = verdicts(samples)
    met_or_not = "\n".join(f"* {'met' if met else 'NOT MET'}: {text}" for met, text in targets)
    notes = "".join(f"\n* not measured: {about}: {why}" for about, why in missing.items())
    text = f"{table(samples)}\n\n{met_or_not}{notes}"
    print(f"\ndecoding: CPU time a delta; medians of {len(samples)} rounds\n\n{text}")
    if options.write:
        used = [f"{name} {number}" for name, number in versions().items()]
        when = document.conditions(f"bench/decode.py --rounds {len(samples)}", started, used)
        document.write_section(document.PERFORMANCE, "bench/decode.py", f"{when}\n\n{text}")
    results = BENCH / "results"
    results.mkdir(exist_ok=True)
    path = results / f"decode-{started:%Y%m%d-%H%M%S}.json"
    content = {
        "started": started.isoformat(),
        "python": platform.python_version(),
        "versions": versions(),
        "missing": missing,
        "targets": [{"met": met, "target": text} for met, text in targets],
        "samples": [[[*key, value] for key, value in sample.items()] for sample in samples],
    }
    path.write_text(json.dumps(content, indent=1))
    print(f"\n{(datetime.now(UTC) - started).seconds} s in all; every sample is in {os.path.relpath(path)}")
    return 1 if options.strict and not all(met for met, _ in targets) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure the cost of decoding a delta, compared with other libraries.")
    parser.add_argument("--quick", action="store_true", help="two rounds: half a minute")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (default: 7; quick: 2)")
    parser.add_argument("--wire", action="append", help="only this wire; may be repeated")
    parser.add_argument("--write", action="store_true", help="write the table into docs/performance.md")
    parser.add_argument("--strict", action="store_true", help="status 1 when a target is not met")
    options = parser.parse_args(arguments)
    if Path(sys.prefix).resolve() == ENVIRONMENT:
        return inside(options)
    prepare()
    command = [str(PYTHON), str(Path(__file__)), *(sys.argv[1:] if arguments is None else arguments)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
