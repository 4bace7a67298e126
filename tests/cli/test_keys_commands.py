"""`pellucid keys` and `pellucid seal-keys` work on the keys of the gateway with the same configuration."""

from __future__ import annotations

import http.client
import inspect
import json
from pathlib import Path
from typing import Any

from pellucid.cli.keys import create
from pellucid.server.access.policy import Policy
from tests.cli.in_process import ServeThread
from tests.scripted.commands import Run
from tests.waiting import LIMIT_SECONDS

ENV = "PELLUCID_SEAL_KEYS_FILE"


def config(tmp_path: Path, more: str = "") -> str:
    return f"""
        storage.url = "sqlite:///{tmp_path}/kept.sqlite"
        access.pepper_file = "{tmp_path}/pepper"
        sealing.keys_file = "{tmp_path}/seals.json"
        {more}
        [providers.vllm]
        base_url = "http://127.0.0.1:9/v1"
        models = ["m"]
    """


def list_models(port: int, key: str | None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_SECONDS)
    try:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_other_options_of_a_new_key_are_rules_of_its_policy() -> None:
    assert create.callback is not None
    own = inspect.signature(create.callback).parameters
    assert {str(option.name) for option in create.params} - set(own) <= set(Policy.__struct_fields__)


def test_a_created_key_is_accepted_by_the_gateway_of_the_same_configuration(
    run: Run, serve: ServeThread, tmp_path: Path
) -> None:
    (tmp_path / "pellucid.toml").write_text(config(tmp_path))
    made = json.loads(run("keys", "create", "--owner", "acme", "--json").stdout)
    with serve(config=config(tmp_path, "access.keys = true")) as serving:
        assert list_models(serving.port, None)[0] == 401
        status, listed = list_models(serving.port, made["key"])
        assert (status, [model["id"] for model in listed["data"]]) == (200, ["m"])
    assert made["id"] in run("keys", "list", "--config", str(tmp_path / "pellucid.toml")).stdout.decode()
    assert run("keys", "revoke", made["id"]).returncode == 0
    again = run("keys", "revoke", "key_unknown")
    assert (again.returncode, b"there is no key 'key_unknown'" in again.stderr) == (2, True)


def test_creating_the_first_key_warns_that_keys_become_required(run: Run, tmp_path: Path) -> None:
    closes = b"The first key: within 5 s the gateway requires a key from every client, permanently"
    (tmp_path / "pellucid.toml").write_text(config(tmp_path))
    first, second = (run("keys", "create", "--owner", "acme", "--json").stderr for _ in range(2))
    assert first.splitlines() == [closes + b" (docs/access.md)."]
    assert second == b""
    (tmp_path / "pellucid.toml").write_text(config(tmp_path, "access.keys = true").replace("kept.", "other."))
    assert closes not in run("keys", "create", "--owner", "acme").stderr


def test_seal_keys_uses_the_keys_of_the_gateway(run: Run, serve: ServeThread, tmp_path: Path) -> None:
    with serve(config=config(tmp_path)):
        listed = run("seal-keys", "list").stdout.decode()
    [_, first] = listed.splitlines()
    assert "seals and opens" in first
    rotated = run("seal-keys", "rotate", "--config", str(tmp_path / "pellucid.toml")).stdout.decode()
    assert rotated.split()[0] in (tmp_path / "seals.json").read_text()
    assert run("seal-keys", "retire", first.split()[0]).returncode == 0
    assert run("seal-keys", "retire", rotated.split()[0]).returncode == 2


def test_the_default_seal_keys_are_in_the_data_directory(run: Run, tmp_path: Path) -> None:
    home = {"XDG_DATA_HOME": str(tmp_path / "data")}
    assert run("seal-keys", "rotate", env=home).returncode == 0
    assert (tmp_path / "data" / "pellucid" / "seal-keys.json").is_file()
    elsewhere = tmp_path / "elsewhere.json"
    assert run("seal-keys", "rotate", env={**home, ENV: str(elsewhere)}).returncode == 0
    assert elsewhere.is_file()


def test_an_invalid_configuration_is_reported_before_anything_is_created(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pellucid.toml").write_text("[sealing]\nkey_file = 1\n")
    for command in (("seal-keys", "rotate"), ("keys", "create", "--owner", "me")):
        done = run(*command, env={"XDG_DATA_HOME": str(tmp_path / "data")})
        assert (done.returncode, b"did you mean 'keys_file'" in done.stderr) == (2, True)
    assert not (tmp_path / "data").exists()


def test_config_check_covers_storage_and_relay(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pellucid.toml").write_text(config(tmp_path, 'storage.retention_seconds = -1\nrelay.url = "http://x"'))
    done = run("config", "check")
    assert done.returncode == 2
    assert b"storage.retention_seconds" in done.stderr
    (tmp_path / "pellucid.toml").write_text(config(tmp_path))
    assert run("config", "check").returncode == 0
