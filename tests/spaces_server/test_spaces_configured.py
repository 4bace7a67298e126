"""`[spaces]` in the configuration: every error is reported, and valid spaces exist when the server starts."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from pellucid.errors import ConfigError
from pellucid.server import create_app
from pellucid.server.config import Config, check_config
from pellucid.server.space_config import DEFAULT_CAPABILITIES, SpaceConfig, read_tokens
from pellucid.spaces.runtime.provisioning import create_space
from pellucid.spaces.runtime.settings import SpaceSettings
from pellucid.storage import open_store
from tests.scripted import Upstream, say, serve
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import (
    PATIENCE_SECONDS,
    TALK_CAPABILITIES,
    get,
    joined,
    served,
    spaces_of,
    token,
)

BASE: dict[str, Any] = {"providers": {"vllm": {"base_url": "http://127.0.0.1:9/v1"}}}
ENV = {"A": "a" * 20, "B": "b" * 20, "SAME": "a" * 20}


def configuration_errors(**space: Any) -> list[str]:
    try:
        check_config({**BASE, "spaces": {"r": space}}, ENV)
    except ConfigError as error:
        return error.mistakes
    return []


def test_every_configuration_error_is_reported_with_its_key() -> None:
    errors = configuration_errors(
        reasoning="sloppy",
        templats={},
        redact=[{"name": "x"}, {"name": "y", "pattern": 5}],
        limits={"chat": {"per_second": "x", "burst": 1}, "frames": 5},
        participants={"a": {"token": "secret"}},
    )
    assert [mistake.split(": ")[0] for mistake in errors] == [
        "spaces.r.reasoning",
        "spaces.r.templats",
        "spaces.r.redact[0].pattern",
        "spaces.r.redact[1].pattern",
        "spaces.r.limits.chat.per_second",
        "spaces.r.limits.frames",
        "spaces.r.participants.a.token",
        "spaces.r.participants.a",
    ]
    errors = configuration_errors(
        owner="a b",
        redact=[{"name": "y", "pattern": "("}],
        idle_seconds=-1,
        templates={"t": []},
        always=["("],
        compress={"after": 5},
        participants={
            "a": {"token_env": "A"},
            "b": {"token_env": "SAME"},
            "c": {"token_env": "NEVER"},
            "d": {},
            "e": {"token_env": "B", "token_file": "/x"},
            "system:f": {"token_env": "B", "capabilities": [{"knd": "x"}]},
        },
    )
    text = "\n".join(errors)
    for key in (
        *("owner", "redact[0].pattern", "idle_seconds", "templates.t", "compress", "participants.b"),
        *("participants.c.token_env", "participants.d", "participants.e", "participants.system:f"),
        "participants.system:f.capabilities[0].knd",
    ):
        assert f"spaces.r.{key}: " in text, key
    assert not [value for value in ENV.values() if value in text], "no message contains a token"


def test_common_errors_are_reported_with_a_correction() -> None:
    [half] = configuration_errors(limits={"chat": {"per_second": 5}})
    assert half.startswith("spaces.r.limits.chat.burst: required: ")
    assert "`burst = 100`" in half
    [blank] = configuration_errors(participants={"two words": {"token_env": "A"}})
    assert blank.startswith("spaces.r.participants.two words: ")
    assert "'two-words'" in blank


def test_the_configuration_takes_over_a_created_space_and_logs_it_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = {"storage": {"url": f"sqlite:///{tmp_path / 'kept.sqlite'}"}}

    async def create_by_command() -> dict[str, str]:
        opened = await open_store(store["storage"]["url"])
        try:
            return await create_space(
                opened.spaces,
                "local",
                "r",
                SpaceSettings(reasoning="off"),
                {"ada": DEFAULT_CAPABILITIES, "bob": DEFAULT_CAPABILITIES},
            )
        finally:
            await opened.aclose()

    tokens = asyncio.run(create_by_command())
    for times in (1, 1):
        with (
            caplog.at_level(logging.INFO, "pellucid"),
            served(tmp_path, {"r": {"participants": ["ada"], "reasoning": "flag"}}, **store) as own,
        ):
            assert get(own, "/spaces/r", token("r", "ada")).status == 200
            assert get(own, "/spaces/r", tokens["ada"]).status == 401
            assert get(own, "/spaces/r", tokens["bob"]).status == 200
        assert sum("made by a command" in record.getMessage() for record in caplog.records) == times

    async def settings() -> bytes:
        opened = await open_store(store["storage"]["url"])
        try:
            row = await opened.spaces.get("r")
            assert row is not None
            return row.settings
        finally:
            await opened.aclose()

    assert asyncio.run(settings()) == SpaceSettings(reasoning="flag").dump()


def test_invalid_space_names_are_refused() -> None:
    for name in ("", "a/b", "../x", "a b", "x" * 65, "é", "-x"):
        with pytest.raises(ConfigError, match="name"):
            check_config({**BASE, "spaces": {name: {}}}, {})


def test_token_files_are_read_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "two words").write_text("two words")
    (tmp_path / "good").write_text("good-token-for-a-test\n")
    rows = {
        name.replace(" ", "-"): {"token_file": str(tmp_path / name)}
        for name in ("empty", "two words", "good", "missing")
    }
    config = check_config({**BASE, "spaces": {"r": {"participants": {**rows, "again": rows["good"]}}}}, {})
    with pytest.raises(ConfigError) as wrong:
        read_tokens(config.spaces, {})
    assert sorted(mistake.split(": ")[0] for mistake in wrong.value.mistakes) == [
        "spaces.r.participants.again",
        "spaces.r.participants.empty.token_file",
        "spaces.r.participants.missing.token_file",
        "spaces.r.participants.two-words.token_file",
    ]


def test_the_configuration_survives_serialization_for_workers(tmp_path: Path) -> None:
    table = {**BASE, "spaces": spaces_of(tmp_path, {"r": {"participants": {"a": TALK_CAPABILITIES}, "compress": None}})}
    table["spaces"]["r"].pop("compress")
    config = check_config(table, {})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=Config) == config
    assert SpaceConfig(reasoning="flag").settings == SpaceSettings(reasoning="flag")


def test_the_default_capabilities_exclude_administration(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("token-of-a-who-may-usual")
    config = check_config({**BASE, "spaces": {"r": {"participants": {"a": {"token_file": str(tmp_path / "a")}}}}}, {})
    with serve(config) as own, joined(own, "r", "a", with_token="token-of-a-who-may-usual") as a:
        kinds = {one["kind"] for one in a.welcome["you"]["capabilities"]}
        assert kinds == {*DEFAULT_CAPABILITIES, "mcp/response"}
        for kind in ("capability/grant", "space/invite", "space/kick"):
            assert a.refused(kind=kind, payload={"participant_id": "x", "recipient": "a", "capabilities": []})


def test_a_gateway_can_have_spaces_without_a_model(tmp_path: Path) -> None:
    table = {"local": {"enabled": False}, "spaces": spaces_of(tmp_path, {"r": {"participants": ["a"]}})}
    with serve(check_config(table, {})) as own, joined(own, "r", "a") as a:
        a.chat("Hi")
        assert get(own, "/v1/models").json["data"] == []
        assert own.ask("any").status == 404
    with pytest.raises(ConfigError, match="no model"):
        check_config({"local": {"enabled": False}}, {})


def test_a_space_cannot_change_its_owner(tmp_path: Path) -> None:
    store = {"storage": {"url": f"sqlite:///{tmp_path / 'kept.sqlite'}"}}
    with served(tmp_path, {"r": {"participants": ["a"]}}, **store):
        pass
    config = check_config({**BASE, **store, "spaces": {"r": {"owner": "acme"}}}, {})

    async def start() -> None:
        app = create_app(config)
        with pytest.raises(ConfigError, match=r"spaces\.r: "):
            await app.services.start()

    asyncio.run(start())


def test_long_reasoning_is_compressed_by_the_summary_model(tmp_path: Path, upstream: Upstream) -> None:
    model = upstream.plays(say(text="In short: it is fine."))
    more: dict[str, Any] = {
        "providers": {"vllm": {"base_url": upstream.url, "models": [model]}},
        "summaries": {"model": model},
    }
    rooms = {"r": {"participants": ["a"], "compress": {"after": 3}}}
    with served(tmp_path, rooms, **more) as own, joined(own, "r", "a") as a:
        a.say(kind="reasoning/start", id="r-1", payload={"message": "Hm"})
        for n in range(3):
            a.say(kind="reasoning/thought", id=f"t-{n}", context="r-1", payload={"message": f"thought {n}"})
        shorter = a.until("reasoning/thought")
        assert shorter["from"] == "system:gateway"
        assert shorter["payload"] == {
            "message": "In short: it is fine.",
            "metadata": {"compresses": ["t-0", "t-1", "t-2"]},
        }
    [call] = upstream.calls(model)
    assert "thought 2" in str(call.body)


def test_logs_contain_no_tokens_and_no_text(gateway: Served, room: str, caplog: pytest.LogCaptureFixture) -> None:
    secret = "hunter2-is-my-secret-token"
    with caplog.at_level(logging.DEBUG, logger="pellucid"), caplog.at_level(logging.INFO, logger="uvicorn.error"):
        url = f"ws://127.0.0.1:{gateway.port}"
        with pytest.raises(InvalidStatus):
            connect(f"{url}/spaces/{room}/ws", additional_headers={"Authorization": f"Bearer {secret}"}, proxy=None)
        with connect(f"{url}/ws", proxy=None) as connection:
            connection.send(f'{{"type": "join", "space": "{room}", "token": "{secret}"}}')
            connection.recv(PATIENCE_SECONDS)
        with joined(gateway, room, "agent") as agent:
            agent.chat("what nobody may read in a log")
            agent.raw('{"kind": "chat", "payload": "what nobody may read in a log"}')
            agent.until("system/error")
        get(gateway, f"/spaces/{room}/search?q=nobody", token(room, "agent"))
        gateway.idle()
    log_text = caplog.text
    for leak in (secret, token(room, "agent"), "nobody may read", "q=nobody"):
        assert leak not in log_text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
