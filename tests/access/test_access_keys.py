"""API keys: their form, what is kept of them, and who gets in with one."""

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


class Counted:
    """A store's keys, counting the look-ups; or down."""

    def __init__(self, store: Store) -> None:
        self.keys = self
        self._keys = store.keys
        self.asked = 0
        self.down = False
        self.answers = asyncio.Event()
        """While it is not set, nobody gets an answer."""
        self.answers.set()

    async def by_hash(self, hash: bytes) -> Any:
        self.asked += 1
        await self.answers.wait()
        if self.down:
            raise StoreError()
        return await self._keys.by_hash(hash)

    async def list(self, owner: str | None = None) -> Any:
        if self.down:
            raise StoreError()
        return await self._keys.list(owner)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=32, max_size=32))
def test_a_key_of_any_bytes_has_one_form(one: bytes, two: bytes) -> None:
    key = new_key(lambda size: one if size == 16 else two)
    assert len(key.text) == 62
    assert set(key.text[3:]) <= set(string.ascii_letters + string.digits)
    assert key_id_of(key.text) == key.id
    assert key.id.removeprefix("key_") in key.text


@given(st.data())
def test_any_one_wrong_character_is_told_without_a_look_up(data: st.DataObject) -> None:
    text = new_key().text
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(sorted(set(string.printable) - {text[at]})))
    with pytest.raises(AccessError):
        key_id_of(text[:at] + other + text[at + 1 :])


def test_swapped_neighbours_and_cut_keys_are_told() -> None:
    text = new_key().text
    wrong = [text[:n] for n in range(len(text))] + [text + "0", text + "\n", " " + text]
    wrong += [text[:n] + text[n + 1] + text[n] + text[n + 2 :] for n in range(len(text) - 1) if text[n] != text[n + 1]]
    for mistyped in wrong:
        with pytest.raises(AccessError):
            key_id_of(mistyped)


def test_two_keys_are_never_the_same() -> None:
    assert len({new_key().text for _ in range(1000)}) == 1000


def test_the_hash_depends_on_the_pepper_and_tells_which_it_was() -> None:
    text, other = new_key().text, KeyHasher(b"another pepper, of thirty-two byt")
    assert HASHER.digest(text) != other.digest(text)
    assert HASHER.is_own_hash(HASHER.digest(text))
    assert not other.is_own_hash(HASHER.digest(text))


async def test_a_key_lets_its_owner_in_wherever_a_client_puts_it(store: Store) -> None:
    policy = Policy(models=["qwen*"], view="summary", requests_per_minute=3)
    text, id_ = await make_key(store, policy)
    door = guard(ON, store)
    for kind in ("http", "websocket"):
        for request in (
            scope(text, kind=kind),
            scope(kind=kind, x_api_key=text),
            scope(kind=kind, api_key=text),
            scope(kind=kind, authorization=f"bearer   {text}"),
            scope(text, kind=kind, x_api_key=text),
            scope(kind=kind, authorization="Basic Zm9v", x_api_key=text),
        ):
            principal = await door.admit(request)
            assert (principal.owner, principal.key_id, principal.name) == ("acme", id_, "a test")
            assert principal.policy == policy
    await door.aclose()


async def test_nothing_of_the_key_is_in_the_database(store: Store) -> None:
    text, _ = await make_key(store)
    rows = await store.keys.list()
    assert len(rows) == 1
    row = rows[0]
    assert text[13:] not in repr(row)
    assert text.encode()[13:] not in row.hash


@pytest.mark.parametrize("credential", ["", "sk-unused", "pk_", "a.b.c", "x" * 20_000, "pk_\xff", "Bearer"])
async def test_what_is_no_credential_is_turned_away(store: Store, credential: str) -> None:
    await make_key(store)
    door = guard(ON, store)
    error = await refusal(door, scope(credential))
    assert credential in ("", "Bearer", "pk_", "a.b.c") or credential not in str(error)


async def test_without_a_credential_the_scheme_is_told_and_no_more(store: Store) -> None:
    error = await refusal(guard(ON, store), scope())
    assert error.headers == [(b"www-authenticate", b'Bearer realm="pellucid"')]
    assert error.info.code == "missing_credentials"
    error = await refusal(guard(ON, store), scope(new_key().text))
    assert error.headers == [(b"www-authenticate", b'Bearer realm="pellucid", error="invalid_token"')]


async def test_two_credentials_that_differ_are_one_too_many(store: Store) -> None:
    one, _ = await make_key(store)
    two, _ = await make_key(store)
    error = await refusal(guard(ON, store), scope(one, x_api_key=two))
    assert error.info.code == "invalid_credentials"


async def test_a_key_under_another_pepper_or_of_a_forged_row_is_unknown(store: Store) -> None:
    text, _ = await make_key(store)
    door = guard(ON, store, environ={"PELLUCID_KEY_PEPPER": "00" * 32})
    assert (await refusal(door, scope(text))).info.code == "invalid_api_key"
    # Who can write to the database, but has not the pepper.
    forged = new_key().text
    await make_key(store, hash=HASHER.pepper_id + sha256(forged.encode()).digest())
    assert (await refusal(guard(ON, store), scope(forged))).info.code == "invalid_api_key"
    # Nor does another row's id on a known hash make a key of another id.
    real = new_key().text
    await make_key(store, hash=HASHER.digest(real))
    assert (await refusal(guard(ON, store), scope(real))).info.code == "invalid_api_key"


async def test_expired_keys_end_at_their_time_also_when_they_are_known(store: Store) -> None:
    clock = Clock()
    text, _ = await make_key(store, expires_at=clock.now + 10)
    door = guard({"keys": True, "key_seconds": 300}, store, clock=clock)
    await door.admit(scope(text))
    clock.now += 9.9
    await door.admit(scope(text))
    clock.now += 0.1
    assert (await refusal(door, scope(text))).info.code == "key_expired"


async def test_a_revoked_key_is_refused_within_its_seconds(store: Store) -> None:
    text, id_ = await make_key(store)
    ticks = Clock()
    door, other = guard(ON, store, monotonic=ticks), guard(ON, store)
    await door.admit(scope(text))
    assert await store.keys.revoke(id_, time.time())
    assert (await refusal(other, scope(text))).info.code == "key_revoked"
    ticks.now += ON["key_seconds"]
    assert (await refusal(door, scope(text))).info.code == "key_revoked"


async def test_a_thousand_requests_ask_the_store_once(store: Store) -> None:
    text, _ = await make_key(store)
    counted = Counted(store)
    counted.answers.clear()
    door = guard({"keys": True}, counted)  # type: ignore[arg-type]
    waiting = [asyncio.create_task(door.admit(scope(text))) for _ in range(1000)]
    await loop_turns()
    counted.answers.set()
    await asyncio.gather(*waiting)
    assert counted.asked == 1
    unknown = new_key().text
    for _ in range(20):
        await refusal(door, scope(unknown))
    assert counted.asked == 2


async def test_who_leaves_does_not_take_the_answer_from_those_who_wait(store: Store) -> None:
    text, _ = await make_key(store)
    counted = Counted(store)
    counted.answers.clear()
    door = guard({"keys": True}, counted)  # type: ignore[arg-type]
    first, second = (asyncio.create_task(door.admit(scope(text))) for _ in range(2))
    await loop_turns()
    first.cancel()
    await loop_turns()
    counted.answers.set()
    assert (await second).owner == "acme"
    assert first.cancelled()


async def test_unknown_keys_do_not_push_out_the_known_ones(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_cache, "MAX_UNKNOWN", 5)
    text, _ = await make_key(store)
    counted = Counted(store)
    door = guard({"keys": True}, counted)  # type: ignore[arg-type]
    await door.admit(scope(text))
    for _ in range(20):
        await refusal(door, scope(new_key().text))
    assert counted.asked == 21
    await door.admit(scope(text))
    assert counted.asked == 21
    kept: Any = door._key_cache
    assert len(kept._unknown) == 5


async def test_while_the_store_is_down_known_keys_go_on_for_their_seconds_and_nobody_else(store: Store) -> None:
    text, _ = await make_key(store)
    new, _ = await make_key(store)
    counted = Counted(store)
    ticks = Clock()
    door = guard(ON, counted, monotonic=ticks)  # type: ignore[arg-type]
    await door.admit(scope(text))
    counted.down = True
    assert (await door.admit(scope(text))).owner == "acme"
    error = await refusal(door, scope(new), "unavailable")
    assert error.info.code == "access_unavailable"
    assert error.info.retry_after
    ticks.now += ON["key_seconds"]
    await refusal(door, scope(text), "unavailable")
    counted.down = False
    assert (await door.admit(scope(text))).owner == "acme"


async def test_a_fault_of_the_store_is_not_taken_for_an_outage(store: Store) -> None:
    class Broken(Counted):
        async def by_hash(self, hash: bytes) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await guard(ON, Broken(store)).admit(scope(new_key().text))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [b"", b"{", b'{"view":"all"}', b'{"a_rule_of_tomorrow":1}', b"[" * 5000, b"\xff"])
async def test_a_policy_that_cannot_be_kept_to_admits_nobody(store: Store, policy: bytes) -> None:
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
    door = guard(config, store, environ={"THE_KEY": f"{secret}\n"})
    found = await door.admit(scope(secret))
    assert (found.owner, found.policy) == ("home", Policy(models=["qwen"], streams=2))
    for wrong in (secret[:-1], secret + "x", secret.upper(), "\n"):
        await refusal(door, scope(wrong))
    # and keys of the store beside it
    text, _ = await make_key(store)
    assert (await door.admit(scope(text))).owner == "acme"


async def test_keys_can_be_left_out(store: Store) -> None:
    text, _ = await make_key(store)
    door = guard({"keys": False, "key_env": "THE_KEY"}, store, environ={"THE_KEY": "x" * 24})
    await refusal(door, scope(text))


async def test_a_pepper_that_cannot_be_read_is_not_the_clients_fault(store: Store, tmp_path: Any) -> None:
    text, _ = await make_key(store)
    open_file = tmp_path / "pepper"
    open_file.write_text("5a" * 32)
    open_file.chmod(0o644)
    door = guard({"pepper_file": str(open_file)}, store, environ={"PELLUCID_KEY_PEPPER": ""})
    error = await refusal(door, scope(text), "unavailable")
    assert str(open_file) not in str(error)
    with pytest.raises(PellucidError, match="chmod 600"):
        guard({"keys": True, "pepper_file": str(open_file)}, store, environ={"PELLUCID_KEY_PEPPER": ""})


async def test_keys_under_another_pepper_are_told_to_the_operator(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
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
async def test_a_real_database_that_stops_and_comes_back(own_server: PostgresServer) -> None:
    store = await open_store(own_server.database())
    text, _ = await make_key(store)
    new, _ = await make_key(store)
    ticks = Clock()
    door = guard(ON, store, monotonic=ticks)
    await door.admit(scope(text))
    own_server.stop()
    try:
        assert (await door.admit(scope(text))).owner == "acme"
        assert (await refusal(door, scope(new), "unavailable")).info.code == "access_unavailable"
        ticks.now += ON["key_seconds"]
        await refusal(door, scope(text), "unavailable")
    finally:
        own_server.start()
    async with asyncio.timeout(60):
        while True:
            try:
                found = await door.admit(scope(new))
            except AccessError:
                await asyncio.sleep(0.05)
            else:
                break
    assert found.owner == "acme"
    await store.aclose()
