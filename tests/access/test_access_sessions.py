"""Browser sessions that were opened with a key: valid under `/api`, for pages of the gateway, until they end."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.sealing import Keys, encrypt
from pellucid.server.access.config import AccessConfig
from pellucid.server.access.errors import AccessError
from pellucid.server.access.keys import new_key
from pellucid.server.access.limits import MAX_ATTEMPTS_PER_MINUTE
from pellucid.server.access.session import BrowserSessions, KeySession
from pellucid.server.config import check_config
from pellucid.storage import Store, open_store
from tests.access.access_kit import PEPPER, Clock, make_key
from tests.access.oidc_kit import Browser
from tests.scripted import Upstream, say
from tests.scripted.gateway import Served, serve
from tests.waiting import wait_until

ENV_KEY = "k" * 40
PAGE = "https://app.example.com"


class Deployment:
    """Configuration and stored data of a gateway, which outlive its process."""

    def __init__(self, folder: Path, upstream: Upstream, patch: pytest.MonkeyPatch) -> None:
        patch.setenv("PELLUCID_KEY_PEPPER", PEPPER)
        patch.setenv("THE_KEY", ENV_KEY)
        self.url = f"sqlite:///{folder / 'store.sqlite'}"
        self.upstream = upstream

    def config(self, **access: Any) -> Any:
        table = {
            "providers": {"vllm": {"base_url": self.upstream.url}},
            "storage": {"url": self.url},
            "access": {"key_seconds": 0.1, **access},
        }
        return check_config(table, {"THE_KEY": ENV_KEY})

    def key(self, **fields: Any) -> tuple[str, str]:
        made: tuple[str, str] = self._with_store(lambda store: make_key(store, **fields))
        return made

    def revoke(self, id_: str) -> None:
        self._with_store(lambda store: store.keys.revoke(id_, time.time()))

    def sql(self, statement: str, *values: object) -> None:
        """Execute a statement in the store's file."""
        with sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30) as database:
            database.execute(statement, values)
        database.close()

    def _with_store(self, work: Callable[[Store], Any]) -> Any:
        async def opened() -> Any:
            store = await open_store(self.url)
            try:
                return await work(store)
            finally:
                await store.aclose()

        return asyncio.run(opened())


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Deployment]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pellucid.server.access.limits._SIGN_IN_LIMITS", {"attempts": 1e6})
        yield Deployment(tmp_path_factory.mktemp("house"), upstream, patch)


@pytest.fixture(scope="module")
def keyed_gateway(deployment: Deployment) -> Iterator[Served]:
    """Gateway that requires a key; it knows stored keys and one from the environment."""
    with serve(deployment.config(keys=True, key_env="THE_KEY", key_owner="home")) as served:
        yield served


@pytest.fixture(scope="module")
def open_gateway(upstream: Upstream) -> Iterator[Served]:
    """Gateway without keys."""
    with serve({"providers": {"vllm": {"base_url": upstream.url}}}) as served:
        yield served


def sign_in(served: Served, key: str) -> Browser:
    browser = Browser(served)
    reply = browser.fetch("POST", "/api/session", {"key": key})
    assert (reply.status, reply.json["signed_in"]) == (200, True)
    return browser


def ask(browser: Browser, model: str, **headers: str) -> Any:
    return browser.fetch("POST", "/api/chat", {"text": "Why?", "model": model}, **headers)


def test_a_page_of_one_owner_sends_nothing_with_the_session_of_another(
    keyed_gateway: Served, deployment: Deployment, upstream: Upstream
) -> None:
    (ann_key, _), (bob_key, _) = deployment.key(owner="ann"), deployment.key(owner="bob")
    browser, model = sign_in(keyed_gateway, ann_key), upstream.plays(say(), say())
    ann = browser.state["owner"]
    assert ask(browser, model, Pellucid_Owner=ann).status == 200
    # Another tab of the same browser.
    browser.fetch("DELETE", "/api/session", None, Pellucid_Owner=ann)
    assert browser.fetch("POST", "/api/session", {"key": bob_key}, Pellucid_Owner=ann).status == 200
    bob = browser.state["owner"]
    assert bob != ann
    for reply in (
        ask(browser, model, Pellucid_Owner=ann),
        browser.fetch("GET", "/api/conversations", None, Pellucid_Owner=ann),
        browser.fetch("GET", "/api/events", None, Pellucid_Owner=ann),
    ):
        assert (reply.status, reply.json["error"]["code"]) == (409, "another_owner")
    assert browser.fetch("GET", "/api/conversations", None, Pellucid_Owner=bob).json["data"] == []
    assert ask(browser, model, Pellucid_Owner=bob).status == 200


def test_a_key_signs_a_person_in_and_out(keyed_gateway: Served, deployment: Deployment, upstream: Upstream) -> None:
    text, _ = deployment.key()
    browser = Browser(keyed_gateway)
    assert browser.state == {"signed_in": False, "needed": True, "ways": ["key"]}
    refused = browser.fetch("GET", "/api/conversations")
    assert (refused.json["error"]["code"], refused.headers["x-should-retry"]) == ("missing_credentials", "false")
    reply = browser.fetch("POST", "/api/session", {"key": f"  {text}\n"})
    state = reply.json
    assert state.pop("owner") not in ("", "local"), "an opaque mark, not the owner's name"
    assert state == {"signed_in": True, "needed": True, "ways": ["key"], "name": "a test"}
    assert browser.state == reply.json
    assert ask(browser, upstream.plays(say())).status == 200
    assert len(browser.fetch("GET", "/api/conversations").json["data"]) == 1
    gone = browser.fetch("DELETE", "/api/session")
    assert gone.json["signed_in"] is False
    assert browser.state["signed_in"] is False
    assert browser.fetch("GET", "/api/conversations").status == 401


def test_the_cookie_is_sent_to_the_api_only_and_contains_no_key(keyed_gateway: Served, deployment: Deployment) -> None:
    text, id_ = deployment.key()
    browser = sign_in(keyed_gateway, text)
    [line] = browser.set_cookie_lines
    assert line.endswith("; Path=/api; Max-Age=604800; HttpOnly; SameSite=Strict")
    value = browser.cookies["pellucid_session"][1]
    assert value.count(".") == 4
    for secret in (text, id_, text[13:], "acme"):
        assert secret not in value
    assert len(line) < 1000
    # Other routes do not accept the cookie.
    for path in ("/v1/models", "/ag-ui?threadId=a&runId=b", "/v1/responses/resp_1"):
        reply = browser.fetch("GET", path, Cookie=f"pellucid_session={value}")
        assert reply.status == 401, path


def test_the_cookie_is_secure_over_https(keyed_gateway: Served, deployment: Deployment) -> None:
    """Also where a proxy terminated TLS: the browser's Origin header shows the scheme."""
    browser = Browser(keyed_gateway, "chat.example.com")
    browser.fetch("POST", "/api/session", {"key": deployment.key()[0]}, Origin="https://chat.example.com")
    [line] = browser.set_cookie_lines
    assert line.endswith("; HttpOnly; SameSite=Strict; Secure")


def test_a_session_has_the_owner_of_its_key(keyed_gateway: Served, deployment: Deployment) -> None:
    acme, home = sign_in(keyed_gateway, deployment.key()[0]), sign_in(keyed_gateway, ENV_KEY)
    guard = keyed_gateway.server.config.app.services.guard  # type: ignore[union-attr]
    for browser, owner, key_id in ((acme, "acme", None), (home, "home", "env")):
        cookie = browser.cookies["pellucid_session"][1]
        principal = asyncio.run(guard._principal_of_session(guard.browser_sessions.decode(cookie)))
        assert principal.owner == owner
        assert key_id is None or principal.key_id == key_id
    assert home.state["name"] == "THE_KEY"
    assert ("create_spaces" in acme.state, home.state["create_spaces"]) == (False, True)


def test_revoking_a_key_ends_its_sessions(keyed_gateway: Served, deployment: Deployment) -> None:
    text, id_ = deployment.key()
    browser, other = sign_in(keyed_gateway, text), sign_in(keyed_gateway, deployment.key()[0])
    deployment.revoke(id_)
    wait_until(lambda: browser.fetch("GET", "/api/conversations").status != 200)
    reply = browser.fetch("GET", "/api/conversations")
    assert (reply.status, reply.json["error"]["code"]) == (401, "session_over")
    assert browser.state["signed_in"] is False
    assert other.state["signed_in"] is True


def test_an_expired_key_ends_its_sessions(keyed_gateway: Served, deployment: Deployment) -> None:
    text, id_ = deployment.key(expires_at=time.time() + 3600)
    browser = sign_in(keyed_gateway, text)
    assert browser.fetch("GET", "/api/conversations").status == 200
    deployment.sql("UPDATE keys SET expires_at = ? WHERE id = ?", time.time(), id_)
    wait_until(lambda: browser.fetch("GET", "/api/conversations").status != 200)
    assert browser.fetch("GET", "/api/conversations").json["error"]["code"] == "session_over"


def test_a_session_is_valid_at_every_replica_that_knows_its_key(
    keyed_gateway: Served, deployment: Deployment, open_gateway: Served
) -> None:
    browser = sign_in(keyed_gateway, deployment.key()[0])
    env = sign_in(keyed_gateway, ENV_KEY)
    with serve(deployment.config(keys=True)) as replica:
        for original, taken in ((browser, True), (env, False)):  # there is no key in the environment of this replica
            other = Browser(replica)
            other.cookies = original.cookies
            assert other.state["signed_in"] is taken


def test_without_keys_no_sign_in_is_needed(open_gateway: Served) -> None:
    browser = Browser(open_gateway)
    state = {"signed_in": False, "needed": False, "ways": [], "create_spaces": True}
    assert browser.state == state
    assert browser.fetch("POST", "/api/session", {"key": "anything"}).json == state
    assert browser.fetch("DELETE", "/api/session").json == state
    assert browser.fetch("GET", "/api/conversations").status == 200


WRONG_KEYS = ["", "x", ENV_KEY + "k", ENV_KEY[:-1], "pk_short", "é" * 40, "a.b.c", "k" * 9000]


def test_all_wrong_keys_get_the_same_response(keyed_gateway: Served, deployment: Deployment) -> None:
    text, id_ = deployment.key()
    deployment.revoke(id_)
    expired = deployment.key(expires_at=time.time() - 1)[0]
    bodies = set()
    for wrong in (*WRONG_KEYS, text, expired, new_key().text, text[:-1] + "x"):
        browser = Browser(keyed_gateway)
        reply = browser.fetch("POST", "/api/session", {"key": wrong})
        assert reply.status == 401
        assert not browser.set_cookie_lines
        bodies.add(reply.body)
    assert len(bodies) == 1


@pytest.mark.parametrize("body", [{}, {"key": 7}, {"key": "x", "more": 1}, [], b"{", b"null", {"key": "x" * 20_000}])
def test_a_malformed_sign_in_body_is_refused(keyed_gateway: Served, body: Any) -> None:
    reply = Browser(keyed_gateway).fetch("POST", "/api/session", body)
    assert reply.status in (400, 413)
    assert reply.json["error"]["message"]


def test_only_failed_sign_ins_are_limited(
    deployment: Deployment, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.server.access.limits._SIGN_IN_LIMITS", {"attempts": float(MAX_ATTEMPTS_PER_MINUTE)})
    text, _ = deployment.key()
    with serve(deployment.config(keys=True)) as served:
        for _ in range(MAX_ATTEMPTS_PER_MINUTE + 5):
            sign_in(served, text)
        statuses = [
            Browser(served).fetch("POST", "/api/session", {"key": "x"}).status
            for _ in range(MAX_ATTEMPTS_PER_MINUTE + 1)
        ]
        assert statuses == [401] * MAX_ATTEMPTS_PER_MINUTE + [429]
        refused = Browser(served).fetch("POST", "/api/session", {"key": text})
        assert refused.status == 429
        assert refused.json["error"]["code"] == "too_many_attempts"
        assert int(refused.headers["retry-after"]) <= 60


# --- origin of a request ---------------------------------------------------------------------------------------------

FOREIGN: dict[str, dict[str, str]] = {
    "another site": {"Sec_Fetch_Site": "cross-site", "Origin": "https://evil.example"},
    "another site that hides where it is": {"Sec_Fetch_Site": "cross-site", "Origin": "null"},
    "another site, by a form that says nothing else": {"Sec_Fetch_Site": "cross-site", "Origin": ""},
    "a neighbour": {"Sec_Fetch_Site": "same-site", "Origin": ""},
    "another site in an old browser": {"Sec_Fetch_Site": "", "Origin": "https://evil.example"},
    "another port in an old browser": {"Sec_Fetch_Site": "", "Origin": "http://127.0.0.1:1"},
    "a sandboxed frame in an old browser": {"Sec_Fetch_Site": "", "Origin": "null"},
    "whatever says that it is us": {"Sec_Fetch_Site": "same-origin-not", "Origin": ""},
}
WRITES = [
    ("POST", "/api/chat", {"text": "Why?", "model": "m"}),
    ("POST", "/api/chat/evt_1/cancel", None),
    ("PATCH", "/api/conversations/chat_1", {"title": "mine"}),
    ("DELETE", "/api/conversations/chat_1", None),
    ("POST", "/api/session", {"key": ENV_KEY}),
    ("DELETE", "/api/session", None),
]


@pytest.mark.parametrize("who", FOREIGN)
@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_a_foreign_page_cannot_change_anything(
    keyed_gateway: Served, open_gateway: Served, deployment: Deployment, who: str, method: str, path: str, body: Any
) -> None:
    """Neither with a session nor where no key is required."""
    with_session = sign_in(keyed_gateway, ENV_KEY)
    for browser in (with_session, Browser(open_gateway)):
        reply = browser.fetch(method, path, body, **FOREIGN[who])
        assert (reply.status, reply.json["error"]["code"]) == (403, "foreign_origin")
    assert len(with_session.set_cookie_lines) == 1


def test_a_cookie_without_origin_headers_can_read_only(keyed_gateway: Served) -> None:
    browser = sign_in(keyed_gateway, ENV_KEY)
    silent = {"Sec_Fetch_Site": "", "Origin": ""}
    for method, path, body in WRITES[:4]:
        assert browser.fetch(method, path, body, **silent).status == 403
    assert browser.fetch("GET", "/api/conversations", **silent).status == 200
    # A URL that a person typed.
    assert browser.fetch("GET", "/api/conversations", Sec_Fetch_Site="none").status == 200
    assert browser.fetch("GET", "/api/conversations", Sec_Fetch_Site="cross-site").status == 403
    assert browser.fetch("GET", "/api/conversations", Sec_Fetch_Site="same-site").status == 403


def test_without_fetch_metadata_the_origin_identifies_our_page(keyed_gateway: Served, upstream: Upstream) -> None:
    browser = sign_in(keyed_gateway, ENV_KEY)
    assert ask(browser, upstream.plays(say()), Sec_Fetch_Site="").status == 200


def test_a_key_in_a_header_precedes_the_cookie_and_needs_no_origin(
    keyed_gateway: Served, deployment: Deployment, upstream: Upstream
) -> None:
    browser = sign_in(keyed_gateway, ENV_KEY)
    text, _ = deployment.key(owner="other")
    silent = {"Sec_Fetch_Site": "", "Origin": ""}
    assert ask(browser, upstream.plays(say()), Authorization=f"Bearer {text}", **silent).status == 200
    owned = browser.fetch("GET", "/api/conversations", Authorization=f"Bearer {text}").json["data"]
    assert len(owned) == 1
    assert browser.fetch("GET", "/api/conversations", Authorization="Bearer nonsense").status == 401
    both = browser.fetch("GET", "/api/conversations", Authorization=f"Bearer {text}", X_Api_Key=ENV_KEY)
    assert both.json["error"]["code"] == "invalid_credentials"


def test_two_different_session_cookies_are_refused(keyed_gateway: Served, deployment: Deployment) -> None:
    mine = sign_in(keyed_gateway, ENV_KEY)
    value, other = mine.cookies["pellucid_session"][1], sign_in(keyed_gateway, ENV_KEY).cookies["pellucid_session"][1]
    name = "pellucid_session"
    for cookies, status in (
        (f"{name}={value}; {name}={other}", 401),
        (f"{name}={value}; {name}={value}", 200),
        (f"a=b; {name}={value};c=d", 200),
        (f"x{name}={other}; {name}={value}", 200),
        (f"{name}=; {name}={value}", 200),
        (f"{name}={value}x", 401),
        (f"{name}={'x' * 5000}", 401),
        (f"{name}=\xe9", 401),
    ):
        assert mine.fetch("GET", "/api/conversations", Cookie=cookies).status == status, cookies


def test_a_configured_origin_needs_its_own_key(deployment: Deployment, upstream: Upstream) -> None:
    cors = {"origins": [PAGE], "credentials": True}
    theirs = {"Origin": PAGE, "Sec_Fetch_Site": "cross-site"}
    with serve(deployment.config(keys=True, key_env="THE_KEY", cors=cors)) as served:
        browser = sign_in(served, ENV_KEY)
        assert ask(browser, upstream.plays(say()), **theirs).status == 403
        assert browser.fetch("GET", "/api/conversations", **theirs).status == 403
        assert ask(browser, upstream.plays(say()), Authorization=f"Bearer {ENV_KEY}", **theirs).status == 200
        assert browser.fetch("POST", "/api/session", {"key": ENV_KEY}, **theirs).status == 403
    with serve({"providers": {"vllm": {"base_url": upstream.url}}, "access": {"cors": {"origins": [PAGE]}}}) as served:
        reply = ask(Browser(served), upstream.plays(say()), **theirs)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, PAGE)


# --- where no key is required ----------------------------------------------------------------------------------------

FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    "content_type", ["text/plain", FORM, "multipart/form-data; boundary=x", "", "application/jsonx"]
)
def test_requests_that_need_no_preflight_are_refused(
    open_gateway: Served, keyed_gateway: Served, upstream: Upstream, content_type: str
) -> None:
    """Even from a browser that is too old to send its origin."""
    model = upstream.plays(say())
    body = json.dumps({"text": "Why?", "model": model}).encode()
    for browser in (Browser(open_gateway), sign_in(keyed_gateway, ENV_KEY)):
        before = browser.fetch("GET", "/api/conversations").json["data"]
        for origin in ({}, {"Sec_Fetch_Site": "", "Origin": ""} if not browser.set_cookie_lines else {}):
            reply = browser.fetch("POST", "/api/chat", body, Content_Type=content_type, **origin)
            assert (reply.status, reply.json["error"]["code"]) == (400, "not_json")
        assert browser.fetch("GET", "/api/conversations").json["data"] == before
    assert not upstream.calls(model)


def test_every_spelling_of_the_json_content_type_is_accepted(open_gateway: Served, upstream: Upstream) -> None:
    for content_type in ("application/json; charset=utf-8", "APPLICATION/JSON"):
        assert ask(Browser(open_gateway), upstream.plays(say()), Content_Type=content_type).status == 200


REBOUND = ["evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", "[evil]:80", "evil"]


@pytest.mark.parametrize("host", REBOUND)
def test_dns_rebinding_cannot_read_or_change_anything(
    open_gateway: Served, keyed_gateway: Served, upstream: Upstream, host: str
) -> None:
    """For the browser such a page has the same origin as the gateway, and its GETs have no Origin header."""
    browser = Browser(open_gateway, host)
    for headers in ({}, {"Sec_Fetch_Site": ""}):
        for method, path, body in [*WRITES, ("GET", "/api/conversations", None), ("GET", "/api/session", None)]:
            reply = browser.fetch(method, path, body, **headers)
            assert (reply.status, reply.json["error"]["code"]) == (403, "foreign_host"), path
    paths = ("/", "/metrics", "/v1/models", "/openapi.json", "/spaces", "/v1/responses/resp_1", "/nowhere")
    for path in paths:
        reply = open_gateway.request("GET", path, headers={"Host": host})
        assert reply.status == 403, path
        assert host in reply.body.decode().replace("\\", ""), path
    for path in ("/health", "/ready"):
        assert open_gateway.request("GET", path, headers={"Host": host}).status == 200, path
    # With keys, a host name is as good as an address: the cookie belongs to that name.
    named = Browser(keyed_gateway, host)
    assert named.fetch("POST", "/api/session", {"key": ENV_KEY}).status == 200
    assert named.state["signed_in"] is True


def test_the_host_of_a_configured_origin_is_accepted(upstream: Upstream) -> None:
    config = {
        "providers": {"vllm": {"base_url": upstream.url}},
        "access": {"cors": {"origins": ["https://chat.example"]}},
    }
    with serve(config) as served:
        reply = ask(Browser(served, "chat.example"), upstream.plays(say()), Origin="https://chat.example")
        assert reply.status == 200
        assert Browser(served, "chat.example").fetch("GET", "/api/conversations").status == 200
        assert Browser(served, "other.example").fetch("GET", "/api/conversations").status == 403
        for host in ("localhost:1", "[::1]:80", "192.168.1.4", "app.localhost"):
            assert Browser(served, host).fetch("GET", "/api/conversations").status == 200


# --- session tokens --------------------------------------------------------------------------------------------------


def sessions(clock: Clock, keys: Keys, **access: Any) -> BrowserSessions:
    return BrowserSessions(AccessConfig(**access), lambda: keys, None, clock)


def test_a_session_ends_at_its_expiry() -> None:
    clock, keys = Clock(), Keys.generate()
    browser_sessions = sessions(clock, keys, session_seconds=3600)
    token = browser_sessions.encode(browser_sessions.for_key("key_1", b"hash"))
    clock.now += 3599
    assert browser_sessions.decode(token).ends == clock.now + 1
    clock.now += 1
    with pytest.raises(AccessError, match="session is over"):
        browser_sessions.decode(token)


def test_a_token_sealed_for_another_tenant_is_no_session() -> None:
    clock, keys = Clock(), Keys.generate()
    browser_sessions = sessions(clock, keys)
    for plain in (b'{"type":"key","id":"key_1","digest":"aGFzaA==","ends":1e12}', b"{}"):
        for tenant in ("", "browser"):
            with pytest.raises(AccessError):
                browser_sessions.decode(encrypt(plain, keys, tenant=tenant))


@given(st.data())
def test_a_changed_or_arbitrary_token_is_refused(data: st.DataObject) -> None:
    browser_sessions = sessions(Clock(), KEYS)
    at = data.draw(st.integers(0, len(TOKEN) - 1))
    changed = TOKEN[:at] + data.draw(st.characters(max_codepoint=255)) + TOKEN[at + 1 :]
    text = data.draw(st.one_of(st.text(), st.just(changed), st.just(TOKEN[:at])))
    if text.split(".")[:4] != TOKEN.split(".")[:4]:
        with pytest.raises(AccessError, match="session is over"):
            browser_sessions.decode(text)


KEYS = Keys.generate()
TOKEN = sessions(Clock(), KEYS).encode(KeySession("key_1", b"hash", 1e12, "id"))
