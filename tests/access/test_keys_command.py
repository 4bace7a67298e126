"""`pellucid keys`, and the guard of a gateway that uses the created keys."""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pellucid.cli.keys import keys
from pellucid.errors import ConfigError, PellucidError
from pellucid.server.access.keys import ensure_pepper
from pellucid.storage import open_store
from tests.access.access_kit import guard, refusal, scope

pytestmark = pytest.mark.anyio


class KeysCommand:
    def __init__(self, directory: Path) -> None:
        self.url = f"sqlite:///{directory}/store.db"
        self.pepper = directory / "pepper"
        self.config = directory / "gateway.toml"
        self.config.write_text(f'storage.url = "{self.url}"\naccess.pepper_file = "{self.pepper}"\n')

    def run(self, *args: str, error: str | None = None) -> Any:
        result = CliRunner().invoke(keys, [*args, "--config", str(self.config)], env={"PELLUCID_KEY_PEPPER": ""})
        if error is not None:
            message = str(result.exception) if isinstance(result.exception, PellucidError) else result.output
            assert result.exit_code, result.output
            assert error in message
            return result
        assert result.exit_code == 0, (result.output, result.exception)
        return result

    def create(self, *args: str) -> dict[str, Any]:
        made = self.run("create", "--owner", "acme", "--json", *args)
        key: dict[str, Any] = json.loads(made.stdout)
        return key


@pytest.fixture
def commands(tmp_path: Path) -> KeysCommand:
    return KeysCommand(tmp_path)


def test_stdout_has_the_new_key_only(commands: KeysCommand) -> None:
    result = commands.run("create", "--owner", "acme")
    [key] = result.stdout.split()
    assert len(key) == 62
    assert "cannot be shown again" in result.stderr
    for listed in (commands.run("list"), commands.run("list", "--json")):
        assert "acme" in listed.stdout
        assert key not in listed.stdout
        assert key[13:] not in listed.stdout
        assert f"key_{key[3:13]}" in listed.stdout


async def test_the_guard_applies_the_policy_of_a_created_key(commands: KeysCommand) -> None:
    import anyio

    made = await anyio.to_thread.run_sync(
        lambda: commands.create(
            *("--name", "ci", "--view", "summary", "--model", "qwen*", "--model", "gpt-5", "--tool", "search"),
            *("--rpm", "60", "--tpm", "9000", "--rtpm", "3000", "--streams", "4", "--expires", "30d", "--no-store"),
            *("--retention", "7d", "--max-body-bytes", "1000", "--max-output-tokens", "99", "--events", "openai"),
            *("--no-counts", "--operator"),
        )
    )
    store = await open_store(commands.url)
    access_guard = guard(
        {"pepper_file": str(commands.pepper), "keys": True}, store, environ={"PELLUCID_KEY_PEPPER": ""}
    )
    principal = await access_guard.admit(scope(made["key"]))
    assert (principal.owner, principal.key_id, principal.name) == ("acme", made["id"], "ci")
    policy = principal.policy
    assert (policy.view, policy.models, policy.tools) == ("summary", ["qwen*", "gpt-5"], ["search"])
    limits = (policy.requests_per_minute, policy.tokens_per_minute, policy.reasoning_tokens_per_minute, policy.streams)
    assert limits == (60, 9000, 3000, 4)
    assert (policy.store, policy.counts, policy.retention_seconds) == (False, False, 7 * 86_400)
    assert (policy.max_body_bytes, policy.max_output_tokens, policy.reasoning_events) == (1000, 99, "openai")
    assert policy.operator
    rows = await store.keys.list()
    assert len(rows) == 1
    row = rows[0]
    assert row.expires_at is not None
    assert row.expires_at - row.created_at == 30 * 86_400
    await anyio.to_thread.run_sync(lambda: commands.run("revoke", made["id"]))
    later = guard({"pepper_file": str(commands.pepper), "keys": True}, store, environ={"PELLUCID_KEY_PEPPER": ""})
    assert (await refusal(later, scope(made["key"]))).info.code == "key_revoked"
    await store.aclose()


def test_list_shows_states_and_filters_by_owner(commands: KeysCommand) -> None:
    one = commands.create("--expires", "1h")
    two = commands.create()
    three = json.loads(commands.run("create", "--owner", "b", "--json").stdout)
    commands.run("revoke", two["id"])
    with closing(sqlite3.connect(commands.url.removeprefix("sqlite:///"), isolation_level=None)) as store:
        store.execute("UPDATE keys SET expires_at = 1 WHERE id = ?", [one["id"]])
    assert one["state"] == "valid"
    assert {key["id"]: key["state"] for key in json.loads(commands.run("list", "--json").stdout)} == {
        one["id"]: "expired",
        two["id"]: "revoked",
        three["id"]: "valid",
    }
    assert [key["id"] for key in json.loads(commands.run("list", "--owner", "b", "--json").stdout)] == [three["id"]]


def test_the_default_store_and_pepper_are_in_the_data_directory(
    commands: KeysCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"XDG_DATA_HOME": str(tmp_path), "PELLUCID_KEY_PEPPER": ""}
    made = CliRunner().invoke(keys, ["create", "--owner", "me"], env=env)
    assert made.exit_code == 0, made.exception
    assert {file.name for file in (tmp_path / "pellucid").iterdir()} >= {"key-pepper", "pellucid.sqlite"}
    assert json.loads(commands.run("list", "--json").stdout) == []
    other = f"sqlite:///{tmp_path}/pellucid/pellucid.sqlite"
    assert len(json.loads(commands.run("list", "--json", "--store", other).stdout)) == 1


def test_invalid_arguments_are_reported(commands: KeysCommand) -> None:
    commands.run("create", "--owner", "a|b", error="an owner has 1 to 128 letters")
    commands.run("create", "--owner", "a", "--expires", "soon", error="30d, 12h or 90m")
    commands.run("create", "--owner", "a", "--expires", "0d", error="30d, 12h or 90m")
    commands.run("create", "--owner", "a", "--rpm", "0", error="0 is not in the range")
    commands.run("create", "--owner", "a", "--view", "all", error="'all' is not one of")
    commands.run("revoke", "key_unknown", error="there is no key 'key_unknown'")
    commands.create()
    assert len(json.loads(commands.run("list", "--json").stdout)) == 1


def test_concurrent_starts_create_one_private_pepper(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "pepper"
    start = threading.Barrier(16)

    def create(_: int) -> bytes:
        start.wait()
        return ensure_pepper(path, {})

    with ThreadPoolExecutor(16) as pool:
        peppers = set(pool.map(create, range(16)))
    assert len(peppers) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["pepper"]
    assert ensure_pepper(path, {}) == peppers.pop()


@pytest.mark.parametrize("text", ["", "short", "zz" * 32, "5a" * 31, "5a" * 33])
def test_an_invalid_pepper_is_reported_without_its_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pepper"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="64 hexadecimal digits") as caught:
        ensure_pepper(path, {})
    if text:
        assert text not in str(caught.value)
        with pytest.raises(ConfigError, match="PELLUCID_KEY_PEPPER"):
            ensure_pepper(path, {"PELLUCID_KEY_PEPPER": text})
