"""What the base leaves behind, and what a later version makes of it: stored, sealed, recorded, and live in Redis."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .captures import Case
from .fixtures import FIXTURES, Script
from .gateway import Checkout, Gateway
from .protocols import CLIENTS, NEXT, QUESTION, VIEWS, Client
from .setting import STORE, Cases, Setting, configuration, model_of, play_of, record_reply, record_requests
from .upstream import Play, Upstream

_HALF = FIXTURES[0]
"""What a model was saying when its gateway was killed."""


def remains(on: Setting) -> dict[str, Any]:
    """Leave something of every kind in the store for the other version to read; what it needs to find it again."""
    left: dict[str, Any] = {"responses": [], "chats": [], "sealed": []}
    for script in on.scripts:
        on.upstream.play(script.provider, play_of(script))
        reply = on.gateway.request("POST", "/v1/responses", {"model": model_of(script), "input": QUESTION})
        if reply.status == 200:
            left["responses"].append([model_of(script), reply.json["id"]])
        on.upstream.play(script.provider, play_of(script))
        chat = on.gateway.request("POST", "/api/chat", {"text": QUESTION, "model": model_of(script)})
        if chat.events and chat.events[0]["type"] == "message_started":
            left["chats"].append([chat.events[0]["conversation_id"], chat.events[0]["event_id"]])
        for client in CLIENTS:
            if client.name == "chat" or "+" in client.name:
                continue
            on.upstream.play(script.provider, play_of(script))
            ask = client.ask(model_of(script), client.begin(), True)
            sealed = on.gateway.request("POST", ask.path, ask.body, {**ask.headers, "Pellucid-View": "sealed"})
            after = client.echo(client.begin(), sealed, True) if sealed.status == 200 else None
            if after:
                left["sealed"].append([client.name, script.name, after])
    return left


def reopened(on: Setting, left: dict[str, Any]) -> Cases:
    """Read what `remains` left, with whatever version runs now."""
    scripts = {script.name: script for script in on.scripts}
    providers = {model_of(script): script for script in on.scripts}

    def response(case: Case, model: str, id: str) -> None:
        for path in (f"/v1/responses/{id}", f"/v1/responses/{id}/input_items", f"/v1/responses/{id}?stream=true"):
            record_reply(case, path.replace(id, "ID"), on.gateway.request("GET", path))
        on.upstream.play(providers[model].provider, play_of(providers[model]))
        body = {"model": model, "input": NEXT, "previous_response_id": id, "store": False}
        record_reply(case, "goes on", on.gateway.request("POST", "/v1/responses", body))
        record_requests(case, on.upstream)

    def chat(case: Case, conversation: str, event: str) -> None:
        for view in VIEWS:
            headers = {"Pellucid-View": view}
            record_reply(
                case, f"read as {view}", on.gateway.request("GET", f"/api/conversations/{conversation}", None, headers)
            )
            record_reply(case, f"replay as {view}", on.gateway.request("GET", f"/api/chat/{event}", None, headers))

    def sealed(case: Case, client: Client, script: Script, conversation: list[Any]) -> None:
        on.upstream.play(script.provider, play_of(script))
        ask = client.ask(model_of(script), conversation, True)
        record_reply(case, "reply", on.gateway.request("POST", ask.path, ask.body, ask.headers))
        record_requests(case, on.upstream)

    for n, (model, id) in enumerate(left["responses"]):
        yield f"reopened/response {n} of {model}", partial(response, model=model, id=id)
    for n, (conversation, event) in enumerate(left["chats"]):
        yield f"reopened/chat {n}", partial(chat, conversation=conversation, event=event)
    for name, script, conversation in left["sealed"]:
        client = next(client for client in CLIENTS if client.name == name)
        run = partial(sealed, client=client, script=scripts[script], conversation=conversation)
        yield f"reopened/sealed/{script}/{name}", run

    def record(case: Case) -> None:
        for args in (("record", "verify"), ("record", "export")):
            done = on.checkout.run(on.gateway.data, *args)
            case.add(f"{args}: status", str(done.returncode))
            case.add(f"{args}: stderr", done.stderr)
            case.add(f"{args}: lines", str(len(done.stdout.splitlines())))

    yield "reopened/record", record


# --- logs in Redis ------------------------------------------------------------------------------------------------


class Redis:
    """A Redis that starts with the dump in its directory, if there is one."""

    def __init__(self, directory: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while self.send("PING") != b"+PONG":
            assert time.monotonic() < deadline, "redis-server did not start"
            time.sleep(0.05)

    def send(self, command: str) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(command.encode() + b"\r\n")
                return connection.makefile("rb").readline().strip()
        except OSError:
            return b""

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def _live_config(upstream: Upstream, redis: Redis) -> str:
    return configuration(
        upstream, [_HALF], f'{STORE}[relay]\nurl = "redis://127.0.0.1:{redis.port}/0"\nlease_seconds = 1\n'
    )


def leave_live(checkout: Checkout, left: Path) -> dict[str, Any]:
    """A response and a chat of which half has come when their gateway is killed."""
    directory = left / "live"
    directory.mkdir()
    redis, upstream = Redis(directory), Upstream()
    gateway = Gateway(checkout, directory / "data", _live_config(upstream, redis))
    upstream.play(_HALF.provider, Play(_HALF.body, _HALF.content_type, cut="frames", end="hang"))
    body = {"model": model_of(_HALF), "input": QUESTION, "background": True}
    response = gateway.request("POST", "/v1/responses", body).json["id"]
    with socket.create_connection(("127.0.0.1", gateway.port)) as client:
        question = json.dumps({"text": QUESTION, "model": model_of(_HALF)}).encode()
        head = ["POST /api/chat HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
        head += [f"Content-Length: {len(question)}", "", ""]
        client.sendall("\r\n".join(head).encode() + question)
        client.settimeout(20)
        seen = b""
        while b'"event_id":"' not in seen or b"\n\n" not in seen.partition(b'"event_id":"')[2]:
            seen += client.recv(65536)
        event = seen.partition(b'"event_id":"')[2].partition(b'"')[0].decode()
        time.sleep(2)  # until both have all that comes
    gateway.kill()
    assert redis.send("SAVE") == b"+OK"
    redis.stop()
    upstream.close()
    return {"response": response, "chat": event}


def live_cases(checkout: Checkout, left: Path, live: dict[str, Any]) -> Iterator[tuple[str, Case]]:
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made) / "live"
        shutil.copytree(left / "live", directory)
        redis, upstream = Redis(directory), Upstream()
        gateway = Gateway(checkout, directory / "data", _live_config(upstream, redis))
        try:
            for name, path in (
                ("response", f"/v1/responses/{live['response']}?stream=true"),
                ("response-from-5", f"/v1/responses/{live['response']}?stream=true&starting_after=5"),
                ("chat", f"/api/chat/{live['chat']}"),
            ):
                case = Case()
                record_reply(case, "reply", gateway.request("GET", path))
                yield f"reopened/redis/{name}", case
        finally:
            gateway.stop()
            redis.stop()
            upstream.close()
