"""A client of `GET /v1/responses` that checks everything it receives against the schemas and the rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from websockets.sync.client import ClientConnection, connect

from pellucid.protocols.openresponses.verify import verify
from tests.openresponses.openresponses_kit import schemas
from tests.scripted.gateway import Gateway
from tests.server.event_check import check_events
from tests.waiting import LIMIT_SECONDS

Body = dict[str, Any]
TERMINAL = ("response.completed", "response.incomplete", "response.failed")


class Turn(msgspec.Struct):
    """The reply to one message: events, or an error."""

    events: list[Body]
    error: Body | None = None
    """The envelope of the error that was received instead of events."""

    @property
    def response(self) -> Body:
        assert self.error is None, self.error
        response: Body = self.events[-1]["response"]
        return response

    @property
    def id(self) -> str:
        id: str = self.response["id"]
        return id

    @property
    def text(self) -> str:
        return "".join(
            part["text"] for item in self.response["output"] if item["type"] == "message" for part in item["content"]
        )

    @property
    def code(self) -> str:
        """The code of the error."""
        assert self.error is not None, self.events[-1]
        code: str = self.error["error"]["code"]
        return code


class Socket:
    """One connected WebSocket."""

    def __init__(self, connection: ClientConnection, model: str) -> None:
        self.connection = connection
        self.model = model

    def send(self, **body: Any) -> None:
        self.connection.send(json.dumps({"type": "response.create", "model": self.model, "input": "Why?", **body}))

    def message(self, timeout: float = LIMIT_SECONDS) -> Body:
        data = self.connection.recv(timeout)
        assert isinstance(data, str)
        assert data != "[DONE]"
        value: Body = json.loads(data)
        return value

    def until(self, name: str) -> list[Body]:
        """Read until an event of this type is received."""
        seen = [self.message()]
        while seen[-1]["type"] != name:
            seen.append(self.message())
        return seen

    def turn(self) -> Turn:
        """Read the reply to one message."""
        first = self.message()
        if first["type"] == "error":
            for schema in schemas()[1:]:
                assert schema.errors("WebSocketErrorEvent", first) == []
            return Turn([], first)
        events = [first]
        while events[-1]["type"] not in TERMINAL:
            events.append(self.message())
        check_events(events)
        assert verify(b"".join(msgspec.json.encode(event) + b"\n" for event in events), framing="lines") == []
        return Turn(events)

    def ask(self, **body: Any) -> Turn:
        self.send(**body)
        return self.turn()


@contextmanager
def opened(gateway: Gateway, model: str = "any", **more: Any) -> Iterator[Socket]:
    with connect(f"ws://127.0.0.1:{gateway.port}/v1/responses", **more) as connection:
        yield Socket(connection, model)
