"""Participants on real sockets, and a gateway with spaces for them.

`Client` sends what a test says and shows all it receives. `MewClient` does exactly what MEW's TypeScript client does:
it uses the address unchanged, sends no header, joins in the first frame, and drops frames without `protocol` or `kind`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from pellucid.server.config import check_config
from tests.scripted.gateway import Gateway, Reply, Served, serve

Body = dict[str, Any]

PATIENCE_SECONDS = 30.0
"""How long a test waits for an envelope."""

TALK_CAPABILITIES = ["chat", "chat/*", "mcp/*", "reasoning/*", "capability/grant-ack"]
"""Capabilities of most participants here."""


def token(space: str, participant: str) -> str:
    return f"token-of-{participant}-in-{space}"


def spaces_of(folder: Path, spaces: Mapping[str, Body]) -> Body:
    """Return `[spaces]`. `participants` maps names to capabilities, or lists names."""
    tables: Body = {}
    for name, space in spaces.items():
        settings = dict(space)
        participants = settings.pop("participants")
        capabilities = (
            participants if isinstance(participants, Mapping) else dict.fromkeys(participants, TALK_CAPABILITIES)
        )
        participant_tables: Body = {}
        for id, may in capabilities.items():
            file = folder / f"{name}-{id}.token"
            file.write_text(token(name, id) + "\n")
            participant_tables[id] = {"token_file": str(file), "capabilities": list(may)}
        tables[name] = {**settings, "participants": participant_tables}
    return tables


@contextmanager
def served(
    folder: Path, spaces: Mapping[str, Body], *, environ: Mapping[str, str] | None = None, **more: Any
) -> Iterator[Served]:
    """Serve a gateway with these spaces. `more`: other tables of its configuration."""
    table = {
        "providers": {"vllm": {"base_url": "http://127.0.0.1:9/v1"}},
        "spaces": spaces_of(folder, spaces),
        "access": {"hosts": ["spaces.example"]},
        **more,
    }
    with serve(check_config(table, environ or {})) as gateway:
        yield gateway


class Client:
    """One socket. `seen` is everything that it received, in order."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.seen: list[Body] = []

    def send(self, **envelope: Any) -> None:
        """Send an envelope; `sender` is its `from`."""
        if "sender" in envelope:
            envelope["from"] = envelope.pop("sender")
        self.raw(json.dumps(envelope))

    def raw(self, data: str | bytes) -> None:
        self.connection.send(data)

    def next(self, timeout: float = PATIENCE_SECONDS) -> Body:
        value: Body = json.loads(self.connection.recv(timeout))
        self.seen.append(value)
        return value

    def until(self, kind: str, **fields: Any) -> Body:
        """Return the next envelope of this kind with these fields."""
        while True:
            one = self.next()
            if slashed_kind(one) == kind and all(one.get(name) == value for name, value in fields.items()):
                return one

    def answer(self, id: str) -> Body:
        """Return the echo of the envelope with this id, or the error about it."""
        while True:
            one = self.next()
            if one.get("id") == id or (slashed_kind(one) == "system/error" and id in ids_of(one)):
                return one

    def say(self, **envelope: Any) -> Body:
        """Send an envelope and return its echo or error."""
        id = envelope.setdefault("id", f"m-{time.monotonic_ns()}")
        self.send(**envelope)
        return self.answer(id)

    def refused(self, **envelope: Any) -> Body:
        """Send an envelope that is refused, and return the error's payload."""
        reply = self.say(**envelope)
        assert slashed_kind(reply) == "system/error", reply
        payload: Body = reply["payload"]
        return payload

    def chat(self, text: str, **more: Any) -> Body:
        reply = self.say(kind="chat", payload={"text": text}, **more)
        assert reply["kind"] == "chat", reply
        return reply

    def sync(self) -> list[Body]:
        """Return all that has been received: a chat is sent and echoed after it."""
        before = len(self.seen)
        self.chat("…")
        return self.seen[before:-1]

    def silent(self, seconds: float) -> bool:
        """Whether nothing is received for this long."""
        try:
            self.next(seconds)
        except TimeoutError:
            return True
        return False

    def closed(self) -> int:
        """Return the code with which the server closes; earlier envelopes are in `seen`."""
        while True:
            try:
                self.next()
            except ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd is not None else 1006

    @property
    def welcome(self) -> Body:
        payload: Body = next(one for one in self.seen if slashed_kind(one) == "system/welcome")["payload"]
        return payload


def slashed_kind(envelope: Body) -> str:
    return str(envelope.get("kind", "")).replace(".", "/")


def ids_of(envelope: Body) -> list[str]:
    ids = envelope.get("correlation_id", envelope.get("correlationId", []))
    return [ids] if isinstance(ids, str) else list(ids or ())


@contextmanager
def joined(
    gateway: Gateway, space: str, participant: str, *, query: str = "", with_token: str | None = None, **more: Any
) -> Iterator[Client]:
    """Connect a participant with the token in the upgrade request, and read the welcome."""
    headers = {"Authorization": f"Bearer {with_token or token(space, participant)}"}
    with connect(
        f"ws://127.0.0.1:{gateway.port}/spaces/{space}/ws{query}", additional_headers=headers, proxy=None, **more
    ) as connection:
        client = Client(connection)
        client.until("system/welcome")
        yield client


class MewClient(Client):
    """MEW's own client: `new WebSocket(url)`, and a join in the first frame."""

    def __init__(self, connection: ClientConnection, space: str, token: str, participant: str) -> None:
        super().__init__(connection)
        self._participant = participant
        self._count = 0
        self._may: list[Any] | None = None
        self.raw(
            json.dumps(
                {"type": "join", "space": space, "token": token, "participantId": participant, "capabilities": []}
            )
        )

    def next(self, timeout: float = PATIENCE_SECONDS) -> Body:
        while True:
            one = super().next(timeout)
            if one.get("protocol") and one.get("kind"):
                break
        if one["kind"] == "system/welcome":
            self._may = one["payload"]["you"]["capabilities"]
        return one

    def mew(self, kind: str, payload: Body, **more: Any) -> Body:
        """Send an envelope with the fields that `MEWClient.send` fills in."""
        assert self._may is not None, "MEW's client sends nothing before its welcome"
        self._count += 1
        envelope: Body = {
            "protocol": "mew/v0.4",
            "id": f"{self._participant}-{self._count}",
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
            "from": self._participant,
            "kind": kind,
            "payload": payload,
            **more,
        }
        self.raw(json.dumps(envelope))
        return self.answer(envelope["id"])


@contextmanager
def mew(gateway: Gateway, space: str, participant: str, path: str = "/ws", **more: Any) -> Iterator[MewClient]:
    """Connect MEW's client and read the welcome."""
    with connect(f"ws://127.0.0.1:{gateway.port}{path}", proxy=None) as connection:
        client = MewClient(connection, space, more.get("token") or token(space, participant), participant)
        client.until("system/welcome")
        yield client


def get(gateway: Gateway, path: str, with_token: str | None = None, **headers: str) -> Reply:
    bearer = {} if with_token is None else {"Authorization": f"Bearer {with_token}"}
    return gateway.request("GET", path, headers={**bearer, **headers})


def post(gateway: Gateway, path: str, body: Any, with_token: str | None = None) -> Reply:
    bearer = {} if with_token is None else {"Authorization": f"Bearer {with_token}"}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return gateway.request("POST", path, data, {"Content-Type": "application/json", **bearer})


def seqs(envelopes: Sequence[Body]) -> list[int]:
    return [one["seq"] for one in envelopes if "seq" in one]
