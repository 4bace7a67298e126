"""A gateway records and signs what it stores; commands verify, export and erase it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pellucid.cli.main import main
from pellucid.record import Signer
from pellucid.record.keys import public_pem
from tests.scripted import Upstream, say
from tests.scripted.gateway import Served, serve
from tests.waiting import wait_until


class StoredGateway:
    """The store and configuration of a gateway, and its record commands."""

    def __init__(self, folder: Path, upstream: Upstream) -> None:
        self.folder, self.file, self.key = folder, folder / "kept.sqlite", folder / "keys" / "record.pem"
        self.config: dict[str, Any] = {
            "storage": {"url": f"sqlite:///{self.file}"},
            "record": {"key_file": str(self.key), "seconds": 1},
            "limits": {"retries": 0},
            "providers": {"vllm": {"profile": "vllm", "base_url": upstream.url}},
        }
        (folder / "pellucid.toml").write_text(
            f'storage.url = "sqlite:///{self.file}"\n'
            f'record.key_file = "{self.key}"\n'
            f'[providers.vllm]\nbase_url = "{upstream.url}"\n'
        )

    def run_command(self, *args: str, status: int = 0) -> Result:
        done = CliRunner().invoke(main, ["record", args[0], "--config", str(self.folder / "pellucid.toml"), *args[1:]])
        assert done.exit_code == status, done.output
        return done

    def verify(self, *args: str, status: int = 0) -> Any:
        return json.loads(self.run_command("verify", "--json", *args, status=status).stdout)

    def sql(self, statement: str, *values: Any) -> None:
        with sqlite3.connect(self.file) as database:
            database.execute(statement, values)
        database.close()


@pytest.fixture(scope="module")
def stored_gateway(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> StoredGateway:
    return StoredGateway(tmp_path_factory.mktemp("kept"), upstream)


@pytest.fixture(scope="module")
def gateway(stored_gateway: StoredGateway) -> Iterator[Served]:
    with serve(stored_gateway.config) as running:
        yield running


def post(gateway: Served, path: str, body: Any) -> Any:
    reply = gateway.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}, 20)
    assert reply.status == 200, reply.body
    return reply


def chains(report: Any) -> dict[str, Any]:
    return {chain["scope"]: chain for chain in report["chains"]}


def test_a_stored_response_is_recorded_and_signed(
    gateway: Served, stored_gateway: StoredGateway, upstream: Upstream
) -> None:
    name = "vllm:" + upstream.plays(say("Let me see.", "It is 42."))
    alone = post(gateway, "/v1/responses", {"model": name, "input": "Why?"}).json["id"]
    conversation = post(gateway, "/v1/conversations", {}).json["id"]
    post(gateway, "/v1/responses", {"model": name, "input": "Why?", "conversation": conversation})
    before = set(chains(stored_gateway.verify()))
    secret = post(gateway, "/v1/responses", {"model": name, "input": "Between us.", "store": False}).json["id"]
    streamed = post(gateway, "/v1/responses", {"model": name, "input": "Hm?", "store": False, "stream": True})
    assert streamed.events
    report = stored_gateway.verify()
    assert set(chains(report)) == before == {f"response:{alone}", f"conversation:{conversation}"}
    assert chains(report)[f"conversation:{conversation}"]["contents"] == 4  # response, input, thought, answer
    assert secret not in stored_gateway.run_command("export").stdout
    wait_until(
        lambda: all(chain["signed"] == chain["entries"] for chain in stored_gateway.verify()["chains"]),
        "all is signed",
    )
    assert oct(stored_gateway.key.stat().st_mode & 0o777) == "0o600"


def test_a_deletion_over_http_is_recorded(gateway: Served, stored_gateway: StoredGateway, upstream: Upstream) -> None:
    name = "vllm:" + upstream.plays(say("Hm.", "Yes."))
    id = post(gateway, "/v1/responses", {"model": name, "input": "Why?"}).json["id"]
    assert gateway.request("DELETE", f"/v1/responses/{id}").status == 200
    chain = chains(stored_gateway.verify())[f"response:{id}"]
    assert (chain["entries"], chain["contents"], chain["gone"]) == (2, 0, 1)


def test_an_exported_record_is_verified_elsewhere(
    gateway: Served, stored_gateway: StoredGateway, upstream: Upstream
) -> None:
    name = "vllm:" + upstream.plays(say("Hm.", "Yes."))
    id = post(gateway, "/v1/responses", {"model": name, "input": "Who is Ann?"}).json["id"]
    export, public = stored_gateway.folder / "export.jsonl", stored_gateway.folder / "public.pem"
    stored_gateway.run_command("export", "--output", str(export))
    public.write_text(stored_gateway.run_command("key").stdout)
    assert "PRIVATE" not in public.read_text()
    output = stored_gateway.run_command("verify", "--public-key", str(public), str(export)).stdout
    assert f"response:{id}: 1 entry, 1 content there; signed up to 1 (checkpoint" in output
    assert "with the key in the export" in stored_gateway.run_command("verify", str(export)).stdout
    assert "Who is Ann?" in export.read_text() or "content_base64" in export.read_text()
    # `--known` requires the checkpoints of the export to be in the record.
    stored_gateway.run_command("verify", "--known", str(export))
    small = stored_gateway.folder / "small.jsonl"
    stored_gateway.run_command("export", "--scope", f"response:{id}", "--output", str(small))
    assert stored_gateway.verify(str(small))["scopes"] == 1
    small.write_bytes(small.read_bytes().replace(b'"kind":"response"', b'"kind":"envelope"'))
    wrong = stored_gateway.verify(str(small), status=1)
    assert [(one["what"], one["entry"]) for one in wrong["findings"]] == [("entry", 1)]
    small.write_bytes(b"{}\n")
    assert "line 1 is not a line of a record" in stored_gateway.run_command("verify", str(small), status=2).stderr


def test_a_missing_scope_owner_or_store_is_an_error(gateway: Served, stored_gateway: StoredGateway) -> None:
    """A mistyped name or a wrong store must not be reported as correct."""
    assert "nothing of space:reveiw" in stored_gateway.run_command("verify", "--scope", "space:reveiw", status=2).stderr
    assert "nothing of nobody" in stored_gateway.run_command("verify", "--json", "--owner", "nobody", status=2).stderr
    elsewhere = stored_gateway.folder / "elsewhere" / "kept.sqlite"
    for command in ("verify", "export"):
        assert (
            "there is no store"
            in stored_gateway.run_command(command, "--store", f"sqlite:///{elsewhere}", status=2).stderr
        )
    assert not elsewhere.parent.exists()


def test_the_erase_command_erases_contents(gateway: Served, stored_gateway: StoredGateway, upstream: Upstream) -> None:
    name = "vllm:" + upstream.plays(say("Hm.", "Yes."))
    conversation = post(gateway, "/v1/conversations", {}).json["id"]
    body = {"model": name, "input": "Why?", "conversation": conversation}
    first, second = (post(gateway, "/v1/responses", body).json["id"] for _ in range(2))
    assert stored_gateway.run_command("erase", f"conversation:{conversation}", first).stdout == "1 content erased.\n"
    assert (
        "nothing was erased"
        in stored_gateway.run_command("erase", f"conversation:{conversation}", first, status=2).stderr
    )
    assert gateway.request("GET", f"/v1/responses/{first}").status == 404
    assert gateway.request("GET", f"/v1/responses/{second}").status == 200
    stored_gateway.run_command("erase", f"conversation:{conversation}")
    chain = chains(stored_gateway.verify("--scope", f"conversation:{conversation}"))[f"conversation:{conversation}"]
    assert (chain["contents"], chain["gone"]) == (0, 8)
    assert "the record has no space:none" in stored_gateway.run_command("erase", "space:none", status=2).stderr


def test_verify_names_the_changed_content(stored_gateway: StoredGateway, gateway: Served, upstream: Upstream) -> None:
    name = "vllm:" + upstream.plays(say("Hm.", "Yes."))
    id = post(gateway, "/v1/responses", {"model": name, "input": "Why?"}).json["id"]
    stored_gateway.sql("UPDATE responses SET status = 'failed' WHERE id = ?", id)
    output = stored_gateway.run_command("verify", status=1).stdout
    assert "1 problem found:" in output
    assert f"response:{id}: the content of entry 1 (response {id}) is not what was recorded" in output
    stored_gateway.sql("UPDATE responses SET status = 'completed' WHERE id = ?", id)
    assert stored_gateway.verify()["right"]


def test_verify_reports_a_record_that_another_key_signed(
    stored_gateway: StoredGateway, gateway: Served, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_text(public_pem(Signer.generate().public))
    findings = stored_gateway.verify("--public-key", str(other), status=1)["findings"]
    assert "key" in {finding["what"] for finding in findings}
    other.write_text("no key")
    assert (
        "it must hold Ed25519 keys" in stored_gateway.run_command("verify", "--public-key", str(other), status=2).stderr
    )


def test_nothing_is_recorded_if_the_record_is_disabled(upstream: Upstream, tmp_path: Path) -> None:
    off = StoredGateway(tmp_path, upstream)
    with serve({**off.config, "record": {"enabled": False}}) as gateway:
        post(gateway, "/v1/responses", {"model": "vllm:" + upstream.plays(say("Hm.", "Yes.")), "input": "Why?"})
    report = off.verify()
    assert (report["right"], report["scopes"], report["before"]) == (True, 0, 1)
    assert not off.key.exists()
