"""A participant and every failure of its connection."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from http import HTTPStatus
from typing import Any, cast

import pytest
from websockets.asyncio.server import ServerConnection

from pellucid.envelopes import Envelope, text_of
from pellucid.errors import PellucidError, RequestError
from pellucid.spaces import CallFailed, Kicked, Participant, Refused, SpaceClosed, ToolsInSpace
from pellucid.spaces.client import outbox
from pellucid.spaces.client.remote import parse_address, parse_token
from tests.participants.room_kit import Frame, Room
from tests.waiting import LIMIT_SECONDS, eventually, loop_turns

pytestmark = pytest.mark.anyio


def ada(room: Room, **more: Any) -> Participant:
    return Participant(room.url, token="token-of-ada", **more)


def bob(room: Room, **more: Any) -> Participant:
    return Participant(room.url, token="token-of-bob", **more)


async def receive(me: Participant, count: int) -> list[Envelope]:
    async with asyncio.timeout(LIMIT_SECONDS):
        return [await anext(me) for _ in range(count)]


async def test_two_participants_chat(room: Room) -> None:
    room.say("cy", "chat", {"text": "long ago"})
    async with ada(room) as a, bob(room) as b:
        assert (a.id, b.id, b.head) == ("ada", "bob", 1)
        assert list(b.participants) == ["ada"]
        assert room.joins[0] == {"view": "full"}
        question = await a.say("Should we?", to="bob")
        assert (question.seq, question.to, a.seen) == (2, ("bob",), 2)
        [received] = await receive(b, 1)
        assert (received.id, text_of(received), received.replayed) == (question.id, "Should we?", False)
        answer = await b.say("No.", answers=received)
        assert answer.correlation_id == (question.id,)
        assert [one.seq for one in await receive(a, 2)] == [2, 3]
        room.say("system:gateway", "system/presence", {"event": "join", "participant": {"id": "cy"}})
        await receive(a, 1)
        assert set(a.participants) == {"cy"} | set(a.participants)
        room.say("system:gateway", "system/presence", {"event": "leave", "participant": {"id": "cy"}})
        await receive(a, 1)
        assert "cy" not in a.participants
    with pytest.raises(SpaceClosed):
        await a.say("Too late.")


async def wait_for_head(room: Room, head: int) -> None:
    """Wait until the log has this many envelopes."""
    await eventually(lambda: room.head >= head, f"{head} envelopes")


async def wait_until_caught_up(me: Participant, room: Room) -> None:
    """Wait until this participant has received the whole log and its waiting tasks have run."""
    await eventually(lambda: me.seen == room.head)
    await loop_turns()


async def test_history_is_flagged_as_replayed_and_missed_envelopes_are_not(room: Room) -> None:
    for number in range(5):
        room.say("cy", "chat", {"text": str(number)})
    async with ada(room, history=2) as a:
        room.say("cy", "chat", {"text": "5"})
        assert [(one.seq, one.replayed) for one in await receive(a, 3)] == [(4, True), (5, True), (6, False)]
        room.cut("ada")
        room.say("cy", "chat", {"text": "6"}, silently=True)
        assert [(one.seq, one.replayed) for one in await receive(a, 1)] == [(7, False)]
        assert room.joins[-1] == {"view": "full", "after_seq": "6"}
    async with ada(room, after_seq=5) as a:
        assert [(one.seq, one.replayed) for one in await receive(a, 2)] == [(6, False), (7, False)]


@pytest.mark.parametrize("seed", range(3))
async def test_every_envelope_is_delivered_once_and_in_order_despite_failures(room: Room, seed: int) -> None:
    """Connections are cut, also within a frame; frames and echoes are lost; the server restarts."""
    random_source = random.Random(seed)
    count = 120

    def hook(socket: ServerConnection, who: str, frame: Frame) -> bool:
        roll = random_source.random()
        if roll < 0.05:
            room.cut(who, half=b'{"protocol": "me' if random_source.random() < 0.5 else b"")
            return random_source.random() < 0.5  # lost before it was accepted, or accepted and its echo lost
        return False

    room.hook = hook
    received: list[Envelope] = []

    async def receive_all(b: Participant) -> None:
        async for envelope in b:
            received.append(envelope)  # noqa: PERF401

    async with ada(room) as a, bob(room) as b:
        listening = asyncio.create_task(receive_all(b))

        async def send_chats(name: str) -> None:
            for number in range(count // 3):
                sent = await a.say(f"{name} {number}")
                assert sent.seq

        async def restart_the_room() -> None:
            for part in range(1, 4):
                await wait_for_head(room, part * count // 4)
                await room.restart()

        await asyncio.gather(*(send_chats(name) for name in "xyz"), restart_the_room())
        room.hook = lambda *_: False
        await a.say("the end")
        await eventually(lambda: received and text_of(received[-1]) == "the end")
        listening.cancel()
    assert [one.seq for one in received] == list(range(1, count + 2))
    assert len({one.id for one in received}) == count + 1
    for name in "xyz":
        mine = [text_of(one) for one in received if text_of(one).startswith(name)]
        assert mine == [f"{name} {number}" for number in range(count // 3)]
    assert len(room.received) > count + 1, "no frame was sent again: the test shows nothing"


async def test_a_lone_surrogate_is_replaced(room: Room) -> None:
    async with ada(room) as a:
        assert text_of(await a.say("Well \ud83d")) == "Well \ufffd"
        with pytest.raises(TypeError):
            await a.send("chat", {"text": object()})
        await a.say("And on.")


async def test_a_resend_has_the_same_bytes(room: Room) -> None:
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


async def test_an_early_echo_is_delivered_in_order(room: Room) -> None:
    """A space echoes a resend at once: before it has sent the missed envelopes."""

    def hook(socket: ServerConnection, who: str, frame: Frame) -> bool:
        if len(room.received) == 1:
            room.say("bob", "chat", {"text": "1"}, silently=True)
            room.say("ada", "chat", frame["payload"], silently=True, id=frame["id"])
            room.say("bob", "chat", {"text": "3"}, silently=True)
            room.cut("ada")
            return True
        return False

    room.hook, room.catch_up_gate = hook, asyncio.Event()
    async with ada(room) as a:
        sent = await a.say("2")
        assert sent.seq == 2
        assert [text_of(one) for one in await receive(a, 2)] == ["1", "2"]
        room.catch_up_gate.set()
        assert [text_of(one) for one in await receive(a, 1)] == ["3"]
        assert len(room.received) == 2


def test_the_client_imports_no_server_and_no_database() -> None:
    code = (
        "import sys; from pellucid.spaces import AgentInSpace, Participant, ToolsInSpace; "
        "print(*({'sqlalchemy', 'uvicorn', 'starlette', 'redis', 'alembic', 'pellucid.server', 'pellucid.storage'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


async def test_a_gap_is_filled_from_the_history_first(room: Room) -> None:
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
        assert [one.seq for one in await receive(b, 11)] == list(range(1, 12))
        assert await waiting == "rain"
        assert [page["after_seq"] for page in room.pages] == ["2", "5", "8"]


async def test_a_gap_that_cannot_be_read_causes_a_reconnect(room: Room) -> None:
    async with bob(room) as b:
        for number in range(1, 4):
            room.say("ada", "chat", {"text": str(number)}, silently=True)
        room.refuse = HTTPStatus.SERVICE_UNAVAILABLE
        room.send_direct("system/gap", "bob", {"after_seq": 0, "before_seq": 4, "missed": 3})
        room.say("ada", "chat", {"text": "4"})
        await eventually(lambda: not b.connected)
        room.refuse = None
        assert [one.seq for one in await receive(b, 4)] == [1, 2, 3, 4]


async def test_a_slow_subscriber_has_a_bounded_buffer_and_loses_nothing(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.spaces.client.subscribers.Inbox.__init__.__defaults__", (10,))
    async with bob(room) as b:
        for number in range(1, 41):
            room.say("ada", "chat", {"text": str(number)})
        await eventually(lambda: b.seen == 40)
        room.say("ada", "chat", {"text": "41"})
        assert [one.seq for one in await receive(b, 41)] == list(range(1, 42))
        room.say("ada", "chat", {"text": "42"})
        assert [one.seq for one in await receive(b, 1)] == [42]
    assert room.pages[0]["after_seq"] == "10"


async def test_a_refusal_is_raised_by_send(room: Room) -> None:
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


async def test_a_rate_limited_envelope_is_sent_again(room: Room) -> None:
    refused: set[str] = set()

    def hook(socket: ServerConnection, who: str, frame: Frame) -> bool:
        if frame["id"] in refused:
            return False
        refused.add(frame["id"])
        if len(refused) % 2:  # every second refusal sends no error
            error = {"error": "too_many_requests", "code": "rate_limited", "message": "slowly", "retry_after": 0.05}
            room.send_direct("system/error", who, error, correlation_id=[frame["id"]])
        return True

    room.hook = hook
    async with ada(room) as a:
        async with asyncio.timeout(5):
            await asyncio.gather(*(a.say(str(number)) for number in range(6)))
    assert [one["payload"]["text"] for one in room.log] == [str(number) for number in range(6)]


async def test_an_envelope_without_an_answer_does_not_stop_the_others(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "ANSWER_SECONDS", 0.05)
    room.hook = lambda socket, who, frame: frame["payload"]["text"] == "lost"
    slower = {"error": "too_many_requests", "code": "rate_limited", "message": "slowly", "retry_after": 0.0}
    async with ada(room) as a, asyncio.timeout(LIMIT_SECONDS):
        lost = asyncio.create_task(a.say("lost"))
        await eventually(lambda: room.received)
        for _ in range(8):
            room.send_direct("system/error", "ada", slower)
        await eventually(lambda: a._connection._outbox._max_in_flight == 1)
        for number in range(5):
            await a.say(str(number))
        assert not lost.done()
        lost.cancel()


async def test_an_envelope_without_an_answer_fails_after_the_patience(room: Room) -> None:
    room.hook = lambda socket, who, frame: True
    async with ada(room, patience=0.1) as a, asyncio.timeout(LIMIT_SECONDS):
        with pytest.raises(PellucidError, match="not known") as failed:
            await a.say("lost")
        assert (failed.value.info.kind, failed.value.info.code) == ("timeout", "no_answer")
        assert not isinstance(failed.value, Refused)


async def test_a_refusal_that_another_error_stands_for_is_repeated(room: Room) -> None:
    """An error with `dropped` stands for other refusals, whatever its own code is."""
    unreported: list[Frame] = []

    def hook(socket: ServerConnection, who: str, frame: Frame) -> bool:
        if frame["kind"] == "chat":
            unreported.append(frame)
            return len(unreported) == 1
        code = "capability_violation"
        error = {"error": code, "code": code, "message": "ada may not", "dropped": 1, "retry_after": 0.0}
        room.send_direct("system/error", who, error, correlation_id=[frame["id"]])
        return True

    room.hook = hook
    async with ada(room) as a, asyncio.timeout(LIMIT_SECONDS):
        chat = asyncio.create_task(a.say("Hello"))
        await eventually(lambda: unreported)
        with pytest.raises(Refused):
            await a.send("space/kick", {"participant_id": "bob"})
        assert (await chat).seq


async def test_what_no_space_accepts_is_refused_before_it_is_sent(room: Room) -> None:
    endless: Frame = {}
    endless["a"] = endless
    async with ada(room) as a, asyncio.timeout(LIMIT_SECONDS):
        for kind, payload, message in [
            ("chat", nested(64), "nested deeper"),
            ("chat", nested(5_000), "nested deeper"),
            ("chat", endless, "nested deeper"),
            ("system/heartbeat", {}, "ignores"),
            ("system.heartbeat", {}, "ignores"),
        ]:
            with pytest.raises(Refused, match=message):
                await a.send(kind, payload)
        assert (await a.send("chat", nested(63))).seq
    assert len(room.received) == 1


def nested(levels: int) -> Frame:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return cast("Frame", value)


async def test_a_result_that_the_space_refuses_ends_the_call(room: Room) -> None:
    def deep() -> Frame:
        """Return a value that is nested deeply."""
        return nested(70)

    async with ada(room) as a, bob(room) as b, ToolsInSpace(b, [deep]), asyncio.timeout(LIMIT_SECONDS):
        with pytest.raises(CallFailed, match="nested deeper"):
            await a.call("deep", to="bob")


async def test_waiting_after_the_end_returns_at_once(room: Room) -> None:
    async with ada(room) as a:
        pass
    with pytest.raises(SpaceClosed):
        async with asyncio.timeout(2), a.awaiting(lambda _: True) as waiting:
            await waiting
    with a.listening() as inbox:
        assert await inbox.next() is None


async def test_a_refused_token_is_reported_at_once_and_not_repeated(room: Room) -> None:
    with pytest.raises(SpaceClosed, match="no such token in this space") as closed:
        async with Participant(room.url, token="pst_secret"):
            pass
    assert closed.value.info.kind == "unauthorized"
    assert "pst_secret" not in str(closed.value)
    assert room.joins == []


async def test_an_unreachable_space_is_reported_at_once(room: Room) -> None:
    await room.stop()
    with pytest.raises(SpaceClosed, match="no answer"):
        async with ada(room):
            pass
    await room.open()


async def test_a_kick_ends_everything_that_waits(room: Room) -> None:
    async with ada(room) as a:
        waiting = asyncio.create_task(a.call("never"))
        await eventually(lambda: room.head == 1)
        room.kicked.add("ada")
        room.say("bob", "space/kick", {"participant_id": "ada", "reason": "enough"})
        await wait_until_caught_up(a, room)
        room.cut("ada")
        with pytest.raises(Kicked, match="enough"):
            await waiting
        assert [one.kind for one in await receive(a, 2)] == ["mcp/request", "space/kick"]
        with pytest.raises(Kicked):
            await anext(a)
        with pytest.raises(Kicked):
            await a.say("But …")


async def test_a_revoked_token_ends_the_participant(room: Room) -> None:
    async with ada(room) as a:
        room.kicked.add("ada")
        room.cut("ada")
        with pytest.raises(SpaceClosed) as closed:
            await anext(a)
        assert closed.value.info.kind == "forbidden"


async def test_reconnecting_ends_after_the_patience(room: Room) -> None:
    async with ada(room, patience=0.2) as a:
        await room.stop()
        with pytest.raises(SpaceClosed, match="was lost"):
            await a.say("Hello?")
    await room.open()


async def test_calls_and_proposals(room: Room) -> None:
    async with ada(room) as a, bob(room) as b:
        calling = asyncio.create_task(a.call("weather", {"city": "Lyon"}, to="bob"))
        [request] = await receive(b, 1)
        assert request.payload["params"] == {"name": "weather", "arguments": {"city": "Lyon"}}
        room.say("cy", "mcp/response", {"result": "forged"}, correlation_id=[request.id])
        answer = await b.respond(request, {"rain": True})
        assert (answer.to, answer.correlation_id, answer.payload["id"]) == (("ada",), (request.id,), request.id)
        assert await calling == {"rain": True}
        calling = asyncio.create_task(a.call("weather", to="bob"))
        await eventually(lambda: room.log[-1]["kind"] == "mcp/request")
        *_, request = await receive(b, 3)
        while request.kind != "mcp/request":
            [request] = await receive(b, 1)
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
            await wait_until_caught_up(a, room)
            proposing.cancel()
            await eventually(lambda: room.log[-1]["kind"] == "mcp/withdraw")


@pytest.mark.parametrize("may", [["*"], ["chat", {"kind": "mcp/request", "payload": {"method": "tools/*"}}]])
async def test_an_abandoned_call_is_cancelled(room: Room, may: list[Any]) -> None:
    room.capabilities = may
    async with ada(room) as a, bob(room):
        timer = asyncio.timeout(None)

        async def call_until_the_timer_ends() -> None:
            async with timer:
                await a.call("weather", to="bob")

        calling_bob = asyncio.create_task(call_until_the_timer_ends())
        await wait_for_head(room, 1)
        await wait_until_caught_up(a, room)
        timer.reschedule(0.0)
        with pytest.raises(TimeoutError):
            await calling_bob
        calling = asyncio.create_task(a.call("weather"))
        await eventually(lambda: len([one for one in room.log if one["payload"].get("method") == "tools/call"]) == 2)
        await wait_until_caught_up(a, room)
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


async def test_a_change_of_view_continues_at_the_cursor(room: Room) -> None:
    async with ada(room) as a:
        room.say("bob", "chat", {"text": "1"})
        await receive(a, 1)
        await a.look("main")
        await eventually(lambda: len(room.joins) == 2)
        assert room.joins[-1] == {"view": "main", "after_seq": "1"}
        with pytest.raises(RequestError):
            await a.look("sideways")  # type: ignore[arg-type]


async def test_may_follows_the_capabilities(room: Room) -> None:
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
def test_every_form_of_a_space_url_is_accepted(url: str, socket: str) -> None:
    assert parse_address(url).socket() == socket
    assert parse_address("https://h:2/gw", "review").http("/envelopes", limit=3) == (
        "https://h:2/gw/spaces/review/envelopes?limit=3"
    )


@pytest.mark.parametrize(
    "url", ["ftp://h/spaces/x", "http://h", "nonsense", "ws://h/ws?space=x&token=t", "ws://u:p@h/"]
)
def test_a_url_without_a_space_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match="url: "):
        parse_address(url)


@pytest.mark.parametrize("token", ["tok", " tok\r\n", "tok\n"])
def test_space_around_a_token_is_ignored(token: str) -> None:
    assert parse_token(token) == "tok"


@pytest.mark.parametrize("token", ["", " \n", "two words", "line\nline", "tök", "a\0b"])
def test_what_can_be_no_token_is_refused_without_its_text(token: str) -> None:
    with pytest.raises(RequestError, match="token: ") as refused:
        Participant("ws://h:1/spaces/review", token=token)
    assert len(token) < 2 or token not in str(refused.value)
