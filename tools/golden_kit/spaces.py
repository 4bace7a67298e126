"""Spaces in a golden comparison: three participants over real sockets, and the history over HTTP.

Each envelope of a script is sent when the one before it was answered, so the order is the same in every run. What each
participant receives is recorded, frame by frame.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from .captures import Case
from .gateway import Gateway
from .runs import _record_rows as record_rows
from .setting import Cases, Setting, record_reply
from .surface import SURFACE
from .talk import Stream, Talk, wait_until

Envelope = dict[str, Any]

PARTICIPANTS = {"alice": ["*"], "agent": ["chat", "chat/*", "mcp/*", "reasoning/*"], "watcher": ["chat"]}
SPACES = {"strict": "strict", "flag": "flag"}


def token(space: str, participant: str) -> str:
    return f"golden-token-of-{participant}-in-{space}"


def configuration() -> str:
    """The TOML of the spaces; the tokens are in files of the data directory (`token_files`).

    Reasoning that is left open stays open, as its end would come at any time; but in `brief` it ends at once.
    """
    sections = []
    for space, reasoning in SPACES.items():
        sections.append(f'[spaces.{space}]\nreasoning = "{reasoning}"\ngrace_seconds = 86400\nidle_seconds = inf\n')
        for name, capabilities in PARTICIPANTS.items():
            rows = f'token_file = "{space}-{name}.token"\ncapabilities = {json.dumps(capabilities)}\n'
            sections.append(f"[spaces.{space}.participants.{name}]\n{rows}")
    sections.append("[spaces.brief]\ngrace_seconds = 0.1\n")
    sections.append('[spaces.brief.participants.alice]\ntoken_file = "brief-alice.token"\ncapabilities = ["*"]\n')
    redact = 'redact = [{ name = "key", pattern = "sk-[A-Za-z0-9]{20,}" }]\n'
    return "\n".join(sections).replace('reasoning = "strict"\n', f'reasoning = "strict"\n{redact}', 1)


def token_files() -> dict[str, str]:
    pairs = [*((space, name) for space in SPACES for name in PARTICIPANTS), ("brief", "alice")]
    return {f"{space}-{name}.token": f"{token(space, name)}\n" for space, name in pairs}


SCRIPT: list[tuple[str, Envelope]] = [
    ("alice", {"kind": "chat", "payload": {"text": "Should we deploy this?"}}),
    ("agent", {"kind": "reasoning/start", "id": "r-1", "correlation_id": ["m0"], "payload": {"message": "I look"}}),
    (
        "agent",
        {"kind": "reasoning/thought", "context": "r-1", "payload": {"message": "token sk-abcdefghijklmnopqrstuv"}},
    ),
    ("agent", {"kind": "reasoning.question", "context": "r-1", "payload": {"questions": ["Is there a test?", "Why?"]}}),
    (
        "agent",
        {"kind": "mcp/request", "context": "r-1", "id": "q-1", "to": ["alice"], "payload": {"method": "tools/list"}},
    ),
    (
        "alice",
        {"kind": "mcp/response", "correlation_id": ["q-1"], "to": ["agent"], "payload": {"result": {"tools": []}}},
    ),
    ("agent", {"kind": "reasoning/start", "id": "r-2", "context": "r-1", "payload": {"message": "deeper"}}),
    (
        "agent",
        {
            "kind": "reasoning/hypothesis",
            "context": "r-1/r-2",
            "payload": {"hypothesis": "It leaks", "confidence": 0.8},
        },
    ),
    ("agent", {"kind": "reasoning/conclusion", "context": "r-1/r-2", "payload": {"message": "It does"}}),
    ("agent", {"kind": "reasoning/conclusion", "context": "r-1", "payload": {"message": "Not yet", "confidence": 0.9}}),
    ("agent", {"kind": "reasoning/thought", "context": "r-1", "payload": {"message": "too late"}}),
    ("agent", {"kind": "chat", "correlation_id": ["r-1"], "payload": {"text": "Do not deploy."}}),
    ("watcher", {"kind": "reasoning/start", "id": "w-1", "payload": {"message": "may not"}}),
    ("watcher", {"kind": "chat", "to": ["agent"], "payload": {"text": "only for the agent"}}),
    ("agent", {"kind": "mcp/proposal", "id": "p-1", "payload": {"method": "tools/call", "params": {"name": "deploy"}}}),
    ("alice", {"kind": "mcp/reject", "correlation_id": ["p-1"], "payload": {"reason": "no"}}),
    ("agent", {"kind": "mcp/proposal", "id": "p-2", "payload": {"method": "tools/call", "params": {"name": "test"}}}),
    ("agent", {"kind": "mcp/withdraw", "correlation_id": ["p-2"], "payload": {}}),
    (
        "alice",
        {
            "kind": "capability/grant",
            "id": "g-1",
            "payload": {"recipient": "watcher", "capabilities": [{"kind": "reasoning/*"}]},
        },
    ),
    ("watcher", {"kind": "reasoning/start", "id": "w-2", "payload": {"message": "may now"}}),
    ("alice", {"kind": "reasoning/cancel", "context": "w-2", "payload": {"reason": "enough"}}),
    ("watcher", {"kind": "reasoning/thought", "context": "w-2", "payload": {"message": "after the cancel"}}),
    (
        "alice",
        {"kind": "capability/revoke", "payload": {"recipient": "watcher", "capabilities": [{"kind": "reasoning/*"}]}},
    ),
    ("watcher", {"kind": "reasoning/start", "id": "w-3", "payload": {"message": "may not again"}}),
    ("agent", {"kind": "space/kick", "payload": {"participant_id": "alice"}}),
    ("alice", {"kind": "chat", "from": "agent", "payload": {"text": "in another's name"}}),
    ("alice", {"kind": "chat", "id": "m0", "payload": {"text": "an id again"}}),
    ("alice", {"kind": "no such kind/of course", "payload": {}}),
    ("alice", {"kind": "chat"}),
    ("alice", {"payload": {"text": "no kind"}}),
    ("alice", {"kind": "reasoning/thought", "context": "nowhere", "payload": {"message": "no context"}}),
    ("alice", {"kind": "chat", "payload": {"text": "the end", "unknown": [1, {"x": None}]}}),
]


class _Seat:
    """One participant's socket, and every frame that came."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.frames: list[str] = []

    def next(self) -> Envelope:
        text = str(self.connection.recv(30))
        self.frames.append(text)
        value: Envelope = json.loads(text)
        return value

    def until(self, id: str) -> None:
        """Read until the echo of this id, or the error about it."""
        while True:
            one = self.next()
            about = one.get("correlation_id") or one.get("correlationId") or []
            if one.get("id") == id or (str(one.get("kind")).replace(".", "/") == "system/error" and id in about):
                return


def talk(gateway: Gateway, space: str, case: Case) -> None:
    """Have the script said in a space; record what each participant receives."""
    with ExitStack() as stack:
        seats: dict[str, _Seat] = {}
        for name in PARTICIPANTS:
            headers = {"Authorization": f"Bearer {token(space, name)}"}
            url = f"ws://127.0.0.1:{gateway.port}/spaces/{space}/ws"
            SURFACE.add_request("WEBSOCKET", f"/spaces/{space}/ws", 101)
            seats[name] = _Seat(stack.enter_context(connect(url, additional_headers=headers, proxy=None)))
            while seats[name].next()["kind"] not in ("system/welcome", "system.welcome"):
                pass
        for n, (sender, envelope) in enumerate(SCRIPT):
            sent = {"id": f"m{n}", **envelope}
            seats[sender].connection.send(json.dumps(sent))
            seats[sender].until(str(sent["id"]))
        for name, seat in seats.items():
            if name != "alice":
                seat.until(f"m{len(SCRIPT) - 1}")
            for n, frame in enumerate(seat.frames):
                case.add(f"{name} receives {n}", frame)
    _settle(gateway, space)


def settle(gateway: Gateway, space: str, bearer: str) -> None:
    """Wait until the space has noted that everybody who came has left, and nothing is added any more."""
    headers = {"Authorization": f"Bearer {bearer}"}
    heads = [-1]

    def settled() -> bool:
        page = gateway.request("GET", f"/spaces/{space}/envelopes?kind=system/presence&limit=500", None, headers).json
        events = [envelope["payload"]["event"] for envelope in page["envelopes"]]
        heads.append(page["head"])
        return heads[-1] == heads[-2] and events.count("join") == events.count("leave")

    wait_until(settled, f"quiet in the space {space}", pause=0.1)


def _settle(gateway: Gateway, space: str) -> None:
    settle(gateway, space, token(space, "alice"))


_READS = [
    "",
    "/envelopes?limit=5",
    "/envelopes?limit=100&kind=reasoning/*",
    "/envelopes?from=agent&order=desc",
    "/envelopes/3",
    "/envelopes/3/references",
    "/envelopes?context=r-1",
    "/search?q=deploy",
    "/search?q=",
    "/contexts",
    "/contexts/r-1",
    "/contexts/none",
    "/patterns",
    "/export?format=jsonl",
    "/export?format=chat-jsonl",
    "/export?format=otel",
    "/export?format=none",
    "/replay",
    "/replay?after_seq=2&before_seq=9&replay=original&speed=1000&longest_pause=0",
    "/replay?speed=-1",
    "/history?newest=true&limit=3",
    "/envelopes?after_seq=4&before_seq=9&view=main",
    "/envelopes?view=collapsed&limit=100",
    "/envelopes?limit=100&dialect=meup/v0.2",
    "/envelopes?limit=3&dialect=meup-draft",
    "/envelopes?limit=0",
    "/envelopes?dialect=none",
    "/envelopes/100000",
    "/search?q=DEPLOY&limit=1&view=main",
    "/contexts/r-1/r-2",
    "/contexts/r-1?view=collapsed",
    "/patterns?view=main",
    "/export?format=chat-jsonl&reasoning=think&complete=true&metadata=false",
]


def history(gateway: Gateway, space: str, participant: str) -> Iterator[tuple[str, Any]]:
    """What can be read of a space over HTTP, as pairs of a path and the reply."""
    headers: Mapping[str, str] = {"Authorization": f"Bearer {token(space, participant)}"}
    for path in _READS:
        yield path, gateway.request("GET", f"/spaces/{space}{path}", None, headers)
    yield "no token", gateway.request("GET", f"/spaces/{space}/envelopes")
    yield "wrong token", gateway.request("GET", f"/spaces/{space}/envelopes", None, {"Authorization": "Bearer no"})
    yield "spaces", gateway.request("GET", "/spaces", None, headers)
    body = {"kind": "chat", "payload": {"text": "by HTTP"}}
    yield "say", gateway.request("POST", f"/spaces/{space}/envelopes", body, headers)
    yield (
        "say what one may not",
        gateway.request("POST", f"/spaces/{space}/envelopes", {"kind": "space/kick", "payload": {}}, headers),
    )


def refusals(gateway: Gateway, case: Case) -> None:
    """How joins end that are refused."""
    joins: list[tuple[str, str, Any]] = [
        ("no token", "/spaces/strict/ws", {}),
        ("wrong token", "/spaces/strict/ws", {"type": "join", "token": "wrong"}),
        ("no such space", "/ws?space=none", {"type": "join", "space": "none", "token": token("flag", "alice")}),
        (
            "MEW's join",
            "/ws",
            {"type": "join", "space": "flag", "token": token("flag", "alice"), "participantId": "alice"},
        ),
        ("a join at the root", "/", {"type": "join", "space": "flag", "token": token("flag", "watcher")}),
        ("MEUP", "/ws?dialect=meup/v0.2", {"type": "join", "space": "flag", "token": token("flag", "watcher")}),
        ("no join", "/ws", {"kind": "chat", "payload": {"text": "Hi"}}),
        ("unknown dialect", "/ws?dialect=none", {}),
        (
            "a join for somebody else",
            "/ws",
            {"type": "join", "space": "flag", "token": token("flag", "alice"), "participantId": "agent"},
        ),
    ]
    for what, path, first in joins:
        try:
            with connect(f"ws://127.0.0.1:{gateway.port}{path}", proxy=None) as connection:
                connection.send(json.dumps(first))
                SURFACE.add_request("WEBSOCKET", path, 101)
                case.add(f"{what}: receives", str(connection.recv(10)))
                connection.send(json.dumps({"kind": "chat", "id": f"x of {what}", "payload": {"text": "Hi"}}))
                case.add(f"{what}: receives", str(connection.recv(10)))
        except ConnectionClosed as closed:
            end = closed.rcvd
            case.add(f"{what}: closed", f"{end.code} {end.reason}" if end else "without a word")
        except Exception as error:
            case.add(f"{what}: refused", f"{type(error).__name__}: {error}")
        _settle(gateway, "flag")


_INVITED = ["chat", "reasoning/*"]


def _over_http(on: Setting, case: Case) -> None:
    """Participants who are invited, speak and are put out over HTTP; MEW's paths; the same envelope twice."""
    space = "flag"
    by = Talk(case, on.gateway, {"Authorization": f"Bearer {token(space, 'alice')}"})
    at = f"/spaces/{space}"
    by("GET", "/participants?space=flag")
    by("GET", "/participants?space=none")
    by("POST", f"/participants/alice/messages?space={space}", {"kind": "chat", "payload": {"text": "as MEW does"}})
    by("POST", f"/participants/agent/messages?space={space}", {"kind": "chat", "payload": {"text": "as another"}})
    invite = {"kind": "space/invite", "payload": {"participant_id": "guest", "initial_capabilities": _INVITED}}
    by("POST", f"{at}/envelopes", {**invite, "id": "invite-1"})
    by("GET", f"{at}/envelopes?newest=true&limit=3")
    by("GET", at)
    same = {"id": "twice", "kind": "chat", "payload": {"text": "the same"}}
    by("POST", f"{at}/envelopes", same)
    by("POST", f"{at}/envelopes", same)
    by("POST", f"{at}/envelopes", {**same, "payload": {"text": "another"}})
    by(
        "POST",
        f"{at}/envelopes?dialect=meup/v0.2",
        {"kind": "chat", "correlationId": "twice", "payload": {"message": "m"}},
    )
    by("POST", f"{at}/envelopes", {"kind": "chat", "payload": {"text": "secret sk-abcdefghijklmnopqrstuv"}})
    by("POST", f"{at}/envelopes", {"kind": "chat", "to": ["nobody here"], "payload": {"text": "x"}})
    by("POST", f"{at}/envelopes", {"kind": "space/kick", "payload": {"participant_id": "guest", "reason": "done"}})
    by("GET", at)
    by("GET", at, Accept="text/html")
    by("GET", f"{at}/replay?before_seq=4", Accept="text/event-stream")
    for path in ("/spaces", at, f"{at}/envelopes"):
        record_reply(case, f"key: {path}", on.guarded.request("GET", path, None, _KEY))


_KEY = {"Authorization": "Bearer gateway-key-gateway-key-0"}


def _abandoned(on: Setting, case: Case) -> None:
    """Reasoning whose participant leaves is ended by the gateway."""
    by = {"Authorization": f"Bearer {token('brief', 'alice')}"}
    with connect(f"ws://127.0.0.1:{on.gateway.port}/spaces/brief/ws", additional_headers=by, proxy=None) as connection:
        connection.send(json.dumps({"id": "r-1", "kind": "reasoning/start", "payload": {"message": "I begin"}}))
        while '"r-1"' not in str(connection.recv(30)):
            pass
    at = "/spaces/brief/envelopes?kind=reasoning/*"
    wait_until(
        lambda: "reasoning/cancel" in on.gateway.request("GET", at, None, by).body.decode(), "the gateway's word"
    )
    talk = Talk(case, on.gateway, by)
    talk("GET", at)
    talk("GET", "/spaces/brief/contexts/r-1")


class _McpClient:
    """A client of a space's MCP server, which sends one message after the other."""

    def __init__(self, exchange: Callable[[bytes], list[Any]]) -> None:
        self._exchange = exchange
        self._count = 0

    def __call__(self, method: str, /, **params: Any) -> Any:
        """Send a request, or a notification; return the result of a request."""
        message: Envelope = {"jsonrpc": "2.0", "method": method, "params": params}
        if not method.startswith("notifications/"):
            self._count += 1
            message["id"] = self._count
        replies = self._exchange(json.dumps(message).encode())
        return replies[-1].get("result") if replies else None

    def call(self, tool: str, /, **arguments: Any) -> Any:
        return (self("tools/call", name=tool, arguments=arguments) or {}).get("structuredContent")

    def take_part(self) -> None:
        """Do everything that an agent does in a space."""
        info = {"name": "golden", "version": "1"}
        self("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        self("notifications/initialized")
        for listed in ("tools/list", "resources/list", "resources/templates/list"):
            self(listed)
        position = self.call("read", limit=3)["next_after_seq"]
        start = self.call("think", step="start", text="I look")
        self.call("think", step="thought", text="It has a test", context=start["context"], confidence=0.5)
        self.call("think", step="conclusion", text="It works", context=start["context"])
        self.call("think", step="conclusion", text="Once more", context=start["context"])
        self.call("say", text="As a client of MCP", answers=[start["context"]])
        self.call("say", text="To whom?", to=["nobody here"])
        proposal = self.call("propose", tool="deploy", arguments={"to": "test"})
        self.call("answer", seq=proposal["seq"], action="withdraw")
        self.call("wait", after_seq=position, timeout_seconds=1)
        self.call("wait", after_seq=0, timeout_seconds=1)
        self.call("none")
        self("resources/read", uri=f"space://flag/contexts/{start['context']}")
        self("resources/read", uri="space://flag/none")


def _as_mcp_server(on: Setting, case: Case) -> None:
    """A space as an MCP server over HTTP."""
    path, bearer = "/spaces/flag/mcp", token("flag", "agent")
    talk = Talk(
        case, on.gateway, {"Authorization": f"Bearer {bearer}", "Accept": "application/json, text/event-stream"}
    )
    session: dict[str, str] = {}

    def exchange(message: bytes) -> list[Any]:
        reply = talk("POST", path, message, **session)
        session.update({name: value for name, value in reply.headers if name == "mcp-session-id"})
        return reply.events or ([reply.json] if reply.body else [])

    client = _McpClient(exchange)
    client.take_part()
    stream = Stream(on.gateway, "GET", path, headers={"Authorization": f"Bearer {bearer}", **session})
    case.add("stream", stream.until("open\n\n").partition(b"\r\n\r\n")[2])
    stream.leave()
    exchange(b"{")
    for other in ({"Authorization": "Bearer no"}, {"Mcp-Session-Id": "a b"}):
        talk("POST", path, b"{}", **other)
    talk("DELETE", path, **session)
    exchange(b'{"jsonrpc": "2.0", "id": 99, "method": "tools/list"}')
    _settle(on.gateway, "flag")


def _mcp_command(on: Setting, case: Case) -> None:
    """`pellucid space mcp`, which is the same over standard streams."""
    where = {
        "PELLUCID_SPACE_URL": f"http://127.0.0.1:{on.gateway.port}",
        "PELLUCID_SPACE_TOKEN": token("flag", "agent"),
    }
    words = ("space", "mcp", "flag")
    process = subprocess.Popen(
        [on.checkout.python, "-m", "pellucid", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=on.gateway.data,
        env={**on.checkout.environment(on.gateway.data), **where},
    )
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None

    def exchange(message: bytes) -> list[Any]:
        case.add("sent", message)
        stdin.write(message + b"\n")
        stdin.flush()
        if b'"id":' not in message:
            return []
        line = stdout.readline()
        case.add("received", line)
        return [json.loads(line)]

    with process:
        _McpClient(exchange).take_part()
        stdin.close()
        case.add("the rest", stdout.read())
        case.add("stderr", stderr.read())
    case.add("status", str(process.returncode))
    SURFACE.add_command(words, process.returncode)
    _settle(on.gateway, "flag")


def _rows(on: Setting, case: Case, space: str) -> None:
    """The stored rows of the space and of what was said in it."""
    record_rows(on, case, space)


def in_spaces(on: Setting) -> Cases:
    for space in SPACES:
        yield f"spaces/{space}/script", partial(talk, on.gateway, space)

        def read(case: Case, participant: str, space: str = space) -> None:
            for path, reply in history(on.gateway, space, participant):
                record_reply(case, path, reply)

        for participant in PARTICIPANTS:
            yield f"spaces/{space}/history of {participant}", partial(read, participant=participant, space=space)
        yield f"spaces/{space}/rows", partial(_rows, on, space=space)
    yield "spaces/refusals", partial(refusals, on.gateway)
    yield "spaces/abandoned", partial(_abandoned, on)
    yield "spaces/over HTTP", partial(_over_http, on)
    yield "spaces/rows at the end", partial(_rows, on, space="flag")
    # Their ids are random, so how a search finds them is not the same in every run.
    yield "spaces/as an MCP server", partial(_as_mcp_server, on)
    yield "spaces/the MCP command", partial(_mcp_command, on)
