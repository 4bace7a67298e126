"""What the base leaves behind, and what a later version makes of it: stored, sealed, recorded, and live in Redis."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from . import spaces
from .captures import Case
from .commands import Batch, Invocation
from .fixtures import Script
from .gateway import Checkout, Gateway
from .protocols import CLIENTS, NEXT, QUESTION, VIEWS, Client
from .setting import STORE, Cases, Setting, configuration, model_of, play_of, record_reply, record_requests
from .talk import MARK, MODEL, SCRIPT, Stream, Talk, half
from .upstream import Upstream


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
    return {
        **left,
        "conversation": _leave_conversation(on),
        "branches": _leave_branches(on),
        "thread": _leave_thread(on),
        "space": _leave_space(on),
        "access": _leave_access(on),
    }


def _leave_conversation(on: Setting) -> dict[str, Any]:
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    body = {"metadata": {"a": "b"}, "items": [{"type": "message", "role": "user", "content": "Hello"}]}
    made = on.gateway.request("POST", "/v1/conversations", body).json["id"]
    body = {"model": MODEL, "input": QUESTION, "conversation": made}
    response = on.gateway.request("POST", "/v1/responses", body).json["id"]
    return {"id": made, "response": response}


def _leave_branches(on: Setting) -> dict[str, Any]:
    """A chat of two turns, the second of which was asked again in other words, and a title."""
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))

    def ask(text: str, **more: Any) -> dict[str, Any]:
        first: dict[str, Any] = on.gateway.request("POST", "/api/chat", {"text": text, "model": MODEL, **more}).events[
            0
        ]
        return first

    first = ask(f"Samarkand? {QUESTION}")
    chat = first["conversation_id"]
    second = ask(NEXT, conversation_id=chat)["event_id"]
    other = ask("In other words", conversation_id=chat, replaces=second)["event_id"]
    on.gateway.request("PATCH", f"/api/conversations/{chat}", {"title": "Left behind"})
    return {"id": chat, "events": [first["event_id"], second, other]}


def _leave_thread(on: Setting) -> dict[str, Any]:
    """A stored AG-UI run, and the conversation as its client has it then."""
    client = next(client for client in CLIENTS if client.name == "agui/1.0")
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    ask = client.ask(MODEL, client.begin(), True)
    body = {**ask.body, "threadId": "left", "runId": "run-1"}
    reply = on.gateway.request("POST", f"{ask.path}&store=true", body)
    return {"path": f"{ask.path}&store=true", "body": body, "messages": client.echo(client.begin(), reply, True)}


def _leave_space(on: Setting) -> dict[str, Any]:
    """What was said in the spaces of the configuration, and a space that a command made."""
    for space in spaces.SPACES:
        spaces.talk(on.gateway, space, Case())
    batch = Batch(on.checkout, on.gateway.data)
    done = batch.run(
        Invocation(("space", "create", "made", "--participant", "alice=*", "--participant", "bob", "--json"))
    )
    batch.close()
    tokens = {one["id"]: one["token"] for one in json.loads(done.stdout)["participants"]}
    by = {"Authorization": f"Bearer {tokens['alice']}"}
    for n, text in enumerate(("Hello", "Is Bob here?")):
        envelope = {"id": f"left-{n}", "kind": "chat", "payload": {"text": text}}
        on.gateway.request("POST", "/spaces/made/envelopes", envelope, by)
    start = {"id": "left-r", "kind": "reasoning/start", "payload": {"message": "I wonder"}}
    on.gateway.request("POST", "/spaces/made/envelopes", start, by)
    # One that was left open would be ended by the gateway in time.
    end = {"kind": "reasoning/conclusion", "context": "left-r", "payload": {"message": "He may be"}}
    on.gateway.request("POST", "/spaces/made/envelopes", end, by)
    return {"tokens": tokens}


def _leave_access(on: Setting) -> dict[str, Any]:
    """A key, a browser that signed in with it, and what they made."""
    batch = Batch(on.checkout, on.guarded.data)
    args = ("keys", "create", "--owner", "acme", "--name", "left", "--view", "summary", "--no-counts", "--json")
    made = json.loads(batch.run(Invocation(args)).stdout)
    gone = json.loads(batch.run(Invocation(args)).stdout)
    batch.run(Invocation(("keys", "revoke", gone["id"])))
    batch.close()
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    by = {"Authorization": f"Bearer {made['key']}"}
    response = on.guarded.request("POST", "/v1/responses", {"model": MODEL, "input": QUESTION}, by).json["id"]
    signed_in = on.guarded.request("POST", "/api/session", {"key": made["key"]}, _own_page(on.guarded))
    cookie = dict(signed_in.headers)["set-cookie"].partition(";")[0]
    return {"key": made["key"], "revoked": gone["key"], "response": response, "cookie": cookie}


def _own_page(gateway: Gateway) -> dict[str, str]:
    return {"Origin": f"http://127.0.0.1:{gateway.port}", "Sec-Fetch-Site": "same-origin"}


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

    batch = Batch(on.checkout, on.gateway.data)
    # Before anything is added: both versions read the very same.
    yield "reopened/record", partial(_record, batch)
    for n, (model, id) in enumerate(left["responses"]):
        yield f"reopened/response {n} of {model}", partial(response, model=model, id=id)
    for n, (conversation, event) in enumerate(left["chats"]):
        yield f"reopened/chat {n}", partial(chat, conversation=conversation, event=event)
    for name, script, conversation in left["sealed"]:
        client = next(client for client in CLIENTS if client.name == name)
        run = partial(sealed, client=client, script=scripts[script], conversation=conversation)
        yield f"reopened/sealed/{script}/{name}", run
    yield "reopened/conversation", partial(_conversation, on, left=left["conversation"])
    yield "reopened/branches", partial(_branches, on, left=left["branches"])
    yield "reopened/thread", partial(_thread, on, left=left["thread"])
    yield "reopened/spaces", partial(_spaces, on)
    yield "reopened/made space", partial(_made_space, on, left=left["space"])
    yield "reopened/key and session", partial(_access, on, left=left["access"])
    yield "reopened/record at the end", partial(_record_after, batch)
    batch.close()


_SIGNED = ("begin", "key", "checkpoint", "end")
"""Lines of an export that say how much of the record has been signed by now, which is a matter of time."""


def _record(batch: Batch, case: Case) -> None:
    """The record as the base left it, line by line, with every digest; and whether it is whole."""
    exported = batch.run(Invocation(("record", "export")))
    case.add("export: status", str(exported.status))
    case.add("export: stderr", exported.stderr)
    lines = [json.loads(line) for line in exported.stdout.splitlines()]
    for line in lines:
        if line["line"] not in _SIGNED:
            case.add(f"export: {line['line']}", json.dumps(line, ensure_ascii=False))
    verified = batch.run(Invocation(("record", "verify")))
    case.add("verify: status", str(verified.status))
    case.add("verify: stderr", verified.stderr)
    signed = rb"(signed up to .*|not signed yet)$|\d+ checkpoints?\.$"
    case.add("verify: stdout", re.sub(signed, b"", verified.stdout, flags=re.MULTILINE))


def _record_after(batch: Batch, case: Case) -> None:
    """The record when this version has gone on with everything: whole, and with as many entries of each kind."""
    case.add("verify: status", str(batch.run(Invocation(("record", "verify"))).status))
    exported = batch.run(Invocation(("record", "export")))
    lines = [json.loads(line) for line in exported.stdout.splitlines()]
    kinds = [f"{line['line']} {line.get('kind', '')}" for line in lines if line["line"] not in _SIGNED]
    case.add("lines", "\n".join(f"{kind}: {kinds.count(kind)}" for kind in sorted(set(kinds))))


def _conversation(on: Setting, case: Case, left: dict[str, Any]) -> None:
    talk = Talk(case, on.gateway)
    at = f"/v1/conversations/{left['id']}"
    talk("GET", at)
    for view in VIEWS:
        talk("GET", f"{at}/items?order=asc", Pellucid_View=view)
    talk("GET", f"/v1/responses/{left['response']}")
    talk("POST", f"{at}/items", {"items": [{"type": "message", "role": "user", "content": "More"}]})
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    talk("POST", "/v1/responses", {"model": MODEL, "input": NEXT, "conversation": left["id"]})
    record_requests(case, on.upstream)
    talk("GET", f"{at}/items?order=asc")
    talk("DELETE", at)


def _branches(on: Setting, case: Case, left: dict[str, Any]) -> None:
    talk = Talk(case, on.gateway)
    at = f"/api/conversations/{left['id']}"
    talk("GET", at)
    talk("GET", "/api/conversations?q=samarkand")
    for event in left["events"]:
        talk("GET", f"{at}?head={event}")
        talk("GET", f"/api/chat/{event}")
    talk("PATCH", at, {"head": left["events"][1]})
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    talk("POST", "/api/chat", {"text": NEXT, "model": MODEL, "conversation_id": left["id"]})
    talk(
        "POST",
        "/api/chat",
        {"text": "Again", "model": MODEL, "conversation_id": left["id"], "replaces": left["events"][0]},
    )
    record_requests(case, on.upstream)
    talk("GET", at)
    talk("DELETE", at)


def _thread(on: Setting, case: Case, left: dict[str, Any]) -> None:
    talk = Talk(case, on.gateway)
    for view in VIEWS:
        talk("GET", "/ag-ui?threadId=left&runId=run-1", Pellucid_View=view)
    talk("POST", left["path"], left["body"])
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    talk("POST", left["path"], {**left["body"], "runId": "run-2", "messages": left["messages"]})
    record_requests(case, on.upstream)
    talk("DELETE", "/ag-ui?threadId=left&runId=run-1")


def _spaces(on: Setting, case: Case) -> None:
    """The whole history of the configured spaces, as each participant may read it."""
    for space in spaces.SPACES:
        for participant in spaces.PARTICIPANTS:
            for path, reply in spaces.history(on.gateway, space, participant):
                record_reply(case, f"{space}, {participant}: {path}", reply)


def _made_space(on: Setting, case: Case, left: dict[str, Any]) -> None:
    """A space that a command made: its tokens, its history, an envelope once more, and over a socket."""
    for name, token in left["tokens"].items():
        talk = Talk(case, on.gateway, {"Authorization": f"Bearer {token}"})
        for path in ("", "/envelopes", "/contexts", "/contexts/left-r", "/search?q=bob", "/export?format=jsonl"):
            talk("GET", f"/spaces/made{path}")
        talk("POST", "/spaces/made/envelopes", {"id": "reopened-0", "kind": "chat", "payload": {"text": "Hello"}})
        talk("POST", "/spaces/made/envelopes", {"id": f"new-{name}", "kind": "chat", "payload": {"text": "Back again"}})
        url = f"ws://127.0.0.1:{on.gateway.port}/spaces/made/ws?after_seq=1"
        with connect(url, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None) as connection:
            while f'"new-{name}"' not in (frame := str(connection.recv(30))):
                case.add(f"{name} receives", frame)
            case.add(f"{name} receives", frame)
        spaces.settle(on.gateway, "made", token)


def _access(on: Setting, case: Case, left: dict[str, Any]) -> None:
    by = Talk(case, on.guarded, {"Authorization": f"Bearer {left['key']}"})
    by("GET", "/v1/models")
    by("GET", f"/v1/responses/{left['response']}")
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    by("POST", "/v1/responses", {"model": MODEL, "input": NEXT, "previous_response_id": left["response"]})
    record_requests(case, on.upstream)
    Talk(case, on.guarded, {"Authorization": f"Bearer {left['revoked']}"})("GET", "/v1/models")
    page = Talk(case, on.guarded, {**_own_page(on.guarded), "Cookie": left["cookie"]})
    page("GET", "/api/session")
    page("POST", "/api/chat", {"text": QUESTION, "model": MODEL})
    page("GET", "/api/models")
    page("DELETE", "/api/session")
    listed = on.checkout.run(on.guarded.data, "keys", "list", "--json")
    case.add("keys list", listed.stdout)


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
        upstream, [SCRIPT], f'{STORE}[relay]\nurl = "redis://127.0.0.1:{redis.port}/0"\nlease_seconds = 1\n'
    )


def leave_live(checkout: Checkout, left: Path) -> dict[str, Any]:
    """A response, a chat and an AG-UI run of which half has come when their gateway is killed: where to read them."""
    directory = left / "live"
    directory.mkdir()
    redis, upstream = Redis(directory), Upstream()
    gateway = Gateway(checkout, directory / "data", _live_config(upstream, redis))
    upstream.play(SCRIPT.provider, half())
    body = {"model": MODEL, "input": QUESTION, "background": True}
    response = gateway.request("POST", "/v1/responses", body).json["id"]
    chat_stream = Stream(gateway, "POST", "/api/chat", {"text": QUESTION, "model": MODEL})
    chat = chat_stream.field("event_id")
    run = {"threadId": "live", "runId": "r", "messages": [{"id": "u", "role": "user", "content": QUESTION}]}
    running = Stream(gateway, "POST", f"/ag-ui?store=true&dialect=1.0&model={MODEL}", run)
    running.until("RUN_STARTED")
    paths = {
        "response": f"/v1/responses/{response}?stream=true",
        "response-from-5": f"/v1/responses/{response}?stream=true&starting_after=5",
        "chat": f"/api/chat/{chat}",
        "run": "/ag-ui?threadId=live&runId=r",
    }
    readers = [Stream(gateway, "GET", path) for path in paths.values()]
    for reader in readers:
        reader.until(MARK)
    gateway.kill()
    for stream in (chat_stream, running, *readers):
        stream.leave()
    assert redis.send("SAVE") == b"+OK"
    redis.stop()
    upstream.close()
    return paths


def live_cases(checkout: Checkout, left: Path, live: dict[str, str]) -> Iterator[tuple[str, Case]]:
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made) / "live"
        shutil.copytree(left / "live", directory)
        redis, upstream = Redis(directory), Upstream()
        gateway = Gateway(checkout, directory / "data", _live_config(upstream, redis))
        try:
            for name, path in live.items():
                case = Case()
                record_reply(case, "reply", gateway.request("GET", path))
                yield f"reopened/redis/{name}", case
        finally:
            gateway.stop()
            redis.stop()
            upstream.close()
