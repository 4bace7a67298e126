"""`pellucid seal-keys`: the output and the effect of each command. No command prints a key."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pellucid.cli.seal_keys import seal_keys
from pellucid.errors import ConfigError, RequestError
from pellucid.sealing import read_keys
from tests.sealing.sealing_kit import KEYS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def run(*args: str | Path, **env: str) -> Result:
    return CliRunner().invoke(seal_keys, [str(arg) for arg in args], env=env or None)


def test_a_key_is_created_rotated_and_retired(file: Path) -> None:
    assert run("rotate", "--file", file).exit_code == 0
    old = read_keys(file).active
    done = run("rotate", "--file", file)
    new = read_keys(file).active
    assert done.output == f"{new.kid} seals from now on.\n"
    listed = run("list", "--file", file).output.splitlines()
    assert [line.split()[0] for line in listed] == ["name", new.kid, old.kid]
    assert [line.split(maxsplit=2)[2].strip() for line in listed[1:]] == ["seals and opens", "opens"]
    assert "until" in run("retire", "--file", file, "--in-days", "3", old.kid).output
    assert "opens until" in run("list", "--file", file).output
    assert run("retire", "--file", file, old.kid).output == f"{old.kid} opens nothing any more.\n"
    assert "retired" in run("list", "--file", file).output
    [_, remaining_key] = read_keys(file).keys
    assert remaining_key.is_retired(datetime.now(UTC))


def test_the_file_may_be_named_by_the_environment(file: Path) -> None:
    assert run("rotate", PELLUCID_SEAL_KEYS_FILE=str(file)).exit_code == 0
    assert file.exists()


def test_a_failed_command_has_an_error_message(file: Path) -> None:
    assert isinstance(run("list", "--file", file).exception, ConfigError)
    assert isinstance(run("retire", "--file", file, "x").exception, ConfigError)
    run("rotate", "--file", file)
    assert isinstance(run("retire", "--file", file, "x").exception, RequestError)
    assert isinstance(run("retire", "--file", file, read_keys(file).active.kid).exception, RequestError)


def test_keys_of_the_environment_are_shown_and_not_changed(file: Path) -> None:
    env = {"PELLUCID_SEAL_KEYS": KEYS.to_json().decode()}
    assert KEYS.active.kid in run("list", **env).output
    for command in (("rotate",), ("retire", KEYS.active.kid)):
        assert isinstance(run(*command, "--file", file, **env).exception, RequestError)
    assert not file.exists()
