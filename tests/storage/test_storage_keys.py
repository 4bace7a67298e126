"""API keys by their ids, and the ids of tokens that were revoked."""

from __future__ import annotations

import pytest

from pellucid.storage import Store, StoredKey

pytestmark = pytest.mark.anyio


async def test_keys_are_found_by_their_ids_also_if_they_are_revoked(store: Store) -> None:
    for number in range(3):
        await store.keys.add(
            StoredKey(id=f"key_{number}", hash=bytes([number]), owner=f"o{number}", name="", created_at=1.0)
        )
    await store.keys.revoke("key_1", 5.0)
    revocations = {key.id: key.revoked_at for key in await store.keys.by_ids({"key_0", "key_1", "key_9", "'"})}
    assert revocations == {"key_0": None, "key_1": 5.0}
    assert await store.keys.by_ids([]) == ()


async def test_a_token_is_revoked_once_and_until_it_expires(store: Store) -> None:
    tokens = store.revoked_tokens
    assert await tokens.revoke("a", 100.0)
    assert not await tokens.revoke("a", 200.0)
    assert await tokens.revoke("b", 300.0)
    assert await tokens.find_revoked({"a", "b", "c"}) == {"a", "b"}
    await store.expire(100.0)
    assert await tokens.find_revoked({"a", "b", "c"}) == {"b"}
