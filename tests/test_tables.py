"""Wires and client protocols are rows of one table each; other lists that must exist name the same rows."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pellucid.protocols.chat_completions import messages
from pellucid.protocols.client_protocols import CLIENT_PROTOCOLS
from pellucid.providers.openai_chat import details
from pellucid.providers.wires import WIRES
from tests import test_every_kind, wire_frames

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def contract(name: str) -> dict[str, Any]:
    contracts: list[dict[str, Any]] = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    return next(row for row in contracts if row["name"] == name)


def test_the_import_contract_lists_every_wire() -> None:
    assert set(contract("Wires do not import each other")["modules"]) == {
        f"pellucid.providers.{name}" for name in WIRES
    }


def test_the_import_contract_lists_every_client_protocol() -> None:
    modules = set(contract("Client protocols do not import each other")["modules"])
    assert modules == {f"pellucid.protocols.{name.replace('-', '_')}" for name in CLIENT_PROTOCOLS}


def test_frames_of_every_wire_are_tested() -> None:
    tested = {wire for wire in WIRES if any(name.startswith(wire) for name in wire_frames.EVERY)}
    assert tested == set(WIRES) - {"bedrock"}, "frames of an event stream have checksums, so none matches a template"


def test_every_client_protocol_lists_the_events_that_it_shows() -> None:
    names = {name.replace("-", "_") for name in CLIENT_PROTOCOLS}
    assert set(test_every_kind.HANDLERS) == set(test_every_kind.NOT_SHOWN) == names


def test_reasoning_details_have_the_same_readable_entries_in_requests_and_in_responses_of_models() -> None:
    """A wire and a client protocol may not import each other, so each has this table."""
    assert messages._READABLE == details._TEXT
