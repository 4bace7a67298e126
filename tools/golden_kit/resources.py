"""What clients do besides a run: conversations, stored responses, chats and threads, from their beginning to their end.

Each case is a sequence of requests. Names of cases say what is used; every reply, and what reached the upstream, is
recorded.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from .captures import Case
from .fixtures import FIXTURES
from .gateway import Gateway
from .protocols import CLIENTS, NEXT, QUESTION, VIEWS
from .runs import _record_rows
from .setting import Cases, Setting, model_of, play_of, record_reply, record_requests
from .talk import MARK, MODEL, SCRIPT, Stream, Talk, chunks, half, wait_until
from .upstream import Play, Upstream

_CALLS = Play(
    chunks(
        {"reasoning_content": "I need to look."},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_0",
                    "type": "function",
                    "function": {"name": "look_up", "arguments": '{"city": "Lyon"}'},
                }
            ]
        },
        finish="tool_calls",
    )
)
_FUNCTION = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}


def _message(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


# --- conversations of OpenResponses -------------------------------------------------------------------------------


def _conversation(on: Setting, case: Case) -> None:
    talk = Talk(case, on.gateway)
    reasoning = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "why"}]}
    call = {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "found"}
    first = [_message("Hello"), reasoning, call, result, _message("Hi!", "assistant")]
    made = talk("POST", "/v1/conversations", {"metadata": {"a": "b"}, "items": first}).json["id"]
    at = f"/v1/conversations/{made}"
    talk("GET", at)
    talk("POST", at, {"metadata": {"c": "d"}})
    talk("POST", at, {"metadata": {"x": "y" * 600}})
    added = talk("POST", f"{at}/items", {"items": [_message("More"), _message("Be brief", "developer")]}).json["data"]
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    talk("POST", "/v1/responses", {"model": MODEL, "input": QUESTION, "conversation": made})
    body = {"model": MODEL, "input": NEXT, "conversation": {"id": made}, "stream": True}
    talk("POST", "/v1/responses", body, Pellucid_View="summary")
    talk("POST", "/v1/responses", {**body, "store": False, "stream": False})
    talk("POST", "/v1/responses", {**body, "previous_response_id": "resp_0"})
    record_requests(case, on.upstream)
    last = added[-1]["id"]
    for query in ("", "?limit=2", "?order=asc", f"?order=asc&after={last}&limit=3", "?limit=0", "?order=up"):
        talk("GET", f"{at}/items{query}")
    for view in VIEWS:
        talk("GET", f"{at}/items?order=asc&limit=100", Pellucid_View=view)
    talk("GET", f"{at}/items/{last}")
    items = on.gateway.request("GET", f"{at}/items?order=asc&limit=100").json["data"]
    for kind in ("message", "reasoning", "function_call"):
        item = next(item["id"] for item in items if item["type"] == kind)
        talk("GET", f"{at}/items/{item}", Pellucid_View="hidden")
        talk("DELETE", f"{at}/items/{item}")
        talk("GET", f"{at}/items/{item}")
    talk("GET", f"{at}/items?order=asc&limit=100")
    _record_rows(on, case, made)
    talk("DELETE", at)
    talk("DELETE", at)
    talk("GET", f"{at}/items")
    talk("POST", "/v1/conversations", {})
    talk("POST", "/v1/conversations", {"items": [_message("x")] * 21})
    talk("POST", "/v1/conversations", {"metadata": {str(n): "x" for n in range(17)}})
    _record_rows(on, case, made)


# --- stored responses ---------------------------------------------------------------------------------------------


def _chain(on: Setting, case: Case) -> None:
    """Three responses, each from the one before; with a call in the middle; one in another model; a branch."""
    talk = Talk(case, on.gateway)
    on.upstream.play(SCRIPT.provider, _CALLS, play_of(SCRIPT))
    base = {"model": MODEL, "tools": [_FUNCTION]}
    first = talk("POST", "/v1/responses", {**base, "input": QUESTION, "instructions": "Be brief."}).json["id"]
    result = {"type": "function_call_output", "call_id": "call_0", "output": "found"}
    body = {**base, "input": [result], "previous_response_id": first}
    second = talk("POST", "/v1/responses", body).json["id"]
    body = {**base, "input": NEXT, "previous_response_id": second, "stream": True}
    talk("POST", "/v1/responses", body, OpenResponses_Reasoning_Events="openai")
    talk("POST", "/v1/responses", {**base, "input": "A branch", "previous_response_id": first})
    record_requests(case, on.upstream)
    foreign = next(script for script in FIXTURES if script.provider == "anthropic")
    on.upstream.play(foreign.provider, play_of(foreign))
    talk("POST", "/v1/responses", {"model": model_of(foreign), "input": NEXT, "previous_response_id": second})
    record_requests(case, on.upstream, "another model")
    items = talk("GET", f"/v1/responses/{second}/input_items").json["data"]
    for query in ("?limit=1", "?order=asc&limit=1", "?limit=1000", "?after=none"):
        talk("GET", f"/v1/responses/{first}/input_items{query}")
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    reference = {"type": "item_reference", "id": items[0]["id"]}
    talk("POST", "/v1/responses", {**base, "input": [_message("Again"), reference], "store": False})
    record_requests(case, on.upstream, "reference")
    _record_rows(on, case, first, second)
    talk("DELETE", f"/v1/responses/{first}")
    talk("DELETE", f"/v1/responses/{first}")
    talk("GET", f"/v1/responses/{second}")
    talk("POST", "/v1/responses", {**base, "input": NEXT, "previous_response_id": second})
    _record_rows(on, case, first, second)


def _cancelled(on: Setting, case: Case, stream: bool) -> None:
    talk = Talk(case, on.gateway)
    on.upstream.play(SCRIPT.provider, half())
    body = {"model": MODEL, "input": QUESTION, "background": True, "stream": stream}
    if stream:
        live = Stream(on.gateway, "POST", "/v1/responses", body)
        id = live.field("id")
    else:
        id = talk("POST", "/v1/responses", body).json["id"]
        live = Stream(on.gateway, "GET", f"/v1/responses/{id}?stream=true")
    live.until(MARK)
    live.leave()
    at = f"/v1/responses/{id}"
    read = talk("GET", at)
    case.add("under way", read.json["status"])
    talk("POST", "/v1/responses", {"model": MODEL, "input": NEXT, "previous_response_id": id})
    talk("POST", f"{at}/cancel")
    talk("POST", f"{at}/cancel", Pellucid_View="hidden")
    talk("GET", at)
    for view in VIEWS:
        talk("GET", f"{at}?stream=true", Pellucid_View=view)
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    talk("POST", "/v1/responses", {"model": MODEL, "input": NEXT, "previous_response_id": id})
    record_requests(case, on.upstream)
    _record_rows(on, case, id)
    talk("DELETE", at)
    talk("GET", f"{at}?stream=true")


def _deleted_under_way(on: Setting, case: Case) -> None:
    talk = Talk(case, on.gateway)
    on.upstream.play(SCRIPT.provider, half())
    id = talk("POST", "/v1/responses", {"model": MODEL, "input": QUESTION, "background": True}).json["id"]
    live = Stream(on.gateway, "GET", f"/v1/responses/{id}?stream=true")
    live.until(MARK)
    live.leave()
    talk("DELETE", f"/v1/responses/{id}")
    talk("GET", f"/v1/responses/{id}")
    _record_rows(on, case, id)


def _compact(on: Setting, case: Case) -> None:
    talk = Talk(case, on.gateway)
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    made = talk("POST", "/v1/responses", {"model": MODEL, "input": QUESTION}).json["id"]
    on.upstream.play(SCRIPT.provider, Play(chunks({"content": "They spoke of numbers."})))
    items = [_message("One"), _message("Two", "assistant"), _message("Three")]
    short = talk("POST", "/v1/responses/compact", {"model": MODEL, "input": items, "instructions": "Briefly."})
    talk("POST", "/v1/responses/compact", {"model": MODEL, "previous_response_id": made})
    talk("POST", "/v1/responses/compact", {"model": MODEL})
    talk("POST", "/v1/responses/compact", {"model": "none:x", "input": "x"})
    record_requests(case, on.upstream, "compact")
    on.upstream.play(SCRIPT.provider, Play(chunks({"content": "They spo"}, finish="length")))
    talk("POST", "/v1/responses/compact", {"model": MODEL, "input": items})
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    talk("POST", "/v1/responses", {"model": MODEL, "input": [*short.json["output"], _message(NEXT)]})
    record_requests(case, on.upstream, "goes on")


def _token_counts(on: Setting, case: Case) -> None:
    talk = Talk(case, on.gateway)
    body = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}]}
    talk("POST", "/v1/messages/count_tokens", body)
    talk("POST", "/v1/messages/count_tokens", {**body, "system": [{"type": "text", "text": NEXT}]})
    talk("POST", "/v1/messages/count_tokens", {"model": MODEL, "messages": []})
    talk("POST", "/v1/responses/input_tokens", {"model": MODEL, "input": NEXT, "instructions": "Be brief"})
    talk("POST", "/v1/responses/input_tokens", {"model": MODEL, "input": []})


# --- chats --------------------------------------------------------------------------------------------------------


def _chat(on: Setting, case: Case) -> None:
    """A chat with three turns, a branch in its second, and everything that its page does with it."""
    talk = Talk(case, on.gateway)
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    events = talk("POST", "/api/chat", {"text": f"Zanzibar? {QUESTION}", "model": MODEL}).events
    chat, first = events[0]["conversation_id"], events[0]["event_id"]
    more = {"model": MODEL, "conversation_id": chat}
    second = talk("POST", "/api/chat", {**more, "text": NEXT, "follows": first, "effort": "high"}).events[0]["event_id"]
    talk("POST", "/api/chat", {**more, "text": "Too late", "follows": first})
    branch = talk("POST", "/api/chat", {**more, "text": "Another", "replaces": second}).events[0]["event_id"]
    talk("POST", "/api/chat", {**more, "text": "On it", "view": "summary"})
    question = first.replace("evt_", "ask_")
    talk("POST", "/api/chat", {**more, "text": "From the start", "replaces": question})
    record_requests(case, on.upstream)
    at = f"/api/conversations/{chat}"
    talk("GET", at)
    for head in (first, second, branch, "evt_none"):
        talk("GET", f"{at}?head={head}")
    talk("PATCH", at, {"title": "A new title ✓"})
    talk("PATCH", at, {"head": second})
    talk("GET", at)
    for bad in ({"title": ""}, {"title": 7}, {"head": "evt_none"}, {"unknown": 1}, {}):
        talk("PATCH", at, bad)
    talk("GET", "/api/conversations?q=zanzibar&limit=3")
    talk("GET", "/api/conversations?q=no%20such%20words%20at%20all")
    talk("GET", "/api/conversations?limit=1")
    talk("GET", f"/api/conversations?limit=1&after={chat}")
    talk("GET", f"/api/chat/{first}", Last_Event_ID="2")
    talk("GET", f"/api/chat/{first}/stream")
    talk("POST", f"/api/chat/{first}/cancel")
    _record_rows(on, case, chat, first, second, branch)
    talk("DELETE", at)
    talk("DELETE", at)
    talk("GET", at)
    talk("GET", f"/api/chat/{first}")
    _record_rows(on, case, chat, first, second, branch)


def _chat_composed(on: Setting, case: Case) -> None:
    """A chat whose questions have attachments, instructions, and a choice of tools."""
    talk = Talk(case, on.gateway)
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    picture = {"name": "../dot.png", "media_type": "image/png", "data": "iVBORw0KGgpkb3Q="}
    files = [picture, {"name": "notes.txt", "data": "Tm90ZXM="}]
    first = {"text": QUESTION, "model": MODEL, "attachments": files, "instructions": "Answer in one word.", "tools": []}
    started = talk("POST", "/api/chat", first).events[0]
    at, id = f"/api/conversations/{started['conversation_id']}", started["event_id"].replace("evt_", "att_")
    talk("GET", at)
    for index in range(3):
        talk("GET", f"/api/attachments/{id}_{index}")
    talk("PATCH", at, {"instructions": "Answer in two words."})
    again = {"text": NEXT, "model": MODEL, "replaces": started["event_id"], "attachments": [{"id": f"{id}_1"}]}
    talk("POST", "/api/chat", again)
    record_requests(case, on.upstream)
    for bad in ({"tools": ["none"]}, {"attachments": [{**picture, "media_type": "application/pdf"}]}):
        talk("POST", "/api/chat", {"text": QUESTION, "model": MODEL, **bad})
    talk("PATCH", at, {"instructions": None})
    talk("GET", "/api/tools")
    talk("DELETE", at)


def _chat_stopped(on: Setting, case: Case, way: str) -> None:
    talk = Talk(case, on.gateway)
    on.upstream.play(SCRIPT.provider, half())
    live = Stream(on.gateway, "POST", "/api/chat", {"text": QUESTION, "model": MODEL})
    event, chat = live.field("event_id"), live.field("conversation_id")
    live.until(MARK)
    live.leave()
    at = f"/api/conversations/{chat}"
    talk("GET", at)
    talk("POST", "/api/chat", {"text": NEXT, "model": MODEL, "conversation_id": chat})
    if way == "delete":
        talk("DELETE", at)
    else:
        talk("POST", f"/api/chat/{event}/cancel")
        talk("POST", f"/api/chat/{event}/cancel")
        for view in VIEWS:
            talk("GET", f"/api/chat/{event}", Pellucid_View=view)
        on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
        talk("POST", "/api/chat", {"text": NEXT, "model": MODEL, "conversation_id": chat})
        record_requests(case, on.upstream)
    talk("GET", at)
    _record_rows(on, case, chat, event)


# --- AG-UI threads ------------------------------------------------------------------------------------------------


def _thread(on: Setting, case: Case, dialect: str) -> None:
    """Two stored runs of a thread, the second with a result of the first one's call."""
    talk = Talk(case, on.gateway)
    client = next(client for client in CLIENTS if client.name == f"agui/{dialect}")
    on.upstream.play(SCRIPT.provider, _CALLS, play_of(SCRIPT))
    conversation, runs = client.begin(), []
    for n in (1, 2, 3):
        ask = client.ask(MODEL, conversation, True)
        body = {**ask.body, "threadId": f"thread-{dialect}", "runId": f"run-{n}"}
        reply = talk("POST", f"{ask.path}&store=true", body)
        runs.append(f"/ag-ui?threadId=thread-{dialect}&runId=run-{n}")
        conversation = client.echo(conversation, reply, True) or conversation
    record_requests(case, on.upstream)
    for run in runs:
        for view in VIEWS:
            talk("GET", run, Pellucid_View=view)
        talk("POST", run.replace("?", "/cancel?"))
    _record_rows(on, case, f"thread-{dialect}")
    for run in runs:
        talk("DELETE", run)
    talk("DELETE", runs[0])
    talk("GET", runs[0])
    _record_rows(on, case, f"thread-{dialect}")


def _thread_stopped(on: Setting, case: Case) -> None:
    talk = Talk(case, on.gateway)
    on.upstream.play(SCRIPT.provider, half())
    body = {"threadId": "stopped", "runId": "r", "messages": [{"id": "u", "role": "user", "content": QUESTION}]}
    live = Stream(on.gateway, "POST", f"/ag-ui?store=true&dialect=1.0&model={MODEL}", body)
    live.until(MARK)
    live.leave()
    run = "threadId=stopped&runId=r"
    again = Stream(on.gateway, "GET", f"/ag-ui?{run}")
    again.until(MARK)
    talk("POST", f"/ag-ui/cancel?{run}")
    again.until("RUN_FINISHED")
    again.leave()
    talk("GET", f"/ag-ui?{run}")
    talk("POST", f"/ag-ui/cancel?{run}")
    talk("POST", "/ag-ui/cancel?threadId=stopped&runId=none")
    _record_rows(on, case, "stopped")


_RUN = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": QUESTION}]}
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "a query before forwardedProps": (
        "?view=summary&effort=low",
        {"forwardedProps": {"pellucid": {"view": "raw", "effort": "high", "dialect": "thinking"}}},
        {},
    ),
    "forwardedProps": ("", {"forwardedProps": {"pellucid": {"view": "sealed", "snapshot": True, "chunks": True}}}, {}),
    "the dialect's header": ("", {}, {"AG-UI-Dialect": "proposal"}),
    "protocolVersion": ("", {"protocolVersion": "1.0"}, {}),
    "no reasoning": ("?reasoning=off&snapshot=true", {}, {}),
    "context and state": (
        "",
        {"context": [{"description": "place", "value": "Lyon"}], "state": {"a": [1]}, "forwardedProps": {"x": 1}},
        {},
    ),
    "protobuf": ("?dialect=1.0", {}, {"Accept": "application/vnd.ag-ui.event+proto"}),
    "resume": (
        "?dialect=1.0",
        {
            "messages": [
                {"id": "u", "role": "user", "content": QUESTION},
                {
                    "id": "a",
                    "role": "assistant",
                    "toolCalls": [
                        {"id": "call_0", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
                    ],
                },
            ],
            "resume": [{"interruptId": "call_0", "status": "cancelled"}],
        },
        {},
    ),
    "parent run": ("?dialect=1.0", {"parentRunId": "before"}, {}),
    "unknown dialect": ("?dialect=2.0", {}, {}),
    "unknown view": ("?view=all", {}, {}),
}


def _run(on: Setting, case: Case, what: str) -> None:
    query, more, headers = RUNS[what]
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    path = f"/ag-ui{query or '?'}{'&' if query else ''}model={MODEL}"
    record_reply(case, "reply", on.gateway.request("POST", path, _RUN | more, headers))
    record_requests(case, on.upstream)


# --- clients that leave -------------------------------------------------------------------------------------------


def connections(upstream: Upstream) -> int:
    """How many connections to the upstream are open on both sides, by Linux's table."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return sum(row[1].endswith(f":{upstream.port:04X}") and row[3] == "01" for row in rows)


def _left(on: Setting, case: Case, path: str, body: dict[str, Any], again: str) -> None:
    """A client leaves in mid-stream: does the upstream's connection end, and what is stored?"""
    on.upstream.play(SCRIPT.provider, half())
    live = Stream(on.gateway, "POST", path, body)
    live.until(MARK)
    events = re.findall(rb"^data: (\{.*\})\r?$", live.seen, flags=re.MULTILINE)
    case.add("until then", b"\n".join(events))
    id = live.field("id") if again else ""
    before = connections(on.upstream)
    live.leave()
    if not again:
        wait_until(lambda: connections(on.upstream) < before, "the end of the upstream's connection")
        return
    talk = Talk(case, on.gateway)
    at = again.format(id=id)

    def over() -> bool:
        read = on.gateway.request("GET", at)
        return read.status == 200 and read.json["status"] != "in_progress"

    wait_until(over, "the end of a response whose client left")
    talk("GET", at)
    talk("GET", f"{at}?stream=true")
    wait_until(lambda: connections(on.upstream) < before, "the end of the upstream's connection")
    _record_rows(on, case, id)


# --- the outside of requests --------------------------------------------------------------------------------------

_BODY = {"model": MODEL, "input": "Grüße, 世界"}
_JSON = json.dumps(_BODY, ensure_ascii=False)
ENCODINGS: dict[str, tuple[bytes, dict[str, str]]] = {
    "UTF-8": (_JSON.encode(), {}),
    "UTF-8 with a mark": (b"\xef\xbb\xbf" + _JSON.encode(), {}),
    "UTF-16": (_JSON.encode("utf-16"), {"Content-Type": "application/json; charset=utf-16"}),
    "Latin-1": (_JSON.replace("世界", "").encode("latin-1"), {"Content-Type": "application/json; charset=iso-8859-1"}),
    "not UTF-8": (_JSON.encode().replace(b"\xc3", b"\xff"), {}),
    "escaped surrogate": (b'{"model": "%s", "input": "\\ud83d"}' % MODEL.encode(), {}),
    "NUL": (b'{"model": "%s", "input": "a\\u0000b"}' % MODEL.encode(), {}),
    "gzip": (gzip.compress(_JSON.encode(), mtime=0), {"Content-Encoding": "gzip"}),
    "no JSON type": (_JSON.encode(), {"Content-Type": "text/plain"}),
    "a form": (_JSON.encode(), {"Content-Type": "application/x-www-form-urlencoded"}),
    "a key twice": (b'{"model": "%s", "input": "a", "input": "b"}' % MODEL.encode(), {}),
    "NaN": (b'{"model": "%s", "input": "a", "temperature": NaN}' % MODEL.encode(), {}),
    "deep": (b'{"model": "%s", "input": %s1%s}' % (MODEL.encode(), b"[" * 2000, b"]" * 2000), {}),
    "more after it": (_JSON.encode() + b"{}", {}),
    "an id of the client's": (_JSON.encode(), {"X-Request-Id": "mine-1"}),
    "a bad id of the client's": (_JSON.encode(), {"X-Request-Id": "a b\t" + "c" * 300}),
    "accepts nothing of it": (_JSON.encode(), {"Accept": "image/png"}),
    "an unknown view": (_JSON.encode(), {"Pellucid-View": "all"}),
    "unknown event names": (_JSON.encode(), {"OpenResponses-Reasoning-Events": "mine"}),
}
PATHS = ["/v1/responses", "/v1/models", "/api/chat", "/ag-ui", "/spaces", "/health", "/metrics", "/openapi.json", "/"]
ORIGINS: dict[str, dict[str, str]] = {
    "none": {},
    "its own": {"Origin": "http://127.0.0.1:{port}"},
    "localhost": {"Origin": "http://localhost:{port}", "Host": "localhost:{port}"},
    "another": {"Origin": "https://evil.example"},
    "null": {"Origin": "null"},
    "another host": {"Host": "evil.example"},
    "another host as origin": {"Host": "evil.example", "Origin": "http://evil.example"},
    "cross-site": {"Sec-Fetch-Site": "cross-site"},
    "same-origin": {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:{port}"},
    "no host": {"Host": ""},
}


def _encoded(on: Setting, case: Case, what: str) -> None:
    data, headers = ENCODINGS[what]
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    record_reply(case, "reply", on.gateway.request("POST", "/v1/responses", data, headers))
    record_requests(case, on.upstream)


def _methods(on: Setting, case: Case, path: str) -> None:
    talk = Talk(case, on.gateway)
    for method in ("HEAD", "OPTIONS", "TRACE", "PUT", "BREW"):
        talk(method, path)
    preflight = {"Origin": "https://app.example.com", "Access_Control_Request_Method": "POST"}
    talk("OPTIONS", path, **preflight)
    if path in ("/metrics", "/openapi.json"):
        return  # these have cases of their own
    talk("GET", f"{path}//" if path != "/" else "//")
    talk("GET", f"{path}?%ff=%00&a=b&a=c", Accept="text/html")


def origins(case: Case, gateway: Gateway, more: dict[str, str] | None = None) -> None:
    """Reads and a write, from each kind of page and by each kind of name."""
    for what, headers in ORIGINS.items():
        sent_headers = {name: value.replace("{port}", str(gateway.port)) for name, value in headers.items()}
        for method, path, body in (
            ("GET", "/v1/models", None),
            ("GET", "/api/models", None),
            ("GET", "/api/conversations?q=none", None),
            ("POST", "/api/chat", {"text": ""}),
            ("POST", "/v1/responses", {"model": "none:x", "input": "x"}),
            ("GET", "/spaces", None),
        ):
            record_reply(
                case, f"{what}: {method} {path}", gateway.request(method, path, body, {**sent_headers, **(more or {})})
            )


def _models(on: Setting, case: Case) -> None:
    talk = Talk(case, on.gateway)
    names = [model["id"] for model in talk("GET", "/v1/models").json["data"]]
    for name in [*names, MODEL, "none", "none:x", "a%2Fb", "openrouter:openai%2Fo3"]:
        talk("GET", f"/v1/models/{name}")
    talk("GET", "/api/models", Pellucid_View="summary")


def _metrics(on: Setting, case: Case) -> None:
    """Each series by its name, its labels and their values; without numbers."""
    text = on.gateway.request("GET", "/metrics").body.decode()
    names = [line.rpartition(" ")[0] for line in text.split("\n") if line[:1].isalpha()]
    # Whether a run that failed was over before its client had gone is a matter of time.
    series = {re.sub(r'le="[^"]*"|(?<=run_ends_)(.*)status="[^"]*"', r"\1", name) for name in names}
    case.add("series", "\n".join(sorted(series)))
    case.add("help", "\n".join(line for line in text.split("\n") if line.startswith("#")))


_LEFT: dict[str, tuple[str, dict[str, Any], str]] = {
    "responses, stored": (
        "/v1/responses",
        {"model": MODEL, "input": QUESTION, "stream": True},
        "/v1/responses/{id}",
    ),
    "responses, not stored": (
        "/v1/responses",
        {"model": MODEL, "input": QUESTION, "stream": True, "store": False},
        "",
    ),
    "chat completions": (
        "/v1/chat/completions",
        {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "stream": True},
        "",
    ),
    "AG-UI": (f"/ag-ui?model={MODEL}", _RUN, ""),
    "AI SDK": (
        "/api/chat?protocol=ai-sdk",
        {"model": MODEL, "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}]},
        "",
    ),
}


def resources(on: Setting) -> Cases:
    cases: dict[str, Callable[[Case], None]] = {
        "conversation": partial(_conversation, on),
        "responses/chain": partial(_chain, on),
        "responses/cancelled": partial(_cancelled, on, stream=False),
        "responses/cancelled stream": partial(_cancelled, on, stream=True),
        "responses/deleted under way": partial(_deleted_under_way, on),
        "responses/compact": partial(_compact, on),
        "messages/count_tokens": partial(_token_counts, on),
        "chat/whole life": partial(_chat, on),
        "chat/composed": partial(_chat_composed, on),
        "chat/stopped": partial(_chat_stopped, on, way="cancel"),
        "chat/deleted under way": partial(_chat_stopped, on, way="delete"),
        **{f"thread/{dialect}": partial(_thread, on, dialect=dialect) for dialect in ("1.0", "0.x", "proposal")},
        "thread/stopped": partial(_thread_stopped, on),
        **{f"run/{what}": partial(_run, on, what=what) for what in RUNS},
        **{f"left/{what}": partial(_left, on, path=p, body=b, again=a) for what, (p, b, a) in _LEFT.items()},
        **{f"encoding/{what}": partial(_encoded, on, what=what) for what in ENCODINGS},
        **{f"methods/{path}": partial(_methods, on, path=path) for path in PATHS},
        "origins/no key": partial(_origins, on),
        "origins/key": partial(_origins_guarded, on),
        "models": partial(_models, on),
        "metrics": partial(_metrics, on),
    }
    for name, run in cases.items():
        yield f"resources/{name}", run


def _origins(on: Setting, case: Case) -> None:
    origins(case, on.gateway)


def _origins_guarded(on: Setting, case: Case) -> None:
    origins(case, on.guarded, {"Authorization": "Bearer gateway-key-gateway-key-0"})
