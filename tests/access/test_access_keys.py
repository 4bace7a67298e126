"""API keys: their format, what is stored of them, and which requests they admit."""

from __future__ import annotations

import asyncio
import string
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import PellucidError
from pellucid.server.access import key_cache
from pellucid.server.access.errors import AccessError
from pellucid.server.access.keys import KeyHasher, key_id_of, new_key
from pellucid.server.access.policy import Policy
from pellucid.storage import Store, StoreError, open_store
from tests.access.access_kit import ENVIRON, HASHER, Clock, guard, make_key, refusal, scope
from tests.service_postgres import PostgresServer, postgres
from tests.waiting import loop_turns

pytestmark = pytest.mark.anyio
ON = {"keys": True, "key_seconds": 5.0}


class CountingKeyStore:
    """Key store that counts its lookups and can be down."""

    def __init__(self, store: Store) -> None:
        self.keys = self
        self._keys = store.keys
        self.lookups = 0
        self.is_down = False
        self.answers = asyncio.Event()
        """Lookups do not return until this is set."""
        self.answers.set()

    async def by_hash(self, hash: bytes) -> Any:
        self.lookups += 1
        await self.answers.wait()
        if self.is_down:
            raise StoreError()
        return await self._keys.by_hash(hash)

    async def list(self, owner: str | None = None) -> Any:
        if self.is_down:
            raise StoreError()
        return await self._keys.list(owner)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=32, max_size=32))
def test_a_key_has_a_fixed_format_for_any_random_bytes(one: bytes, two: bytes) -> None:
    key = new_key(lambda size: one if size == 16 else two)
    assert len(key.text) == 62
    assert set(key.text[3:]) <= set(string.ascii_letters + string.digits)
    assert key_id_of(key.text) == key.id
    assert key.id.removeprefix("key_") in key.text


@given(st.data())
def test_one_wrong_character_is_detected_without_a_lookup(data: st.DataObject) -> None:
    text = new_key().text
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(sorted(set(string.printable) - {text[at]})))
    with pytest.raises(AccessError):
        key_id_of(text[:at] + other + text[at + 1 :])


def test_transposed_characters_and_truncated_keys_are_detected() -> None:
    text = new_key().text
    wrong = [text[:n] for n in range(len(text))] + [text + "0", text + "\n", " " + text]
    wrong += [text[:n] + text[n + 1] + text[n] + text[n + 2 :] for n in range(len(text) - 1) if text[n] != text[n + 1]]
    for mistyped in wrong:
        with pytest.raises(AccessError):
            key_id_of(mistyped)


def test_two_keys_are_never_the_same() -> None:
    assert len({new_key().text for _ in range(1000)}) == 1000


def test_a_hash_depends_on_the_pepper_and_identifies_it() -> None:
    text, other = new_key().text, KeyHasher(b"another pepper, of thirty-two byt")
    assert HASHER.digest(text) != other.digest(text)
    assert HASHER.is_own_hash(HASHER.digest(text))
    assert not other.is_own_hash(HASHER.digest(text))


async def test_a_key_is_accepted_in_every_header(store: Store) -> None:
    policy = Policy(models=["qwen*"], view="summary", requests_per_minute=3)
    text, id_ = await make_key(store, policy)
    access_guard = guard(ON, store)
    for kind in ("http", "websocket"):
        for request in (
            scope(text, kind=kind),
            scope(kind=kind, x_api_key=text),
            scope(kind=kind, api_key=text),
            scope(kind=kind, authorization=f"bearer   {text}"),
            scope(text, kind=kind, x_api_key=text),
            scope(kind=kind, authorization="Basic Zm9v", x_api_key=text),
        ):
            principal = await access_guard.admit(request)
            assert (principal.owner, principal.key_id, principal.name) == ("acme", id_, "a test")
            assert principal.policy == policy
    await access_guard.aclose()


async def test_the_database_does_not_contain_the_key(store: Store) -> None:
    text, _ = await make_key(store)
    rows = await store.keys.list()
    assert len(rows) == 1
    row = rows[0]
    assert text[13:] not in repr(row)
    assert text.encode()[13:] not in row.hash


@pytest.mark.parametrize("credential", ["", "sk-unused", "pk_", "a.b.c", "x" * 20_000, "pk_\xff", "Bearer"])
async def test_malformed_credentials_are_refused(store: Store, credential: str) -> None:
    await make_key(store)
    access_guard = guard(ON, store)
    error = await refusal(access_guard, scope(credential))
    assert credential in ("", "Bearer", "pk_", "a.b.c") or credential not in str(error)


async def test_a_request_without_credentials_gets_only_the_challenge(store: Store) -> None:
    error = await refusal(guard(ON, store), scope())
    assert error.headers == [(b"www-authenticate", b'Bearer realm="pellucid"')]
    assert error.info.code == "missing_credentials"
    error = await refusal(guard(ON, store), scope(new_key().text))
    assert error.headers == [(b"www-authenticate", b'Bearer realm="pellucid", error="invalid_token"')]


async def test_two_different_credentials_are_refused(store: Store) -> None:
    one, _ = await make_key(store)
    two, _ = await make_key(store)
    error = await refusal(guard(ON, store), scope(one, x_api_key=two))
    assert error.info.code == "invalid_credentials"


async def test_a_key_with_another_pepper_or_a_forged_row_is_refused(store: Store) -> None:
    text, _ = await make_key(store)
    access_guard = guard(ON, store, environ={"PELLUCID_KEY_PEPPER": "00" * 32})
    assert (await refusal(access_guard, scope(text))).info.code == "invalid_api_key"
    # An attacker who can write to the database and does not have the pepper.
    forged = new_key().text
    await make_key(store, hash=HASHER.pepper_id + sha256(forged.encode()).digest())
    assert (await refusal(guard(ON, store), scope(forged))).info.code == "invalid_api_key"
    # A known hash in another row does not make a key with another id valid.
    real = new_key().text
    await make_key(store, hash=HASHER.digest(real))
    assert (await refusal(guard(ON, store), scope(real))).info.code == "invalid_api_key"


async def test_a_cached_key_expires_on_time(store: Store) -> None:
    clock = Clock()
    text, _ = await make_key(store, expires_at=clock.now + 10)
    access_guard = guard({"keys": True, "key_seconds": 300}, store, clock=clock)
    await access_guard.admit(scope(text))
    clock.now += 9.9
    await access_guard.admit(scope(text))
    clock.now += 0.1
    assert (await refusal(access_guard, scope(text))).info.code == "key_expired"


async def test_a_revoked_key_is_refused_after_the_cache_time(store: Store) -> None:
    text, id_ = await make_key(store)
    ticks = Clock()
    access_guard, other = guard(ON, store, monotonic=ticks), guard(ON, store)
    await access_guard.admit(scope(text))
    assert await store.keys.revoke(id_, time.time())
    assert (await refusal(other, scope(text))).info.code == "key_revoked"
    ticks.now += ON["key_seconds"]
    assert (await refusal(access_guard, scope(text))).info.code == "key_revoked"


async def test_concurrent_requests_look_a_key_up_once(store: Store) -> None:
    text, _ = await make_key(store)
    key_store = CountingKeyStore(store)
    key_store.answers.clear()
    access_guard = guard({"keys": True}, key_store)  # type: ignore[arg-type]
    waiting = [asyncio.create_task(access_guard.admit(scope(text))) for _ in range(1000)]
    await loop_turns()
    key_store.answers.set()
    await asyncio.gather(*waiting)
    assert key_store.lookups == 1
    unknown = new_key().text
    for _ in range(20):
        await refusal(access_guard, scope(unknown))
    assert key_store.lookups == 2


async def test_a_cancelled_request_does_not_cancel_a_shared_lookup(store: Store) -> None:
    text, _ = await make_key(store)
    key_store = CountingKeyStore(store)
    key_store.answers.clear()
    access_guard = guard({"keys": True}, key_store)  # type: ignore[arg-type]
    first, second = (asyncio.create_task(access_guard.admit(scope(text))) for _ in range(2))
    await loop_turns()
    first.cancel()
    await loop_turns()
    key_store.answers.set()
    assert (await second).owner == "acme"
    assert first.cancelled()


async def test_unknown_keys_do_not_evict_known_keys(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_cache, "MAX_UNKNOWN", 5)
    text, _ = await make_key(store)
    key_store = CountingKeyStore(store)
    access_guard = guard({"keys": True}, key_store)  # type: ignore[arg-type]
    await access_guard.admit(scope(text))
    for _ in range(20):
        await refusal(access_guard, scope(new_key().text))
    assert key_store.lookups == 21
    await access_guard.admit(scope(text))
    assert key_store.lookups == 21
    cache: Any = access_guard._key_cache
    assert len(cache._unknown) == 5


async def test_during_a_store_outage_only_cached_keys_are_accepted(store: Store) -> None:
    text, _ = await make_key(store)
    new, _ = await make_key(store)
    key_store = CountingKeyStore(store)
    ticks = Clock()
    access_guard = guard(ON, key_store, monotonic=ticks)  # type: ignore[arg-type]
    await access_guard.admit(scope(text))
    key_store.is_down = True
    assert (await access_guard.admit(scope(text))).owner == "acme"
    error = await refusal(access_guard, scope(new), "unavailable")
    assert error.info.code == "access_unavailable"
    assert error.info.retry_after
    ticks.now += ON["key_seconds"]
    await refusal(access_guard, scope(text), "unavailable")
    key_store.is_down = False
    assert (await access_guard.admit(scope(text))).owner == "acme"


async def test_a_bug_in_the_store_is_not_reported_as_an_outage(store: Store) -> None:
    class Broken(CountingKeyStore):
        async def by_hash(self, hash: bytes) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await guard(ON, Broken(store)).admit(scope(new_key().text))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [b"", b"{", b'{"view":"all"}', b'{"a_rule_of_tomorrow":1}', b"[" * 5000, b"\xff"])
async def test_an_unreadable_policy_refuses_the_request(store: Store, policy: bytes) -> None:
    text, _ = await make_key(store, policy=policy)
    error = await refusal(guard(ON, store), scope(text), "forbidden")
    assert error.info.code == "key_policy_unreadable"


async def test_one_key_from_the_environment(store: Store) -> None:
    config = {
        "key_env": "THE_KEY",
        "key_owner": "home",
        "key_policy": "small",
        "policies": {"small": {"models": ["qwen"], "streams": 2}},
    }
    secret = "a secret of the operator's".replace(" ", "-")
    access_guard = guard(config, store, environ={"THE_KEY": f"{secret}\n"})
    admitted = await access_guard.admit(scope(secret))
    assert (admitted.owner, admitted.policy) == ("home", Policy(models=["qwen"], streams=2))
    for wrong in (secret[:-1], secret + "x", secret.upper(), "\n"):
        await refusal(access_guard, scope(wrong))
    # Keys of the store work as well.
    text, _ = await make_key(store)
    assert (await access_guard.admit(scope(text))).owner == "acme"


async def test_stored_keys_can_be_disabled(store: Store) -> None:
    text, _ = await make_key(store)
    access_guard = guard({"keys": False, "key_env": "THE_KEY"}, store, environ={"THE_KEY": "x" * 24})
    await refusal(access_guard, scope(text))


async def test_an_unreadable_pepper_is_a_server_error(store: Store, tmp_path: Any) -> None:
    text, _ = await make_key(store)
    open_file = tmp_path / "pepper"
    open_file.write_text("5a" * 32)
    open_file.chmod(0o644)
    access_guard = guard({"pepper_file": str(open_file)}, store, environ={"PELLUCID_KEY_PEPPER": ""})
    error = await refusal(access_guard, scope(text), "unavailable")
    assert str(open_file) not in str(error)
    with pytest.raises(PellucidError, match="chmod 600"):
        guard({"keys": True, "pepper_file": str(open_file)}, store, environ={"PELLUCID_KEY_PEPPER": ""})


async def test_keys_with_another_pepper_are_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    await make_key(store)
    await make_key(store, hash=b"made elsewhere")
    await guard(ON, store).start()
    assert "1 of 2 API keys were made under another pepper" in caplog.text
    assert ENVIRON["PELLUCID_KEY_PEPPER"] not in caplog.text


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.mark.needs("postgresql")
async def test_an_outage_of_postgresql(own_server: PostgresServer) -> None:
    store = await open_store(own_server.database())
    text, _ = await make_key(store)
    new, _ = await make_key(store)
    ticks = Clock()
    access_guard = guard(ON, store, monotonic=ticks)
    await access_guard.admit(scope(text))
    own_server.stop()
    try:
        assert (await access_guard.admit(scope(text))).owner == "acme"
        assert (await refusal(access_guard, scope(new), "unavailable")).info.code == "access_unavailable"
        ticks.now += ON["key_seconds"]
        await refusal(access_guard, scope(text), "unavailable")
    finally:
        own_server.start()
    async with asyncio.timeout(60):
        while True:
            try:
                admitted = await access_guard.admit(scope(new))
            except AccessError:
                await asyncio.sleep(0.05)
            else:
                break
    assert admitted.owner == "acme"
    await store.aclose()
