"""Every key of the configuration is in the documentation, and every key that is shown there exists."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from pellucid.server.config import Config

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("configuration.md", "access.md", "telemetry.md", "spaces.md", "record.md")
ELSEWHERE = {("models", "*", "settings"), ("providers", "*", "limits")}
"""Whose keys are told elsewhere: in agents.md, and at [limits]."""


def keys(to: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The paths of a struct's keys, and whether anything may stand below; `*` is a name that the operator gives."""
    for field in msgspec.structs.fields(to):
        path = (*at, field.encode_name)
        kinds = [kind for kind in get_args(field.type) or (field.type,) if kind is not type(None)]
        named = get_origin(field.type) is dict
        structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
        yield path, path in ELSEWHERE or (named and not structs)
        if path not in ELSEWHERE:
            for kind in structs:
                yield from keys(kind, (*path, "*") if named else path)


def shown() -> Iterator[tuple[str, ...]]:
    """The paths in the examples, also in what is commented out."""
    for page in PAGES:
        for example in re.findall(r"^```toml\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.DOTALL | re.MULTILINE):
            at: tuple[str, ...] = ()
            for line in example.splitlines():
                if table := re.match(r"\[([\w.-]+)\]", line):
                    at = tuple(table[1].split("."))
                    yield at
                elif entry := re.match(r"(?:# )?(\w+ = .+)", line):
                    for name, value in tomllib.loads(entry[1]).items():
                        yield (*at, name)
                        for row in value if isinstance(value, list) else [value]:
                            if isinstance(row, dict):
                                yield from ((*at, name, inner) for inner in row)


KEYS = dict(keys(Config))


def known(path: tuple[str, ...]) -> tuple[str, ...]:
    """The path with `*` for names, as far as the configuration says what may stand there."""
    found: tuple[str, ...] = ()
    for name in path:
        if KEYS.get(found):
            break
        named = found in KEYS and any(key[: len(found) + 1] == (*found, "*") for key in KEYS)
        found = (*found, "*" if named else name)
    return found


def test_every_key_that_is_shown_exists() -> None:
    for path in shown():
        full = known(path)
        assert full in KEYS or full[-1] == "*", f"{'.'.join(path)}: there is no such key"


def test_every_key_is_shown() -> None:
    told = {full[:n] for path in shown() for full in [known(path)] for n in range(1, len(full) + 1)}
    assert sorted(".".join(path) for path in KEYS.keys() - told) == []
