"""Hostile input: the space stays consistent, other participants receive nothing of it, and the sender gets an error."""

from __future__ import annotations

import json
import signal
import socket as sockets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from pellucid.envelopes import DEFAULT_DIALECT, read
from pellucid.spaces.runtime.settings import FloodLimits
from tests.cases import Cases
from tests.examples import costly
from tests.replicas.replicas_kit import replicas
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import (
    Body,
    Client,
    get,
    joined,
    post,
    served,
    slashed_kind,
    spaces_of,
    token,
)
from tests.waiting import LIMIT_SECONDS, wait_until

# --- frames ----------------------------------------------------------------------------------------------------------


INVALID_ENVELOPES: list[str | bytes] = [
    "",
    "no json",
    "[]",
    "null",
    '"chat"',
    "5",
    "{}",
    "#stream-1#data",
    '{"kind": null}',
    '{"kind": "chat", "payload": NaN}',
    '{"kind": "chat", "payload": {"x": 1e999}}',
    '{"kind": "chat"' + ', "payload": {"a":' * 100 + "1" + "}" * 101,
    "[" * 100_000,
    '{"kind": "' + "x/" * 500 + '"}',
    '{"kind": "chat", "id": "' + "x" * 300 + '"}',
    '{"kind": "chat", "id": "a\\u0000b"}',
    b"\x00\x01\x02\xff",
    b'{"kind": "chat", "payload": {"text": "\xff"}}',
]


def test_an_invalid_envelope_gets_an_error_and_the_socket_stays_open(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human, joined(gateway, room, "agent") as agent, Cases() as case:
        human.sync()
        for data in INVALID_ENVELOPES:
            with case(f"{data!r:.40}"):
                agent.raw(data)
                error = agent.until("system/error")
                assert error["payload"]["message"]
                agent.chat("still here")
                assert [slashed_kind(one) for one in human.sync()] == ["chat"]


def test_binary_frames_are_read_like_text_frames(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.raw(b'{"kind": "chat", "id": "b-1", "payload": {"text": "Hi"}}')
        assert agent.answer("b-1")["payload"] == {"text": "Hi"}


def test_a_lone_surrogate_is_replaced(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.raw('{"kind": "chat", "id": "s-1", "payload": {"text": "cut \\ud83d here"}}')
        assert agent.answer("s-1")["payload"] == {"text": "cut \ufffd here"}


def test_a_too_large_envelope_is_refused_and_the_socket_stays_open(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.raw(json.dumps({"kind": "chat", "id": "big", "payload": {"text": "x" * (1 << 20)}}))
        assert agent.until("system/error")["payload"]["message"]
        agent.chat("still here")


def test_a_frame_beyond_the_server_limit_closes_the_socket(tmp_path: Path) -> None:
    rooms = {"r": {"participants": ["a"]}}
    with served(tmp_path, rooms, server={"max_body_bytes": 50_000}) as own, joined(own, "r", "a") as client:
        client.raw("x" * 60_000)
        assert client.closed() == 1009


def test_a_protocol_error_closes_only_its_own_socket(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human:
        with joined(gateway, room, "agent") as agent:
            agent.connection.socket.sendall(Frame(Opcode.TEXT, b"not masked").serialize(mask=False))
            assert agent.closed() == 1002
        left = human.until("system/presence")
        while left["payload"]["event"] != "leave":
            left = human.until("system/presence")
        human.chat("still here")


# --- names and paths -------------------------------------------------------------------------------------------------


INVALID_PATHS = [
    "/a",
    "a/",
    "a//b",
    "..",
    "a/../b",
    "a/b/c/d/e/f",
    "x" * 256,
    "a b",
    "a\nb",
    "é",
    "%2e%2e",
    "a/./b",
    "\u202eabc",
]


def test_an_invalid_context_path_is_refused(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent, Cases() as case:
        for path in INVALID_PATHS:
            with case(repr(path)):
                assert agent.refused(kind="chat", context=path, payload={"text": "x"})["param"] == "context"


TRAVERSALS = ["../../etc/passwd", "..%2f..%2f", "%00", "x%0d%0aSet-Cookie:a", "a/b", "%F0%9F", "$(id)", "'--", "é"]


def test_traversal_in_urls_is_refused(gateway: Served, room: str) -> None:
    bearer = {"Authorization": f"Bearer {token(room, 'human')}"}
    with Cases() as case:
        for path in TRAVERSALS:
            for path_with_name in (f"/spaces/{path}", f"/spaces/{path}/envelopes", f"/spaces/{room}/envelopes/{path}"):
                with case(path_with_name):
                    assert gateway.request("GET", _percent_encode(path_with_name), headers=bearer).status in (
                        400,
                        403,
                        404,
                    )
            with case(f"contexts/{path}"):
                reply = gateway.request("GET", _percent_encode(f"/spaces/{room}/contexts/{path}"), headers=bearer)
                assert reply.status in (400, 404)


def _percent_encode(path: str) -> str:
    return path.encode().decode("latin-1").replace("é".encode().decode("latin-1"), "%C3%A9")


# --- capabilities ----------------------------------------------------------------------------------------------------

SLOW_PATTERN = "/^(a+)+$/"


def test_slow_patterns_are_bounded(tmp_path: Path) -> None:
    """In a configured capability, in a grant, and in a pattern of the operator."""
    rooms: dict[str, Body] = {
        "r": {
            "participants": {
                "a": [{"kind": "chat", "payload": {"text": SLOW_PATTERN}}, "mcp/*"],
                "g": ["*"],
                "b": ["chat"],
            },
            "redact": [{"name": "evil", "pattern": "(a|a)*!"}, {"name": "key", "pattern": "sk-[a-z]{8}"}],
        }
    }
    with served(tmp_path, rooms) as own, joined(own, "r", "a") as a, joined(own, "r", "g") as g:
        began = time.process_time()
        assert a.say(kind="chat", payload={"text": "a" * 200_000 + "?"})["kind"] == "system/error"
        assert a.say(kind="chat", payload={"text": "a" * 50})["kind"] == "chat"
        grant = {"recipient": "b", "capabilities": [{"kind": "mcp/request", "payload": {"method": SLOW_PATTERN}}]}
        g.say(kind="capability/grant", payload=grant)
        with joined(own, "r", "b") as b:
            b.say(kind="mcp/request", payload={"method": "a" * 100_000 + "!"})
            b.chat("a" * 10_000)
        assert time.process_time() - began < 20, "CPU seconds; 0.5 are usual"
        assert g.say(kind="chat", payload={"text": "my sk-abcdefgh"})["payload"] == {"text": "my [redacted:key]"}


def test_redacted_text_is_in_no_response(tmp_path: Path) -> None:
    rooms: dict[str, Body] = {"r": {"participants": ["a"], "redact": [{"name": "key", "pattern": "sk-[a-z]{8}"}]}}
    with served(tmp_path, rooms) as own, joined(own, "r", "a") as a:
        a.say(kind="reasoning/start", id="r-1", payload={"message": "use sk-abcdefgh", "x": {"y": ["sk-abcdefgh"]}})
        for path in ("envelopes", "search?q=redacted", "export", "contexts", "contexts/r-1", "replay"):
            body = get(own, f"/spaces/r/{path}", token("r", "a")).body
            assert b"sk-abcdefgh" not in body
            assert b"[redacted:key]" in body


# --- floods ----------------------------------------------------------------------------------------------------------


FAMILIES = ("reasoning", "chat", "mcp", "other", "errors")
ERRORS = FloodLimits().errors
WHO = {"agent": ["*"], "human": ["*"]}


@pytest.fixture(scope="module")
def limited_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    slow = {"per_second": 50, "burst": 100}
    rooms: dict[str, Body] = {
        "flood": {"participants": ["a", "b"], "limits": {"reasoning": slow, "patience": 0.3}},
        "deep": {"participants": ["a"], "limits": {"open_contexts": 3}},
        "behind": {
            "participants": ["a", "b"],
            "limits": {"outlet_bytes": 30_000, "bytes": {"per_second": 1e9, "burst": 1e9}},
        },
        "anything": {
            "participants": WHO,
            "limits": {family: {"per_second": 1e6, "burst": 1e6} for family in FAMILIES},
        },
    }
    with served(tmp_path_factory.mktemp("tokens"), rooms) as running:
        yield running


def test_a_flood_is_limited_and_closed(limited_gateway: Served) -> None:
    """Most are refused and not stored; other participants go on; a continuous flood closes the connection."""
    # Received frames are read during the flood (`max_queue`); otherwise the close frame waits behind them until the
    # server gives up.
    with joined(limited_gateway, "flood", "a", max_queue=None) as a, joined(limited_gateway, "flood", "b") as b:
        a.say(kind="reasoning/start", id="r", payload={"message": "flood"})
        thought = json.dumps({"kind": "reasoning/thought", "context": "r", "payload": {"message": "x"}})
        sent, begun = 0, time.monotonic()
        with suppress(ConnectionClosed):
            while True:  # until it is closed; how many that are depends on the machine
                a.raw(thought)
                sent += 1
                if sent == 500:
                    b.chat("I am heard")
        assert a.closed() == 1008
        seconds = time.monotonic() - begun
        errors = [one["payload"] for one in a.seen if slashed_kind(one) == "system/error"]
        assert errors[0]["code"] == "rate_limited"
        assert errors[0]["retry_after"] > 0
        assert 0 < len(errors) <= ERRORS.burst + ERRORS.per_second * seconds + 1, "errors are limited, too"
        b.chat("and still am")
    stored = get(
        limited_gateway, "/spaces/flood/envelopes?kind=reasoning/thought&limit=10000", token("flood", "b")
    ).json
    assert 100 <= len(stored["envelopes"]) <= 100 + 50 * seconds


def test_open_contexts_are_limited(limited_gateway: Served) -> None:
    with joined(limited_gateway, "deep", "a") as a:
        for n in range(3):
            assert a.say(kind="reasoning/start", id=f"r-{n}")["kind"] == "reasoning/start"
        assert a.refused(kind="reasoning/start", id="r-3")["code"] == "too_many_contexts"
        a.say(kind="reasoning/conclusion", context="r-0")
        assert a.say(kind="reasoning/start", id="r-4")["kind"] == "reasoning/start"


def test_a_client_that_does_not_read_is_no_fault_when_the_gateway_stops(tmp_path: Path) -> None:
    lines = [
        "[server]\nshutdown_seconds = 0.1",
        '[storage]\nurl = "sqlite://"',
        '[providers.vllm]\nbase_url = "http://127.0.0.1:9/v1"',
        "[spaces.a.limits]\nbytes = { per_second = 1e9, burst = 1e9 }",
    ]
    for id, row in spaces_of(tmp_path, {"a": {"participants": ["x", "y"]}})["a"]["participants"].items():
        lines.append(f"[spaces.a.participants.{id}]\ntoken_file = {json.dumps(row['token_file'])}")
    with replicas("\n".join(lines)) as [gateway], sockets.socket() as sock:
        sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", gateway.port))
        head = f"GET /spaces/a/ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token('a', 'x')}\r\n"
        upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        sock.sendall(f"{head}{upgrade}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        assert sock.recv(12) == b"HTTP/1.1 101"
        for _ in range(20):
            text = {"kind": "chat", "payload": {"text": "x" * 500_000}}
            assert post(gateway, "/spaces/a/envelopes", text, token("a", "y")).status == 200
        gateway.signal(signal.SIGTERM)
        wait_until(lambda: "stopping: ending 1 request" in gateway.stderr_text, "it stops")
        assert gateway.process.wait(LIMIT_SECONDS) == 0
        assert "Exception" not in gateway.stderr_text


def test_a_slow_client_gets_a_gap_notice_and_can_fetch_the_gap(limited_gateway: Served) -> None:
    from websockets.sync.client import connect

    sock = sockets.socket()
    sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", limited_gateway.port))
    headers = {"Authorization": f"Bearer {token('behind', 'b')}"}
    url = f"ws://127.0.0.1:{limited_gateway.port}/spaces/behind/ws"
    with (
        joined(limited_gateway, "behind", "a") as a,
        connect(url, sock=sock, additional_headers=headers, proxy=None, max_queue=1) as connection,
    ):
        b = Client(connection)
        b.until("system/welcome")
        sent = [a.chat(f"{n} " + "x" * 250_000)["seq"] for n in range(60)]
        received: list[int] = []
        gap: Body = {}
        while not received or received[-1] < sent[-1]:
            one = b.next()
            if slashed_kind(one) == "system/gap":
                gap = one["payload"]
                break
            if slashed_kind(one) == "chat":
                received.append(one["seq"])
        assert gap, "the slow client had no gap"
        missed: list[Body] = []
        after, more = gap["after_seq"], True
        while more:
            page = get(
                limited_gateway,
                f"/spaces/behind/envelopes?after_seq={after}&before_seq={gap['before_seq']}&kind=chat",
                token("behind", "b"),
            ).json
            missed += page["envelopes"]
            after, more = page["last"], page["has_more"]
        assert len(missed) == gap["missed"]
        received += [one["seq"] for one in missed]
        while received[-1] < sent[-1]:
            received.append(b.until("chat")["seq"])
        assert received == sent


# --- anything --------------------------------------------------------------------------------------------------------

KINDS = ["chat", "reasoning/start", "reasoning.thought", "reasoning/conclusion", "reasoning/cancel", "mcp/request"]
KINDS += ["mcp/response", "mcp/proposal", "mcp/withdraw", "capability/grant", "capability/revoke", "space/invite"]
KINDS += ["system/welcome", "participant/status", "x", "", "*"]
IDS = st.sampled_from(["a", "b", "c", "r-1", "r-2", ""]) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ENVELOPES = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS)},
    optional={
        "id": IDS,
        "payload": st.dictionaries(
            st.sampled_from(["message", "text", "confidence", "recipient", "capabilities", "participant_id", "method"]),
            JSON | st.just("agent") | st.just(["chat"]),
            max_size=3,
        )
        | JSON,
        "context": st.sampled_from(["r-1", "r-1/r-2", "a", "a/b/c/d/e/f", "/"]) | JSON,
        "correlation_id": IDS | st.lists(IDS, max_size=3) | JSON,
        "to": st.sampled_from([[], ["human"], ["agent"], ["nobody"], "human"]) | JSON,
        "from": st.sampled_from(["agent", "human"]),
        "ts": JSON,
        "protocol": st.sampled_from(["mew/v0.4", "meup/v0.2", "x"]),
        "x": JSON,
    },
)


@costly
@given(script=st.lists(ENVELOPES | JSON, max_size=12))
@example(script=[{"kind": "chat", "id": "twice"}, {"kind": "chat", "id": "twice"}])
def test_every_frame_is_echoed_or_refused_and_the_log_matches_the_echoes(
    limited_gateway: Served, script: list[Any]
) -> None:
    with joined(limited_gateway, "anything", "agent") as agent:
        for n, one in enumerate(script):
            agent.raw(json.dumps(one))
            agent.chat(f"mark {n}")
        agent.sync()
        first = agent.welcome["head"]
        received: list[Any] = []
        ids = [one.get("id") for one in script if isinstance(one, dict)]
        for one in agent.seen:
            if one.get("seq", 0) <= first:
                continue
            if not received or one["seq"] > received[-1]["seq"]:
                received.append(one)
            else:
                # An envelope that is sent twice with one id is stored once and acknowledged twice.
                assert one in received
                assert ids.count(one["id"]) > 1
        unnumbered_kinds = {slashed_kind(one) for one in agent.seen if "seq" not in one}
        assert unnumbered_kinds <= {"system/welcome", "system/error"}
        for one in agent.seen:
            assert one["from"] in ("agent", "system:gateway")
        page = get(
            limited_gateway,
            f"/spaces/anything/envelopes?after_seq={first}&before_seq={received[-1]['seq'] + 1}&limit=500",
            token("anything", "agent"),
        ).json
        # A session is answered in the dialect of its own frames, once it has sent one.
        assert [replace(read(one), dialect=DEFAULT_DIALECT) for one in page["envelopes"]] == [
            replace(read(one), dialect=DEFAULT_DIALECT) for one in received
        ]


def test_arbitrary_posts_are_refused_without_an_internal_error(gateway: Served, room: str) -> None:
    for body in (b"", b"\xff", b"[" * 100_000, b'{"kind":', b'{"kind": "chat", "kind": "system/x"}', b"null"):
        assert post(gateway, f"/spaces/{room}/envelopes", body, token(room, "agent")).status in (400, 403)
