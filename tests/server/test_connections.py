"""Models that are connected in the page: `connections.toml`, its routes, and which of two equal names wins."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import threading
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from pellucid.data_directory import default_connections
from pellucid.egress import EgressError, EgressPolicy
from pellucid.errors import RequestError
from pellucid.local.model_index import is_engine_installed, larger_models
from pellucid.server.access.policy import Policy
from pellucid.server.catalog import Catalog
from pellucid.server.config import Config, check_config
from pellucid.server.connections import Connection, ConnectionBody, ConnectionClients, ConnectionFile
from pellucid.upstream import UpstreamClient
from tests.chat_server.chat_server_kit import ChatClient, open_feed, parse_feed, read_feed_until
from tests.scripted import Call, Upstream, say
from tests.scripted.gateway import Reply, Served, serve
from tests.scripted.upstream import Script
from tests.server.state_kit import make_keys
from tests.waiting import LIMIT_SECONDS, wait_until

KEY = "sk-canary-3f9a8d7e6c5b4a39-WXYZ"
OTHER_KEY = "sk-canary-0000000000000000-QRST"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder for each test, and the path of its connections."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return default_connections()


NO_MODELS: dict[str, Any] = {"local": {"enabled": False}, "spaces": {"room": {}}, "limits": {"retries": 0}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A gateway without a model and without keys, and the path of its connections."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("shared")))
        with serve(NO_MODELS) as running:
            yield running, default_connections()


@pytest.fixture
def gateway(shared: tuple[Served, Path]) -> Iterator[Served]:
    """The same, without connections."""
    yield shared[0]
    shared[1].unlink(missing_ok=True)


def call(gateway: Served, method: str, path: str, body: Any = None, key: str | None = None, **headers: str) -> Reply:
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"} if data is not None else {}
    if key is not None:
        sent["Authorization"] = f"Bearer {key}"
    return gateway.request(method, path, data, {**sent, **headers})


def connect(gateway: Served, name: str, **body: Any) -> Reply:
    return call(gateway, "PUT", f"/api/connections/{name}", {"profile": "openai-compat", **body})


def check(gateway: Served, **body: Any) -> Any:
    reply = call(gateway, "POST", "/api/providers/test", {"profile": "openai-compat", **body})
    assert reply.status == 200, reply.body
    return reply.json


def listed(gateway: Served) -> Any:
    return call(gateway, "GET", "/api/connections").json


def model_names(gateway: Served) -> list[str]:
    return [row["id"] for row in call(gateway, "GET", "/v1/models").json["data"]]


def server_of(names: list[str], status: int = 200, key: str | None = None, error: str = "Incorrect API key") -> Script:
    """A server with a list of models, which may require a key, and quotes a wrong one."""

    async def script(call: Call) -> None:
        sent = call.headers.get("authorization", "").removeprefix("Bearer ")
        if key is not None and sent != key:
            await call.answer(401, json.dumps({"error": {"message": f"{error}: {sent}"}}).encode())
        elif call.path.endswith("/models"):
            await call.answer(status, json.dumps({"data": [{"id": name} for name in names]}).encode())
        elif call.body.get("model") not in names:
            await call.answer(404, b'{"error": {"message": "no such model", "code": "model_not_found"}}')
        else:
            await say("Let me see. ", "42.")(call)

    return script


# --- from the page to an answer --------------------------------------------------------------------------------------


def test_a_connected_model_is_there_at_once_in_every_list_and_protocol(upstream: Upstream, gateway: Served) -> None:
    url = f"{upstream.url}/{upstream.plays(server_of(['thinker-9'], key=KEY))}"
    assert model_names(gateway) == []
    assert check(gateway, base_url=url, api_key=KEY) == {"ok": True, "models": ["thinker-9"], "has_list": True}
    assert check(gateway, base_url=url, api_key=KEY, model="thinker-9")["ok"] is True
    saved = connect(gateway, "mine", base_url=url, api_key=KEY, models=["thinker-9"])
    assert saved.status == 200, saved.body
    assert saved.json["served_as"] == ["thinker-9"]
    assert model_names(gateway) == ["thinker-9"]
    page = call(gateway, "GET", "/api/models").json
    assert [row["id"] for row in page["data"]] == ["thinker-9"]
    assert page["data"][0]["provider"] == "Any OpenAI-compatible server"
    assert page["connect"] is True
    assert gateway.ask("thinker-9").json["status"] == "completed"
    assert gateway.ask(None).json["status"] == "completed"
    body = {"model": "thinker-9", "messages": [{"role": "user", "content": "Why?"}], "max_tokens": 9}
    for path in ("/v1/chat/completions", "/v1/messages"):
        assert call(gateway, "POST", path, body).status == 200
    assert b"42." in call(gateway, "POST", "/api/chat", {"text": "Why?", "model": "thinker-9"}).body


def test_a_connection_outlives_the_process(upstream: Upstream, file: Path) -> None:
    url = f"{upstream.url}/{upstream.plays(server_of(['m'], key=KEY))}"
    with serve(NO_MODELS) as gateway:
        assert connect(gateway, "mine", base_url=url, api_key=KEY, models=["m"]).status == 200
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with serve(NO_MODELS) as gateway:
        assert gateway.ask("m").json["status"] == "completed"


def test_other_processes_of_the_machine_see_a_change_with_the_next_request(upstream: Upstream) -> None:
    url = f"{upstream.url}/{upstream.plays(server_of(['m']))}"
    with serve(NO_MODELS) as one, serve(NO_MODELS) as other:
        connect(one, "mine", base_url=url, models=["m"])
        assert model_names(other) == ["m"]
        call(other, "DELETE", "/api/connections/mine")
        assert model_names(one) == []


def test_the_feeds_of_all_owners_say_that_the_models_changed(upstream: Upstream, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    operator_key, ann_key = make_keys(url, {"op": Policy(operator=True), "ann": Policy(models=["vllm:*"])}).values()
    config = {**NO_MODELS, "storage": {"url": url}, "access": {"keys": True}, "egress": {"allow": ["127.0.0.1"]}}
    with serve(config) as gateway:
        ann, operator = ChatClient(gateway, ann_key), ChatClient(gateway, operator_key)
        connection = {"profile": "openai-compat", "base_url": upstream.url, "models": ["secret-1"]}
        with open_feed(ann) as one, open_feed(operator) as other:
            assert operator.send_request("PUT", "/api/connections/secret", connection).status == 200
            for feed in (one, other):
                read_feed_until(feed, "models_changed")
            assert operator.send_request("DELETE", "/api/connections/secret").status == 200
            for feed in (one, other):
                assert read_feed_until(feed, "models_changed", 2)[1:] == [{"type": "models_changed"}] * 2
                assert b"secret" not in feed.seen
            last_id, _ = parse_feed(one.seen)[-1]
        assert operator.send_request("PUT", "/api/connections/secret", connection).status == 200
        with open_feed(ann, **{"Last-Event-ID": last_id}) as again:
            read_feed_until(again, "models_changed", 2)


def test_a_run_in_progress_ends_on_its_old_connection(upstream: Upstream, gateway: Served) -> None:
    async def slow(call: Call) -> None:
        await call.head()
        await call.event({"choices": [{"index": 0, "delta": {"content": "The "}}]})
        await asyncio.to_thread(changed.wait, LIMIT_SECONDS)
        await call.event({"choices": [{"index": 0, "delta": {"content": "end."}, "finish_reason": "stop"}]})
        await call.end()

    changed = threading.Event()
    connect(gateway, "mine", base_url=f"{upstream.url}/{upstream.plays(slow)}", models=["m"])
    with gateway.open("m") as stream:
        stream.until("The ")
        assert call(gateway, "DELETE", "/api/connections/mine").status == 200
        assert gateway.ask("m").status == 404
        changed.set()
        assert stream.events[-1]["type"] == "response.completed"


def test_a_connection_to_the_gateway_itself_ends(gateway: Served) -> None:
    url = f"{gateway.url}/v1"
    for profile, name in (("openai-compat", "chat"), ("openresponses", "responses")):
        body = {"profile": profile, "base_url": url}
        assert call(gateway, "PUT", f"/api/connections/{name}", {**body, "models": [name]}).status == 200
        reply = gateway.ask(name)
        assert "has passed 5 gateways" in reply.body.decode(), reply.body
        result = call(gateway, "POST", "/api/providers/test", {**body, "model": name}).json
        assert (result["ok"], result["problem"]["code"]) == (False, "connection_loop")
    assert call(gateway, "POST", "/v1/responses", {"input": "Why?"}, **{"Pellucid-Hops": "5"}).status == 400


def test_a_request_through_a_connection_carries_its_number(upstream: Upstream, gateway: Served) -> None:
    name = upstream.plays(server_of(["m"]))
    connect(gateway, "mine", base_url=f"{upstream.url}/{name}", models=["m"])
    for sent, carried in ((None, "1"), ("3", "4"), ("many", "1")):
        headers = {"Pellucid-Hops": sent} if sent is not None else {}
        assert call(gateway, "POST", "/v1/responses", {"model": "m", "input": "Why?"}, **headers).status == 200
        assert upstream.calls(name)[-1].headers["pellucid-hops"] == carried


# --- the key ---------------------------------------------------------------------------------------------------------


def test_a_key_is_stored_replaced_and_removed_without_being_shown(upstream: Upstream, gateway: Served) -> None:
    name = upstream.plays(server_of(["m"]))
    url = f"{upstream.url}/{name}"
    first = connect(gateway, "mine", base_url=url, api_key=KEY, models=["m"]).json
    assert (first["has_key"], first["key_end"]) == (True, "WXYZ")
    changed = connect(gateway, "mine", base_url=url, models=["m", "n"]).json
    assert (changed["has_key"], changed["key_end"]) == (True, "WXYZ")
    assert connect(gateway, "mine", base_url=url, api_key=OTHER_KEY, models=["m"]).json["key_end"] == "QRST"
    gateway.ask("m")
    assert upstream.calls(name)[-1].headers["authorization"] == f"Bearer {OTHER_KEY}"
    assert connect(gateway, "mine", base_url=url, api_key="", models=["m"]).json["has_key"] is False
    gateway.ask("m")
    assert "authorization" not in upstream.calls(name)[-1].headers
    assert connect(gateway, "mine", base_url=url, api_key="short-key", models=["m"]).json.get("key_end") is None


def test_a_stored_key_is_sent_to_no_other_server(upstream: Upstream, gateway: Served) -> None:
    url, elsewhere = f"{upstream.url}/{upstream.plays(server_of(['m']))}", "http://127.0.0.1:9/v1"
    connect(gateway, "mine", base_url=url, api_key=KEY, models=["m"])
    body = {"profile": "openai-compat", "base_url": elsewhere}
    for reply in (
        call(gateway, "POST", "/api/providers/test", {**body, "name": "mine"}),
        call(gateway, "PUT", "/api/connections/mine", {**body, "models": ["m"]}),
        call(gateway, "PUT", "/api/connections/mine", {"profile": "anthropic", "models": ["m"]}),
    ):
        assert (reply.status, reply.json["error"]["code"]) == (400, "key_needed"), reply.body
    assert listed(gateway)["data"][0]["base_url"] == url
    assert check(gateway, base_url=url, name="mine")["ok"] is True


def test_keys_of_the_environment_are_for_the_configuration_alone(
    upstream: Upstream, gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    name = upstream.plays(server_of(["m"]))
    connect(gateway, "mine", profile="openai-chat", base_url=f"{upstream.url}/{name}", models=["m"])
    assert gateway.ask("m").json["status"] == "completed"
    assert "authorization" not in upstream.calls(name)[-1].headers


def test_the_key_is_in_no_response_log_or_error(
    upstream: Upstream, gateway: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"{upstream.url}/{upstream.plays(server_of(['m'], key='another key'))}"
    seen = [
        call(gateway, "POST", "/api/providers/test", {"profile": "openai-compat", "base_url": url, "api_key": KEY}),
        call(
            gateway,
            "POST",
            "/api/providers/test",
            {"profile": "openai-compat", "base_url": url, "api_key": KEY, "model": "m"},
        ),
        connect(gateway, "mine", base_url=url, api_key=KEY, models=["m"]),
        connect(gateway, "mine", base_url="no url", api_key=KEY, models=["m"]),
        connect(gateway, "mine", base_url=url, api_key=f"{KEY} with spaces", models=["m"]),
        connect(gateway, "mine", base_url=url, api_key=[KEY], models=["m"]),
        call(gateway, "GET", "/api/connections"),
        call(gateway, "GET", "/api/models"),
        gateway.ask("m"),
        gateway.ask("m", stream=True),
        call(gateway, "GET", "/metrics"),
        call(gateway, "GET", "/api/status"),
        call(gateway, "DELETE", "/api/connections/mine"),
    ]
    for reply in seen:
        assert KEY.encode() not in reply.body
    assert seen[0].json["problem"]["code"] == "key_refused"
    assert seen[0].json["problem"]["detail"] == "Incorrect API key: [key]"
    assert KEY not in caplog.text
    assert "saved the connection mine: openai-compat at 127.0.0.1" in caplog.text
    assert "deleted the connection mine" in caplog.text


# --- which of two equal names wins -----------------------------------------------------------------------------------


def test_the_configuration_file_wins_whichever_was_first(upstream: Upstream) -> None:
    theirs = {"profile": "openai-compat", "base_url": f"{upstream.url}/{upstream.plays(say(text='of the file'))}"}
    ours = f"{upstream.url}/{upstream.plays(server_of(['m', 'n', 'o']))}"
    configured = {
        **NO_MODELS,
        "providers": {"house": {**theirs, "models": ["m"]}},
        "models": {"n": {"provider": "house"}},
    }
    # A connection first, the file later.
    with serve(NO_MODELS) as gateway:
        assert connect(gateway, "house", base_url=ours, models=["m"]).json["served_as"] == ["m"]
        assert connect(gateway, "mine", base_url=ours, models=["m", "n", "o"]).json["served_as"] == ["mine:m", "n", "o"]
    with serve(configured) as gateway:
        assert "of the file" in gateway.ask("m").body.decode()
        assert model_names(gateway) == ["n", "m", "mine:m", "mine:n", "o"]
        assert gateway.ask("mine:m").json["status"] == "completed"
        house, mine = listed(gateway)["data"]
        assert (house["replaced"], house["served_as"]) == (True, [])
        assert mine["served_as"] == ["mine:m", "mine:n", "o"]
        # The file first, a connection later.
        refused = connect(gateway, "house", base_url=ours, models=["m"])
        assert (refused.status, refused.json["error"]["code"]) == (409, "name_taken")
        assert "house" in listed(gateway)["taken"]
        # What is not used can be deleted.
        assert call(gateway, "DELETE", "/api/connections/house").status == 200


def test_a_provider_that_serves_any_name_keeps_it(upstream: Upstream) -> None:
    open_ended = {"profile": "openai-compat", "base_url": f"{upstream.url}/{upstream.plays(say(text='of the file'))}"}
    with serve({"providers": {"house": open_ended}}) as gateway:
        url = f"{upstream.url}/{upstream.plays(server_of(['m']))}"
        assert connect(gateway, "mine", base_url=url, models=["m"]).json["served_as"] == ["mine:m"]
        assert "of the file" in gateway.ask("m").body.decode()


def test_the_warnings_name_what_the_file_replaces(file: Path) -> None:
    config = check_config(
        {**NO_MODELS, "providers": {"vllm": {"models": ["m"]}}, "models": {"gpt-*": {"provider": "vllm"}}}, {}
    )
    plain = ConnectionFile(file, check_config(NO_MODELS, {}))
    for name in ("vllm", "mine"):
        plain.save(name, ConnectionBody("ollama", ["m", "n"]))
    plain.save("other", ConnectionBody("ollama", ["n", "gpt-5"]))
    catalog = Catalog(config, UpstreamClient(config.limits), connected=plain.current())
    assert catalog.connection_warnings() == [
        "connections.vllm: not used, as providers.vllm in the configuration file is",
        "connections.mine: another model is served as 'm'; this one is mine:m",
        "connections.other: another model is served as 'n'; this one is other:n",
        "connections.other: another model is served as 'gpt-5'; this one is other:gpt-5",
    ]


def test_no_variable_changes_where_a_connection_is(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_URL", "http://127.0.0.1:1/v1")
    row = {
        "extends": "vllm",
        "base_url": f"{upstream.url}/{upstream.plays(server_of(['m']))}",
        "base_url_env": ["HOUSE_URL"],
    }
    with serve({**NO_MODELS, "profiles": {"house": row}}) as gateway:
        assert connect(gateway, "mine", profile="house", models=["m"]).status == 200
        assert gateway.ask("m").status == 200


# --- the file --------------------------------------------------------------------------------------------------------

DAMAGED = {
    "not TOML": b"[connections.x]\nprofile = ",
    "another type": b'connections = "x"',
    "not UTF-8": b"\xff\xfe",
    "nested too deeply": b"x = " + b"[" * 5000 + b"]" * 5000,
    "a table that is nested too deeply": b"[connections." + b"a." * 3000 + b"a]\nx = 1\n",
    "a number with too many digits": b"x = " + b"9" * 6000,
    "an unknown provider": b'[connections.x]\nprofile = "nobody"\nmodels = ["m"]\n',
    "a field that does not exist": b'[connections.x]\nprofile = "ollama"\nmodels = ["m"]\nkeys = "k"\n',
    "an address that may not be reached": b'[connections.x]\nprofile = "vllm"\nmodels = ["m"]\n'
    b'base_url = "http://169.254.169.254/v1"\n',
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_reported_and_never_written_to(damage: str, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(DAMAGED[damage])
    file.chmod(0o600)
    with serve(NO_MODELS) as gateway:
        assert listed(gateway)["problems"]
        assert listed(gateway)["problems"]
        reply = connect(gateway, "mine", profile="ollama", models=["m"])
        assert (reply.status, reply.json["error"]["code"]) == (409, "connections_damaged")
        assert call(gateway, "DELETE", "/api/connections/x").status == 409
        assert file.read_bytes() == DAMAGED[damage]
        file.unlink()
        assert connect(gateway, "mine", profile="ollama", models=["m"]).status == 200
        assert listed(gateway)["problems"] == []


def test_rows_without_mistakes_are_used(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(
        '[connections.bad]\nprofile = "nobody"\nmodels = ["m"]\n'
        '[connections.good]\nprofile = "ollama"\nmodels = ["m"]\n'
    )
    file.chmod(0o600)
    current = ConnectionFile(file, check_config(NO_MODELS, {})).current()
    assert list(current.connections) == ["good"]
    assert "connections.bad.profile: there is no provider 'nobody'" in current.mistakes[0]


def test_a_file_that_others_may_read_is_not_used(file: Path) -> None:
    plain = ConnectionFile(file, check_config(NO_MODELS, {}))
    plain.save("mine", ConnectionBody("ollama", ["m"], None, KEY))
    os.chmod(file, 0o644)
    current = plain.current()
    assert not current.connections
    assert "chmod 600" in current.mistakes[0]
    with pytest.raises(RequestError, match="chmod 600"):
        plain.delete("mine")


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_stays_and_its_target_is_written(exists: bool, file: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "models.toml"
    file.parent.mkdir(parents=True)
    file.symlink_to(target)
    plain = ConnectionFile(file, check_config(NO_MODELS, {}))
    if exists:
        ConnectionFile(target, check_config(NO_MODELS, {})).save("first", ConnectionBody("ollama", ["m"], None, KEY))
    plain.save("mine", ConnectionBody("ollama", ["m"], None, KEY))
    assert file.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(plain.current().connections) == (["first", "mine"] if exists else ["mine"])


def test_a_symbolic_link_that_leads_nowhere_is_an_error(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.symlink_to(file)
    with pytest.raises(RequestError) as raised:
        ConnectionFile(file, check_config(NO_MODELS, {})).save("mine", ConnectionBody("ollama", ["m"], None, KEY))
    assert raised.value.info.code in ("not_saved", "connections_damaged")


def test_what_was_written_is_read_unchanged(file: Path) -> None:
    plain = ConnectionFile(file, check_config(NO_MODELS, {}))
    models = ['quote " and \\ backslash', "日本語:8b", "𝕏-emoji-🧠", "a/b@c#d"]
    saved = plain.save("my.conn-1_x", ConnectionBody("ollama", models, "http://localhost:1/v1", KEY))
    assert ConnectionFile(file, check_config(NO_MODELS, {})).current().connections == {"my.conn-1_x": saved}
    assert KEY not in repr(saved)


# --- who may, and which addresses ------------------------------------------------------------------------------------

WITH_KEYS: dict[str, Any] = {
    **NO_MODELS,
    "access": {"key_env": "GATEWAY_KEY", "key_policy": "guest", "policies": {"guest": {}}},
}
ROUTES = [
    ("GET", "/api/connections", None),
    ("GET", "/api/providers", None),
    ("POST", "/api/providers/test", {"profile": "ollama"}),
    ("PUT", "/api/connections/x", {"profile": "ollama", "models": ["m"]}),
    ("DELETE", "/api/connections/x", None),
    ("PUT", "/api/models/default", {"model": "m"}),
]
GATEWAY_KEY = "a-key-of-the-gateway-0123456789"


def test_only_operators_may_connect(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", GATEWAY_KEY)
    with serve(check_config(WITH_KEYS, os.environ)) as gateway:
        for method, path, body in ROUTES:
            assert call(gateway, method, path, body).status == 401
            reply = call(gateway, method, path, body, key=GATEWAY_KEY)
            assert (reply.status, reply.json["error"]["code"]) == (403, "operator_only")
        assert "connect" not in call(gateway, "GET", "/api/models", key=GATEWAY_KEY).json
    assert not file.exists()


def test_a_public_gateway_without_keys_refuses_connections(file: Path) -> None:
    with serve({**NO_MODELS, "server": {"allow_unauthenticated": True}}) as gateway:
        for method, path, body in ROUTES:
            reply = call(gateway, method, path, body)
            assert (reply.status, reply.json["error"]["code"]) == (403, "operator_only")
        assert "connect" not in call(gateway, "GET", "/api/models").json
    assert not file.exists()


BEHIND_A_PROXY: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "another name": ({"access": {"hosts": ["chat.example"]}}, {"Host": "chat.example"}),
    "another name, which this request does not use": ({"access": {"hosts": ["chat.example"]}}, {}),
    **{
        name: ({}, {name: value})
        for name, value in (
            ("X-Forwarded-For", "203.0.113.9"),
            ("X-Forwarded-Host", "chat.example"),
            ("X-Forwarded-Proto", "https"),
            ("X-Real-IP", "203.0.113.9"),
            ("Forwarded", "for=203.0.113.9"),
            ("Via", "1.1 proxy"),
        )
    },
}


@pytest.mark.parametrize("case", BEHIND_A_PROXY)
def test_without_keys_no_connection_is_made_through_a_proxy(case: str, file: Path) -> None:
    config, headers = BEHIND_A_PROXY[case]
    with serve({**NO_MODELS, **config}) as gateway:
        for method, path, body in ROUTES:
            reply = call(gateway, method, path, body, **headers)
            assert (reply.status, reply.json["error"]["code"]) == (403, "operator_only")
            assert "pellucid keys create" in reply.json["error"]["message"]
        assert "connect" not in call(gateway, "GET", "/api/models", **headers).json
    assert not file.exists()


def test_an_operator_with_a_key_connects_through_a_proxy(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", GATEWAY_KEY)
    config = {**NO_MODELS, "access": {"key_env": "GATEWAY_KEY", "hosts": ["chat.example"]}}
    headers = {"Host": "chat.example", "X-Forwarded-For": "203.0.113.9"}
    with serve(check_config(config, os.environ)) as gateway:
        assert call(gateway, "GET", "/api/connections", key=GATEWAY_KEY, **headers).status == 200
        assert call(gateway, "GET", "/api/models", key=GATEWAY_KEY, **headers).json["connect"] is True


def test_no_other_page_may_connect(file: Path) -> None:
    named = "https://app.example.com"
    foreign = (
        {"Origin": "https://evil.example"},
        {"Origin": named},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
    )
    with serve({**NO_MODELS, "access": {"cors": {"origins": [named]}}}) as gateway:
        for method, path, body in ROUTES:
            for headers in foreign:
                assert call(gateway, method, path, body, **headers).status == 403, headers
    assert not file.exists()


def test_the_configuration_may_allow_this_machine_to_an_operator(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_KEY", GATEWAY_KEY)
    body = {"profile": "openai-compat", "base_url": f"{upstream.url}/{upstream.plays(server_of(['m']))}"}
    allowed = {**NO_MODELS, "access": {"key_env": "GATEWAY_KEY"}, "egress": {"allow": ["127.0.0.1"]}}
    with serve(check_config(allowed, os.environ)) as gateway:
        assert call(gateway, "POST", "/api/providers/test", body, key=GATEWAY_KEY).json["models"] == ["m"]


FORBIDDEN = (
    *("http://169.254.169.254/latest", "http://[fd00:ec2::254]/v1", "http://[fe80::1]/v1", "http://0x7f.1/v1"),
    *("http://2130706433/v1", "file:///etc/passwd", "http://user:word@example.com/v1", "http://example.com/v1?x=1"),
    *("http://100.100.100.200/v1", "gopher://x", "http://", "http://127.0.0.1:0/", "http://0.0.0.0/v1", "x" * 5000),
)


@pytest.mark.parametrize("url", FORBIDDEN)
def test_addresses_that_are_not_public_are_refused(url: str, gateway: Served) -> None:
    test = {"profile": "openai-compat", "base_url": url}
    for reply in (
        call(gateway, "POST", "/api/providers/test", test),
        connect(gateway, "x", base_url=url, models=["m"]),
    ):
        assert (reply.status, reply.json["error"]["param"]) == (400, "base_url"), reply.body


def test_a_name_that_leads_to_another_address_later_is_refused_then(upstream: Upstream) -> None:
    """DNS rebinding: the addresses of a name are checked when they are connected to, not when it was saved."""
    asyncio.run(_rebind(f"{upstream.url}/{upstream.plays(server_of(['m']))}"))


async def _rebind(upstream_url: str) -> None:
    addresses = ["127.0.0.1"]

    async def resolve(host: str) -> list[str]:
        return addresses

    client = UpstreamClient(policy=EgressPolicy(["127.0.0.1"], resolve=resolve))
    url = upstream_url.replace("127.0.0.1", "models.example")
    try:
        assert (await client.get(f"{url}/models", {}))[0] == 200
        addresses[:] = ["169.254.169.254"]
        with pytest.raises(EgressError):
            await client.open(url, {}, b"{}")
        with pytest.raises(EgressError):
            await client.get(url.replace("models", "others"), {})
    finally:
        await client.aclose()


# --- servers in an own network, to which an operator agrees ----------------------------------------------------------


@pytest.mark.parametrize("url", ["http://10.0.0.1/v1", "http://192.168.1.5:11434/v1", "http://[fd12::1]:8000/v1"])
def test_an_address_in_an_own_network_needs_agreement(url: str, gateway: Served) -> None:
    result = check(gateway, base_url=url)
    assert (result["ok"], result["problem"]["code"]) == (False, "private_address")
    assert result["problem"]["private_addresses"] == [urlsplit(url).hostname]
    reply = connect(gateway, "x", base_url=url, models=["m"])
    assert (reply.status, reply.json["error"]["code"]) == (400, "private_address")
    assert listed(gateway)["data"] == []


def test_an_operator_agrees_to_one_server_alone(
    upstream: Upstream, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_KEY", GATEWAY_KEY)
    config = check_config({**NO_MODELS, "access": {"key_env": "GATEWAY_KEY"}}, os.environ)
    url = f"{upstream.url}/{upstream.plays(server_of(['m']))}".replace("127.0.0.1", "localhost")
    row = {"profile": "openai-compat", "base_url": url, "models": ["m"]}

    def put(name: str, **changes: Any) -> Reply:
        return call(running, "PUT", f"/api/connections/{name}", {**row, **changes}, key=GATEWAY_KEY)

    def answer() -> Any:
        return call(running, "POST", "/v1/responses", {"model": "m", "input": "Why?"}, key=GATEWAY_KEY).json["status"]

    def test(**changes: Any) -> Any:
        body = {"profile": "openai-compat", "base_url": url, **changes}
        return call(running, "POST", "/api/providers/test", body, key=GATEWAY_KEY).json

    with serve(config) as running:
        question = test()
        agreed = question["problem"]["private_addresses"]
        assert (question["ok"], "127.0.0.1" in agreed) == (False, True)
        assert put("mine").json["error"]["code"] == "private_address"
        assert not file.exists()
        assert test(private_addresses=agreed)["models"] == ["m"]
        assert put("mine", private_addresses=agreed).json["private_addresses"] == agreed
        assert answer() == "completed"

        # The agreement stays with a change, and goes with the server.
        assert test(name="mine")["models"] == ["m"]
        assert put("mine", models=["m", "n"]).json["private_addresses"] == agreed
        assert test(base_url="http://localhost:9/v1", name="mine")["problem"]["code"] == "private_address"
        assert put("mine", base_url="http://localhost:9/v1").json["error"]["code"] == "private_address"
        # It is not another connection's, also to the same server.
        assert put("other").json["error"]["code"] == "private_address"
        assert tomllib.loads(file.read_text())["connections"]["mine"]["private_addresses"] == agreed
        assert put("mine", private_addresses=[]).json["error"]["code"] == "private_address"
    with serve(config) as running:
        assert answer() == "completed"


NOT_TO_BE_AGREED_TO = (
    *("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fe80::1", "fe80::1%eth0", "fd00:ec2::254"),
    *("100.100.100.200", "168.63.129.16", "0.0.0.0", "224.0.0.1", "8.8.8.8", "*", "10.0.0.0/8", "gpu.lan", "*.lan", ""),
)


@pytest.mark.parametrize("text", NOT_TO_BE_AGREED_TO)
def test_only_single_addresses_of_own_networks_can_be_agreed_to(text: str, gateway: Served, file: Path) -> None:
    body = {"base_url": "http://127.0.0.1:9/v1", "private_addresses": [text]}
    for reply in (
        call(gateway, "POST", "/api/providers/test", {"profile": "openai-compat", **body}),
        connect(gateway, "x", models=["m"], **body),
    ):
        assert (reply.status, reply.json["error"]["param"]) == (400, "private_addresses"), reply.body
    # Nor in the file, and what is in it does not count.
    file.parent.mkdir(parents=True, exist_ok=True)
    row = 'profile = "openai-compat"\nmodels = ["m"]\nbase_url = "http://gpu.example/v1"\n'
    file.write_text(f"[connections.x]\n{row}private_addresses = [{json.dumps(text)}]\n")
    file.chmod(0o600)
    connections = ConnectionFile(file, check_config(NO_MODELS, {}))
    assert connections.current().connections == {}
    assert "private_addresses" in connections.current().mistakes[0]
    made = Connection("openai-compat", ["m"], "http://gpu.example/v1", private_addresses=(text,))
    for host in ("169.254.169.254", "10.0.0.1", "100.100.100.200"):
        with pytest.raises(EgressError):
            connections.policy_for(made).check_url(f"http://{host}/v1")


def test_a_name_that_moves_in_the_network_must_be_agreed_to_again(
    upstream: Upstream, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the agreement is about addresses, not about whatever a name leads to."""
    addresses = ["127.0.0.1"]

    async def resolve(host: str) -> list[str]:
        return addresses

    monkeypatch.setattr("pellucid.server.connections.EgressPolicy", partial(EgressPolicy, resolve=resolve))
    config = check_config({**NO_MODELS, "access": {"key_env": "K"}}, {"K": GATEWAY_KEY})
    url = f"{upstream.url}/{upstream.plays(server_of(['m']))}".replace("127.0.0.1", "models.example")
    agreed = Connection("openai-compat", ["m"], url, private_addresses=("127.0.0.1",))
    not_agreed = msgspec.structs.replace(agreed, private_addresses=())
    connections = ConnectionFile(file, config)

    async def try_all() -> None:
        assert await connections.addresses_to_agree_to(agreed) == []
        assert await connections.addresses_to_agree_to(not_agreed) == ["127.0.0.1"]
        assert await _statuses(config, agreed) == [200, 200]
        assert await _statuses(config, not_agreed) == [None, None]
        for other in ("127.0.0.2", "192.168.1.1", "169.254.169.254", "::1"):
            addresses[:] = [other]
            assert await _statuses(config, agreed) == [None, None]
        # One of several can be agreed to. A name that is public, too, needs no agreement.
        addresses[:] = ["fd00:ec2::254", "10.0.0.1"]
        assert await connections.addresses_to_agree_to(not_agreed) == ["10.0.0.1"]
        addresses[:] = ["10.0.0.1", "8.8.8.8"]
        assert await connections.addresses_to_agree_to(not_agreed) == []

    asyncio.run(try_all())


async def _statuses(config: Config, connection: Connection) -> list[int | None]:
    """Return the statuses of a GET and a POST request to a connection, by new connections; None: it was refused."""
    assert connection.base_url is not None
    statuses: list[int | None] = []
    clients = ConnectionClients(config)
    client = clients.client_for(connection)
    try:
        for request in (client.get(f"{connection.base_url}/models", {}), client.open(connection.base_url, {}, b"{}")):
            try:
                response = await request
            except EgressError:
                statuses.append(None)
            else:
                statuses.append(response[0] if isinstance(response, tuple) else 200)
    finally:
        await clients.aclose()
    return statuses


# --- the default model, larger models, and models that are gone ------------------------------------------------------


def choose(gateway: Served, model: str | None, **headers: str) -> Reply:
    return call(gateway, "PUT", "/api/models/default", {"model": model}, **headers)


def default_of(gateway: Served) -> str | None:
    rows = call(gateway, "GET", "/api/models").json["data"]
    return next((row["id"] for row in rows if row.get("default")), None)


def test_a_chosen_default_answers_and_outlives_the_process(upstream: Upstream, file: Path) -> None:
    url = f"{upstream.url}/{upstream.plays(server_of(['a', 'b']))}"
    with serve(NO_MODELS) as gateway:
        connect(gateway, "mine", base_url=url, models=["a", "b"])
        assert default_of(gateway) == "a"
        assert choose(gateway, "b").json == {"model": "b"}
        assert default_of(gateway) == "b"
        assert gateway.ask(None).json["model"] == "b"
        # Other changes of the file leave it.
        connect(gateway, "other", base_url=url, models=["c"])
    with serve(NO_MODELS) as gateway:
        assert gateway.ask(None).json["model"] == "b"
        call(gateway, "DELETE", "/api/connections/mine")
        assert default_of(gateway) == "c"
        assert choose(gateway, None).status == 200
        assert "default_model" not in tomllib.loads(file.read_text())


def test_the_default_of_the_configuration_wins(upstream: Upstream, file: Path) -> None:
    url = f"{upstream.url}/{upstream.plays(server_of(['a', 'b']))}"
    with serve(NO_MODELS) as gateway:
        connect(gateway, "mine", base_url=url, models=["a", "b"])
        choose(gateway, "b")
        assert "default_configured" not in call(gateway, "GET", "/api/models").json
    config = {**NO_MODELS, "server": {"default_model": "a"}}
    with serve(config) as gateway:
        assert gateway.ask(None).json["model"] == "a"
        assert call(gateway, "GET", "/api/models").json["default_configured"] is True
        reply = choose(gateway, "b")
        assert (reply.status, reply.json["error"]["code"]) == (409, "default_configured")
        assert "server.default_model" in reply.json["error"]["message"]
    checked = check_config(config, {})
    read = ConnectionFile(file, checked).current()
    catalog = Catalog(checked, UpstreamClient(), connected=read)
    assert "default_model: 'b' is not used" in catalog.connection_warnings()[0]


def test_a_default_must_be_a_model(gateway: Served, shared: tuple[Served, Path]) -> None:
    for wrong in ("gone", "", "a" * 300, "a\x00b"):
        reply = choose(gateway, wrong)
        assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found"), wrong
    assert choose(gateway, "m", Origin="https://evil.example").status == 403
    assert not shared[1].exists()


def test_a_deleted_model_is_not_replaced_in_silence(upstream: Upstream, gateway: Served) -> None:
    url = f"{upstream.url}/{upstream.plays(server_of(['a', 'b']))}"
    connect(gateway, "one", base_url=url, models=["a"])
    connect(gateway, "other", base_url=url, models=["b"])
    call(gateway, "POST", "/api/chat", {"text": "Why?", "model": "a"})
    chat = call(gateway, "GET", "/api/conversations").json["data"][0]["id"]
    call(gateway, "DELETE", "/api/connections/one")
    reply = call(gateway, "POST", "/api/chat", {"text": "And?", "model": "a", "conversation_id": chat})
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")
    for path, body in (
        ("/v1/responses", {"input": "Why?"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Why?"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 9}),
    ):
        assert call(gateway, "POST", path, {"model": "a", **body}).status == 404


def test_larger_models_are_offered_where_the_engine_would_be_used(gateway: Served) -> None:
    assert call(gateway, "GET", "/api/providers").json["larger_models"] == []
    with serve({"limits": {"retries": 0}}) as other:  # it would have the embedded model, which this test has not
        rows = call(other, "GET", "/api/providers").json["larger_models"]
    assert [row["name"] for row in rows] == ["qwen2.5-coder-1.5b", "qwen3-1.7b"]
    largest = rows[-1]
    assert (largest["bytes"], largest["licence"]) == (1_834_426_016, "Apache-2.0")
    assert largest["command"] == "pellucid serve --local-model qwen3-1.7b"
    assert largest.get("install") == (None if is_engine_installed() else "pip install 'pellucid[local]'")


@pytest.mark.parametrize(
    ("used", "offered"),
    [
        (None, ["qwen2.5-coder-1.5b", "qwen3-1.7b"]),
        ("smollm2-135m", ["qwen2.5-coder-1.5b", "qwen3-1.7b"]),
        ("qwen2.5-coder-1.5b", ["qwen3-1.7b"]),
        ("qwen3-1.7b", []),
        ("a-file-of-mine", []),
    ],
)
def test_only_larger_models_are_offered(used: str | None, offered: list[str]) -> None:
    assert [model.name for model in larger_models(used)] == offered


# --- the test of a connection ----------------------------------------------------------------------------------------


def test_the_usual_path_is_found(gateway: Served) -> None:
    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_list = self.path == "/v1/models"
            self.send_response(200 if is_list else 404)
            self.end_headers()
            self.wfile.write(b'{"data": [{"id": "m"}]}' if is_list else b"404 page not found")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        for base_url in (url, f"{url}/"):
            result = check(gateway, base_url=base_url)
            assert result == {"ok": True, "models": ["m"], "has_list": True, "base_url": f"{url}/v1"}
    finally:
        server.shutdown()
        server.server_close()


def refuses(status: int, body: bytes, type: str = "application/json") -> Script:
    async def script(call: Call) -> None:
        await call.answer(status, body, type)

    return script


SECRET_PAGE = b"<html><title>The secret of an internal server</title></html>"
PROBLEMS: dict[str, tuple[Script, dict[str, Any], str]] = {
    "key refused": (server_of(["m"], key="right"), {"api_key": KEY}, "key_refused"),
    "no key": (server_of(["m"], key="right"), {}, "key_missing"),
    "model unknown": (server_of(["m"]), {"model": "x"}, "model_unknown"),
    "no credit": (refuses(402, b'{"error": {"message": "top up"}}'), {"model": "m"}, "no_credit"),
    "busy": (refuses(429, b"{}"), {"model": "m"}, "too_many_requests"),
    "broken": (refuses(500, SECRET_PAGE, "text/html"), {}, "provider_failed"),
    "refused": (refuses(400, SECRET_PAGE, "text/html"), {"model": "m"}, "refused"),
    "a page": (refuses(200, SECRET_PAGE, "text/html"), {"model": "m"}, "no_provider"),
    "other JSON": (refuses(200, b'{"secret": "of an internal server"}'), {"model": "m"}, "no_provider"),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_problems_are_in_words_and_reveal_no_body(problem: str, upstream: Upstream, gateway: Served) -> None:
    script, body, code = PROBLEMS[problem]
    result = check(gateway, base_url=f"{upstream.url}/{upstream.plays(script)}", **body)
    assert result["ok"] is False
    assert result["problem"]["code"] == code
    assert "internal" not in json.dumps(result)


def test_a_redirect_is_not_followed(upstream: Upstream, gateway: Served) -> None:
    target = upstream.plays(server_of(["m"]))

    async def script(call: Call) -> None:
        await call.answer(302, b"", Location=f"{upstream.url}/{target}/models")

    url = f"{upstream.url}/{upstream.plays(script)}"
    assert check(gateway, base_url=url)["models"] == []
    assert check(gateway, base_url=url, model="m")["problem"]["code"] == "no_provider"
    assert not upstream.calls(target)


def test_an_address_where_nothing_listens(gateway: Served) -> None:
    result = check(gateway, base_url="http://127.0.0.1:9/v1")
    assert result["problem"]["code"] == "unreachable"
    assert "127.0.0.1:9 cannot be reached" in result["problem"]["message"]


def test_a_name_that_does_not_exist_is_not_found(gateway: Served) -> None:
    for model in (None, "m"):
        result = check(gateway, base_url="http://no-such-host.invalid/v1", model=model)
        assert result["problem"] == {
            "code": "host_not_found",
            "message": "no-such-host.invalid was not found. Check the spelling and your network.",
        }


def test_a_file_that_allows_hosts_is_to_be_extended(file: Path) -> None:
    config = check_config({**NO_MODELS, "egress": {"allow": ["10.0.0.1"]}}, {})
    with pytest.raises(RequestError) as raised:
        ConnectionFile(file, config).save("mine", ConnectionBody("vllm", ["m"], "http://192.168.7.7:8000/v1", None))
    assert 'add "192.168.7.7" to "allow" under [egress]' in str(raised.value)


ADDRESSES = {
    "127.0.0.1:8099": "http://127.0.0.1:8099",
    "localhost:8099/v1/": "http://localhost:8099/v1",
    "192.168.7.7/v1": "http://192.168.7.7/v1",
    "[fd00::1]/v1": "http://[fd00::1]/v1",
    "gpu.lan/v1": "http://gpu.lan/v1",
    "models.example.com:8000/v1": "http://models.example.com:8000/v1",
    "models.example.com/v1": "https://models.example.com/v1",
    "1.1.1.1": "https://1.1.1.1",
    " https://models.example.com/v1/chat/completions ": "https://models.example.com/v1",
    "https://models.example.com/v1/responses/": "https://models.example.com/v1",
    "models.example.com/v1/messages": "https://models.example.com/v1",
    "https://models.example.com/models": "https://models.example.com/models",
    "user:word@example.com": "user:word@example.com",
    "gopher://x": "gopher://x",
    "": None,
}


def test_addresses_as_people_type_and_paste_them(file: Path) -> None:
    plain = ConnectionFile(file, check_config(NO_MODELS, {}))
    cleaned = {
        typed: plain.resolve_connection(None, ConnectionBody("openai-compat", ["m"], typed)).base_url
        for typed in ADDRESSES
    }
    assert cleaned == ADDRESSES
    # What the wire of the provider adds.
    address = "http://127.0.0.1:11434/api/chat"
    assert (
        plain.resolve_connection(None, ConnectionBody("ollama-native", ["m"], address)).base_url
        == "http://127.0.0.1:11434"
    )


def test_the_test_returns_the_address_that_was_meant(upstream: Upstream, gateway: Served) -> None:
    url = f"{upstream.url}/{upstream.plays(server_of(['m']))}"
    pasted = f"{url.removeprefix('http://')}/chat/completions"
    assert check(gateway, base_url=pasted)["base_url"] == url
    assert check(gateway, base_url=pasted, model="m") == {"ok": True, "models": [], "has_list": False, "base_url": url}
    assert connect(gateway, "mine", base_url=pasted, models=["m"]).json["base_url"] == url


def test_a_server_without_a_list_needs_the_name_of_a_model(upstream: Upstream, gateway: Served) -> None:
    url = f"{upstream.url}/{upstream.plays(server_of(['m'], status=404))}"
    assert check(gateway, base_url=url) == {"ok": True, "models": [], "has_list": False}
    assert check(gateway, base_url=url, model="m")["ok"] is True


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no models": ({"models": []}, "models"),
    "an empty name": ({"models": [""]}, "models"),
    "a pattern": ({"models": ["gpt-*"]}, "models"),
    "a control character": ({"models": ["a\nb"]}, "models"),
    "a long name": ({"models": ["m" * 300]}, "models"),
    "no such provider": ({"profile": "nobody"}, "profile"),
    "no address": ({"base_url": None}, "base_url"),
    "a key with a line break": ({"api_key": "a\nb"}, "api_key"),
    "a key of Bedrock is needed": ({"profile": "bedrock", "base_url": None}, "api_key"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_named(case: str, gateway: Served) -> None:
    changes, param = WRONG[case]
    body = {"models": ["m"], "base_url": "http://127.0.0.1:9/v1", **changes}
    reply = connect(gateway, "mine", **body)
    assert (reply.status, reply.json["error"]["param"]) == (400, param), reply.body
    assert listed(gateway)["data"] == []


@pytest.mark.parametrize("name", ["local", "a:b", "-x", "a%20b", "x" * 65, "%2e%2e"])
def test_names_that_connections_cannot_have(name: str, gateway: Served) -> None:
    reply = connect(gateway, name, profile="ollama", models=["m"])
    assert reply.status == 400, reply.body
    assert reply.json["error"]["param"] == "name"


def test_the_common_providers_come_first(gateway: Served) -> None:
    rows = call(gateway, "GET", "/api/providers").json["data"]
    by_name = {row["profile"]: row for row in rows}
    assert [row["profile"] for row in rows[:3]] == ["openai", "anthropic", "google"]
    assert by_name["ollama"]["base_url"] == "http://127.0.0.1:11434/v1"
    assert by_name["ollama"] | {"local": True, "key": "optional"} == by_name["ollama"]
    assert by_name["openai"]["title"] == "OpenAI"
    assert by_name["openai-compat"]["base_url"] == ""
    assert len({row["title"] for row in rows}) == len(rows)
    known = {name for name, row in by_name.items() if not row["common"]}
    assert {"openai-chat", "together", "bedrock"} <= known


def test_many_connections_at_once_are_all_saved(upstream: Upstream, gateway: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: connect(gateway, f"c{n}", profile="ollama", models=[f"m{n}"]), range(24)))
    assert {reply.status for reply in replies} == {200}
    assert sorted(model_names(gateway)) == sorted(f"m{n}" for n in range(24))
    wait_until(lambda: not gateway.busy, "no request is in progress")
