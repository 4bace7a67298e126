"""MEW's streams over real sockets: who opens, writes, reads and closes them, and their limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import Body, Client, get, joined, mew, served, token

STREAMER = ["chat", "reasoning/*", "stream/*"]
WHO = {"ada": STREAMER, "bob": STREAMER, "cyd": ["chat", "stream/*"], "root": ["*"], "mute": ["chat"]}
LIMITS = {"open_streams": 2}


@pytest.fixture(scope="module")
def streaming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    names = ("basic", "limits", "target", "private", "audience", "writers", "leaves", "revoked", "views")
    spaces: dict[str, Body] = {name: {"participants": WHO, "limits": LIMITS} for name in names}
    folder: Path = tmp_path_factory.mktemp("streams")
    with served(folder, spaces) as gateway:
        yield gateway


def frames_of(client: Client) -> list[str]:
    """Return the frames of streams that a participant has received: those before the echo of a chat that it sends."""
    client.send(kind="chat", id=(mark := f"mark-{id(client)}-{len(client.seen)}"), payload={"text": "…"})
    frames: list[str] = []
    while True:
        data = client.connection.recv(30)
        assert isinstance(data, str)
        if data.startswith("#"):
            frames.append(data)
            continue
        client.seen.append(json.loads(data))
        if client.seen[-1].get("id") == mark:
            return frames


def opened(client: Client, id: str = "open", **more: Any) -> str:
    payload = {"direction": "upload", "description": "data", **more.pop("payload", {})}
    client.send(kind="stream/request", id=id, payload=payload, **more)
    return str(client.until("stream/open", correlation_id=[id])["payload"]["stream_id"])


def test_a_stream_carries_data_outside_of_the_log(streaming: Served) -> None:
    with mew(streaming, "basic", "ada") as ada, mew(streaming, "basic", "bob") as bob:
        ada.mew("stream/request", {"direction": "upload", "format": "jsonl"}, id="r", to=["gateway"])
        answer = bob.until("stream/open")
        assert (answer["from"], answer["correlation_id"]) == ("system:gateway", ["r"])
        stream = answer["payload"]["stream_id"]
        assert answer["payload"] == {
            "stream_id": stream,
            "direction": "upload",
            "format": "jsonl",
            "encoding": "text",
            "owner": "ada",
            "authorized_writers": ["ada"],
        }
        data = [f"#{stream}#{text}" for text in ("one", '{"a": "#b#"}', "", "ж" * 100)]
        for frame in data:
            ada.raw(frame)
        ada.raw(f"#{stream}#binary".encode())
        for client in (ada, bob):
            assert frames_of(client) == [*data, f"#{stream}#binary"]
        with joined(streaming, "basic", "root", query="?after_seq=0") as late:
            (active,) = late.welcome["active_streams"]
            assert (active["stream_id"], active["owner"], active["format"]) == (stream, "ada", "jsonl")
            assert frames_of(late) == []
        page = get(streaming, "/spaces/basic/envelopes", token("basic", "bob"))
        assert b"binary" not in page.body
        ada.mew("stream/close", {"stream_id": stream, "reason": "complete"})
        assert bob.until("stream/close")["payload"]["reason"] == "complete"
        ada.raw(data[0])
        refused = ada.until("system/error")["payload"]
        assert (refused["code"], refused["stream_id"]) == ("stream_not_found", stream)
        with joined(streaming, "basic", "root") as later:
            assert later.welcome["active_streams"] == []
        assert frames_of(bob) == []


def test_foreign_and_unreadable_frames_are_refused(streaming: Served) -> None:
    with joined(streaming, "limits", "ada") as ada, joined(streaming, "limits", "bob") as bob:
        stream = opened(ada)
        for client, frame, code in (
            (bob, f"#{stream}#mine", "unauthorized_stream_write"),
            (bob, "#stream-0#x", "stream_not_found"),
            (bob, "#", "stream_not_found"),
            (ada, f"#{stream}#".encode() + b"\xff", "invalid_encoding"),
            (ada, f"#{stream}#" + "x" * 20_000, "too_large"),
            (ada, f"#{stream}#" + "x" * 2_000_000, "too_large"),
        ):
            client.raw(frame)
            assert client.until("system/error")["payload"]["code"] == code, frame[:40]
        assert frames_of(ada) == frames_of(bob) == []
        with joined(streaming, "limits", "mute") as mute:
            assert mute.refused(kind="stream/request", payload={"direction": "upload"})["code"] == (
                "capability_violation"
            )
        opened(ada, "second")
        assert ada.refused(kind="stream/request", payload={})["code"] == "too_many"
        assert bob.refused(kind="stream/request", payload={"description": "x" * 5_000})["code"] == "too_large"
        assert bob.refused(kind="stream/request", payload={"target": ["eve"]})["code"] == "participant_not_found"
        assert bob.refused(kind="stream/request", payload={"target": "ada"})["code"] == "invalid_value"
        for kind in ("stream/close", "stream/grant-write", "stream/revoke-write", "stream/transfer-ownership"):
            payload = {"stream_id": stream, "participant_id": "bob", "new_owner": "bob"}
            assert bob.refused(kind=kind, payload=payload)["code"] == "unauthorized"


def test_a_flood_of_frames_is_limited_and_counted(tmp_path: Path) -> None:
    limits = {"stream": {"per_second": 0.001, "burst": 12}, "patience": 1_000}
    with (
        served(tmp_path, {"room": {"participants": WHO, "limits": limits}}) as gateway,
        joined(gateway, "room", "ada") as ada,
        joined(gateway, "room", "bob") as bob,
    ):
        stream = opened(ada)
        for number in range(200):
            ada.raw(f"#{stream}#{number}")
        refused, echoed = 0, 0
        while refused + echoed < 200:
            data = str(ada.connection.recv(30))
            if data.startswith("#"):
                echoed += 1
            elif (one := json.loads(data))["kind"] == "system/error":
                refused += 1 + one["payload"].get("dropped", 0)
        assert (echoed, refused) == (11, 189)
        assert len(frames_of(bob)) == 11


def test_a_targeted_stream_reaches_its_targets_only(streaming: Served) -> None:
    with (
        joined(streaming, "target", "ada") as ada,
        joined(streaming, "target", "bob") as bob,
        joined(streaming, "target", "cyd") as cyd,
    ):
        streams = [
            opened(ada, "targeted", payload={"target": ["bob"]}),
            opened(ada, "addressed", to=["bob"]),
        ]
        for stream in streams:
            ada.raw(f"#{stream}#secret")
        assert frames_of(bob) == frames_of(ada) == [f"#{stream}#secret" for stream in streams]
        assert frames_of(cyd) == []
        assert not [one for one in cyd.seen if one["kind"].startswith("stream/open")]
        with joined(streaming, "target", "cyd") as again:
            assert again.welcome["active_streams"] == []


def test_a_stream_in_a_private_context_is_for_its_audience(streaming: Served) -> None:
    with (
        joined(streaming, "private", "ada") as ada,
        joined(streaming, "private", "bob") as bob,
        joined(streaming, "private", "cyd") as cyd,
    ):
        ada.say(kind="reasoning/start", id="r-1", to=["bob"], payload={"message": "x"})
        stream = opened(ada, context="r-1")
        ada.raw(f"#{stream}#thinking")
        assert frames_of(bob) == [f"#{stream}#thinking"]
        assert frames_of(cyd) == []


def test_a_stream_does_not_widen_the_audience_of_its_context(streaming: Served) -> None:
    """And for those who do not read it, it does not exist."""
    with (
        joined(streaming, "audience", "ada") as ada,
        joined(streaming, "audience", "bob") as bob,
        joined(streaming, "audience", "cyd") as cyd,
    ):
        ada.say(kind="reasoning/start", id="r-1", to=["bob"], payload={"message": "x"})
        request = {"kind": "stream/request", "context": "r-1", "payload": {"target": ["ada", "cyd"]}}
        assert bob.refused(**request)["code"] == "not_in_audience"
        assert cyd.refused(**request)["code"] == "context_unknown"
        page = get(streaming, "/spaces/audience/envelopes", token("audience", "ada"))
        assert b"stream/request" not in page.body
        stream = opened(bob, context="r-1")
        grant = {"kind": "stream/grant-write", "payload": {"stream_id": stream, "participant_id": "cyd"}}
        transfer = {"kind": "stream/transfer-ownership", "payload": {"stream_id": stream, "new_owner": "cyd"}}
        for change in (grant, transfer):
            assert bob.refused(**change)["code"] == "not_in_audience"
            assert cyd.refused(**change)["code"] == "stream_not_found"
        cyd.raw(f"#{stream}#mine")
        assert cyd.until("system/error")["payload"]["code"] == "stream_not_found"
        bob.say(kind="stream/grant-write", payload={"stream_id": stream, "participant_id": "ada"})
        ada.until("stream/write-granted")
        ada.raw(f"#{stream}#from ada")
        assert frames_of(ada) == frames_of(bob) == [f"#{stream}#from ada"]
        assert not [one for one in cyd.sync() if one["kind"].startswith("stream/")]
        ada.say(kind="reasoning/share", context="r-1", payload={"participants": ["cyd"]})
        bob.say(**grant)
        assert cyd.until("stream/write-granted")["payload"]["authorized_writers"] == ["bob", "ada", "cyd"]
        assert frames_of(cyd) == []
        bob.raw(f"#{stream}#for three")
        assert frames_of(ada)[-1:] == frames_of(bob)[-1:] == [f"#{stream}#for three"]
        assert frames_of(cyd) == [f"#{stream}#for three"]


def test_data_needs_the_full_view(streaming: Served) -> None:
    with joined(streaming, "views", "ada") as ada:
        stream = opened(ada)
        with (
            joined(streaming, "views", "bob", query="?view=main") as main,
            joined(streaming, "views", "bob", query="?view=collapsed") as collapsed,
            joined(streaming, "views", "bob") as full,
        ):
            ada.raw(f"#{stream}#x")
            assert [frames_of(one) for one in (main, collapsed, full)] == [[], [], [f"#{stream}#x"]]


def test_the_owner_lets_others_write_and_hands_a_stream_over(streaming: Served) -> None:
    with joined(streaming, "writers", "ada") as ada, joined(streaming, "writers", "bob") as bob:
        stream = opened(ada)
        names = {"stream_id": stream, "participant_id": "bob"}
        ada.send(kind="stream/grant-write", payload=names)
        assert bob.until("stream/write-granted")["payload"]["authorized_writers"] == ["ada", "bob"]
        bob.raw(f"#{stream}#bob's")
        assert frames_of(ada) == frames_of(bob) == [f"#{stream}#bob's"]
        assert ada.refused(kind="stream/revoke-write", payload={**names, "participant_id": "ada"})["code"] == (
            "invalid_operation"
        )
        assert ada.refused(kind="stream/grant-write", payload={**names, "participant_id": "eve"})["code"] == (
            "participant_not_found"
        )
        ada.send(kind="stream/revoke-write", payload=names)
        assert bob.until("stream/write-revoked")["payload"]["participant_id"] == "bob"
        bob.raw(f"#{stream}#again")
        assert bob.until("system/error")["payload"]["code"] == "unauthorized_stream_write"
        for new_owner in ("mute", "cyd"):  # not allowed to; not connected
            payload = {"stream_id": stream, "new_owner": new_owner}
            assert ada.refused(kind="stream/transfer-ownership", payload=payload)["code"] == "invalid_operation"
        ada.send(kind="stream/transfer-ownership", payload={"stream_id": stream, "new_owner": "bob"})
        change = bob.until("stream/ownership-transferred")["payload"]
        assert (change["previous_owner"], change["new_owner"]) == ("ada", "bob")
        ada.raw(f"#{stream}#mine still")
        assert ada.until("system/error")["payload"]["code"] == "unauthorized_stream_write"
        bob.raw(f"#{stream}#mine now")
        assert frames_of(bob) == [f"#{stream}#mine now"]
        with joined(streaming, "writers", "root") as late:
            (active,) = late.welcome["active_streams"]
            assert (active["owner"], active["authorized_writers"]) == ("bob", ["bob"])


def test_a_stream_ends_with_its_owner(streaming: Served) -> None:
    with joined(streaming, "leaves", "bob") as bob, joined(streaming, "leaves", "root") as root:
        with joined(streaming, "leaves", "ada") as ada:
            stream = opened(ada)
            ada.send(kind="stream/grant-write", payload={"stream_id": stream, "participant_id": "bob"})
            bob.until("stream/write-granted")
        closed = root.until("stream/close")
        assert (closed["from"], closed["payload"]) == (
            "system:gateway",
            {"stream_id": stream, "reason": "disconnected"},
        )
        bob.until("stream/close")
        bob.raw(f"#{stream}#x")
        assert bob.until("system/error")["payload"]["code"] == "stream_not_found"


def test_a_stream_ends_with_the_right_to_open_it(streaming: Served) -> None:
    with joined(streaming, "revoked", "ada") as ada, joined(streaming, "revoked", "root") as root:
        stream = opened(ada)
        payload = {"recipient": "ada", "capabilities": ["stream/request"]}
        root.say(kind="capability/revoke", payload=payload)
        closed = ada.until("stream/close")["payload"]
        assert closed == {"stream_id": stream, "reason": "unauthorized"}
        ada.raw(f"#{stream}#x")
        assert ada.until("system/error")["payload"]["code"] == "stream_not_found"
        assert ada.refused(kind="stream/request", payload={})["code"] == "capability_violation"
