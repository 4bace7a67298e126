"""What nobody should send: the space stays whole, its other participants hear nothing of it, and the sender is told."""

from __future__ import annotations

import json
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
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import Body, Client, get, joined, post, served, slashes, token

# --- frames ----------------------------------------------------------------------------------------------------------


NO_ENVELOPES: list[str | bytes] = [
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


def test_what_is_no_envelope_is_an_error_and_the_socket_stays_open(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human, joined(gateway, room, "agent") as agent, Cases() as case:
        human.sync()
        for data in NO_ENVELOPES:
            with case(f"{data!r:.40}"):
                agent.raw(data)
                told = agent.until("system/error")
                assert told["payload"]["message"]
                agent.chat("still here")
                assert [slashes(one) for one in human.sync()] == ["chat"]


def test_binary_frames_are_read_like_any_other(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.raw(b'{"kind": "chat", "id": "b-1", "payload": {"text": "Hi"}}')
        assert agent.answer("b-1")["payload"] == {"text": "Hi"}


def test_half_a_surrogate_pair_costs_no_thought(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.raw('{"kind": "chat", "id": "s-1", "payload": {"text": "cut \\ud83d here"}}')
        assert agent.answer("s-1")["payload"] == {"text": "cut \ufffd here"}


def test_an_envelope_that_is_too_large_is_refused_and_the_socket_stays_open(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.raw(json.dumps({"kind": "chat", "id": "big", "payload": {"text": "x" * (1 << 20)}}))
        assert agent.until("system/error")["payload"]["message"]
        agent.chat("still here")


def test_a_frame_beyond_what_the_server_takes_ends_the_socket(tmp_path: Path) -> None:
    rooms = {"r": {"participants": ["a"]}}
    with served(tmp_path, rooms, server={"max_body_bytes": 50_000}) as own, joined(own, "r", "a") as client:
        client.raw("x" * 60_000)
        assert client.closed() == 1009


def test_who_breaks_the_protocol_takes_nobody_along(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human:
        with joined(gateway, room, "agent") as agent:
            agent.connection.socket.sendall(Frame(Opcode.TEXT, b"not masked").serialize(mask=False))
            assert agent.closed() == 1002
        left = human.until("system/presence")
        while left["payload"]["event"] != "leave":
            left = human.until("system/presence")
        human.chat("still here")


# --- names and paths -------------------------------------------------------------------------------------------------


NO_PATHS = [
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


def test_a_context_that_is_no_path_is_refused(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent, Cases() as case:
        for path in NO_PATHS:
            with case(repr(path)):
                assert agent.refused(kind="chat", context=path, payload={"text": "x"})["param"] == "context"


STRAYING = ["../../etc/passwd", "..%2f..%2f", "%00", "x%0d%0aSet-Cookie:a", "a/b", "%F0%9F", "$(id)", "'--", "é"]


def test_no_path_of_an_address_leads_anywhere(gateway: Served, room: str) -> None:
    bearer = {"Authorization": f"Bearer {token(room, 'human')}"}
    with Cases() as case:
        for path in STRAYING:
            for made in (f"/spaces/{path}", f"/spaces/{path}/envelopes", f"/spaces/{room}/envelopes/{path}"):
                with case(made):
                    assert gateway.request("GET", _quoted(made), headers=bearer).status in (400, 403, 404)
            with case(f"contexts/{path}"):
                reply = gateway.request("GET", _quoted(f"/spaces/{room}/contexts/{path}"), headers=bearer)
                assert reply.status in (400, 404)


def _quoted(path: str) -> str:
    return path.encode().decode("latin-1").replace("é".encode().decode("latin-1"), "%C3%A9")


# --- capabilities ----------------------------------------------------------------------------------------------------

EVIL = "/^(a+)+$/"


def test_a_pattern_that_would_hang_others_costs_little(tmp_path: Path) -> None:
    """As a capability in the configuration, as a grant, and as a pattern of the operator's."""
    rooms: dict[str, Body] = {
        "r": {
            "participants": {
                "a": [{"kind": "chat", "payload": {"text": EVIL}}, "mcp/*"],
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
        grant = {"recipient": "b", "capabilities": [{"kind": "mcp/request", "payload": {"method": EVIL}}]}
        g.say(kind="capability/grant", payload=grant)
        with joined(own, "r", "b") as b:
            b.say(kind="mcp/request", payload={"method": "a" * 100_000 + "!"})
            b.chat("a" * 10_000)
        assert time.process_time() - began < 20, "CPU seconds; it is some 0.5"
        assert g.say(kind="chat", payload={"text": "my sk-abcdefgh"})["payload"] == {"text": "my [redacted:key]"}


def test_what_is_redacted_is_nowhere(tmp_path: Path) -> None:
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
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
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


def test_a_flood_of_thoughts(small: Served) -> None:
    """Most are refused and not stored; others go on talking meanwhile; who does not stop is let go."""
    # What comes is read while it floods (`max_queue`): or else the goodbye waits behind it until the server gives up.
    with joined(small, "flood", "a", max_queue=None) as a, joined(small, "flood", "b") as b:
        a.say(kind="reasoning/start", id="r", payload={"message": "flood"})
        thought = json.dumps({"kind": "reasoning/thought", "context": "r", "payload": {"message": "x"}})
        sent, begun = 0, time.monotonic()
        with suppress(ConnectionClosed):
            while True:  # until it is let go: how many that are, the machine says
                a.raw(thought)
                sent += 1
                if sent == 500:
                    b.chat("I am heard")
        assert a.closed() == 1008
        seconds = time.monotonic() - begun
        errors = [one["payload"] for one in a.seen if slashes(one) == "system/error"]
        assert errors[0]["code"] == "rate_limited"
        assert errors[0]["retry_after"] > 0
        assert 0 < len(errors) <= ERRORS.burst + ERRORS.per_second * seconds + 1, "errors are limited, too"
        b.chat("and still am")
    stored = get(small, "/spaces/flood/envelopes?kind=reasoning/thought&limit=10000", token("flood", "b")).json
    assert 100 <= len(stored["envelopes"]) <= 100 + 50 * seconds


def test_only_so_many_contexts_are_open(small: Served) -> None:
    with joined(small, "deep", "a") as a:
        for n in range(3):
            assert a.say(kind="reasoning/start", id=f"r-{n}")["kind"] == "reasoning/start"
        assert a.refused(kind="reasoning/start", id="r-3")["code"] == "too_many_contexts"
        a.say(kind="reasoning/conclusion", context="r-0")
        assert a.say(kind="reasoning/start", id="r-4")["kind"] == "reasoning/start"


def test_who_reads_slowly_is_told_of_the_gap_and_can_fetch_it(small: Served) -> None:
    from websockets.sync.client import connect

    sock = sockets.socket()
    sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", small.port))
    headers = {"Authorization": f"Bearer {token('behind', 'b')}"}
    url = f"ws://127.0.0.1:{small.port}/spaces/behind/ws"
    with (
        joined(small, "behind", "a") as a,
        connect(url, sock=sock, additional_headers=headers, proxy=None, max_queue=1) as connection,
    ):
        b = Client(connection)
        b.until("system/welcome")
        said = [a.chat(f"{n} " + "x" * 250_000)["seq"] for n in range(60)]
        heard: list[int] = []
        gap: Body = {}
        while not heard or heard[-1] < said[-1]:
            one = b.next()
            if slashes(one) == "system/gap":
                gap = one["payload"]
                break
            if slashes(one) == "chat":
                heard.append(one["seq"])
        assert gap, "they were not behind"
        missed: list[Body] = []
        after, more = gap["after_seq"], True
        while more:
            page = get(
                small,
                f"/spaces/behind/envelopes?after_seq={after}&before_seq={gap['before_seq']}&kind=chat",
                token("behind", "b"),
            ).json
            missed += page["envelopes"]
            after, more = page["last"], page["has_more"]
        assert len(missed) == gap["missed"]
        heard += [one["seq"] for one in missed]
        while heard[-1] < said[-1]:
            heard.append(b.until("chat")["seq"])
        assert heard == said


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
def test_whatever_is_said_is_echoed_or_refused_and_the_log_is_what_was_heard(small: Served, script: list[Any]) -> None:
    with joined(small, "anything", "agent") as agent:
        for n, one in enumerate(script):
            agent.raw(json.dumps(one))
            agent.chat(f"mark {n}")
        agent.sync()
        first = agent.welcome["head"]
        heard: list[Any] = []
        ids = [one.get("id") for one in script if isinstance(one, dict)]
        for one in agent.seen:
            if one.get("seq", 0) <= first:
                continue
            if not heard or one["seq"] > heard[-1]["seq"]:
                heard.append(one)
            else:
                # What is said twice under one id is said once, and acknowledged twice.
                assert one in heard
                assert ids.count(one["id"]) > 1
        told = {slashes(one) for one in agent.seen if "seq" not in one}
        assert told <= {"system/welcome", "system/error"}
        for one in agent.seen:
            assert one["from"] in ("agent", "system:gateway")
        page = get(
            small,
            f"/spaces/anything/envelopes?after_seq={first}&before_seq={heard[-1]['seq'] + 1}&limit=500",
            token("anything", "agent"),
        ).json
        # A seat is spoken to in the dialect that it showed, once it has shown one.
        assert [replace(read(one), dialect=DEFAULT_DIALECT) for one in page["envelopes"]] == [
            replace(read(one), dialect=DEFAULT_DIALECT) for one in heard
        ]


def test_http_takes_whatever_is_posted(gateway: Served, room: str) -> None:
    for body in (b"", b"\xff", b"[" * 100_000, b'{"kind":', b'{"kind": "chat", "kind": "system/x"}', b"null"):
        assert post(gateway, f"/spaces/{room}/envelopes", body, token(room, "agent")).status in (400, 403)
