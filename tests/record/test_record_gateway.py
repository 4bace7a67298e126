"""What a gateway keeps is in the record, and signed while it runs; commands check it, take it along, erase from it."""

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
    """A gateway's file, and the commands that know it."""

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

    def does(self, *args: str, status: int = 0) -> Result:
        done = CliRunner().invoke(main, ["record", args[0], "--config", str(self.folder / "pellucid.toml"), *args[1:]])
        assert done.exit_code == status, done.output
        return done

    def verified(self, *args: str, status: int = 0) -> Any:
        return json.loads(self.does("verify", "--json", *args, status=status).stdout)

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


def test_from_a_request_to_a_signed_record(gateway: Served, stored_gateway: StoredGateway, upstream: Upstream) -> None:
    name = "vllm:" + upstream.plays(say("Let me see.", "It is 42."))
    alone = post(gateway, "/v1/responses", {"model": name, "input": "Why?"}).json["id"]
    talk = post(gateway, "/v1/conversations", {}).json["id"]
    post(gateway, "/v1/responses", {"model": name, "input": "Why?", "conversation": talk})
    before = set(chains(stored_gateway.verified()))
    secret = post(gateway, "/v1/responses", {"model": name, "input": "Between us.", "store": False}).json["id"]
    streamed = post(gateway, "/v1/responses", {"model": name, "input": "Hm?", "store": False, "stream": True})
    assert streamed.events
    report = stored_gateway.verified()
    assert set(chains(report)) == before == {f"response:{alone}", f"conversation:{talk}"}
    assert chains(report)[f"conversation:{talk}"]["contents"] == 4  # it, and its question, thought and answer
    assert secret not in stored_gateway.does("export").stdout
    wait_until(
        lambda: all(chain["signed"] == chain["entries"] for chain in stored_gateway.verified()["chains"]),
        "all is signed",
    )
    assert oct(stored_gateway.key.stat().st_mode & 0o777) == "0o600"


def test_what_is_deleted_over_http(gateway: Served, stored_gateway: StoredGateway, upstream: Upstream) -> None:
    name = "vllm:" + upstream.plays(say("Hm.", "Yes."))
    id = post(gateway, "/v1/responses", {"model": name, "input": "Why?"}).json["id"]
    assert gateway.request("DELETE", f"/v1/responses/{id}").status == 200
    chain = chains(stored_gateway.verified())[f"response:{id}"]
    assert (chain["entries"], chain["contents"], chain["gone"]) == (2, 0, 1)


def test_a_record_is_taken_along_and_checked_elsewhere(
    gateway: Served, stored_gateway: StoredGateway, upstream: Upstream
) -> None:
    name = "vllm:" + upstream.plays(say("Hm.", "Yes."))
    id = post(gateway, "/v1/responses", {"model": name, "input": "Who is Ann?"}).json["id"]
    export, public = stored_gateway.folder / "export.jsonl", stored_gateway.folder / "public.pem"
    stored_gateway.does("export", "--output", str(export))
    public.write_text(stored_gateway.does("key").stdout)
    assert "PRIVATE" not in public.read_text()
    told = stored_gateway.does("verify", "--public-key", str(public), str(export)).stdout
    assert f"response:{id}: 1 entry, 1 content there; signed up to 1 (checkpoint" in told
    assert "with the key in the export" in stored_gateway.does("verify", str(export)).stdout
    assert "Who is Ann?" in export.read_text() or "content_base64" in export.read_text()
    # Its checkpoints must be in the record from then on.
    stored_gateway.does("verify", "--known", str(export))
    small = stored_gateway.folder / "small.jsonl"
    stored_gateway.does("export", "--scope", f"response:{id}", "--output", str(small))
    assert stored_gateway.verified(str(small))["scopes"] == 1
    small.write_bytes(small.read_bytes().replace(b'"kind":"response"', b'"kind":"envelope"'))
    wrong = stored_gateway.verified(str(small), status=1)
    assert [(one["what"], one["entry"]) for one in wrong["findings"]] == [("entry", 1)]
    small.write_bytes(b"{}\n")
    assert "line 1 is not a line of a record" in stored_gateway.does("verify", str(small), status=2).stderr


def test_what_is_not_there_is_not_whole(gateway: Served, stored_gateway: StoredGateway) -> None:
    """A mistyped name, or another's home, must not be told that all is well."""
    assert "nothing of space:reveiw" in stored_gateway.does("verify", "--scope", "space:reveiw", status=2).stderr
    assert "nothing of nobody" in stored_gateway.does("verify", "--json", "--owner", "nobody", status=2).stderr
    elsewhere = stored_gateway.folder / "elsewhere" / "kept.sqlite"
    for command in ("verify", "export"):
        assert "there is no store" in stored_gateway.does(command, "--store", f"sqlite:///{elsewhere}", status=2).stderr
    assert not elsewhere.parent.exists()


def test_what_is_erased_by_a_command(gateway: Served, stored_gateway: StoredGateway, upstream: Upstream) -> None:
    name = "vllm:" + upstream.plays(say("Hm.", "Yes."))
    talk = post(gateway, "/v1/conversations", {}).json["id"]
    asked = {"model": name, "input": "Why?", "conversation": talk}
    first, second = (post(gateway, "/v1/responses", asked).json["id"] for _ in range(2))
    assert stored_gateway.does("erase", f"conversation:{talk}", first).stdout == "1 content erased.\n"
    assert "nothing was erased" in stored_gateway.does("erase", f"conversation:{talk}", first, status=2).stderr
    assert gateway.request("GET", f"/v1/responses/{first}").status == 404
    assert gateway.request("GET", f"/v1/responses/{second}").status == 200
    stored_gateway.does("erase", f"conversation:{talk}")
    chain = chains(stored_gateway.verified("--scope", f"conversation:{talk}"))[f"conversation:{talk}"]
    assert (chain["contents"], chain["gone"]) == (0, 8)
    assert "the record has no space:none" in stored_gateway.does("erase", "space:none", status=2).stderr


def test_what_was_changed_is_named(stored_gateway: StoredGateway, gateway: Served, upstream: Upstream) -> None:
    name = "vllm:" + upstream.plays(say("Hm.", "Yes."))
    id = post(gateway, "/v1/responses", {"model": name, "input": "Why?"}).json["id"]
    stored_gateway.sql("UPDATE responses SET status = 'failed' WHERE id = ?", id)
    told = stored_gateway.does("verify", status=1).stdout
    assert "1 mistake found:" in told
    assert f"response:{id}: the content of entry 1 (response {id}) is not what was recorded" in told
    stored_gateway.sql("UPDATE responses SET status = 'completed' WHERE id = ?", id)
    assert stored_gateway.verified()["right"]


def test_another_key_is_not_this_gateways(stored_gateway: StoredGateway, gateway: Served, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text(public_pem(Signer.generate().public))
    findings = stored_gateway.verified("--public-key", str(other), status=1)["findings"]
    assert "key" in {finding["what"] for finding in findings}
    other.write_text("no key")
    assert "it must hold Ed25519 keys" in stored_gateway.does("verify", "--public-key", str(other), status=2).stderr


def test_nothing_is_recorded_where_the_configuration_says_so(upstream: Upstream, tmp_path: Path) -> None:
    off = StoredGateway(tmp_path, upstream)
    with serve({**off.config, "record": {"enabled": False}}) as gateway:
        post(gateway, "/v1/responses", {"model": "vllm:" + upstream.plays(say("Hm.", "Yes.")), "input": "Why?"})
    report = off.verified()
    assert (report["right"], report["scopes"], report["before"]) == (True, 0, 1)
    assert not off.key.exists()
