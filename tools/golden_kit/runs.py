"""Runs of a model: as they are answered, stored and replayed, continued, detached, and over a WebSocket."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from functools import partial
from typing import Any
from urllib.parse import quote

from websockets.sync.client import connect

from .captures import Case
from .fixtures import FIXTURES, Script
from .normal import as_text
from .pacing import PacedReply
from .protocols import CLIENTS, NEXT, QUESTION, VIEWS, Client
from .setting import Cases, Setting, model_of, play_of, record_reply, record_requests
from .shapes import SHAPED
from .upstream import Cut

CUTS: tuple[Cut, ...] = ("whole", "frames", "bytes")
FOREIGN = next(script for script in FIXTURES if script.name == "fixture:anthropic:signed")
_SHAPED = frozenset(SHAPED)
PACED_VIEWS = ("raw", "summary", "sealed")
CURSORS = 24
"""So many places of a long stream it is replayed from; of a shorter one, every place."""


def shape_in_short(group: str, *rest: str) -> bool:
    """Whether a case of a script of `shapes.py` belongs to the short form: three protocols, one way of each."""
    client = "/".join(rest[1:3])
    if group == "pace":
        return rest[-1] == "raw" and client in ("openresponses/openresponses", "agui/1.0", "chat/raw")
    if group == "matrix":
        return rest[-3:] == ("raw", "whole", "whole") and client == "openresponses/openai"
    if group == "turns":
        return rest[-2:] == ("raw", "stream") and client in ("openresponses/openresponses", "agui/1.0")
    return False


# --- every script, every protocol ---------------------------------------------------------------------------------


def matrix(on: Setting) -> Cases:
    for script in [*on.scripts, *SHAPED]:
        for client in CLIENTS:
            for view in VIEWS:
                for stream in (True, False) if client.whole else (True,):
                    for cut in CUTS if script not in _SHAPED else _cuts_of_a_shape(view, stream):
                        how = f"{view}/{'stream' if stream else 'whole'}/{cut}"
                        yield (
                            f"matrix/{script.name}/{client.name}/{how}",
                            partial(_one, on, script=script, client=client, view=view, stream=stream, cut=cut),
                        )


def _cuts_of_a_shape(view: str, stream: bool) -> tuple[Cut, ...]:
    """What `pace` does not have: it has the other views, streamed, frame by frame."""
    if not stream:
        return ("whole",)
    return ("bytes",) if view in ("raw", "hidden") else ()


def _one(on: Setting, case: Case, *, script: Script, client: Client, view: str, stream: bool, cut: Cut) -> None:
    case.know(script.body)
    on.upstream.play(script.provider, play_of(script, cut))
    ask = client.ask(model_of(script), client.begin(), stream)
    reply = on.gateway.request("POST", ask.path, ask.body, {**ask.headers, "Pellucid-View": view})
    record_reply(case, "reply", reply)
    if cut == "whole":
        record_requests(case, on.upstream)


# --- how fast a reply follows -----------------------------------------------------------------------------------


def pace(on: Setting) -> Cases:
    for script in [*FIXTURES, *SHAPED]:
        for client in CLIENTS:
            for view in PACED_VIEWS:
                name = f"pace/{script.name}/{client.name}/{view}"
                yield name, partial(_paced, on, script=script, client=client, view=view)


def _paced(on: Setting, case: Case, script: Script, client: Client, view: str) -> None:
    case.know(script.body)
    ask = client.ask(model_of(script), client.begin(), True)
    with closing(PacedReply(on.gateway)) as reply:
        on.upstream.play(script.provider, play_of(script, "frames")._replace(watch=reply.watch))
        reply.ask("POST", ask.path, ask.body, {**ask.headers, "Pellucid-View": view})
        case.add("reply", reply.text())


# --- what is stored -----------------------------------------------------------------------------------------------


def stored(on: Setting) -> Cases:
    for script in [*on.scripts, *SHAPED]:
        for view in VIEWS if script not in _SHAPED else ("raw",):
            for stream in (True, False):
                name = f"stored/{script.name}/responses/{view}/{'stream' if stream else 'whole'}"
                yield name, partial(_stored_response, on, script=script, view=view, stream=stream)
            yield f"stored/{script.name}/chat/{view}", partial(_stored_chat, on, script=script, view=view)
            yield f"stored/{script.name}/agui/{view}", partial(_stored_run, on, script=script, view=view)


def _stored_response(on: Setting, case: Case, script: Script, view: str, stream: bool, **more: Any) -> None:
    case.know(script.body)
    on.upstream.play(script.provider, play_of(script, "frames"))
    headers = {"Pellucid-View": view}
    body = {"model": model_of(script), "input": QUESTION, "stream": stream, "metadata": {"a": "b"}, **more}
    reply = on.gateway.request("POST", "/v1/responses", body, headers)
    record_reply(case, "reply", reply)
    response = (
        reply.events[0].get("response") if stream and reply.events else reply.json if not stream else None
    ) or {}
    if "id" not in response:
        return
    at = f"/v1/responses/{response['id']}"
    for other in (view, "raw", "hidden"):
        record_reply(case, f"read as {other}", on.gateway.request("GET", at, None, {"Pellucid-View": other}))
    record_reply(case, "input items", on.gateway.request("GET", f"{at}/input_items", None, headers))
    replay = on.gateway.request("GET", f"{at}?stream=true", None, headers)
    record_reply(case, "replay", replay)
    if stream:
        case.add("the replay is the stream", str(replay.body == reply.body))
    frames = [frame for frame in replay.body.split(b"\n\n") if frame.startswith(b"event: ")]
    for n in _cursors(len(frames)):
        rest = on.gateway.request("GET", f"{at}?stream=true&starting_after={n}", None, headers).body
        case.add(f"from {n}", "the rest of it" if replay.body.endswith(rest) and rest else rest)
        case.add(f"from {n}: length", str(len(rest.split(b"\n\n"))))
    _record_rows(on, case, response["id"])


def _cursors(count: int) -> list[int]:
    if count <= CURSORS:
        return list(range(count))
    return sorted({*range(6), *range(count - 6, count), *range(0, count, count // (CURSORS // 2))})


def _stored_chat(on: Setting, case: Case, script: Script, view: str) -> None:
    case.know(script.body)
    on.upstream.play(script.provider, play_of(script, "frames"))
    headers = {"Pellucid-View": view}
    reply = on.gateway.request("POST", "/api/chat", {"text": QUESTION, "model": model_of(script)}, headers)
    record_reply(case, "reply", reply)
    if not reply.events or reply.events[0]["type"] != "message_started":
        return
    event, chat = reply.events[0]["event_id"], reply.events[0]["conversation_id"]
    replay = on.gateway.request("GET", f"/api/chat/{event}", None, headers)
    case.add("the replay is the stream", str(_frames(replay.body) == _frames(reply.body)))
    for n in _cursors(len(_frames(replay.body))):
        rest = on.gateway.request("GET", f"/api/chat/{event}?after={n}", None, headers).body
        case.add(f"after {n}", "the rest of it" if replay.body.endswith(rest) else rest)
        case.add(f"after {n}: length", str(len(_frames(rest))))
    for other in (view, "raw", "sealed"):
        read = on.gateway.request("GET", f"/api/conversations/{chat}", None, {"Pellucid-View": other})
        record_reply(case, f"conversation as {other}", read)
    _record_rows(on, case, event, chat)
    record_reply(case, "delete", on.gateway.request("DELETE", f"/api/conversations/{chat}"))


def _frames(body: bytes) -> list[bytes]:
    return [frame for frame in body.split(b"\n\n") if frame and not frame.startswith(b":")]


def _stored_run(on: Setting, case: Case, script: Script, view: str) -> None:
    case.know(script.body)
    on.upstream.play(script.provider, play_of(script, "frames"))
    headers = {"Pellucid-View": view}
    name = quote(f"{script.name}-{view}", safe="")
    body = {"threadId": name, "runId": "r1", "messages": [{"id": "u1", "role": "user", "content": QUESTION}]}
    query = f"dialect=1.0&model={quote(model_of(script), safe='')}"
    record_reply(case, "reply", on.gateway.request("POST", f"/ag-ui?store=true&{query}", body, headers))
    at = f"/ag-ui?threadId={quote(name, safe='')}&runId=r1"
    for other in (view, "hidden"):
        record_reply(case, f"read as {other}", on.gateway.request("GET", at, None, {"Pellucid-View": other}))
    if row := _row_of_run(on, name):
        case.know(row)  # made of the thread's and the run's names
        _record_rows(on, case, row)
    record_reply(case, "again", on.gateway.request("POST", f"/ag-ui?store=true&{query}", body, headers))
    record_reply(case, "delete", on.gateway.request("DELETE", at))
    record_reply(case, "gone", on.gateway.request("GET", at))


def _row_of_run(on: Setting, thread: str) -> str | None:
    """The id under which the only run of a thread is stored."""
    with closing(_store(on)) as store:
        rows = store.execute("SELECT response_id, header FROM response_bodies WHERE response_id LIKE 'agui%'")
        named = json.dumps(thread)
        return next((id for id, header in rows if f'"thread_id":{named}' in as_text(header)), None)


def _store(on: Setting) -> sqlite3.Connection:
    store = sqlite3.connect(f"file:{on.gateway.data}/store.sqlite?mode=ro", uri=True)
    store.row_factory = sqlite3.Row
    return store


def _record_rows(on: Setting, case: Case, *ids: str) -> None:
    """Every row of the store that names one of these ids in a column of text."""
    with closing(_store(on)) as store:
        tables = [
            name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        for table in tables:
            columns = [(row["name"], row["type"]) for row in store.execute(f'PRAGMA table_info("{table}")')]
            texts = [name for name, kind in columns if kind in ("TEXT", "VARCHAR") and name not in ("text", "folded")]
            if not texts or table.startswith(("texts_", "sqlite_")):
                continue
            where = " OR ".join(f'"{name}" IN ({", ".join("?" * len(ids))})' for name in texts)
            rows = store.execute(f'SELECT * FROM "{table}" WHERE {where}', ids * len(texts))
            names = [name for name, _ in columns]
            cells = ("\n".join(f"{name} = {cell(case, table, name, row[name])}" for name in names) for row in rows)
            case.add_unordered(f"row of {table}", cells)


_SALTED = frozenset(
    {
        "keys.hash",
        "record_entries.digest",
        "record_entries.hash",
        "record_salts.salt",
        "record_scopes.hash",
        "space_participants.token_hash",
    }
)
"""Columns of bytes that are random, or made of what is: only their length is recorded."""
_COVERED_BY_ROWS = frozenset({"response_bodies.item_ids"})
"""Columns that other rows' order says as well: only whether they are set is recorded."""
_COUNTED = frozenset({"texts.number"})
"""Columns with a number over all rows of a table: recorded by order of appearance."""


_STRUCTS = frozenset({"response_bodies.header", "response_bodies.messages", "response_bodies.log"})
"""Columns that hold structs as JSON: the order of their members is that of declarations, and means nothing."""


def _in_one_order(text: str) -> str:
    """JSON with the members of its objects sorted; other text as it is."""
    try:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    except ValueError:
        return text


def cell(case: Case, table: str, name: str, value: Any) -> str:
    """A cell as it is recorded."""
    column = f"{table}.{name}"
    if value is None:
        return "null"
    if column in _SALTED:
        return f"({len(value)} bytes)"
    if column in _COVERED_BY_ROWS:
        return "(set)"
    if column in _COUNTED:
        return case.number(column, str(value))
    text = as_text(value) if isinstance(value, bytes) else str(value)
    if column in _STRUCTS:
        text = _in_one_order(text)
    if column != "response_bodies.log":
        return text
    # How the events are divided among the entries of a log is a matter of when they were read.
    return re.sub(r"\]\],\[\d+,\[", ",", re.sub(r"\[\d+,\[\]\],?", "", text))


# --- more turns ---------------------------------------------------------------------------------------------------


def turns(on: Setting) -> Cases:
    for script in [*on.scripts, *SHAPED]:
        for client in CLIENTS:
            for view in VIEWS if script not in _SHAPED else ("raw",):
                for stream in (True, False) if client.whole else (True,):
                    name = f"turns/{script.name}/{client.name}/{view}/{'stream' if stream else 'whole'}"
                    yield name, partial(_turns, on, script=script, client=client, view=view, stream=stream)


def _turns(on: Setting, case: Case, script: Script, client: Client, view: str, stream: bool) -> None:
    case.know(script.body, FOREIGN.body)
    conversation = client.begin()
    for n, played in enumerate((script, script, script, FOREIGN), 1):
        on.upstream.play(played.provider, play_of(played))
        ask = client.ask(model_of(played), conversation, stream)
        reply = on.gateway.request("POST", ask.path, ask.body, {**ask.headers, "Pellucid-View": view})
        case.add(f"turn {n}: head", reply.head)
        if n > 1:
            record_requests(case, on.upstream, f"turn {n}: upstream")
        if reply.status != 200:
            case.add(f"turn {n}: body", reply.body)
            return
        after = client.echo(conversation, reply, stream)
        if after is None:
            return
        conversation = after


# --- runs in the background ---------------------------------------------------------------------------------------


def background(on: Setting) -> Cases:
    for script in on.scripts:
        run = partial(_stored_response, on, script=script, view="raw", stream=True, background=True)
        yield f"background/{script.name}", run


# --- responses over a WebSocket -----------------------------------------------------------------------------------


def socket(on: Setting) -> Cases:
    for script in on.scripts:
        if len(script.body) < 40_000:
            yield f"socket/{script.name}", partial(_over_a_socket, on, script=script)


def _over_a_socket(on: Setting, case: Case, script: Script) -> None:
    case.know(script.body)
    on.upstream.play(script.provider, play_of(script, "frames"))
    with connect(f"ws://127.0.0.1:{on.gateway.port}/v1/responses", max_size=None) as client:
        previous: str | None = None
        for text in (QUESTION, NEXT):
            body: dict[str, Any] = {"type": "response.create", "model": model_of(script), "input": text}
            body |= {"store": False} | ({"previous_response_id": previous} if previous else {})
            client.send(json.dumps(body))
            while True:
                message = str(client.recv(30))
                case.add("message", message)
                event = json.loads(message)
                if event["type"] in ("response.completed", "response.incomplete"):
                    previous = event["response"]["id"]
                if event["type"] in ("response.completed", "response.incomplete", "response.failed", "error"):
                    break
        client.send("{")
        case.add("not JSON", str(client.recv(30)))
    record_requests(case, on.upstream)
