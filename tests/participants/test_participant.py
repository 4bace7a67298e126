"""A participant whose connection does everything that a connection can do to one."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from http import HTTPStatus
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from pellucid.envelopes import Envelope, text_of
from pellucid.errors import RequestError
from pellucid.spaces import CallFailed, Kicked, Participant, Refused, SpaceClosed
from pellucid.spaces.client.remote import parse_address
from tests.participants.room_kit import Frame, Room
from tests.waiting import LIMIT_SECONDS, eventually, loop_turns

pytestmark = pytest.mark.anyio


def ada(room: Room, **more: Any) -> Participant:
    return Participant(room.url, token="token-of-ada", **more)


def bob(room: Room, **more: Any) -> Participant:
    return Participant(room.url, token="token-of-bob", **more)


async def hear(me: Participant, count: int) -> list[Envelope]:
    async with asyncio.timeout(LIMIT_SECONDS):
        return [await anext(me) for _ in range(count)]


async def test_two_talk(room: Room) -> None:
    room.say("cy", "chat", {"text": "long ago"})
    async with ada(room) as a, bob(room) as b:
        assert (a.id, b.id, b.head) == ("ada", "bob", 1)
        assert list(b.participants) == ["ada"]
        assert room.joins[0] == {"view": "full"}
        asked = await a.say("Should we?", to="bob")
        assert (asked.seq, asked.to, a.seen) == (2, ("bob",), 2)
        [heard] = await hear(b, 1)
        assert (heard.id, text_of(heard), heard.replayed) == (asked.id, "Should we?", False)
        said = await b.say("No.", answers=heard)
        assert said.correlation_id == (asked.id,)
        assert [one.seq for one in await hear(a, 2)] == [2, 3]
        room.say("system:gateway", "system/presence", {"event": "join", "participant": {"id": "cy"}})
        await hear(a, 1)
        assert set(a.participants) == {"cy"} | set(a.participants)
        room.say("system:gateway", "system/presence", {"event": "leave", "participant": {"id": "cy"}})
        await hear(a, 1)
        assert "cy" not in a.participants
    with pytest.raises(SpaceClosed):
        await a.say("Too late.")


async def reached(room: Room, head: int) -> None:
    """Wait until so much was said."""
    await eventually(lambda: room.head >= head, f"{head} envelopes")


async def caught_up(me: Participant, room: Room) -> None:
    """Wait until this participant has received all that was said, and whoever waited for it goes on."""
    await eventually(lambda: me.seen == room.head)
    await loop_turns()


async def test_history_comes_flagged_and_what_was_missed_does_not(room: Room) -> None:
    for number in range(5):
        room.say("cy", "chat", {"text": str(number)})
    async with ada(room, history=2) as a:
        room.say("cy", "chat", {"text": "5"})
        assert [(one.seq, one.replayed) for one in await hear(a, 3)] == [(4, True), (5, True), (6, False)]
        room.cut("ada")
        room.say("cy", "chat", {"text": "6"}, silently=True)
        assert [(one.seq, one.replayed) for one in await hear(a, 1)] == [(7, False)]
        assert room.joins[-1] == {"view": "full", "after_seq": "6"}
    async with ada(room, after_seq=5) as a:
        assert [(one.seq, one.replayed) for one in await hear(a, 2)] == [(6, False), (7, False)]


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_breaks_each_envelope_is_said_and_heard_once_and_in_order(room: Room, seed: int) -> None:
    """Connections are cut, in mid-frame too; echoes are lost, and frames; the server goes, and comes again."""
    dice = random.Random(seed)
    count = 120

    def hook(socket: ServerConnection, who: str, frame: Frame) -> bool:
        roll = dice.random()
        if roll < 0.05:
            room.cut(who, half=b'{"protocol": "me' if dice.random() < 0.5 else b"")
            return dice.random() < 0.5  # lost on its way; or taken, and its echo lost
        return False

    room.hook = hook
    heard: list[Envelope] = []

    async def listen(b: Participant) -> None:
        async for envelope in b:
            heard.append(envelope)  # noqa: PERF401

    async with ada(room) as a, bob(room) as b:
        listening = asyncio.create_task(listen(b))

        async def chatter(name: str) -> None:
            for number in range(count // 3):
                sent = await a.say(f"{name} {number}")
                assert sent.seq

        async def trouble() -> None:
            for part in range(1, 4):
                await reached(room, part * count // 4)
                await room.restart()

        await asyncio.gather(*(chatter(name) for name in "xyz"), trouble())
        room.hook = lambda *_: False
        await a.say("the end")
        await eventually(lambda: heard and text_of(heard[-1]) == "the end")
        listening.cancel()
    assert [one.seq for one in heard] == list(range(1, count + 2))
    assert len({one.id for one in heard}) == count + 1
    for name in "xyz":
        mine = [text_of(one) for one in heard if text_of(one).startswith(name)]
        assert mine == [f"{name} {number}" for number in range(count // 3)]
    assert len(room.received) > count + 1, "nothing was sent again: nothing was shown"


async def test_half_an_emoji_is_no_lost_thought(room: Room) -> None:
    async with ada(room) as a:
        assert text_of(await a.say("Well \ud83d")) == "Well \ufffd"
        with pytest.raises(TypeError):
            await a.send("chat", {"text": object()})
        await a.say("And on.")


async def test_what_goes_out_again_is_the_same_to_the_byte(room: Room) -> None:
    lost: list[Frame] = []

    def hook(socket: ServerConnection, who: str, frame: Frame) -> bool:
        if lost:
            return False
        lost.append(frame)
        room.cut(who)
        return True

    room.hook = hook
    async with ada(room) as a:
        await a.say("Hello?")
    assert room.received == [lost[0], lost[0]]


async def test_what_is_answered_before_its_turn_is_still_heard_in_its_turn(room: Room) -> None:
    """A space answers what is sent again at once: before it has told all that was said in between."""

    def hook(socket: ServerConnection, who: str, frame: Frame) -> bool:
        if len(room.received) == 1:
            room.say("bob", "chat", {"text": "1"}, silently=True)
            room.say("ada", "chat", frame["payload"], silently=True, id=frame["id"])
            room.say("bob", "chat", {"text": "3"}, silently=True)
            room.cut("ada")
            return True
        return False

    room.hook, room.late = hook, asyncio.Event()
    async with ada(room) as a:
        sent = await a.say("2")
        assert sent.seq == 2
        assert [text_of(one) for one in await hear(a, 2)] == ["1", "2"]
        room.late.set()
        assert [text_of(one) for one in await hear(a, 1)] == ["3"]
        assert len(room.received) == 2


def test_whoever_takes_part_needs_neither_a_server_nor_a_database() -> None:
    code = (
        "import sys; from pellucid.spaces import AgentInSpace, Participant, ToolsInSpace; "
        "print(*({'sqlalchemy', 'uvicorn', 'starlette', 'redis', 'alembic', 'pellucid.server', 'pellucid.storage'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


async def test_a_gap_is_read_from_the_history_before_anything_after_it(room: Room) -> None:
    async with bob(room) as b:
        room.say("ada", "chat", {"text": "1"})
        waiting = asyncio.create_task(b.call("weather", {}, to="ada"))
        await eventually(lambda: room.head == 2)
        request = room.log[1]
        for number in range(3, 10):
            room.say("ada", "chat", {"text": str(number)}, silently=True)
        room.say("ada", "mcp/response", {"result": "rain"}, correlation_id=[request["id"]], silently=True)
        room.send_direct("system/gap", "bob", {"after_seq": 2, "before_seq": 11, "missed": 8})
        room.say("ada", "chat", {"text": "11"})
        assert [one.seq for one in await hear(b, 11)] == list(range(1, 12))
        assert await waiting == "rain"
        assert [page["after_seq"] for page in room.pages] == ["2", "5", "8"]


async def test_a_gap_that_cannot_be_read_is_asked_for_with_a_new_connection(room: Room) -> None:
    async with bob(room) as b:
        for number in range(1, 4):
            room.say("ada", "chat", {"text": str(number)}, silently=True)
        room.refuse = HTTPStatus.SERVICE_UNAVAILABLE
        room.send_direct("system/gap", "bob", {"after_seq": 0, "before_seq": 4, "missed": 3})
        room.say("ada", "chat", {"text": "4"})
        await eventually(lambda: not b.connected)
        room.refuse = None
        assert [one.seq for one in await hear(b, 4)] == [1, 2, 3, 4]


async def test_who_does_not_read_costs_little_and_loses_nothing(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.spaces.client.subscribers.Inbox.__init__.__defaults__", (10,))
    async with bob(room) as b:
        for number in range(1, 41):
            room.say("ada", "chat", {"text": str(number)})
        await eventually(lambda: b.seen == 40)
        room.say("ada", "chat", {"text": "41"})
        assert [one.seq for one in await hear(b, 41)] == list(range(1, 42))
        room.say("ada", "chat", {"text": "42"})
        assert [one.seq for one in await hear(b, 1)] == [42]
    assert room.pages[0]["after_seq"] == "10"


async def test_what_is_refused_is_raised_where_it_was_said(room: Room) -> None:
    def hook(socket: ServerConnection, who: str, frame: Frame) -> bool:
        error = {"error": "capability_violation", "code": "capability_violation", "message": "ada may not"}
        room.send_direct("system/error", who, error, correlation_id=[frame["id"]])
        return True

    room.hook = hook
    async with ada(room) as a:
        with pytest.raises(Refused, match="ada may not") as refused:
            await a.send("space/kick", {"participant_id": "bob"})
        assert (refused.value.info.kind, refused.value.kind) == ("forbidden", "space/kick")
        assert refused.value.info.code == "capability_violation"


async def test_who_is_too_fast_waits_and_says_it_again(room: Room) -> None:
    refused: set[str] = set()

    def hook(socket: ServerConnection, who: str, frame: Frame) -> bool:
        if frame["id"] in refused:
            return False
        refused.add(frame["id"])
        if len(refused) % 2:  # of every second one nothing is told
            error = {"error": "too_many_requests", "code": "rate_limited", "message": "slowly", "retry_after": 0.05}
            room.send_direct("system/error", who, error, correlation_id=[frame["id"]])
        return True

    room.hook = hook
    async with ada(room) as a:
        async with asyncio.timeout(5):
            await asyncio.gather(*(a.say(str(number)) for number in range(6)))
    assert [one["payload"]["text"] for one in room.log] == [str(number) for number in range(6)]


async def test_who_waits_after_the_end_waits_for_nothing(room: Room) -> None:
    async with ada(room) as a:
        pass
    with pytest.raises(SpaceClosed):
        async with asyncio.timeout(2), a.awaiting(lambda _: True) as found:
            await found
    with a.listening() as inbox:
        assert await inbox.next() is None


async def test_a_token_that_is_refused_is_said_at_once_and_stands_in_no_word(room: Room) -> None:
    with pytest.raises(SpaceClosed, match="no such token in this space") as closed:
        async with Participant(room.url, token="pst_secret"):
            pass
    assert closed.value.info.kind == "unauthorized"
    assert "pst_secret" not in str(closed.value)
    assert room.joins == []


async def test_nobody_there_is_said_at_once(room: Room) -> None:
    await room.stop()
    with pytest.raises(SpaceClosed, match="no answer"):
        async with ada(room):
            pass
    await room.open()


async def test_the_kicked_one_is_told_by_whom_and_everything_that_waits_ends(room: Room) -> None:
    async with ada(room) as a:
        waiting = asyncio.create_task(a.call("never"))
        await eventually(lambda: room.head == 1)
        room.kicked.add("ada")
        room.say("bob", "space/kick", {"participant_id": "ada", "reason": "enough"})
        await caught_up(a, room)
        room.cut("ada")
        with pytest.raises(Kicked, match="enough"):
            await waiting
        assert [one.kind for one in await hear(a, 2)] == ["mcp/request", "space/kick"]
        with pytest.raises(Kicked):
            await anext(a)
        with pytest.raises(Kicked):
            await a.say("But …")


async def test_a_token_that_is_taken_away_ends_it(room: Room) -> None:
    async with ada(room) as a:
        room.kicked.add("ada")
        room.cut("ada")
        with pytest.raises(SpaceClosed) as closed:
            await anext(a)
        assert closed.value.info.kind == "forbidden"


async def test_a_server_that_does_not_come_back_is_given_up(room: Room) -> None:
    async with ada(room, patience=0.2) as a:
        await room.stop()
        with pytest.raises(SpaceClosed, match="was lost"):
            await a.say("Hello?")
    await room.open()


async def test_calls_and_proposals(room: Room) -> None:
    async with ada(room) as a, bob(room) as b:
        calling = asyncio.create_task(a.call("weather", {"city": "Lyon"}, to="bob"))
        [request] = await hear(b, 1)
        assert request.payload["params"] == {"name": "weather", "arguments": {"city": "Lyon"}}
        room.say("cy", "mcp/response", {"result": "forged"}, correlation_id=[request.id])
        answer = await b.respond(request, {"rain": True})
        assert (answer.to, answer.correlation_id, answer.payload["id"]) == (("ada",), (request.id,), request.id)
        assert await calling == {"rain": True}
        calling = asyncio.create_task(a.call("weather", to="bob"))
        await eventually(lambda: room.log[-1]["kind"] == "mcp/request")
        *_, request = await hear(b, 3)
        while request.kind != "mcp/request":
            [request] = await hear(b, 1)
        await b.respond(request, error={"code": -32000, "message": "no idea"})
        with pytest.raises(CallFailed) as failed:
            await calling
        assert failed.value.error["message"] == "no idea"

        with b.listening() as inbox:
            proposing = asyncio.create_task(a.proposed_call("deploy", {"to": "production"}))
            proposal = await inbox.next()
            assert proposal is not None
            fulfilling = asyncio.create_task(b.fulfil(proposal))
            await eventually(lambda: room.log[-1]["kind"] == "mcp/request")
            fulfilment = room.log[-1]
            assert fulfilment["correlation_id"] == [proposal.id]
            room.say("cy", "mcp/response", {"result": "done"}, correlation_id=[fulfilment["id"]])
            assert await proposing == "done"
            assert (await fulfilling).payload["result"] == "done"

            proposing = asyncio.create_task(a.proposed_call("deploy"))
            while (proposal := await inbox.next()) is not None and proposal.kind != "mcp/proposal":
                pass
            assert proposal is not None
            await b.reject(proposal, "unsafe")
            with pytest.raises(CallFailed, match="rejected"):
                await proposing

            proposing = asyncio.create_task(a.proposed_call("deploy"))
            await eventually(lambda: room.log[-1]["kind"] == "mcp/proposal")
            await caught_up(a, room)
            proposing.cancel()
            await eventually(lambda: room.log[-1]["kind"] == "mcp/withdraw")


@pytest.mark.parametrize("may", [["*"], ["chat", {"kind": "mcp/request", "payload": {"method": "tools/*"}}]])
async def test_whoever_stops_waiting_for_an_answer_says_so(room: Room, may: list[Any]) -> None:
    room.capabilities = may
    async with ada(room) as a, bob(room):
        timer = asyncio.timeout(None)

        async def call_until_the_timer_ends() -> None:
            async with timer:
                await a.call("weather", to="bob")

        calling_bob = asyncio.create_task(call_until_the_timer_ends())
        await reached(room, 1)
        await caught_up(a, room)
        timer.reschedule(0.0)
        with pytest.raises(TimeoutError):
            await calling_bob
        calling = asyncio.create_task(a.call("weather"))
        await eventually(lambda: len([one for one in room.log if one["payload"].get("method") == "tools/call"]) == 2)
        await caught_up(a, room)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    first, second = [one for one in room.log if one["payload"].get("method") == "tools/call"]
    ends = [one for one in room.log if one["payload"].get("method") == "notifications/cancelled"]
    if may != ["*"]:
        assert not ends
        return
    assert [(one["kind"], one["correlation_id"], one.get("to")) for one in ends] == [
        ("mcp/request", [first["id"]], ["bob"]),
        ("mcp/request", [second["id"]], None),
    ]
    assert ends[0]["payload"]["params"] == {"requestId": first["id"]}


async def test_another_view_goes_on_where_the_first_one_stood(room: Room) -> None:
    async with ada(room) as a:
        room.say("bob", "chat", {"text": "1"})
        await hear(a, 1)
        await a.look("main")
        await eventually(lambda: len(room.joins) == 2)
        assert room.joins[-1] == {"view": "main", "after_seq": "1"}
        with pytest.raises(RequestError):
            await a.look("sideways")  # type: ignore[arg-type]


async def test_what_somebody_may_is_what_their_capabilities_say(room: Room) -> None:
    room.capabilities = ["chat", {"kind": "mcp/request", "payload": {"params": {"name": "read_*"}}}]
    async with ada(room) as a:
        assert a.may("chat")
        assert a.may("mcp/request", {"method": "tools/call", "params": {"name": "read_file"}})
        assert not a.may("mcp/request", {"method": "tools/call", "params": {"name": "deploy"}})
        room.send_direct("system/welcome", "ada", {"you": {"id": "ada", "capabilities": ["*"]}, "participants": []})
        await eventually(lambda: a.may("reasoning/start"))


@pytest.mark.parametrize(
    ("url", "socket"),
    [
        ("ws://h:1/spaces/review/ws", "ws://h:1/spaces/review/ws"),
        ("http://h:1/spaces/review", "ws://h:1/spaces/review/ws"),
        ("https://h/under/spaces/a%20b/", "wss://h/under/spaces/a%20b/ws"),
        ("ws://h:1/ws?space=review", "ws://h:1/spaces/review/ws"),
    ],
)
def test_whatever_url_somebody_has(url: str, socket: str) -> None:
    assert parse_address(url).socket() == socket
    assert parse_address("https://h:2/gw", "review").http("/envelopes", limit=3) == (
        "https://h:2/gw/spaces/review/envelopes?limit=3"
    )


@pytest.mark.parametrize(
    "url", ["ftp://h/spaces/x", "http://h", "nonsense", "ws://h/ws?space=x&token=t", "ws://u:p@h/"]
)
def test_what_leads_to_no_space_is_said(url: str) -> None:
    with pytest.raises(RequestError, match="url: "):
        parse_address(url)
