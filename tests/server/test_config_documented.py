"""Every key of the configuration is documented, and every documented key exists."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from pellucid.server.config import Config

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("configuration.md", "access.md", "telemetry.md", "spaces.md", "record.md", "spend.md")
ELSEWHERE = {
    ("models", "*", "settings"),
    ("models", "*", "deployments", "settings"),
    ("models", "*", "deployments", "prices"),
    ("providers", "*", "limits"),
    ("providers", "*", "prices"),
}
"""Tables whose keys are documented elsewhere: in agents.md, at [limits], and at the prices of a model."""


def config_paths(to: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the path of each key, and whether any key may follow; `*` stands for names that the operator chooses."""
    for field in msgspec.structs.fields(to):
        path = (*at, field.encode_name)
        kinds = [kind for kind in get_args(field.type) or (field.type,) if kind is not type(None)]
        is_mapping = get_origin(field.type) is dict
        structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
        yield path, path in ELSEWHERE or (is_mapping and not structs)
        if path not in ELSEWHERE:
            for kind in structs:
                yield from config_paths(kind, (*path, "*") if is_mapping else path)


def documented_paths() -> Iterator[tuple[str, ...]]:
    """Yield the paths in the examples, also those that are commented out."""
    for page in PAGES:
        for example in re.findall(r"^```toml\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.DOTALL | re.MULTILINE):
            at: tuple[str, ...] = ()
            for line in example.splitlines():
                if table := re.match(r"""\[\[?([\w."/*-]+)\]""", line):
                    at = tuple(table[1].split("."))
                    yield at
                elif entry := re.match(r"(?:# )?(\w+ = .+)", line):
                    for name, value in tomllib.loads(entry[1]).items():
                        yield (*at, name)
                        for row in value if isinstance(value, list) else [value]:
                            if isinstance(row, dict):
                                yield from ((*at, name, inner) for inner in row)


KEYS = dict(config_paths(Config))


def with_wildcards(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path with `*` for names that the operator chooses, up to a table whose keys are free."""
    wildcard_path: tuple[str, ...] = ()
    for name in path:
        if KEYS.get(wildcard_path):
            break
        is_mapping = wildcard_path in KEYS and any(
            key[: len(wildcard_path) + 1] == (*wildcard_path, "*") for key in KEYS
        )
        wildcard_path = (*wildcard_path, "*" if is_mapping else name)
    return wildcard_path


def test_every_documented_key_exists() -> None:
    for path in documented_paths():
        full = with_wildcards(path)
        assert full in KEYS or full[-1] == "*", f"{'.'.join(path)}: there is no such key"


def test_every_key_is_documented() -> None:
    documented = {
        full[:n] for path in documented_paths() for full in [with_wildcards(path)] for n in range(1, len(full) + 1)
    }
    assert sorted(".".join(path) for path in KEYS.keys() - documented) == []
