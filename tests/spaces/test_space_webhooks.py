"""Webhooks of a space: signed, in order, again after failures, by one replica, and only what is for everyone."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pellucid.egress import EgressPolicy
from pellucid.relay import Relay
from pellucid.spaces.runtime.space import Space
from pellucid.spaces.runtime.webhooks import (
    Webhook,
    WebhookDeliveries,
    WebhookDelivery,
    read_secret,
    signed_headers,
)
from pellucid.storage import Store
from tests.spaces.space_kit import OWNER, chat, frame, opened
from tests.spaces.webhook_kit import KEY, Receiver
from tests.waiting import eventually

ALLOWED = EgressPolicy(["127.0.0.1"])


class Counts:
    """Observer that counts."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.behind = 0

    def on_deliveries(self, webhook: Webhook, outcome: str, count: int) -> None:
        self.outcomes[outcome] += count

    def on_backlog(self, webhook: Webhook, behind: int) -> None:
        self.behind = behind


@asynccontextmanager
async def delivering(
    store: Store,
    relay: Relay,
    url: str,
    *,
    holder: str = "one",
    lease_seconds: float = 0.6,
    policy: EgressPolicy = ALLOWED,
    **options: Any,
) -> AsyncIterator[Counts]:
    counts = Counts()
    webhook = Webhook(owner=OWNER, space="room", name="ops", url=url, key=KEY, **{"timeout_seconds": 5.0, **options})
    delivery = WebhookDelivery(
        webhook,
        store.spaces,
        relay,
        policy,
        holder=holder,
        lease_seconds=lease_seconds,
        observer=counts,
        pauses=(0.01, 0.05),
    )
    async with WebhookDeliveries([delivery]):
        await eventually(lambda: delivery._saved_position)
        yield counts


@asynccontextmanager
async def space_and_relay(**settings: Any) -> AsyncIterator[tuple[Space, Store, Relay]]:
    async with opened(settings=settings) as (manager, space, store):
        yield space, store, manager._relay


def test_the_signature_is_that_of_the_standard() -> None:
    # The example of https://github.com/standard-webhooks/standard-webhooks (spec, and the libraries' tests).
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    assert signed_headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)["webhook-signature"] == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )
    assert read_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n") == key


@pytest.mark.parametrize("secret", ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_!!"])
def test_a_wrong_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="whsec_"):
        read_secret(secret)


def test_failures_delay_and_do_not_reorder_or_lose() -> None:
    """Every third attempt fails in one of four ways; the receiver gets all in order, each accepted once."""
    ways = [500, 0, 302, 410]
    receiver = Receiver(lambda attempt: ways[attempt // 3 % 4] if attempt % 3 == 0 else 200)

    async def scene() -> None:
        async with (
            space_and_relay() as (space, store, relay),
            delivering(store, relay, receiver.url, timeout_seconds=0.3) as counts,
        ):
            for n in range(30):
                await space.post("bob", chat(f"{n}"))
            await eventually(lambda: counts.outcomes["delivered"] == 30)
            assert receiver.texts == [f"{n}" for n in range(30)]
            assert len(receiver.accepted) == 30
            assert receiver.wrong == []
            # Whatever failed was sent again before the next one, with the same id.
            assert list(dict.fromkeys(receiver.attempts)) == [id for id, _ in receiver.accepted]
            assert counts.outcomes["failed"] == len(receiver.attempts) - 30 > 0
            await eventually(lambda: counts.behind == 0)

    try:
        asyncio.run(scene())
    finally:
        receiver.stop()


def test_a_receiver_that_is_down_gets_everything_when_it_is_back() -> None:
    receiver = Receiver()

    async def scene() -> None:
        async with space_and_relay() as (space, store, relay):
            async with delivering(store, relay, receiver.url) as counts:
                await space.post("bob", chat("0"))
                await eventually(lambda: receiver.texts == ["0"])
                receiver.stop()
                for n in range(1, 10):
                    await space.post("bob", chat(f"{n}"))
                await eventually(lambda: counts.outcomes["failed"] > 3)
                assert counts.behind > 0
            # The process stops meanwhile, and another one continues.
            receiver.start()
            async with delivering(store, relay, receiver.url, holder="two"):
                await eventually(lambda: len(receiver.texts) == 10)
            assert receiver.texts == [f"{n}" for n in range(10)]

    try:
        asyncio.run(scene())
    finally:
        receiver.stop()


def test_only_what_is_for_everyone_is_sent_and_no_reasoning() -> None:
    receiver, full = Receiver(), Receiver()

    hook_rows: list[tuple[str, str, dict[str, Any]]] = [
        ("main", receiver.url, {}),
        ("full", full.url, {"view": "full", "kinds": ("reasoning/*", "chat")}),
    ]

    async def scene() -> None:
        async with space_and_relay() as (space, store, relay):
            hooks = [
                WebhookDelivery(
                    Webhook(owner=OWNER, space="room", name=name, url=url, key=KEY, **options),
                    store.spaces,
                    relay,
                    ALLOWED,
                    holder="one",
                    lease_seconds=5,
                    observer=Counts(),
                )
                for name, url, options in hook_rows
            ]
            async with WebhookDeliveries(hooks):
                await eventually(lambda: all(hook._saved_position for hook in hooks))
                await space.post("bob", frame("reasoning/start", {"message": "hm"}, id="r"))
                await space.post("bob", frame("reasoning/thought", {"message": "secret thought"}, context="r"))
                await space.post("bob", chat("aside", context="r"))
                await space.post("bob", frame("mcp/proposal", {"method": "tools/call"}, context="r", id="p"))
                await space.post("bob", frame("reasoning/start", {"message": "hm"}, id="q", to=["ada"]))
                await space.post("bob", frame("reasoning/thought", {"message": "private thought"}, context="q"))
                await space.post("bob", frame("mcp/request", {"method": "tools/list"}, id="asked", to=["ada"]))
                await space.post("ada", frame("mcp/response", {"result": "private"}, correlation_id=["asked"]))
                await space.post("bob", chat("for ada", to=["ada"]))
                await space.post("bob", frame("mcp/proposal", {"method": "tools/call"}, id="o"))
                await space.post("bob", chat("end"))
                await eventually(lambda: "end" in receiver.texts and "end" in full.texts)
            assert receiver.texts == ["end"]
            assert [one["id"] for one in receiver.of("mcp.proposal")] == ["o"]
            assert full.texts == ["aside", "end"]
            assert [one["id"] for one in full.of("reasoning.start")] == ["r"]
            assert [one["payload"]["message"] for one in full.of("reasoning.thought")] == ["secret thought"]
            assert {body["type"] for _, body in full.accepted} == {"reasoning.start", "reasoning.thought", "chat"}
            assert all(body["data"]["space"] == "room" for _, body in full.accepted)

    try:
        asyncio.run(scene())
    finally:
        receiver.stop()
        full.stop()


def test_private_addresses_are_not_reached_unless_allowed() -> None:
    receiver = Receiver()

    async def scene() -> None:
        async with space_and_relay() as (space, store, relay):
            async with delivering(store, relay, receiver.url, policy=EgressPolicy([])) as counts:
                await space.post("bob", chat("hi"))
                await eventually(lambda: counts.outcomes["failed"] > 2)
            assert receiver.attempts == []

    try:
        asyncio.run(scene())
    finally:
        receiver.stop()


def test_a_backlog_is_bounded_and_its_loss_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    is_up = asyncio.Event()
    receiver = Receiver(lambda attempt: 200 if is_up.is_set() else 503)

    async def scene() -> None:
        async with space_and_relay() as (space, store, relay):
            async with delivering(store, relay, receiver.url, kinds=("chat",), max_behind=5) as counts:
                for n in range(12):
                    await space.post("bob", chat(f"{n}"))
                await eventually(lambda: "it skips" in caplog.text)
                is_up.set()
                await eventually(lambda: receiver.texts[-1:] == ["11"])
            # What the receiver did not get is what the notice says: everything before the first that it got.
            [gap] = receiver.of("system.gap")
            missed = gap["payload"]["missed"]
            assert missed == counts.outcomes["skipped"] >= 1
            assert receiver.texts == [f"{n}" for n in range(missed, 12)]
            assert gap["payload"]["before_seq"] == receiver.of("chat")[0]["seq"]
            assert "secret" not in caplog.text

    try:
        asyncio.run(scene())
    finally:
        receiver.stop()


def test_one_replica_delivers_and_another_takes_over() -> None:
    receiver = Receiver()

    async def scene() -> None:
        async with space_and_relay() as (space, store, relay):
            async with delivering(store, relay, receiver.url, holder="one") as one:
                second = WebhookDelivery(
                    Webhook(owner=OWNER, space="room", name="ops", url=receiver.url, key=KEY),
                    store.spaces,
                    relay,
                    ALLOWED,
                    holder="two",
                    lease_seconds=0.6,
                    observer=(two := Counts()),
                )
                async with WebhookDeliveries([second]):
                    for n in range(5):
                        await space.post("bob", chat(f"{n}"))
                    await eventually(lambda: len(receiver.texts) == 5)
                    await eventually(lambda: one.outcomes["delivered"] == 5)  # counted after its answer
                    assert two.outcomes["delivered"] == 0
                    # The lease of the first is lost: as if it had been suspended.
                    await relay.claim("space-webhook:room/ops", "one", 0.05)
                    await space.post("bob", chat("5"))
                    await eventually(lambda: len(receiver.texts) == 6)
            assert receiver.texts == [f"{n}" for n in range(6)]
            assert len(receiver.accepted) == 6

    try:
        asyncio.run(scene())
    finally:
        receiver.stop()


def test_a_deleted_space_takes_its_positions_along() -> None:
    async def scene() -> None:
        async with opened() as (_, space, store):
            await space.post("bob", chat("hi"))
            head = await store.spaces.begin_webhook(OWNER, "room", "ops")
            assert head
            assert await store.spaces.move_webhook(OWNER, "room", "ops", head + 1)
            assert not await store.spaces.move_webhook(OWNER, "room", "ops", head)
            assert await store.spaces.begin_webhook(OWNER, "room", "ops") == head + 1
            await store.spaces.remove(OWNER, "room")
            assert await store.spaces.begin_webhook(OWNER, "room", "ops") is None
            assert not await store.spaces.move_webhook(OWNER, "room", "ops", head + 2)

    asyncio.run(scene())
