"""An agent's application under uvicorn, and AG-UI clients for it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from pellucid import agui
from pellucid.protocols.agui import DialectName
from pellucid.protocols.agui.verify import verify
from pellucid.sealing import Keys
from tests.agui.agui_client import Converse
from tests.agui.agui_kit import events_of
from tests.scripted import Reply, Stream
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS, wait_until

KEYS = Keys.generate()
USER = {"id": "u1", "role": "user", "content": "Why?"}
FRONT = {
    "name": "paint",
    "description": "Paint the page.",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]},
}


DIALECT_QUERIES = {"0.0.39": "/?dialect=thinking"}
"""Queries of clients that do not send their version."""


class App(Served):
    """A running application and its client."""

    def ask(self, *messages: Any, thread: str = "t", query: str = "", **more: Any) -> Reply:
        """POST the input of a run, as a client of version 1.0 does."""
        body = {"threadId": thread, "runId": "r", "protocolVersion": "1.0", "messages": list(messages) or [USER]}
        data = json.dumps({**body, **more}).encode()
        return self.request("POST", f"/{query}", data, {"Content-Type": "application/json"})

    def events(self, *messages: Any, dialect: DialectName = "1.0", **more: Any) -> list[dict[str, Any]]:
        """Return the events of a run; they must be legal."""
        reply = self.ask(*messages, query=f"?dialect={dialect}", **more)
        assert reply.status == 200, reply.body
        events: list[dict[str, Any]] = events_of(reply.body)
        assert verify(events, dialect) is None, verify(events, dialect)
        return events

    def stream(self, **more: Any) -> Stream:
        """Begin a run and return its stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_SECONDS)
        body = {"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": [USER], **more}
        connection.request("POST", "/", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return Stream(connection.sock, connection.getresponse())

    def talk(self, converse: Converse, *turns: dict[str, Any]) -> list[dict[str, Any]]:
        """Play a conversation with the newest client (see `agui_node.converse`)."""
        [turns_seen] = self.talks(converse, ("1.0.0", turns))
        return turns_seen

    def talks(
        self, converse: Converse, *conversations: tuple[str, Sequence[dict[str, Any]]]
    ) -> list[list[dict[str, Any]]]:
        """Play conversations, each with a client of a version; no client may report an error or a warning."""
        replies = converse(
            [
                {
                    "client": client,
                    "url": self.url + DIALECT_QUERIES.get(client, ""),
                    "threadId": f"t{number}",
                    "turns": list(turns),
                }
                for number, (client, turns) in enumerate(conversations)
            ]
        )
        for (client, _), turns_seen in zip(conversations, replies, strict=True):
            for turn in turns_seen:
                assert (turn["error"], turn["warnings"]) == (None, []), client
        return replies


class _Server(uvicorn.Server):
    """A server that exits as soon as it should, because every test has its own."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # noqa: ASYNC110 (what it overrides waits so, for longer)
            await asyncio.sleep(0.005)


@contextmanager
def serving(agent: Any, **options: Any) -> Iterator[App]:
    """Serve the application of this agent on a free port, in this process."""
    with running(agui(agent, seal_keys=options.pop("seal_keys", KEYS), **options)) as app:
        yield app


@contextmanager
def running(app: Any) -> Iterator[App]:
    """Serve an ASGI application on a free port, in this process."""
    server = _Server(uvicorn.Config(app, port=0, log_config=None))
    thread = threading.Thread(target=server.run, name="app")
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive(), "the application listens, or has failed to start")
    assert thread.is_alive()
    try:
        yield App(server.servers[0].sockets[0].getsockname()[1], server, thread)
    finally:
        server.should_exit = True
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()


def events_of_type(events: list[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] in types]


def roles(turn: dict[str, Any]) -> list[str]:
    return [message["role"] for message in turn["messages"]]
