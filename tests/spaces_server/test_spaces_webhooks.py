"""Webhooks of a gateway: its configuration, and `kill -9` in the midst of deliveries, with one gateway and with two."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pellucid.errors import ConfigError
from pellucid.server.config import check_config
from tests.replicas.replicas_kit import Replica
from tests.service_postgres import postgres
from tests.service_redis import redis_service
from tests.spaces.webhook_kit import SECRET, Receiver
from tests.spaces_server.space_wire_kit import joined, served, spaces_of
from tests.waiting import wait_until

HOOK: dict[str, Any] = {"url": "https://ops.example/hook?key=1", "secret_env": "HOOK_SECRET"}


def mistakes_of(hook: dict[str, Any], secret: str = SECRET) -> list[str]:
    table = {
        "providers": {"vllm": {"base_url": "http://127.0.0.1:9/v1"}},
        "spaces": {"room": {"webhooks": {"ops": hook}}},
    }
    try:
        check_config(table, {"HOOK_SECRET": secret})
    except ConfigError as error:
        return error.mistakes
    return []


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"url": "ops.example"}, "spaces.room.webhooks.ops.url"),
        ({"url": "https://me:pass@ops.example/"}, "spaces.room.webhooks.ops.url"),
        ({"secret_env": "OTHER"}, "spaces.room.webhooks.ops.secret_env: the environment has no OTHER"),
        ({"secret_file": "x"}, "spaces.room.webhooks.ops: needs a secret_env or a secret_file"),
        ({"kinds": []}, "spaces.room.webhooks.ops.kinds"),
        ({"max_behind": 0}, "spaces.room.webhooks.ops.max_behind"),
        ({"view": "raw"}, "spaces.room.webhooks.ops.view"),
    ],
)
def test_a_wrong_webhook_is_refused_with_its_key(change: dict[str, Any], mistake: str) -> None:
    assert mistakes_of(HOOK) == []
    [message] = mistakes_of({**HOOK, **change})
    assert message.startswith(mistake)
    assert "pass" not in message
    assert "key=1" not in message


def test_a_wrong_secret_is_refused_and_not_shown() -> None:
    [message] = mistakes_of(HOOK, "whsec_tooshort")
    assert message.startswith("spaces.room.webhooks.ops.secret_env")
    assert "tooshort" not in message


def test_a_gateway_delivers_and_counts(tmp_path: Path) -> None:
    receiver = Receiver()
    (tmp_path / "secret").write_text(SECRET + "\n")
    hook = {"url": receiver.url, "secret_file": str(tmp_path / "secret"), "kinds": ["chat"]}
    room = {"participants": ["ada"], "webhooks": {"ops": hook}}
    try:
        with served(tmp_path, {"room": room}, egress={"allow": ["127.0.0.1"]}) as gateway:
            # The webhook begins at the head that it finds.
            with joined(gateway, "room", "ada") as ada:
                for n in itertools.count():
                    ada.chat(f"{n}")
                    if receiver.texts:
                        break
                last = ada.chat("last")["payload"]["text"]
            wait_until(lambda: receiver.texts[-1] == last, "it is delivered")
            metrics = gateway.request("GET", "/metrics").body.decode()
        assert 'pellucid_webhook_deliveries_total{outcome="delivered",space="room",webhook="ops"}' in metrics
        assert 'pellucid_webhook_backlog{space="room",webhook="ops"}' in metrics
        assert receiver.wrong == []
    finally:
        receiver.stop()


def config_of(folder: Path, receiver: Receiver, store: str, relay: str = "") -> str:
    room = spaces_of(folder, {"room": {"participants": {"ada": ["*"]}}})["room"]
    (folder / "secret").write_text(SECRET + "\n")
    return f"""
[server]
shutdown_seconds = 5
[storage]
url = "{store}"
[relay]
lease_seconds = 1
{f'url = "{relay}"' if relay else ""}
[egress]
allow = ["127.0.0.1"]
[local]
enabled = false
[spaces.room.participants.ada]
token_file = "{room["participants"]["ada"]["token_file"]}"
capabilities = ["*"]
[spaces.room.webhooks.ops]
url = "{receiver.url}"
secret_file = "{folder / "secret"}"
"""


@contextmanager
def on_sqlite(folder: Path) -> Iterator[tuple[str, str, int]]:
    yield f"sqlite:///{folder / 'hooks.sqlite'}", "", 1


@contextmanager
def on_postgres(folder: Path) -> Iterator[tuple[str, str, int]]:
    with postgres() as database, redis_service() as redis:
        yield database.database(), f"{redis.url}?prefix=hooks{time.monotonic_ns()}:", 2


@pytest.mark.timeout(400)
@pytest.mark.needs("long")
@pytest.mark.parametrize(
    "where", [on_sqlite, pytest.param(on_postgres, marks=pytest.mark.needs("postgresql", "redis"))]
)
def test_nothing_is_lost_when_the_gateway_is_killed_while_it_delivers(
    tmp_path: Path, where: Callable[[Path], AbstractContextManager[tuple[str, str, int]]]
) -> None:
    receiver = Receiver(lambda attempt: 500 if attempt % 7 == 0 else 200)
    with where(tmp_path) as (store, relay, count):
        config = config_of(tmp_path, receiver, store, relay)
        gateways = [Replica(config) for _ in range(count)]
        sent: list[str] = []
        try:
            for round_number in range(2):
                gateways = [one.started() for one in gateways]
                with joined(gateways[0], "room", "ada", close_timeout=0.1) as ada:
                    if not sent:
                        while not receiver.accepted:  # it has begun
                            ada.chat("warm-up")
                    delivered = len(receiver.texts)
                    sent += [ada.chat(f"{round_number}-{n}")["payload"]["text"] for n in range(20)]
                    wait_until(lambda: len(receiver.texts) > delivered + 3, "it delivers", 60)  # noqa: B023
                    for one in gateways:
                        one.kill()
                for one in gateways:
                    one.close()
                gateways = [Replica(config) for _ in range(count)]
            gateways = [one.started() for one in gateways]
            wait_until(lambda: receiver.texts[-1:] == sent[-1:], "the rest is delivered", 60)
        finally:
            for one in gateways:
                one.close()
            receiver.stop()
    assert [text for text in receiver.texts if text != "warm-up"] == sent
    assert receiver.wrong == []
