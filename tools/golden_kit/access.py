"""Keys, their policies and limits, sessions of a browser, and pages of other origins: a gateway that wants keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .captures import Case
from .commands import Batch, Invocation
from .gateway import Checkout, Gateway
from .protocols import QUESTION
from .resources import origins
from .runs import _record_rows as record_rows
from .setting import STORE, Cases, Setting, configuration, play_of, record_requests
from .talk import MARK, MODEL, SCRIPT, Stream, Talk, half, rounded, wait_until

CONFIGURATION = f"""{STORE}
[access]
keys = true
key_seconds = 0.05
[access.cors]
origins = ["https://app.example.com"]

[models.thinker]
provider = "{SCRIPT.provider}"
model = "{SCRIPT.model}"
view = "summary"
context = 1000
settings = {{ temperature = 0.5 }}
[models.writer]
provider = "{SCRIPT.provider}"
model = "writer"
"""
KEYS: dict[str, list[str]] = {
    "full": [],
    "same owner, less": ["--view", "summary", "--no-counts", "--events", "openai"],
    "some models": ["--model", "think*"],
    "small": ["--max-body-bytes", "400", "--max-output-tokens", "50", "--no-store"],
    "requests": ["--rpm", "2"],
    "tokens": ["--tpm", "40"],
    "reasoning tokens": ["--rtpm", "5"],
    "streams": ["--streams", "1"],
    "retention": ["--retention", "12h"],
    "other": [],
    "revoked": [],
    "expires": ["--expires", "90m"],
}
_WAITS = ("retry-after", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "x-ratelimit-reset-reasoning-tokens")


def make_keys(checkout: Checkout, data: Path, names: Mapping[str, list[str]]) -> dict[str, tuple[str, str]]:
    """Keys by `pellucid keys create` in a data directory; the secret and the id of each."""
    batch = Batch(checkout, data)
    made = {}
    for name, options in names.items():
        owner = "other" if name == "other" else "acme"
        args = ("keys", "create", "--owner", owner, "--name", name, *options, "--json")
        done = batch.run(Invocation(args))
        key = json.loads(done.stdout)
        made[name] = (key["key"], key["id"])
    batch.close()
    return made


@contextmanager
def gateway_with_keys(on: Setting) -> Iterator[tuple[Gateway, dict[str, tuple[str, str]]]]:
    data = on.gateway.data.with_name(f"{on.gateway.data.name}-keys")
    data.mkdir()
    config = configuration(on.upstream, [], CONFIGURATION)
    (data / "pellucid.toml").write_text(config)
    keys = make_keys(on.checkout, data, KEYS)
    with Gateway(on.checkout, data, config) as gateway:
        yield gateway, keys


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def access(on: Setting) -> Cases:
    with gateway_with_keys(on) as (gateway, keys):
        here = on._replace(gateway=gateway)
        by = {name: _bearer(secret) for name, (secret, _) in keys.items()}

        def policy(case: Case, name: str) -> None:
            """What a key may read and have."""
            on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
            talk = Talk(case, gateway, by[name])
            talk("GET", "/v1/models")
            talk("GET", "/v1/models/thinker")
            talk("GET", "/v1/models/none")
            talk("GET", "/api/models")
            talk("POST", "/v1/responses", {"model": "thinker", "input": QUESTION, "stream": True})
            talk("POST", "/v1/responses", {"model": "writer", "input": QUESTION})
            talk("POST", "/v1/responses", {"model": MODEL, "input": QUESTION, "max_output_tokens": 60})
            talk("POST", "/v1/responses", {"model": MODEL, "input": QUESTION, "store": True}, Pellucid_View="raw")
            talk("POST", "/v1/responses", {"model": MODEL, "input": "x" * 500})
            talk("POST", "/v1/chat/completions", {"model": "thinker", "messages": [{"role": "user", "content": "x"}]})
            talk("POST", "/ag-ui?model=thinker", _RUN)
            talk("POST", "/api/chat", {"text": "x", "model": "thinker"})
            record_requests(case, on.upstream)

        for name in ("full", "same owner, less", "some models", "small", "retention", "expires"):
            yield f"access/policy/{name}", partial(policy, name=name)

        def limited(case: Case, name: str) -> None:
            """Requests until a limit is reached, in every protocol."""
            on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
            for n, (path, body) in enumerate(_ASKS * 2):
                reply = gateway.request("POST", path, body, by[name])
                case.add(f"{n} {path}: head", rounded(_without_remaining(reply.head), _WAITS))
                case.add(f"{n} {path}: body", _without_seconds(reply.body) if reply.status != 200 else "answered")
            case.add("requests", str(len(on.upstream.requests())))

        for name in ("requests", "tokens", "reasoning tokens"):
            yield f"access/limit/{name}", partial(limited, name=name)

        def streams(case: Case) -> None:
            on.upstream.play(SCRIPT.provider, half())
            body: dict[str, Any] = {"model": MODEL, "input": QUESTION, "stream": True, "store": False}
            live = Stream(gateway, "POST", "/v1/responses", body, by["streams"])
            live.until(MARK)
            for path, more in _ASKS:
                reply = gateway.request("POST", path, more, by["streams"])
                case.add(f"{path}: head", rounded(reply.head, _WAITS))
                case.add(f"{path}: body", reply.body)
            live.leave()
            on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
            body = {**body, "stream": False}
            wait_until(lambda: gateway.request("POST", "/v1/responses", body, by["streams"]).status == 200, "a place")

        yield "access/limit/streams", streams

        def owners(case: Case) -> None:
            """What one key made, for another of its owner, and for one of another owner."""
            on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
            mine, less, other = (Talk(case, gateway, by[name]) for name in ("full", "same owner, less", "other"))
            made = mine("POST", "/v1/responses", {"model": MODEL, "input": QUESTION}).json["id"]
            conversation = mine("POST", "/v1/conversations", {"items": [_ITEM]}).json["id"]
            chat = mine("POST", "/api/chat", {"text": QUESTION, "model": MODEL}).events[0]
            mine("POST", f"/ag-ui?store=true&model={MODEL}", _RUN)
            for talk in (less, other):
                for path in (
                    f"/v1/responses/{made}",
                    f"/v1/responses/{made}?stream=true",
                    f"/v1/conversations/{conversation}/items",
                    f"/api/conversations/{chat['conversation_id']}",
                    f"/api/chat/{chat['event_id']}",
                    "/api/conversations",
                    "/ag-ui?threadId=t&runId=r",
                    "/spaces",
                ):
                    talk("GET", path)
                talk("POST", "/v1/responses", {"model": MODEL, "input": "x", "previous_response_id": made})
                talk("POST", "/v1/responses", {"model": MODEL, "input": "x", "conversation": conversation})
                talk("DELETE", f"/v1/conversations/{conversation}")
            record_rows(here, case, made)

        yield "access/owners", owners

        def credentials(case: Case) -> None:
            talk = Talk(case, gateway)
            secret = keys["full"][0]
            changed = secret[:-1] + ("A" if secret[-1] != "A" else "B")
            for path in ("/v1/models", "/api/models", "/ag-ui?threadId=t&runId=r", "/spaces", "/"):
                talk("GET", path)
                talk("GET", path, Authorization="Bearer pk_nonsense")
                talk("GET", path, Authorization=f"Bearer {changed}")
                talk("GET", path, x_api_key=secret)
                talk("GET", path, api_key=secret)
                talk("GET", path, x_api_key=secret, Authorization="Bearer other")
                talk("GET", path, Authorization=f"Basic {secret}")
                talk("GET", path, Authorization="Bearer")
            batch = Batch(on.checkout, gateway.data)
            batch.run(Invocation(("keys", "revoke", keys["revoked"][1])))
            batch.close()
            wait_until(lambda: gateway.request("GET", "/v1/models", None, by["revoked"]).status == 401, "the key's end")
            talk("GET", "/v1/models", **by["revoked"])

        yield "access/credentials", credentials
        yield "access/session", partial(_session, here, key=keys["full"][0], other=keys["other"][0])
        yield "access/rows of keys", partial(_key_rows, here, ids=[id for _, id in keys.values()])
        yield "access/origins", partial(origins, gateway=gateway, more=by["full"])
        yield "access/preflight", partial(_preflight, gateway, by["full"])
        yield "access/too many attempts", partial(_attempts, gateway)


_ITEM = {"type": "message", "role": "user", "content": "Hello"}
_RUN = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": QUESTION}]}
_ASKS = [
    ("/v1/responses", {"model": MODEL, "input": QUESTION}),
    ("/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}]}),
    (f"/ag-ui?model={MODEL}", _RUN),
    ("/api/chat", {"text": QUESTION, "model": MODEL}),
]


def _without_remaining(head: str) -> str:
    """A reply's head without what is left of a bucket that fills as time goes by."""
    lines = head.split("\n")
    return "\n".join(line.partition(": ")[0] if line.startswith("x-ratelimit-remaining") else line for line in lines)


def _without_seconds(body: bytes) -> bytes:
    return re.sub(rb"again in \d+ s", b"again in some s", body)


def _key_rows(on: Setting, case: Case, ids: list[str]) -> None:
    record_rows(on, case, *ids)


def _session(on: Setting, case: Case, key: str, other: str) -> None:
    """Signing in with a key in a browser, what the cookie opens, and signing out."""
    page = {"Origin": f"http://127.0.0.1:{on.gateway.port}", "Sec-Fetch-Site": "same-origin"}
    talk = Talk(case, on.gateway, page)
    talk("GET", "/api/session")
    bad: list[Any] = [{}, {"key": 7}, {"key": "wrong"}, {"key": key[:-1]}, []]
    for body in bad:
        talk("POST", "/api/session", body)
    talk("POST", "/api/session", json.dumps({"key": key}).encode(), Content_Type="text/plain")
    reply = talk("POST", "/api/session", {"key": key})
    cookie = dict(reply.headers)["set-cookie"].partition(";")[0]
    _use(on, case, cookie)
    second = dict(talk("POST", "/api/session", {"key": other}).headers)["set-cookie"].partition(";")[0]
    Talk(case, on.gateway, {**page, "Cookie": second})("GET", "/api/conversations")
    signed_in = Talk(case, on.gateway, {**page, "Cookie": cookie})
    signed_in("DELETE", "/api/session")
    talk("DELETE", "/api/session")
    talk("GET", "/api/conversations")
    changed = Talk(case, on.gateway, {**page, "Cookie": cookie[:-8] + "AAAAAAAA"})
    changed("GET", "/api/conversations")
    changed("GET", "/api/session")


def _use(on: Setting, case: Case, cookie: str) -> None:
    """What the cookie is worth: to the gateway's own page, to others, and outside of /api."""
    on.upstream.play(SCRIPT.provider, play_of(SCRIPT))
    own = {"Origin": f"http://127.0.0.1:{on.gateway.port}", "Cookie": cookie}
    for headers in (own, {"Cookie": cookie}, {**own, "Origin": "https://app.example.com"}, _CROSS | {"Cookie": cookie}):
        talk = Talk(case, on.gateway, headers)
        talk("GET", "/api/session")
        talk("GET", "/api/models")
        chat = talk("POST", "/api/chat", {"text": QUESTION, "model": MODEL})
        if chat.status == 200:
            talk("DELETE", f"/api/conversations/{chat.events[0]['conversation_id']}")
        talk("GET", "/v1/models")
        talk("POST", "/v1/responses", {"model": MODEL, "input": "x"})


_CROSS = {"Sec-Fetch-Site": "cross-site"}


def _preflight(gateway: Gateway, key: Mapping[str, str], case: Case) -> None:
    for origin in ("https://app.example.com", "https://evil.example", "https://app.example.com:443"):
        talk = Talk(case, gateway, {"Origin": origin})
        for path in ("/v1/responses", "/api/chat", "/ag-ui", "/spaces", "/none"):
            wanted = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,x-a"}
            talk("OPTIONS", path, **wanted)
            talk("GET", path, **key)
            talk("GET", path)


def _attempts(gateway: Gateway, case: Case) -> None:
    """Failed attempts to sign in until there were too many; the last of all cases of this gateway."""
    replies = [gateway.request("POST", "/api/session", {"key": f"wrong {n}"}) for n in range(30)]
    for reply in (replies[0], replies[-1]):
        case.add("head", rounded(reply.head, ("retry-after",)))
        case.add("body", _without_seconds(reply.body))
