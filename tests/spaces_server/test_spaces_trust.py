"""Attacks of participants on each other: what is for others, answers to others' requests, others' ids."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from pellucid.envelopes import text_of
from pellucid.spaces import Participant
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import TALK_CAPABILITIES, Body, joined, served, token

SECRET = "cleartext-of-the-few"


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    rights = {"ada": TALK_CAPABILITIES, "bob": TALK_CAPABILITIES, "eve": [*TALK_CAPABILITIES, "capability/*"]}
    names = ("private", "answers", "outside", "flooded", "ids")
    spaces: dict[str, Body] = {name: {"participants": rights} for name in names}
    spaces["flagging"] = {"participants": rights, "responses": "flag"}
    folder: Path = tmp_path_factory.mktemp("trust")
    with served(folder, spaces) as gateway:
        yield gateway


def test_no_byte_of_a_private_context_reaches_another_participant(trusting: Served) -> None:
    """Live, after a reconnect, in the history, search, contexts, references, exports, patterns and replays."""
    with (
        joined(trusting, "private", "ada") as ada,
        joined(trusting, "private", "bob") as bob,
        joined(trusting, "private", "eve") as eve,
        joined(trusting, "private", "eve", query="?view=collapsed") as folded,
    ):
        ada.say(kind="reasoning/start", id="r-1", to=["bob"], payload={"message": SECRET})
        thought = ada.say(kind="reasoning/thought", id="t-1", context="r-1", payload={"message": SECRET})
        assert thought["audience"] == ["ada", "bob"]
        bob.say(kind="chat", id="c-1", context="r-1", payload={"text": SECRET})
        bob.say(kind="reasoning/start", id="r-2", context="r-1", payload={"message": SECRET})
        ada.say(
            kind="mcp/request", id="q-1", context="r-2", payload={"method": "tools/list", "params": {"cursor": SECRET}}
        )
        bob.say(kind="mcp/response", id="a-1", context="r-2", correlation_id=["q-1"], payload={"result": SECRET})
        for kind in ("reasoning/thought", "reasoning/cancel", "chat"):
            refused = eve.refused(kind=kind, context="r-1", payload={"message": "let me in", "text": "x"})
            assert (refused["code"], "ada" in json.dumps(refused)) == ("context_unknown", False)
        assert eve.refused(kind="mcp/response", correlation_id=["q-1"], payload={"result": 1})["code"] == (
            "unknown_request"
        )
        bob.say(kind="reasoning/cancel", context="r-2", payload={"reason": SECRET})
        ada.say(kind="reasoning/conclusion", context="r-1", payload={"message": SECRET})
        ada.chat("the end")
        for client in (eve, folded):
            client.until("chat", payload={"text": "the end"})
        assert SECRET in json.dumps(bob.sync())
        assert SECRET not in json.dumps([*eve.seen, *folded.seen])
        with joined(trusting, "private", "eve", query="?after_seq=0") as again:
            again.until("chat", payload={"text": "the end"})
            assert SECRET not in json.dumps(again.seen)
    paths = ["envelopes", f"search?q={SECRET}", "contexts", "contexts/r-1", "contexts/r-1/r-2", "patterns", "replay"]
    paths += [f"export?format={one}" for one in ("jsonl", "chat-jsonl", "otel")]
    paths += [f"envelopes/{thought['seq']}", f"envelopes/{thought['seq']}/references"]
    for path in paths:
        reply = trusting.request("GET", f"/spaces/private/{path}", headers=bearer("private", "eve"))
        # A search repeats the words of its query.
        assert SECRET not in reply.body.decode().replace(f'"{SECRET}"', "") or path.startswith("search"), path
        assert "t-1" not in reply.body.decode(), path
    own = trusting.request("GET", "/spaces/private/envelopes", headers=bearer("private", "bob"))
    assert own.body.decode().count(SECRET) == 8


def bearer(space: str, participant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(space, participant)}"}


def test_a_forged_answer_is_refused_before_anyone_sees_it(trusting: Served) -> None:
    with (
        joined(trusting, "answers", "ada") as ada,
        joined(trusting, "answers", "bob") as bob,
        joined(trusting, "answers", "eve") as eve,
    ):
        ada.say(kind="mcp/request", id="q", to=["bob"], payload={"method": "tools/list"})
        assert eve.refused(kind="mcp/response", correlation_id=["q"], payload={"result": {}})["code"] == (
            "unknown_request"
        )
        tools = {"result": {"tools": [{"name": "weigh"}]}}
        assert "flags" not in bob.say(kind="mcp/response", correlation_id=["q"], payload=tools)
        assert bob.refused(kind="mcp/response", correlation_id=["q"], payload=tools)["code"] == "already_answered"
        call = {"method": "tools/call", "params": {"name": "weigh", "arguments": {}}}
        ada.say(kind="mcp/request", id="broadcast", payload=call)
        forged = {"correlation_id": ["broadcast"], "payload": {"result": "forged"}}
        assert eve.refused(kind="mcp/response", **forged)["code"] == "tool_not_offered"
        bob.say(kind="mcp/response", correlation_id=["broadcast"], payload={"result": "true"})
        ada.sync()
        answers = [one["payload"]["result"] for one in ada.seen if one["kind"] == "mcp/response"]
        assert answers == [tools["result"], "true"]


def test_a_call_returns_the_answer_of_a_provider_where_forgeries_are_flagged(trusting: Served) -> None:
    async def main() -> None:
        url = f"ws://127.0.0.1:{trusting.port}/spaces/flagging/ws"
        async with (
            Participant(url, token=token("flagging", "ada")) as ada,
            Participant(url, token=token("flagging", "bob")) as bob,
            Participant(url, token=token("flagging", "eve")) as eve,
        ):
            listing = asyncio.create_task(ada.request("tools/list", to="bob"))
            async for one in bob:
                if one.kind == "mcp/request":
                    forged = await eve.send("mcp/response", {"result": {"tools": [{"name": "weigh"}]}}, answers=one)
                    assert [flag.code for flag in forged.flags] == ["unknown_request"]
                    await bob.respond(one, {"tools": [{"name": "weigh"}]})
                    break
            assert (await listing).sender == "bob"
            call = asyncio.create_task(ada.call("weigh", {}))
            async for one in bob:
                if one.kind == "mcp/request":
                    await eve.send("mcp/response", {"result": "forged"}, answers=one)
                    await bob.respond(one, "true")
                    break
            assert await call == "true"

    asyncio.run(main())


def test_an_answer_outside_of_a_private_context_stays_with_its_audience(trusting: Served) -> None:
    with (
        joined(trusting, "outside", "ada") as ada,
        joined(trusting, "outside", "bob") as bob,
        joined(trusting, "outside", "eve") as eve,
    ):
        ada.say(kind="reasoning/start", id="r-1", to=["bob"], payload={"message": SECRET})
        ada.say(kind="mcp/request", id="q-1", context="r-1", payload={"method": "tools/list"})
        ada.say(kind="mcp/request", id="q-2", to=["bob"], payload={"method": "tools/list"})
        ada.say(kind="mcp/proposal", id="p-1", context="r-1", payload={"method": SECRET})
        ada.say(kind="mcp/proposal", id="p-2", to=["bob"], payload={"method": SECRET})
        for about in ("p-1", "p-2", "nothing"):
            for kind in ("mcp/reject", "mcp/withdraw"):
                refused = eve.refused(kind=kind, correlation_id=[about], payload={})
                assert (refused["code"], "ada" in json.dumps(refused)) == ("proposal_unknown", False)
            request = {"correlation_id": [about], "payload": {"method": SECRET[::-1]}}
            assert "flags" not in eve.say(kind="mcp/request", to=["eve"], **request)
        for about in ("q-1", "q-2"):
            answer = bob.say(kind="mcp/response", correlation_id=[about], payload={"result": SECRET})
            assert answer["audience"] == ["ada", "bob"]
        bob.say(kind="mcp/reject", correlation_id=["p-1"], payload={"reason": SECRET})
        ada.say(kind="mcp/withdraw", correlation_id=["p-2"], payload={"reason": SECRET})
        ada.chat("the end")
        for client in (bob, eve):
            client.until("chat", payload={"text": "the end"})
        assert [one["kind"] for one in bob.seen if one.get("correlation_id") == ["p-2"]] == ["mcp/withdraw"]
        assert len([one for one in ada.seen if one["kind"] == "mcp/response"]) == 2
        assert SECRET not in json.dumps(eve.seen)
    own = trusting.request("GET", "/spaces/outside/envelopes", headers=bearer("outside", "eve"))
    assert SECRET not in own.body.decode()


def test_a_flood_of_requests_makes_no_forged_answer_pass(trusting: Served) -> None:
    with (
        joined(trusting, "flooded", "ada") as ada,
        joined(trusting, "flooded", "bob") as bob,
        joined(trusting, "flooded", "eve") as eve,
    ):
        ada.say(kind="mcp/request", id="q", to=["bob"], payload={"method": "tools/list"})
        for number in range(500):
            eve.send(kind="mcp/request", id=f"f-{number}", to=["eve"], payload={"method": "ping"})
        assert eve.answer("f-499")["kind"] == "mcp/request"
        forged = {"correlation_id": ["q"], "to": ["ada"], "payload": {"result": "forged"}}
        # The limit of messages of a second is used up.
        while (refused := eve.refused(kind="mcp/response", **forged))["code"] == "rate_limited":
            time.sleep(refused["retry_after"])
        assert refused["code"] == "unknown_request"
        bob.say(kind="mcp/response", correlation_id=["q"], payload={"result": "true"})
        ada.sync()
        assert [one["payload"]["result"] for one in ada.seen if one["kind"] == "mcp/response"] == ["true"]


def test_a_list_of_tools_for_oneself_makes_no_provider(trusting: Served) -> None:
    async def main() -> None:
        url = f"ws://127.0.0.1:{trusting.port}/spaces/flagging/ws"
        async with (
            Participant(url, token=token("flagging", "ada")) as ada,
            Participant(url, token=token("flagging", "bob")) as bob,
            Participant(url, token=token("flagging", "eve")) as eve,
        ):

            async def list_tools(requester: Participant, provider: Participant) -> None:
                listing = await requester.send("mcp/request", {"method": "tools/list"}, to=provider.id)
                await provider.respond(listing, {"tools": [{"name": "scan"}]})

            await list_tools(ada, bob)
            await list_tools(eve, eve)
            call = asyncio.create_task(ada.call("scan", {}))
            async for one in bob:
                if one.kind == "mcp/request" and one.payload["method"] == "tools/call":
                    forged = await eve.send("mcp/response", {"result": "forged"}, answers=one)
                    assert [flag.code for flag in forged.flags] == ["tool_not_offered"]
                    assert not (await bob.respond(one, "true")).flags
                    break
            assert await call == "true"

    asyncio.run(main())


def test_the_id_of_another_participant_is_refused(trusting: Served) -> None:
    with joined(trusting, "ids", "ada") as ada, joined(trusting, "ids", "eve") as eve:
        first = ada.chat("mine", id="m-1")
        eve.until("chat")
        refused = eve.refused(kind="chat", id="m-1", payload={"text": "mine"})
        assert (refused["code"], refused["param"]) == ("id_conflict", "id")
        assert ada.chat("mine", id="m-1")["seq"] == first["seq"]
        assert ada.chat("another", id="m-1")["seq"] > first["seq"]


def test_who_was_added_to_a_context_receives_what_follows(trusting: Served) -> None:
    async def main() -> None:
        url = f"ws://127.0.0.1:{trusting.port}/spaces/flagging/ws"
        async with (
            Participant(url, token=token("flagging", "ada")) as ada,
            Participant(url, token=token("flagging", "eve")) as eve,
        ):
            async with ada.reasoning("for bob", to="bob") as thought:
                await thought("before")
                await thought.share("eve", reason="she knows tokens")
                await thought("after")
            texts: list[str] = []
            async for one in eve:
                texts.append(text_of(one))
                if one.kind == "reasoning/conclusion":
                    break
            assert texts == ["she knows tokens", "after", ""]

    asyncio.run(main())


# --- revoking what the configuration gives


def test_a_revocation_of_configured_capabilities_holds_and_is_seen(tmp_path: Path) -> None:
    """By the participant and the others, at once, after a reconnect and after a restart; an edit ends it."""
    store = {"storage": {"url": f"sqlite:///{tmp_path / 'revoked.db'}"}}
    rights = {"root": ["*"], "ada": ["chat", "mcp/*"], "mod": ["capability/*", "chat"]}
    room = {"participants": rights}
    rest = [{"kind": "mcp/response"}, {"kind": "mcp/*", "except": [{"kind": "mcp/request"}]}]
    with (
        served(tmp_path, {"room": room}, **store) as gateway,
        joined(gateway, "room", "root") as root,
        joined(gateway, "room", "ada") as ada,
        joined(gateway, "room", "mod") as mod,
    ):
        for envelope in (
            {"kind": "capability/revoke", "payload": {"recipient": "root", "capabilities": ["*"]}},
            {"kind": "capability/revoke", "payload": {"recipient": "root", "capabilities": ["chat"]}},
            {"kind": "capability/grant", "payload": {"recipient": "ada", "capabilities": ["space/kick"]}},
        ):
            assert mod.refused(**envelope)["code"] in ("forbidden", "escalation")
        assert ada.refused(kind="capability/revoke", payload={"recipient": "mod", "capabilities": ["chat"]})[
            "code"
        ] == ("capability_violation")
        root.say(
            kind="capability/revoke",
            payload={"recipient": "ada", "capabilities": ["mcp/request", "chat"], "reason": "x"},
        )
        assert ada.until("system/welcome")["payload"]["you"]["capabilities"] == rest
        assert mod.until("capability/revoke")["payload"]["recipient"] == "ada"
        assert ada.refused(kind="chat", payload={"text": "x"})["your_capabilities"] == rest
        with joined(gateway, "room", "ada") as again:
            assert again.welcome["you"]["capabilities"] == rest
            assert again.refused(kind="mcp/request", payload={"method": "x"})["code"] == "capability_violation"
            assert again.say(kind="mcp/proposal", payload={"method": "x"})["kind"] == "mcp/proposal"
        with joined(gateway, "room", "mod") as other:
            (shown,) = [one for one in other.welcome["participants"] if one["id"] == "ada"]
            assert shown["capabilities"] == rest
    with served(tmp_path, {"room": room}, **store) as gateway, joined(gateway, "room", "ada") as ada:
        assert ada.refused(kind="chat", payload={"text": "x"})["your_capabilities"] == rest
        with joined(gateway, "room", "root") as root:
            root.say(kind="capability/grant", payload={"recipient": "ada", "capabilities": ["chat"]})
        assert ada.chat("granted again")["seq"]
    edited = {"participants": {**rights, "ada": ["chat", "mcp/request"]}}
    with served(tmp_path, {"room": edited}, **store) as gateway, joined(gateway, "room", "ada") as ada:
        assert ada.say(kind="mcp/request", payload={"method": "x"})["kind"] == "mcp/request"


# --- floods


def test_every_refusal_of_a_flood_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """For the sender in its errors, for the operator in the log, without contents."""
    limits = {
        "chat": {"per_second": 0.001, "burst": 3},
        "errors": {"per_second": 5, "burst": 4},
        "patience": 1_000,
    }
    sent = 400
    with (
        served(tmp_path, {"flooded": {"participants": ["ada", "bob"], "limits": limits}}) as gateway,
        joined(gateway, "flooded", "ada") as ada,
        joined(gateway, "flooded", "bob") as bob,
    ):
        for number in range(sent):
            ada.send(kind="chat", id=f"f-{number}", payload={"text": SECRET})
        echoed = errors = refused = 0
        while echoed + refused < sent:
            one = ada.next()
            echoed += one["kind"] == "chat"
            if one["kind"] == "system/error":
                errors += 1
                refused += 1 + one["payload"].get("dropped", 0)
        assert (echoed, refused) == (3, sent - 3)
        assert errors < sent / 4
        assert len([one for one in bob.sync() if one["kind"] == "chat" and one["from"] == "ada"]) == 3
    lines = [one.getMessage() for one in caplog.records if "space_rate_limited" in one.getMessage()]
    assert sum(int(line.rpartition("refused=")[2]) for line in lines) == sent - 3
    assert all("participant=ada" in line and SECRET not in line for line in lines)


def test_a_flooder_who_is_disconnected_has_all_counts(tmp_path: Path) -> None:
    limits = {
        "chat": {"per_second": 0.001, "burst": 1},
        "errors": {"per_second": 0.001, "burst": 1},
        "patience": 0.2,
    }
    with (
        served(tmp_path, {"flooded": {"participants": ["ada"], "limits": limits}}) as gateway,
        joined(gateway, "flooded", "ada") as ada,
    ):
        sent = 0
        with suppress(ConnectionClosed):
            while True:
                ada.send(kind="chat", payload={"text": "x"})
                sent += 1
        assert ada.closed() == 1008
        errors = [one["payload"] for one in ada.seen if one["kind"] == "system/error"]
        # The first of one refusal; the last, before the close, of all others.
        assert len(errors) == 2
        counted = sum(1 + one.get("dropped", 0) for one in errors)
        assert 1 < counted <= sent
