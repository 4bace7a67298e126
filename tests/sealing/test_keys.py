"""Seal keys: created once, changed by one process at a time, readable by their owner only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pellucid.errors import ConfigError, RequestError
from pellucid.sealing import KeyFile, Keys, Sealer, change_keys, ensure_keys, env_keys, read_keys
from tests.sealing.sealing_kit import KEYS, NOW, SEALED

ACTIVE = KEYS.active


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.json"


def test_keys_round_trip_through_json() -> None:
    keys = KEYS.rotate(NOW).retire(ACTIVE.kid, NOW + timedelta(days=1)).rotate(NOW)
    assert Keys.from_json(keys.to_json()) == keys
    assert Keys.from_json(keys.to_json().decode()) == keys


def test_no_representation_shows_a_key() -> None:
    for shown in (repr(KEYS), str(ACTIVE), f"{KEYS}"):
        assert repr(ACTIVE.key)[2:-1] not in shown
        assert ACTIVE.kid in shown


def changed(**values: Any) -> str:
    key = json.loads(KEYS.to_json())["keys"][0]
    return json.dumps({"keys": [{name: value for name, value in {**key, **values}.items() if value != ...}]})


MISTAKES = [
    ("", "truncated"),
    ("{}", "keys"),
    ("[" * 5000, "keys"),
    ('{"keys": []}', "no key that seals"),
    ('{"keys": [], "x": 1}', "x"),
    (changed(kid=""), "keys[0].kid"),
    (changed(kid="ä"), "keys[0].kid"),
    (changed(key="AAAA"), "3 bytes"),
    (changed(key="!"), "base64"),
    (changed(key=...), "key"),
    (changed(created_at="2026-01-31T12:00:00"), "created_at"),
    (changed(retired_at="2026-01-31T12:00:00Z"), "no key that seals"),
    (json.dumps({"keys": json.loads(KEYS.to_json())["keys"] * 2}), "keys[1].kid"),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES, ids=[expected for _, expected in MISTAKES])
def test_each_mistake_is_named_and_no_key_is_quoted(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        Keys.from_json(text, "HERE")
    assert all(line.startswith("HERE: ") for line in wrong.value.mistakes)
    assert expected in str(wrong.value)
    assert json.loads(KEYS.to_json())["keys"][0]["key"] not in str(wrong.value)


def test_retire_needs_an_existing_key_that_is_not_the_last() -> None:
    with pytest.raises(RequestError) as missing:
        KEYS.retire("nobody", NOW)
    assert missing.value.info.kind == "not_found"
    with pytest.raises(RequestError, match="rotate first"):
        KEYS.retire(ACTIVE.kid, NOW)


# --- the file ----------------------------------------------------------------------------------------------------


def test_the_file_is_created_once_and_readable_by_its_owner_only(file: Path) -> None:
    with pytest.raises(ConfigError, match="there are no seal keys"):
        read_keys(file)
    keys = ensure_keys(file)
    assert ensure_keys(file) == read_keys(file) == keys
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o610])
def test_a_file_readable_by_others_is_refused(file: Path, mode: int) -> None:
    ensure_keys(file)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode 0{mode:o}.*chmod 600"):
        ensure_keys(file)


def test_an_unwritable_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="seal keys cannot be made"):
        ensure_keys(tmp_path / "file" / "keys.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(tmp_path)


def test_concurrent_starts_create_one_key(file: Path) -> None:
    for _ in range(30):
        with ThreadPoolExecutor(8) as pool:
            key_sets = list(pool.map(lambda _: ensure_keys(file), range(8)))
        assert len({keys.active.kid for keys in key_sets}) == 1
        assert os.listdir(file.parent) == [file.name]
        file.unlink()


def test_concurrent_processes_open_each_others_tokens(file: Path) -> None:
    code = (
        "import sys; from pellucid.sealing import *; from pellucid.parts import *\n"
        "sys.stdin.read(1)\n"  # wait until every process is here
        "o = Origin('p', 'w', 'm'); sealer = Sealer(ensure_keys(sys.argv[1]))\n"
        "print(sealer.seal(Sealed([ThinkingPart('why', origin=o)], o), tenant='a'))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go")
        process.stdin.flush()
    sealer = Sealer(read_keys(file) if file.exists() else KeyFile(file))
    for process in processes:
        token, _ = process.communicate(timeout=100)
        assert sealer.open(token.strip(), tenant="a").parts[0].content == "why"  # type: ignore[union-attr]


def test_concurrent_changes_are_all_written(file: Path) -> None:
    first = ensure_keys(file)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: change_keys(file, lambda keys: keys.rotate(NOW)), range(16)))
    keys = read_keys(file)
    assert len({key.kid for key in keys.keys}) == 17
    assert keys.keys[-1] == first.active
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_change_that_fails_changes_nothing(file: Path) -> None:
    keys = ensure_keys(file)
    with pytest.raises(RequestError):
        change_keys(file, lambda keys: keys.retire(keys.active.kid, NOW))
    assert read_keys(file) == keys


def test_a_rotation_needs_no_restart(file: Path) -> None:
    here, there = KeyFile(file), KeyFile(file)
    old = Sealer(here).seal(SEALED, tenant="a")
    change_keys(file, lambda keys: keys.rotate(NOW))
    new = Sealer(here).seal(SEALED, tenant="a")
    assert here() == there() == read_keys(file)
    assert Sealer(there).open(old, tenant="a") == Sealer(there).open(new, tenant="a") == SEALED


def test_a_file_that_becomes_invalid_is_logged_and_the_keys_stay(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = KeyFile(file)
    before = keys()
    content = file.read_bytes()
    file.unlink()
    assert keys() == keys() == before
    assert len(caplog.records) == 1
    file.touch(0o600)
    assert keys() == before
    file.write_bytes(content)
    assert keys() == before == read_keys(file)
    assert 'key":' not in caplog.text


def test_the_environment_may_hold_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PELLUCID_SEAL_KEYS", raising=False)
    assert env_keys() is None
    monkeypatch.setenv("PELLUCID_SEAL_KEYS", " ")
    assert env_keys() is None
    monkeypatch.setenv("PELLUCID_SEAL_KEYS", KEYS.to_json().decode())
    assert env_keys() == KEYS
    monkeypatch.setenv("PELLUCID_SEAL_KEYS", "x")
    with pytest.raises(ConfigError, match=r"^PELLUCID_SEAL_KEYS: "):
        env_keys()
