"""Signing in with a key, and what its cookie is worth: under `/api`, to pages of the gateway's own, until it ends."""

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


class House:
    """A gateway's configuration and what it keeps, which outlive the gateway."""

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
        """Execute this in the store's file."""
        with sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30) as database:
            database.execute(statement, values)
        database.close()

    def _with_store(self, work: Callable[[Store], Any]) -> Any:
        async def whole() -> Any:
            store = await open_store(self.url)
            try:
                return await work(store)
            finally:
                await store.aclose()

        return asyncio.run(whole())


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[House]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pellucid.server.access.limits._LIMITS", {"attempts": 1e6})
        yield House(tmp_path_factory.mktemp("house"), upstream, patch)


@pytest.fixture(scope="module")
def keyed(house: House) -> Iterator[Served]:
    """Asks for a key, of which there are two kinds."""
    with serve(house.config(keys=True, key_env="THE_KEY", key_owner="home")) as served:
        yield served


@pytest.fixture(scope="module")
def open_door(upstream: Upstream) -> Iterator[Served]:
    """Knows no keys."""
    with serve({"providers": {"vllm": {"base_url": upstream.url}}}) as served:
        yield served


def signed_in(served: Served, key: str) -> Browser:
    browser = Browser(served)
    reply = browser.fetch("POST", "/api/session", {"key": key})
    assert (reply.status, reply.json["signed_in"]) == (200, True)
    return browser


def ask(browser: Browser, model: str, **headers: str) -> Any:
    return browser.fetch("POST", "/api/chat", {"text": "Why?", "model": model}, **headers)


def test_a_key_signs_a_person_in_and_out(keyed: Served, house: House, upstream: Upstream) -> None:
    text, _ = house.key()
    browser = Browser(keyed)
    assert browser.state == {"signed_in": False, "needed": True, "ways": ["key"]}
    assert browser.fetch("GET", "/api/conversations").json["error"]["code"] == "missing_credentials"
    reply = browser.fetch("POST", "/api/session", {"key": f"  {text}\n"})
    assert reply.json == {"signed_in": True, "needed": True, "ways": ["key"], "name": "a test"}
    assert browser.state == reply.json
    assert ask(browser, upstream.plays(say())).status == 200
    assert len(browser.fetch("GET", "/api/conversations").json["data"]) == 1
    gone = browser.fetch("DELETE", "/api/session")
    assert gone.json["signed_in"] is False
    assert browser.state["signed_in"] is False
    assert browser.fetch("GET", "/api/conversations").status == 401


def test_the_cookie_is_for_the_api_alone_and_holds_no_key(keyed: Served, house: House) -> None:
    text, id_ = house.key()
    browser = signed_in(keyed, text)
    [line] = browser.set_cookie_lines
    assert line.endswith("; Path=/api; Max-Age=604800; HttpOnly; SameSite=Strict")
    value = browser.cookies["pellucid_session"][1]
    assert value.count(".") == 4
    for secret in (text, id_, text[13:], "acme"):
        assert secret not in value
    assert len(line) < 1000
    # It counts nowhere else, whatever a client sends there.
    for path in ("/v1/models", "/ag-ui?threadId=a&runId=b", "/v1/responses/resp_1"):
        reply = browser.fetch("GET", path, Cookie=f"pellucid_session={value}")
        assert reply.status == 401, path


def test_over_https_it_goes_nowhere_else(keyed: Served, house: House) -> None:
    """Also where something before the gateway ended the encryption: the browser says where it thinks it is."""
    browser = Browser(keyed, "chat.example.com")
    browser.fetch("POST", "/api/session", {"key": house.key()[0]}, Origin="https://chat.example.com")
    [line] = browser.set_cookie_lines
    assert line.endswith("; HttpOnly; SameSite=Strict; Secure")


def test_what_signs_in_is_whose_it_was(keyed: Served, house: House) -> None:
    acme, home = signed_in(keyed, house.key()[0]), signed_in(keyed, ENV_KEY)
    guard = keyed.server.config.app.services.guard  # type: ignore[union-attr]
    for browser, owner, key_id in ((acme, "acme", None), (home, "home", "env")):
        held = browser.cookies["pellucid_session"][1]
        principal = asyncio.run(guard._principal_of_session(guard.browser_sessions.decode(held)))
        assert principal.owner == owner
        assert key_id is None or principal.key_id == key_id
    assert home.state["name"] == "THE_KEY"


def test_whoever_revokes_the_key_ends_its_sessions(keyed: Served, house: House) -> None:
    text, id_ = house.key()
    browser, other = signed_in(keyed, text), signed_in(keyed, house.key()[0])
    house.revoke(id_)
    wait_until(lambda: browser.fetch("GET", "/api/conversations").status != 200)
    reply = browser.fetch("GET", "/api/conversations")
    assert (reply.status, reply.json["error"]["code"]) == (401, "session_over")
    assert browser.state["signed_in"] is False
    assert other.state["signed_in"] is True


def test_a_key_that_expires_ends_its_sessions(keyed: Served, house: House) -> None:
    text, id_ = house.key(expires_at=time.time() + 3600)
    browser = signed_in(keyed, text)
    assert browser.fetch("GET", "/api/conversations").status == 200
    house.sql("UPDATE keys SET expires_at = ? WHERE id = ?", time.time(), id_)
    wait_until(lambda: browser.fetch("GET", "/api/conversations").status != 200)
    assert browser.fetch("GET", "/api/conversations").json["error"]["code"] == "session_over"


def test_every_replica_takes_it_and_another_house_does_not(keyed: Served, house: House, open_door: Served) -> None:
    browser = signed_in(keyed, house.key()[0])
    env = signed_in(keyed, ENV_KEY)
    with serve(house.config(keys=True)) as replica:
        for here, taken in ((browser, True), (env, False)):  # there is no key in its environment
            other = Browser(replica)
            other.cookies = here.cookies
            assert other.state["signed_in"] is taken


def test_the_first_key_closes_the_door_to_pages_too(open_door: Served) -> None:
    browser = Browser(open_door)
    state = {"signed_in": False, "needed": False, "ways": []}
    assert browser.state == state
    assert browser.fetch("POST", "/api/session", {"key": "anything"}).json == state
    assert browser.fetch("DELETE", "/api/session").json == state
    assert browser.fetch("GET", "/api/conversations").status == 200


WRONG_KEYS = ["", "x", ENV_KEY + "k", ENV_KEY[:-1], "pk_short", "é" * 40, "a.b.c", "k" * 9000]


def test_nothing_is_told_of_a_key_that_is_none(keyed: Served, house: House) -> None:
    text, id_ = house.key()
    house.revoke(id_)
    expired = house.key(expires_at=time.time() - 1)[0]
    told = set()
    for wrong in (*WRONG_KEYS, text, expired, new_key().text, text[:-1] + "x"):
        browser = Browser(keyed)
        reply = browser.fetch("POST", "/api/session", {"key": wrong})
        assert reply.status == 401
        assert not browser.set_cookie_lines
        told.add(reply.body)
    assert len(told) == 1


@pytest.mark.parametrize("body", [{}, {"key": 7}, {"key": "x", "more": 1}, [], b"{", b"null", {"key": "x" * 20_000}])
def test_a_body_that_is_not_one(keyed: Served, body: Any) -> None:
    reply = Browser(keyed).fetch("POST", "/api/session", body)
    assert reply.status in (400, 413)
    assert reply.json["error"]["message"]


def test_attempts_are_counted_and_those_that_succeed_are_not(
    house: House, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.server.access.limits._LIMITS", {"attempts": float(MAX_ATTEMPTS_PER_MINUTE)})
    text, _ = house.key()
    with serve(house.config(keys=True)) as served:
        for _ in range(MAX_ATTEMPTS_PER_MINUTE + 5):
            signed_in(served, text)
        statuses = [
            Browser(served).fetch("POST", "/api/session", {"key": "x"}).status
            for _ in range(MAX_ATTEMPTS_PER_MINUTE + 1)
        ]
        assert statuses == [401] * MAX_ATTEMPTS_PER_MINUTE + [429]
        refused = Browser(served).fetch("POST", "/api/session", {"key": text})
        assert refused.status == 429
        assert refused.json["error"]["code"] == "too_many_attempts"
        assert int(refused.headers["retry-after"]) <= 60


# --- whose request it is ---------------------------------------------------------------------------------------------

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
CHANGES = [
    ("POST", "/api/chat", {"text": "Why?", "model": "m"}),
    ("POST", "/api/chat/evt_1/cancel", None),
    ("PATCH", "/api/conversations/chat_1", {"title": "mine"}),
    ("DELETE", "/api/conversations/chat_1", None),
    ("POST", "/api/session", {"key": ENV_KEY}),
    ("DELETE", "/api/session", None),
]


@pytest.mark.parametrize("who", FOREIGN)
@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_nobody_elses_page_changes_anything(
    keyed: Served, open_door: Served, house: House, who: str, method: str, path: str, body: Any
) -> None:
    """With a session, nor where nobody needs one."""
    with_session = signed_in(keyed, ENV_KEY)
    for browser in (with_session, Browser(open_door)):
        reply = browser.fetch(method, path, body, **FOREIGN[who])
        assert (reply.status, reply.json["error"]["code"]) == (403, "foreign_origin")
    assert len(with_session.set_cookie_lines) == 1


def test_who_says_nothing_changes_nothing_with_a_cookie_and_may_read(keyed: Served) -> None:
    browser = signed_in(keyed, ENV_KEY)
    silent = {"Sec_Fetch_Site": "", "Origin": ""}
    for method, path, body in CHANGES[:4]:
        assert browser.fetch(method, path, body, **silent).status == 403
    assert browser.fetch("GET", "/api/conversations", **silent).status == 200
    # A person's own address bar.
    assert browser.fetch("GET", "/api/conversations", Sec_Fetch_Site="none").status == 200
    assert browser.fetch("GET", "/api/conversations", Sec_Fetch_Site="cross-site").status == 403
    assert browser.fetch("GET", "/api/conversations", Sec_Fetch_Site="same-site").status == 403


def test_an_old_browsers_own_page_is_known_by_its_origin(keyed: Served, upstream: Upstream) -> None:
    browser = signed_in(keyed, ENV_KEY)
    assert ask(browser, upstream.plays(say()), Sec_Fetch_Site="").status == 200


def test_a_key_in_a_header_goes_before_the_cookie_and_needs_no_page(
    keyed: Served, house: House, upstream: Upstream
) -> None:
    browser = signed_in(keyed, ENV_KEY)
    text, _ = house.key(owner="other")
    silent = {"Sec_Fetch_Site": "", "Origin": ""}
    assert ask(browser, upstream.plays(say()), Authorization=f"Bearer {text}", **silent).status == 200
    owned = browser.fetch("GET", "/api/conversations", Authorization=f"Bearer {text}").json["data"]
    assert len(owned) == 1
    assert browser.fetch("GET", "/api/conversations", Authorization="Bearer nonsense").status == 401
    both = browser.fetch("GET", "/api/conversations", Authorization=f"Bearer {text}", X_Api_Key=ENV_KEY)
    assert both.json["error"]["code"] == "invalid_credentials"


def test_two_cookies_that_differ_are_none(keyed: Served, house: House) -> None:
    mine = signed_in(keyed, ENV_KEY)
    value, other = mine.cookies["pellucid_session"][1], signed_in(keyed, ENV_KEY).cookies["pellucid_session"][1]
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


def test_a_page_that_the_operator_named_needs_a_key_of_its_own(house: House, upstream: Upstream) -> None:
    cors = {"origins": [PAGE], "credentials": True}
    theirs = {"Origin": PAGE, "Sec_Fetch_Site": "cross-site"}
    with serve(house.config(keys=True, key_env="THE_KEY", cors=cors)) as served:
        browser = signed_in(served, ENV_KEY)
        assert ask(browser, upstream.plays(say()), **theirs).status == 403
        assert browser.fetch("GET", "/api/conversations", **theirs).status == 403
        assert ask(browser, upstream.plays(say()), Authorization=f"Bearer {ENV_KEY}", **theirs).status == 200
        assert browser.fetch("POST", "/api/session", {"key": ENV_KEY}, **theirs).status == 403
    with serve({"providers": {"vllm": {"base_url": upstream.url}}, "access": {"cors": {"origins": [PAGE]}}}) as served:
        reply = ask(Browser(served), upstream.plays(say()), **theirs)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, PAGE)


# --- where nobody needs a key ----------------------------------------------------------------------------------------

FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    "content_type", ["text/plain", FORM, "multipart/form-data; boundary=x", "", "application/jsonx"]
)
def test_what_a_form_or_a_script_can_send_without_asking_does_nothing(
    open_door: Served, keyed: Served, upstream: Upstream, content_type: str
) -> None:
    """Even from a browser so old that it does not say where it comes from."""
    model = upstream.plays(say())
    body = json.dumps({"text": "Why?", "model": model}).encode()
    for browser in (Browser(open_door), signed_in(keyed, ENV_KEY)):
        before = browser.fetch("GET", "/api/conversations").json["data"]
        for origin in ({}, {"Sec_Fetch_Site": "", "Origin": ""} if not browser.set_cookie_lines else {}):
            reply = browser.fetch("POST", "/api/chat", body, Content_Type=content_type, **origin)
            assert (reply.status, reply.json["error"]["code"]) == (400, "not_json")
        assert browser.fetch("GET", "/api/conversations").json["data"] == before
    assert not upstream.calls(model)


def test_json_is_json_however_it_says_so(open_door: Served, upstream: Upstream) -> None:
    for content_type in ("application/json; charset=utf-8", "APPLICATION/JSON"):
        assert ask(Browser(open_door), upstream.plays(say()), Content_Type=content_type).status == 200


REBOUND = ["evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", "[evil]:80", "evil"]


@pytest.mark.parametrize("host", REBOUND)
def test_a_name_that_somebody_points_here_reads_nothing_and_asks_nothing(
    open_door: Served, keyed: Served, upstream: Upstream, host: str
) -> None:
    """To its browser, such a page is of one origin with us, and its GETs say nothing of it."""
    browser = Browser(open_door, host)
    for headers in ({}, {"Sec_Fetch_Site": ""}):
        for method, path, body in [*CHANGES, ("GET", "/api/conversations", None), ("GET", "/api/session", None)]:
            reply = browser.fetch(method, path, body, **headers)
            assert (reply.status, reply.json["error"]["code"]) == (403, "foreign_origin"), path
    # With keys, a name is as good as an address: the cookie is the name's own.
    named = Browser(keyed, host)
    assert named.fetch("POST", "/api/session", {"key": ENV_KEY}).status == 200
    assert named.state["signed_in"] is True


def test_a_name_that_the_operator_gave_is_one(upstream: Upstream) -> None:
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


# --- the session itself ----------------------------------------------------------------------------------------------


def sessions(clock: Clock, keys: Keys, **access: Any) -> BrowserSessions:
    return BrowserSessions(AccessConfig(**access), lambda: keys, None, clock)


def test_it_ends_when_it_was_said_to() -> None:
    clock, keys = Clock(), Keys.generate()
    here = sessions(clock, keys, session_seconds=3600)
    token = here.encode(KeySession("key_1", b"hash", here.expiry))
    clock.now += 3599
    assert here.decode(token).ends == clock.now + 1
    clock.now += 1
    with pytest.raises(AccessError, match="session is over"):
        here.decode(token)


def test_what_an_application_sealed_is_no_session() -> None:
    clock, keys = Clock(), Keys.generate()
    here = sessions(clock, keys)
    for plain in (b'{"type":"key","id":"key_1","digest":"aGFzaA==","ends":1e12}', b"{}"):
        for tenant in ("", "browser"):
            with pytest.raises(AccessError):
                here.decode(encrypt(plain, keys, tenant=tenant))


@given(st.data())
def test_no_other_string_is_one(data: st.DataObject) -> None:
    here = sessions(Clock(), KEYS)
    at = data.draw(st.integers(0, len(TOKEN) - 1))
    changed = TOKEN[:at] + data.draw(st.characters(max_codepoint=255)) + TOKEN[at + 1 :]
    text = data.draw(st.one_of(st.text(), st.just(changed), st.just(TOKEN[:at])))
    if text.split(".")[:4] != TOKEN.split(".")[:4]:
        with pytest.raises(AccessError, match="session is over"):
            here.decode(text)


KEYS = Keys.generate()
TOKEN = sessions(Clock(), KEYS).encode(KeySession("key_1", b"hash", 1e12))
