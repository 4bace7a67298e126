"""Granted, revoked and configured capabilities are those of a simple model, after reconnects, restarts and edits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

from pellucid.envelopes import Envelope
from pellucid.envelopes.capability import HeldCapability, decide, read_capabilities
from pellucid.relay import open_relay
from pellucid.spaces.runtime.provisioning import declare_space
from pellucid.spaces.runtime.session import Session
from pellucid.spaces.runtime.settings import read_settings
from pellucid.spaces.runtime.space import Space
from pellucid.storage import Store
from tests.cases import Cases
from tests.examples import by_circle
from tests.spaces.space_kit import OWNER, Sink, frame, join_space, opened_store, replica
from tests.waiting import eventually

GRANT, REVOKE = "capability/grant", "capability/revoke"
MANAGEMENT = frozenset({GRANT, REVOKE, "space/kick"})
MEANINGS: dict[str, frozenset[str]] = {
    "chat": frozenset({"chat"}),
    "mcp/request": frozenset({"mcp/request"}),
    "mcp/*": frozenset({"mcp/request", "mcp/proposal", "mcp/other"}),
    GRANT: frozenset({GRANT}),
    REVOKE: frozenset({REVOKE}),
    "capability/*": frozenset({GRANT, REVOKE, "capability/other"}),
    "space/kick": frozenset({"space/kick"}),
}
KINDS = frozenset[str]().union(*MEANINGS.values(), {"other/kind"})
MEANINGS["*"] = KINDS
NAMES = ("ann", "bob", "cat", "dan")
ALWAYS = "mcp/proposal"
MEANINGS[ALWAYS] = frozenset({"mcp/proposal"})


class Held:
    """A capability as sets of kinds: as it was written, and what is left of it."""

    def __init__(self, written: str) -> None:
        self.written = MEANINGS[written]
        self.rest = self.written


class ModelGrant:
    def __init__(self, by: str, to: str, written: Iterable[str]) -> None:
        self.by, self.to, self.held = by, to, [Held(one) for one in written]


class Model:
    """The rules of `envelopes.grants`, with sets of kinds."""

    def __init__(self) -> None:
        self.configured: dict[str, list[Held]] = {}
        self.everyone: dict[str, Held] = {}
        self.grants: dict[str, ModelGrant] = {}

    def configure(self, who: str, written: Iterable[str]) -> None:
        self.configured[who] = [Held(one) for one in written]
        self.everyone[who] = Held(ALWAYS)
        self._end_unsupported()

    def of_configuration(self, who: str) -> list[Held]:
        return [one for one in (self.everyone[who], *self.configured[who]) if one.rest]

    def held(self, who: str) -> list[Held]:
        granted = [one for grant in self.grants.values() if grant.to == who for one in grant.held]
        return [*self.of_configuration(who), *granted]

    def kinds(self, who: str) -> frozenset[str]:
        return frozenset[str]().union(*(one.rest for one in self.held(who)))

    def grant(self, id: str, by: str, to: str, written: list[str]) -> bool:
        covers = all(any(MEANINGS[one] <= own.rest for own in self.held(by)) for one in written)
        if GRANT not in self.kinds(by) or by == to or not covers:
            return False
        self.grants[id] = ModelGrant(by, to, written)
        return True

    def revoke(self, by: str, to: str, written: list[str]) -> bool:
        removed = frozenset[str]().union(*(MEANINGS[one] for one in written))
        grants = [one for one in self.grants.values() if one.to == to and any(part.rest & removed for part in one.held)]
        configured = [one for one in self.of_configuration(to) if one.rest & removed]
        if REVOKE not in self.kinds(by) or not (grants or configured):
            return False
        if configured and by != to and not self._outranks(by, to):
            return False
        if not all(by in (one.by, one.to) or self._holds(by, one.held, written, removed) for one in grants):
            return False
        for part in (*configured, *(part for one in grants for part in one.held)):
            part.rest -= removed
        self._end_unsupported()
        return True

    def _outranks(self, by: str, to: str) -> bool:
        own = self.held(by)
        managing = [one for one in self.held(to) if one.written & MANAGEMENT]
        return all(any(one.rest <= mine.rest for mine in own) for one in managing)

    def _holds(self, by: str, parts: list[Held], written: list[str], removed: frozenset[str]) -> bool:
        own = self.held(by)
        if all(any(MEANINGS[one] <= mine.rest for mine in own) for one in written):
            return True
        taken = [part for part in parts if part.rest & removed]
        return all(any(part.rest <= mine.rest for mine in own) for part in taken)

    def _end_unsupported(self) -> None:
        held = {who: self.of_configuration(who) for who in self.configured}
        for id, grant in list(self.grants.items()):
            before = held.get(grant.by, [])
            grant.held = [one for one in grant.held if one.rest and any(one.rest <= own.rest for own in before)]
            if grant.held:
                held[grant.to].extend(grant.held)
            else:
                del self.grants[id]


class World:
    """A space on a store, that is opened again by other managers, and the model of it."""

    def __init__(self, store: Store) -> None:
        self.model = Model()
        self.space: Space
        self.sessions: dict[str, Session] = {}
        self.sinks: dict[str, Sink] = {}
        self._store = store
        self._run = AsyncExitStack()
        self._configured: dict[str, list[str]] = {}

    async def configure(self, who: str, written: list[str]) -> None:
        if self._configured.get(who) != written:
            self.model.configure(who, written)
        self._configured[who] = written
        participants = {one: (list(may), f"token-{one}") for one, may in self._configured.items()}
        await declare_space(self._store.spaces, OWNER, "room", read_settings({"always": [ALWAYS]}), participants)

    async def start(self) -> None:
        await self._run.aclose()
        self._run = AsyncExitStack()
        relay = await open_relay(None)
        self._run.push_async_callback(relay.aclose)
        self.space = await (await self._run.enter_async_context(replica(self._store, relay))).space("room")
        for who in NAMES:
            await self.join(who)

    async def join(self, who: str) -> None:
        self.sessions[who], self.sinks[who] = await join_space(self.space, who)

    async def aclose(self) -> None:
        await self._run.aclose()

    async def send(self, id: str, who: str, kind: str, payload: dict[str, Any]) -> bool:
        """Send an envelope. Returns whether it was accepted."""
        sink = self.sinks[who]
        before = len(sink.frames)

        def answers() -> list[dict[str, Any]]:
            new = [json.loads(frame.text) for frame in sink.frames[before:]]
            return [one for one in new if id in (one.get("id"), *one.get("correlation_id", ()))]

        await self.sessions[who].receive(frame(kind, payload, id=id))
        await eventually(lambda: bool(answers()))
        return any(one.get("id") == id for one in answers())

    def check(self) -> None:
        for who in NAMES:
            assert allowed_kinds(who, self.space.capabilities(who)) == self.model.kinds(who), who
            shown = self.sinks[who].of("system/welcome")[-1]["payload"]["you"]["capabilities"]
            assert allowed_kinds(who, shown) == self.model.kinds(who), (who, "its newest welcome")


def allowed_kinds(who: str, written: Iterable[Any]) -> frozenset[str]:
    held = [HeldCapability(one, "door") for one in read_capabilities(written)]
    probes = [Envelope(id="x", ts=0, sender=who, kind=kind) for kind in sorted(KINDS)]
    return frozenset(one.kind for one in probes if decide(held, one).allowed)


def test_effective_capabilities_are_those_of_the_model(tmp_path: Path) -> None:
    outcomes: set[tuple[str, bool]] = set()
    with Cases() as case:
        for seed in range(by_circle(20, 80)):
            with case(f"seed {seed}"):
                asyncio.run(_play(f"sqlite:///{tmp_path / f'{seed}.db'}", Random(seed), outcomes))
    assert outcomes == {(action, accepted) for action in ("grant", "revoke") for accepted in (True, False)}


async def _play(url: str, dice: Random, outcomes: set[tuple[str, bool]]) -> None:
    async with AsyncExitStack() as stack:
        world = World(await stack.enter_async_context(opened_store(url)))
        stack.push_async_callback(world.aclose)
        for who, first in zip(NAMES, ("*", "capability/*", "mcp/*", "chat"), strict=True):
            await world.configure(who, [first, *_some(dice, 0)])
        await world.start()
        for number in range(35):
            id, who, to = f"s{number}", dice.choice(NAMES), dice.choice(NAMES)
            action = dice.choices(("grant", "revoke", "reconnect", "restart", "edit"), weights=[12, 12, 2, 1, 2])[0]
            match action:
                case "grant":
                    written = _some(dice, 1)
                    expected = world.model.grant(id, who, to, written)
                    payload = {"recipient": to, "capabilities": written}
                    assert await world.send(id, who, GRANT, payload) == expected, (number, who, to, written)
                    outcomes.add((action, expected))
                case "revoke":
                    written = _some(dice, 1)
                    expected = world.model.revoke(who, to, written)
                    payload = {"recipient": to, "capabilities": written}
                    assert await world.send(id, who, REVOKE, payload) == expected, (number, who, to, written)
                    outcomes.add((action, expected))
                case "reconnect":
                    await world.join(who)
                case "restart":
                    await world.start()
                case "edit":
                    await world.configure(who, ["*"] if who == "ann" else _some(dice, 1))
                    await world.space.catch_up()
            world.check()
        await world.start()
        world.check()


def _some(dice: Random, least: int) -> list[str]:
    return dice.sample(sorted(MEANINGS), k=dice.randint(least, 2))
