"""The golden comparison's coverage of the product's surface, and the helpers of its longer cases."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from click.testing import CliRunner

from pellucid.cli.main import main
from tests.cases import Cases
from tools.golden import FRESH_SECONDS, Plan, tidy
from tools.golden_faults import FAULTS, rewrite
from tools.golden_kit.captures import BROKEN
from tools.golden_kit.capturing import surface_case
from tools.golden_kit.commands import command_tree
from tools.golden_kit.surface import EXEMPT, Surface, unexplained
from tools.golden_kit.talk import MARK, half, rounded
from tools.golden_kit.upstream import pieces

DOCUMENT = {
    "paths": {
        "/things": {"get": {}, "post": {}, "parameters": []},
        "/things/{id}": {"get": {}, "delete": {}},
        "/things/{id}/ws": {"x-pellucid-websocket": {}},
    }
}


def test_an_operation_that_no_request_reached_is_missing() -> None:
    surface = Surface()
    surface.add_request("GET", "/things?limit=1", 200)
    surface.add_request("GET", "/things/a-1", 200)
    surface.add_request("DELETE", "/things/a-1", 404)
    assert surface.missing_operations(DOCUMENT) == ["POST /things", "DELETE /things/{id}", "WEBSOCKET /things/{id}/ws"]
    surface.add_request("WEBSOCKET", "/things/a-1/ws", 101)
    assert surface.missing_operations(DOCUMENT) == ["POST /things", "DELETE /things/{id}"]


def test_a_command_counts_as_used_when_it_ended_well() -> None:
    surface = Surface()
    surface.commands = {(): True, ("keys",): True, ("keys", "list"): False, ("decode",): False, ("ask",): False}
    surface.add_command(("keys", "list", "--json"), 0)
    surface.add_command(("decode", "--from", "x"), 2)
    surface.add_command(("ask", "--help"), 0)
    assert surface.missing_commands() == ["decode", "ask"]


def test_what_is_missing_and_not_exempt_breaks_the_comparison() -> None:
    [exempt, broken] = surface_case(DOCUMENT).records
    assert exempt == ("exempt", "")
    assert broken[0] == BROKEN
    assert "DELETE /things/{id}" in broken[1]
    assert unexplained(["POST /things", "serve"]) == ["POST /things"]


def _offered() -> set[str]:
    runner = CliRunner()
    document = json.loads(runner.invoke(main, ["openapi"]).output)
    commands = command_tree(lambda path: runner.invoke(main, [*path, "--help"]).output)
    return {*Surface().missing_operations(document), *(" ".join(path) for path in commands)}


def test_every_exemption_exists() -> None:
    assert set(EXEMPT) <= _offered()


def test_the_command_tree_has_groups_and_their_commands() -> None:
    assert {"", "decode", "keys", "keys create", "space say", "record verify", "config check"} <= _offered()


def test_half_of_a_response_ends_at_the_mark() -> None:
    play = half()
    sent = b"".join(pieces(play.body[: len(play.body) * 2 // 3], play.cut, play.content_type))
    assert sent.partition(MARK.encode())[2].endswith(b"}\n\n")
    assert b"\n\n:" not in sent[:-2]


def test_seconds_in_a_head_are_rounded_up_and_all_else_stays() -> None:
    with Cases() as case:
        for head, expected in (
            ("429\nretry-after: 42", "429\nretry-after: 50"),
            ("429\nretry-after: 50", "429\nretry-after: 50"),
            ("200\nx-other: 42", "200\nx-other: 42"),
            ("200\nretry-after: soon", "200\nretry-after: soon"),
        ):
            with case(head):
                assert rounded(head, ("retry-after",)) == expected


def test_captures_depend_on_the_recordings(tmp_path: Path) -> None:
    keys = [Plan(tmp_path, False, []).key()]
    (tmp_path / "response.body").write_bytes(b"data: 1\n\n")
    keys.append(Plan(tmp_path, False, []).key())
    (tmp_path / "response.body").write_bytes(b"data: 22\n\n")
    keys.append(Plan(tmp_path, False, []).key())
    assert len(set(keys)) == 3
    assert Plan(tmp_path, False, []).key() == keys[-1]


def test_the_cache_drops_old_entries(tmp_path: Path) -> None:
    ages = {"used": 100, "other": 100, "young": 0.1, "fresh.db": 0.0, "old.db": 0.5, "old.db.left": 0.5}
    for name, days in ages.items():
        path = tmp_path / name
        path.touch() if name.endswith(".db") else path.mkdir()
        then = time.time() - days * 86_400
        os.utime(path, (then, then))
    assert FRESH_SECONDS < 0.5 * 86_400
    tidy(tmp_path, tmp_path / "used")
    assert {path.name for path in tmp_path.iterdir()} == {"used", "young", "fresh.db"}


def test_a_fault_that_does_not_apply_is_refused(tmp_path: Path) -> None:
    fault = FAULTS[0]
    path = tmp_path / "src" / "pellucid" / fault.file
    path.parent.mkdir(parents=True)
    for text, fits in ((fault.before, True), (fault.before * 2, False), ("", False)):
        path.write_text(text)
        assert (rewrite(tmp_path, fault) == text) is fits
        assert path.read_text() == (fault.after if fits else text)


def test_every_fault_applies_to_the_source() -> None:
    source = Path(__file__).parents[2] / "src" / "pellucid"
    with Cases() as case:
        for fault in FAULTS:
            with case(fault.name):
                assert (source / fault.file).read_text().count(fault.before) == 1
