"""Shared by the tests of `/api/chat`: a client over real sockets, and checks of the stream."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any, NamedTuple

from tests.scripted import Gateway, Reply, Stream
from tests.waiting import wait_until

ENDS = ("message_final", "message_error")


class Frame(NamedTuple):
    id: int
    name: str
    data: dict[str, Any]


def parse_frames(body: bytes) -> list[Frame]:
    """The frames of a stream, or of its remainder, without comments; their format is checked."""
    out: list[Frame] = []
    for block in body.decode().split("\n\n")[:-1]:
        if block.startswith(": "):
            continue
        id, name, data = block.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert data.startswith("data: ")
        assert id.startswith("id: ")
        assert name == f"event: {value['type']}"
        out.append(Frame(int(id.removeprefix("id: ")), value["type"], value))
    assert [frame.id for frame in out] == list(range(out[0].id, out[0].id + len(out))) if out else True
    return out


def complete_frames(body: bytes) -> list[Frame]:
    """The frames of a complete message, after checking that it is legal."""
    parsed = parse_frames(body)
    assert parsed[0].id == 0
    names = [frame.name for frame in parsed]
    assert names[0] == "message_started", names
    assert names.count("message_started") == 1
    assert names[-1] in ENDS, names
    assert names.count("message_final") == (names[-1] == "message_final")
    event = parsed[0].data["event_id"]
    assert all(frame.data["event_id"] == event for frame in parsed if "event_id" in frame.data)
    open_parts: set[Any] = set()
    for frame in parsed:
        if frame.name.startswith("reasoning_part_"):
            part = frame.data["segment_id"], frame.data["summary_index"]
            if frame.name == "reasoning_part_started":
                assert part not in open_parts
                open_parts.add(part)
            else:
                assert part in open_parts
            if frame.name == "reasoning_part_completed":
                open_parts.remove(part)
    assert not open_parts
    return parsed


def final_event(body: bytes) -> dict[str, Any]:
    """The canonical event at the end of the stream."""
    last = complete_frames(body)[-1]
    assert last.name == "message_final", last
    event: dict[str, Any] = last.data["event"]
    return event


def text_of(event: dict[str, Any], type: str = "text") -> str:
    key = "combined_text" if type == "reasoning" else "text"
    return "".join(segment[key] for segment in event["segments"] if segment["type"] == type)


class ChatClient:
    """A client with one key, or without a key on the local machine."""

    def __init__(self, gateway: Gateway, key: str | None = None) -> None:
        self.gateway = gateway
        self.headers = {"Authorization": f"Bearer {key}"} if key is not None else {}

    def send_request(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        head = {"Content-Type": "application/json", **self.headers, **headers}
        return self.gateway.request(method, path, data, head, 60)

    def post_question(self, model: str | None = None, text: str = "Why?", **more: Any) -> Reply:
        """Send a question; return the complete stream, or the error."""
        named = {} if model is None else {"model": model if ":" in model else f"vllm:{model}"}
        return self.send_request("POST", "/api/chat", {"text": text, **named, **more})

    def ask(self, model: str | None = None, text: str = "Why?", **more: Any) -> dict[str, Any]:
        """Send a question; return the canonical event of the answer."""
        reply = self.post_question(model, text, **more)
        assert reply.status == 200, reply.body
        assert reply.headers["content-type"].startswith("text/event-stream")
        return final_event(reply.body)

    def begin(self, model: str, text: str = "Why?", **more: Any) -> Stream:
        """Send a question; return its open stream."""
        named = model if ":" in model else f"vllm:{model}"
        return self._stream("POST", "/api/chat", json.dumps({"text": text, "model": named, **more}).encode())

    def follow(self, event_id: str, query: str = "", **headers: str) -> Stream:
        return self._stream("GET", f"/api/chat/{event_id}{query}", b"", **headers)

    def read(self, event_id: str, query: str = "", **headers: str) -> Reply:
        return self.send_request("GET", f"/api/chat/{event_id}{query}", None, **headers)

    def cancel(self, event_id: str) -> Reply:
        return self.send_request("POST", f"/api/chat/{event_id}/cancel")

    def list_conversations(self, query: str = "") -> Any:
        return self._json("GET", f"/api/conversations{query}")

    def open(self, id: str, query: str = "") -> Any:
        return self._json("GET", f"/api/conversations/{id}{query}")

    def change(self, id: str, **fields: Any) -> Reply:
        return self.send_request("PATCH", f"/api/conversations/{id}", fields)

    def delete(self, id: str) -> Reply:
        return self.send_request("DELETE", f"/api/conversations/{id}")

    def wait_until_idle(self, id: str) -> Any:
        """Wait until the conversation has no active answer; return the conversation."""
        wait_until(lambda: self.open(id)["active"] is None)
        return self.open(id)

    def _json(self, method: str, path: str) -> Any:
        reply = self.send_request(method, path)
        assert reply.status == 200, reply.body
        return reply.json

    def _stream(self, method: str, path: str, body: bytes, **headers: str) -> Stream:
        sock = socket.create_connection(("127.0.0.1", self.gateway.port), timeout=60)
        head = {"Host": f"127.0.0.1:{self.gateway.port}", "Content-Type": "application/json", **self.headers, **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        sock.sendall("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
        response = http.client.HTTPResponse(sock)
        response.begin()
        return Stream(sock, response)


def error_of(reply: Reply, status: int) -> tuple[str, str | None, str]:
    """Code, location and message of an error before a stream."""
    assert reply.status == status, (reply.status, reply.body)
    [(name, error)] = reply.json.items()
    assert name == "error"
    assert set(error) <= {"message", "code", "param"}
    assert error["message"]
    return error["code"], error.get("param"), error["message"]


def read_event_id(stream: Stream) -> str:
    """The event id of an open stream."""
    stream.until("event: message_started")
    stream.until("\n\n")
    result: str = parse_frames(stream.seen[: stream.seen.index(b"\n\n", stream.seen.index(b"id: 0")) + 2])[0].data[
        "event_id"
    ]
    return result


def segment_texts(event: dict[str, Any]) -> list[tuple[str, str]]:
    """Type and text of each segment."""
    return [(segment["type"], segment.get("combined_text", segment.get("text", ""))) for segment in event["segments"]]


def transcript(opened: Any) -> list[tuple[str, str, str]]:
    """Role, text and status of each event of a conversation."""
    return [(event["role"], text_of(event), event["status"]) for event in opened["events"]]


def open_feed(client: ChatClient, **headers: str) -> Stream:
    """Open the feed of changes, and wait until it has started."""
    stream = client._stream("GET", "/api/events", b"", **headers)
    assert stream.status == 200, stream.rest()
    stream.until("event: feed_started\n")
    return stream


def parse_feed(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Id and content of the complete frames."""
    out = []
    for block in data.decode().split("\n\n")[:-1]:
        if block.startswith((":", "retry:")):
            continue
        *id, name, content = block.split("\n")
        value = json.loads(content.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        out.append((id[0].removeprefix("id: ") if id else "", value))
    return out


def read_feed_until(stream: Stream, type: str, count: int = 1) -> list[dict[str, Any]]:
    """Read until the feed has so many events of the type; return all events."""
    while stream.seen.count(f'"type":"{type}"'.encode()) < count or not stream.seen.endswith(b"\n\n"):
        piece = stream.response.read1(65536)
        assert piece, stream.seen
        stream.seen += piece
    return [value for _, value in parse_feed(stream.seen)]
