"""Calls from one replica to the others: who answers, and what becomes of those that do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from pellucid.relay import Relay
from pellucid.server import replicas as calls
from pellucid.server.replicas import Replicas
from tests.relay import relay_kit


class Member(Replicas):
    """A replica that answers with its name."""

    def __init__(self, relay: Relay, name: str, *, is_silent: bool = False) -> None:
        super().__init__(relay, name, self._reply, 3600)
        self.relay = relay
        self.messages: list[Any] = []
        self._is_silent = is_silent

    async def _reply(self, message: bytes) -> bytes:
        self.messages.append(msgspec.json.decode(message))
        if self._is_silent:
            await asyncio.Event().wait()
        return msgspec.json.encode(self.name)


@asynccontextmanager
async def joined(*members: Member) -> AsyncIterator[None]:
    for member in members:
        member.start()
        while member.name not in await member.relay.list_present("replicas"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    try:
        yield
    finally:
        for member in members:
            await member.aclose()


def test_every_other_replica_answers(replicas: relay_kit.Replicas) -> None:
    async def main() -> None:
        one, two, three = (Member(relay, relay_kit.new_name()) for relay in (replicas.one, replicas.two, replicas.two))
        async with joined(one):
            assert await one.call(b"1") == {}
            async with joined(two, three):
                answers = await one.call(b'"what"')
                assert answers == {member.name: msgspec.json.encode(member.name) for member in (two, three)}
                assert (one.messages, two.messages, three.messages) == ([], ["what"], ["what"])
            # Those that have left are not called, and a later process answers no call of before.
            assert await one.call(b"2") == {}
            async with joined(late := Member(replicas.two, relay_kit.new_name())):
                assert await one.call(b"3") == {late.name: msgspec.json.encode(late.name)}
                assert late.messages == [3]

    replicas.run(main())


def test_a_replica_that_does_not_answer_is_named(replicas: relay_kit.Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ANSWER_SECONDS", 0.3)

    async def main() -> None:
        one, two = Member(replicas.one, relay_kit.new_name()), Member(replicas.two, relay_kit.new_name())
        silent = Member(replicas.two, relay_kit.new_name(), is_silent=True)
        async with joined(one, two, silent):
            answers = await one.call(b"1")
            assert answers == {two.name: msgspec.json.encode(two.name), silent.name: None}

    replicas.run(main())
