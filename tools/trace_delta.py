"""Print every Python call for one delta, from the read of the upstream's socket to the write to the client's.

    python tools/trace_delta.py [--events] [KIND ...]      kinds: responses, stored, chat_completions … (`KINDS`)

A gateway runs in this process, before an upstream that sends one token at a time; one token in the middle of the answer
is traced with `sys.setprofile`. docs/architecture.md has its output. With `--events`, the text path is not used: this
traces a delta whose event is needed.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

import uvicorn
import uvloop

from pellucid.runs import LiveRun
from pellucid.server import create_app
from pellucid.server.app import uvicorn_settings
from pellucid.server.config import check_config

TOKENS, TRACED = 40, 30
TOKEN = (
    'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    '[{"index":0,"delta":{"reasoning_content":" word%d"},"finish_reason":null}]}\n\n'
)
END = (
    'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    '[{"index":0,"delta":{"content":"done"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


class Kind(NamedTuple):
    """A kind of run."""

    path: str
    body: dict[str, Any]


MESSAGES = [{"role": "user", "content": "hi"}]
KINDS = {
    "responses": Kind("/v1/responses", {"model": "m", "input": "hi", "stream": True, "store": False}),
    "stored": Kind("/v1/responses", {"model": "m", "input": "hi", "stream": True, "store": True}),
    "chat_completions": Kind("/v1/chat/completions", {"model": "m", "messages": MESSAGES, "stream": True}),
    "agui": Kind(
        "/ag-ui?dialect=1.0&model=m",
        {"threadId": "t", "runId": "r", "messages": [{"id": "u", **MESSAGES[0]}], "tools": [], "context": []},
    ),
    "chat": Kind("/api/chat", {"text": "hi", "model": "m"}),
    "background": Kind(
        "/v1/responses", {"model": "m", "input": "hi", "stream": True, "store": True, "background": True}
    ),
    "deployed": Kind("/v1/responses", {"model": "several", "input": "hi", "stream": True, "store": False}),
}


class Tracer:
    """Records the Python calls of the event loop's thread, in one group for each read of an upstream's socket."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self._read: FrameType | None = None
        """The frame that reads the socket, until it returns."""

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "return" and frame is self._read:
            self._read = None
        if event != "call":
            return
        code = frame.f_code
        module = code.co_filename.rpartition("/pellucid/")[2].rpartition("/site-packages/")[2]
        if (module, code.co_qualname) == ("upstream/connection.py", "Connection.data_received"):
            self._read = frame
            self.groups.append([])
        if self._read is not None:
            self.groups[-1].append(f"{module}  {code.co_qualname}")


def upstream(server: socket.socket, go: threading.Semaphore) -> None:
    """Answer each request with tokens; each release of `go` sends one."""
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            while b"\r\n\r\n" not in client.recv(1 << 16):
                pass
            client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for piece in [TOKEN % n for n in range(TOKENS)] + [END]:
                go.acquire()
                client.sendall(b"%x\r\n%b\r\n" % (len(piece), piece.encode()))
            client.sendall(b"0\r\n\r\n")


def read(port: int, kind: Kind, go: threading.Semaphore) -> Iterator[int]:
    """Yield the number of each token when the client receives it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", kind.path, json.dumps(kind.body), {"Content-Type": "application/json"})
    for _ in range(2):
        go.release()
    response = connection.getresponse()
    seen = -1
    while line := response.readline():
        if f" word{seen + 1}".encode() in line:
            seen += 1
            yield seen
            go.release()
    connection.close()


def trace(kind: Kind) -> list[str]:
    """Return the calls for one token."""
    go = threading.Semaphore(0)
    tracer = Tracer()
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_server(("127.0.0.1", 0)) as served,
        tempfile.TemporaryDirectory() as data,
    ):
        threading.Thread(target=upstream, args=(listening, go), daemon=True).start()
        provider = {"profile": "vllm", "base_url": f"http://127.0.0.1:{listening.getsockname()[1]}/v1"}
        store = {"url": f"sqlite:///{data}/store.sqlite"}
        models = {"several": {"deployments": [{"provider": "vllm", "model": model} for model in "ab"]}}
        config = check_config(
            {"providers": {"vllm": provider}, "models": models, "storage": store}, {"XDG_DATA_HOME": data}
        )
        server = uvicorn.Server(uvicorn.Config(create_app(config), **uvicorn_settings(config)))

        async def serve() -> None:
            loop = asyncio.get_running_loop()

            def talk() -> None:
                while not server.started:
                    time.sleep(0.01)
                for token in read(served.getsockname()[1], kind, go):
                    if token in (TRACED, TRACED + 2):
                        asyncio.run_coroutine_threadsafe(profile(token == TRACED), loop).result()
                server.should_exit = True

            async def profile(on: bool) -> None:
                sys.setprofile(tracer if on else None)

            threading.Thread(target=talk, daemon=True).start()
            await server.serve([served])

        uvloop.run(serve())
    return tracer.groups[0]


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--events"]:
        arguments = arguments[1:]
        LiveRun.open_text = lambda self, last_delta, close: None  # type: ignore[method-assign]
    for name in arguments or KINDS:
        calls = trace(KINDS[name])
        print(f"{name}: {len(calls)} calls")
        for call in calls:
            print(f"    {call}")


if __name__ == "__main__":
    main(sys.argv[1:])
