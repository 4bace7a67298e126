"""An agent's application under uvicorn, and AG-UI's clients of it."""

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


SPOKEN = {"0.0.39": "/?dialect=thinking"}
"""What the oldest clients have to say of themselves, who do not say their version."""


class App(Served):
    """An application that runs, as a client sees it."""

    def ask(self, *messages: Any, thread: str = "t", query: str = "", **more: Any) -> Reply:
        """POST a run's input, as a client of 1.0 does."""
        body = {"threadId": thread, "runId": "r", "protocolVersion": "1.0", "messages": list(messages) or [USER]}
        data = json.dumps({**body, **more}).encode()
        return self.request("POST", f"/{query}", data, {"Content-Type": "application/json"})

    def events(self, *messages: Any, dialect: DialectName = "1.0", **more: Any) -> list[dict[str, Any]]:
        """The events of a run, which are legal ones."""
        reply = self.ask(*messages, query=f"?dialect={dialect}", **more)
        assert reply.status == 200, reply.body
        events: list[dict[str, Any]] = events_of(reply.body)
        assert verify(events, dialect) is None, verify(events, dialect)
        return events

    def stream(self, **more: Any) -> Stream:
        """A run, begun."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_SECONDS)
        body = {"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": [USER], **more}
        connection.request("POST", "/", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return Stream(connection.sock, connection.getresponse())

    def talk(self, converse: Converse, *turns: dict[str, Any]) -> list[dict[str, Any]]:
        """What the newest client makes of a conversation (see `agui_node.converse`)."""
        [turns_seen] = self.talks(converse, ("1.0.0", turns))
        return turns_seen

    def talks(
        self, converse: Converse, *conversations: tuple[str, Sequence[dict[str, Any]]]
    ) -> list[list[dict[str, Any]]]:
        """The same for many, each by a client of some version; no client has a word to say against it."""
        gave = converse(
            [
                {
                    "client": client,
                    "url": self.url + SPOKEN.get(client, ""),
                    "threadId": f"t{number}",
                    "turns": list(turns),
                }
                for number, (client, turns) in enumerate(conversations)
            ]
        )
        for (client, _), said in zip(conversations, gave, strict=True):
            for turn in said:
                assert (turn["error"], turn["warnings"]) == (None, []), client
        return gave


class _Server(uvicorn.Server):
    """A server that ends as soon as it is to: there is one for each test."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # noqa: ASYNC110 (what it overrides waits so, for longer)
            await asyncio.sleep(0.005)


@contextmanager
def serving(agent: Any, **options: Any) -> Iterator[App]:
    """The application of this agent on a free port of this process."""
    with running(agui(agent, seal_keys=options.pop("seal_keys", KEYS), **options)) as app:
        yield app


@contextmanager
def running(app: Any) -> Iterator[App]:
    """Any application on a free port of this process."""
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


def of(events: list[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] in types]


def roles(turn: dict[str, Any]) -> list[str]:
    return [message["role"] for message in turn["messages"]]
