"""What is open ends when its key or session does: streams of every protocol, sockets, readers of detached runs."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from pellucid.errors import PellucidError
from pellucid.server.access import revocation
from pellucid.server.access.errors import AccessError, BackendUnavailable
from pellucid.server.access.policy import Principal
from pellucid.server.access.revocation import OpenRequest, RevocationList
from pellucid.storage import Store
from tests.access.access_kit import guard, make_key, scope
from tests.access.oidc_kit import Browser
from tests.access.test_access_sessions import Deployment, sign_in
from tests.scripted import Call, Upstream, delta
from tests.scripted.gateway import Gateway, Served, Stream, serve
from tests.server.sockets_kit import opened
from tests.server.test_long_silence import PROTOCOLS
from tests.waiting import LIMIT_SECONDS, wait_until


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Deployment]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revocation, "MIN_CHECK_SECONDS", 0.02)
        yield Deployment(tmp_path_factory.mktemp("revocation"), upstream, patch)


@pytest.fixture(scope="module")
def gateway(deployment: Deployment) -> Iterator[Served]:
    with serve(deployment.config(keys=True)) as served:
        yield served


class Pausing:
    """A model that thinks, waits, and then answers; it notes when the gateway disconnects instead."""

    def __init__(self) -> None:
        self.release: Callable[[], object] = lambda: None
        self.has_disconnected = False

    async def script(self, call: Call) -> None:
        gate, loop = asyncio.Event(), asyncio.get_running_loop()
        self.release = lambda: loop.call_soon_threadsafe(gate.set)
        await call.head()
        await call.event(delta(reasoning_content="Because"))
        waits = [asyncio.ensure_future(gate.wait()), asyncio.ensure_future(call.wait_for_disconnect())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()
        self.has_disconnected = not gate.is_set()
        if gate.is_set():
            await call.event(delta(content="So."))
            await call.event(delta("stop"))
            await call.event(b"[DONE]")
            await call.end()


def open_stream(gateway: Gateway, path: str, body: dict[str, Any], model: str, headers: dict[str, str]) -> Stream:
    named = {"forwardedProps": {"pellucid": {"model": model}}} if path == "/ag-ui" else {"model": model}
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=LIMIT_SECONDS)
    sent = {"Content-Type": "application/json", "anthropic-version": "2023-06-01", **headers}
    connection.request("POST", path, json.dumps({**body, **named}).encode(), sent)
    sock = connection.sock
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return Stream(sock, response)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_revoked_key_ends_its_open_streams(
    gateway: Served, deployment: Deployment, upstream: Upstream, protocol: str
) -> None:
    path, body, _ = PROTOCOLS[protocol]
    (key, id_), (other_key, _) = deployment.key(), deployment.key()
    model, other_model = Pausing(), Pausing()
    with (
        open_stream(gateway, path, body, upstream.plays(model.script), bearer(key)) as stream,
        open_stream(gateway, path, body, upstream.plays(other_model.script), bearer(other_key)) as other,
    ):
        stream.until(b"Because")
        other.until(b"Because")
        deployment.revoke(id_)
        seen = stream.rest()
        assert b"this API key was revoked" in seen
        if protocol not in ("ai_sdk", "messages"):  # their errors have no code
            assert b"key_revoked" in seen
        other_model.release()
        assert b"So." in other.rest()
    wait_until(lambda: model.has_disconnected)


def test_a_whole_response_in_progress_is_refused(gateway: Served, deployment: Deployment, upstream: Upstream) -> None:
    key, id_ = deployment.key()
    model = Pausing()
    name = upstream.plays(model.script)
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=LIMIT_SECONDS)
    body = json.dumps({"model": name, "input": "Why?"}).encode()
    connection.request("POST", "/v1/responses", body, {"Content-Type": "application/json", **bearer(key)})
    upstream.calls(name, 1)
    deployment.revoke(id_)
    response = connection.getresponse()
    error = json.loads(response.read())["error"]
    assert (response.status, error["code"]) == (401, "key_revoked")
    assert response.headers["www-authenticate"].startswith("Bearer")
    connection.close()
    wait_until(lambda: model.has_disconnected)


@pytest.mark.parametrize(
    ("change", "value", "code"),
    [("expires_at", 1.0, "key_expired"), ("policy", b'{"view": "hidden"}', "key_changed")],
)
def test_an_expired_or_changed_key_ends_its_open_streams(
    gateway: Served, deployment: Deployment, upstream: Upstream, change: str, value: object, code: str
) -> None:
    key, id_ = deployment.key()
    path, body, _ = PROTOCOLS["openresponses"]
    with open_stream(gateway, path, body, upstream.plays(Pausing().script), bearer(key)) as stream:
        stream.until(b"Because")
        deployment.sql(f"UPDATE keys SET {change} = ? WHERE id = ?", value, id_)
        stream.rest()
        failed = stream.events[-1]
        assert (failed["type"], failed["response"]["error"]["code"]) == ("response.failed", code)


def test_a_background_response_belongs_to_the_owner(
    gateway: Served, deployment: Deployment, upstream: Upstream
) -> None:
    (key, id_), (second_key, _) = deployment.key(), deployment.key()
    model = Pausing()
    body = {"input": "Why?", "background": True, "stream": True}
    with open_stream(gateway, "/v1/responses", body, upstream.plays(model.script), bearer(key)) as stream:
        stream.until(b"Because")
        deployment.revoke(id_)
        seen = stream.rest()
    assert b"key_revoked" in seen
    response_id = stream.events[0]["response"]["id"]
    model.release()
    path = f"/v1/responses/{response_id}"
    wait_until(lambda: gateway.request("GET", path, headers=bearer(second_key)).json["status"] == "completed")
    assert not model.has_disconnected


def test_a_reader_of_a_chat_ends_and_the_answer_continues(
    gateway: Served, deployment: Deployment, upstream: Upstream
) -> None:
    (key, id_), (second_key, _) = deployment.key(), deployment.key()
    model = Pausing()
    with open_stream(gateway, "/api/chat", {"text": "Why?"}, upstream.plays(model.script), bearer(key)) as stream:
        event_id = json.loads(stream.until(b"Because").split(b"data: ")[1].split(b"\n")[0])["event_id"]
        deployment.revoke(id_)
        # The stream has no end of the answer: a reader that continues it gets the 401.
        assert stream.rest().endswith(b": interrupted; send the request again with Last-Event-ID\n\n")
    path = f"/api/chat/{event_id}"
    assert gateway.request("GET", path, headers=bearer(key)).json["error"]["code"] == "key_revoked"
    model.release()
    assert b"So." in gateway.request("GET", path, headers=bearer(second_key)).body


def test_a_revoked_key_closes_its_sockets(gateway: Served, deployment: Deployment, upstream: Upstream) -> None:
    (key, id_), model = deployment.key(), Pausing()
    with (
        opened(gateway, additional_headers=bearer(key)) as idle,
        opened(gateway, upstream.plays(model.script), additional_headers=bearer(key)) as active,
    ):
        active.send()
        active.until("response.reasoning.delta")
        deployment.revoke(id_)
        failed = active.until("response.failed")[-1]
        assert failed["response"]["error"]["code"] == "key_revoked"
        for socket in (active, idle):
            error = socket.message()
            assert (error["type"], error["status"], error["error"]["code"]) == ("error", 401, "key_revoked")
            with pytest.raises(ConnectionClosed) as closed:
                socket.message()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
    wait_until(lambda: model.has_disconnected)


def test_signing_out_ends_copies_of_the_cookie_everywhere(
    gateway: Served, deployment: Deployment, upstream: Upstream
) -> None:
    key, _ = deployment.key()
    browser, second_session = sign_in(gateway, key), sign_in(gateway, key)
    copy = Browser(gateway)
    copy.cookies = dict(browser.cookies)
    with serve(deployment.config(keys=True)) as replica:
        elsewhere = Browser(replica)
        elsewhere.cookies = dict(browser.cookies)
        assert elsewhere.fetch("GET", "/api/conversations").status == 200
        model = Pausing()
        cookie = {"Cookie": f"pellucid_session={copy.cookies['pellucid_session'][1]}", "Sec-Fetch-Site": "same-origin"}
        with open_stream(replica, "/api/chat", {"text": "Why?"}, upstream.plays(model.script), cookie) as stream:
            stream.until(b"Because")
            assert browser.fetch("DELETE", "/api/session").json["signed_in"] is False
            refused = copy.fetch("GET", "/api/conversations")
            assert (refused.status, refused.json["error"]["code"]) == (401, "session_over")
            stream.rest()
        wait_until(lambda: elsewhere.fetch("GET", "/api/conversations").status == 401)
        model.release()
    assert second_session.fetch("GET", "/api/conversations").status == 200
    # A gateway that starts later knows it, too.
    with serve(deployment.config(keys=True)) as later:
        elsewhere.gateway = later
        elsewhere.host = f"127.0.0.1:{later.port}"
        assert elsewhere.state["signed_in"] is False


def test_a_sign_out_that_cannot_be_stored_is_not_reported_as_done(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(deployment.config(keys=True)) as served:
        browser = sign_in(served, deployment.key()[0])
        deployment.sql("ALTER TABLE revoked_tokens RENAME TO moved_away")
        try:
            reply = browser.fetch("DELETE", "/api/session")
        finally:
            deployment.sql("ALTER TABLE moved_away RENAME TO revoked_tokens")
        assert reply.status in (500, 503)
        assert "pellucid_session=;" in browser.set_cookie_lines[-1]


# --- the check, without a server ---------------------------------------------------------------------------------


class CountingKeys:
    """The keys of a store, with the number of queries; they can be down."""

    def __init__(self, store: Store) -> None:
        self._keys = store.keys
        self.queries = 0
        self.is_down = False
        self.by_hash, self.list = store.keys.by_hash, store.keys.list

    async def by_ids(self, ids: Collection[str]) -> Any:
        self.queries += 1
        if self.is_down:
            raise BackendUnavailable
        return await self._keys.by_ids(ids)


@pytest.mark.anyio
async def test_one_query_checks_all_open_requests(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = CountingKeys(store)
    access = guard({"keys": True}, store)
    assert access._key_cache is not None
    monkeypatch.setattr(access._key_cache, "_keys", keys)
    ended: list[tuple[str, str]] = []
    first_key = ""
    for _ in range(20):
        text, id_ = await make_key(store)
        first_key = first_key or id_
        principal = await access.admit(scope(text))
        for _ in range(3):

            def interrupt(error: PellucidError, id_: str = id_) -> None:
                ended.append((id_, error.info.code or ""))

            access.open_requests.add(OpenRequest(principal, interrupt))
    await access.open_requests.check()
    assert (keys.queries, ended) == (1, [])
    await store.keys.revoke(first_key, time.time())
    keys.is_down = True
    with pytest.raises(BackendUnavailable):
        await access.open_requests.check()
    assert ended == []  # an outage ends nothing
    keys.is_down = False
    await access.open_requests.check()
    await access.open_requests.check()
    assert ended == [(first_key, "key_revoked")] * 3


@pytest.mark.anyio
async def test_a_check_refreshes_the_cache_of_keys(store: Store) -> None:
    access = guard({"keys": True, "key_seconds": 300}, store, monotonic=lambda: 0.0)
    text, id_ = await make_key(store)
    request = OpenRequest(await access.admit(scope(text)), lambda error: None)
    access.open_requests.add(request)
    await store.keys.revoke(id_, time.time())
    assert (await access.admit(scope(text))).key_id == id_
    await access.open_requests.check()
    with pytest.raises(AccessError, match="revoked"):
        await access.admit(scope(text))


@pytest.mark.anyio
async def test_requests_without_a_stored_key_need_no_query(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = CountingKeys(store)
    access = guard({"keys": True}, store)
    assert access._key_cache is not None
    monkeypatch.setattr(access._key_cache, "_keys", keys)
    for principal in (Principal("local"), Principal("home", "env"), Principal("https://issuer|ann")):
        access.open_requests.add(OpenRequest(principal, lambda error: None))
    await access.open_requests.check()
    assert keys.queries == 0


@pytest.mark.anyio
async def test_a_session_is_looked_up_once_in_a_while(store: Store) -> None:
    now = 0.0
    revocations = RevocationList(store.revoked_tokens, 5.0, lambda: now)
    other_replica = RevocationList(store.revoked_tokens, 5.0, lambda: now)
    assert not await revocations.is_revoked("a")
    assert await other_replica.revoke("a", 1e12)
    assert await other_replica.is_revoked("a")
    now = 4.9
    assert not await revocations.is_revoked("a")
    now = 5.1
    assert await revocations.is_revoked("a")
    assert not await revocations.revoke("a", 1e12)
