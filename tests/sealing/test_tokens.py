"""Tokens: the opened content is the sealed one, for the bound tenant only and from the unchanged string only."""

from __future__ import annotations

import base64
import json
import string
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.errors import RequestError
from pellucid.parts import OpaquePart, Origin, ThinkingPart
from pellucid.sealing import (
    MAX_TOKEN,
    Key,
    Keys,
    Sealed,
    Sealer,
    SealError,
    decrypt,
    decrypt_text,
    encrypt,
)
from tests.examples import many
from tests.sealing.sealing_kit import BOUNDS, KEYS, NOW, SEALED, sealed_items

SEALER = Sealer(KEYS)


def refused(token: str, sealer: Sealer = SEALER, *, tenant: str = "a", **bound: Any) -> str | None:
    """Return the error code of a refused token, or None."""
    with pytest.raises(SealError) as wrong:
        sealer.open(token, tenant=tenant, **bound)
    info = wrong.value.info
    assert (info.kind, info.native, info.upstream_message) == ("invalid_request", None, None)
    assert isinstance(wrong.value, RequestError)
    return info.code


@given(sealed_items, BOUNDS)
def test_a_sealed_item_round_trips(sealed: Sealed, bound: dict[str, Any]) -> None:
    token = SEALER.seal(sealed, **bound)
    assert SEALER.open(token, **bound) == sealed


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "\x00\ufffe😀", "é" * 1_000_000])
def test_any_text_round_trips(text: str) -> None:
    sealed = replace(SEALED, parts=[ThinkingPart(text, signature=text[:9]), OpaquePart("x", {text[:9]: [text[:9]]})])
    assert SEALER.open(SEALER.seal(sealed, tenant=text[:9]), tenant=text[:9]) == sealed


def test_every_changed_character_is_detected() -> None:
    token = SEALER.seal(replace(SEALED, parts=[ThinkingPart("why")]), tenant="a", thread="t")
    for place, character in enumerate(token):
        for other in {"A", "Q", "_", ".", "=", "+", " ", "\x00", "é", chr(ord(character) ^ 1)} - {character}:
            changed = token[:place] + other + token[place + 1 :]
            assert refused(changed, thread="t") in {"seal_broken", "seal_foreign", "seal_key_unknown"}
        assert refused(token[:place], thread="t") == "seal_broken"
        assert refused(token[:place] + token[place + 1 :], thread="t")
    assert refused(token + "A", thread="t") == refused(" " + token, thread="t") == "seal_broken"


def test_every_flipped_bit_of_the_ciphertext_is_detected() -> None:
    token = SEALER.seal(replace(SEALED, parts=[ThinkingPart("why")]), tenant="a")
    pieces = token.split(".")
    for number in (2, 3, 4):
        data = bytearray(unpacked(pieces[number]))
        for place in range(len(data)):
            for bit in range(8):
                data[place] ^= 1 << bit
                assert (
                    refused(".".join([*pieces[:number], packed(bytes(data)), *pieces[number + 1 :]])) == "seal_broken"
                )
                data[place] ^= 1 << bit


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "A256KW"},
        {"enc": "A128GCM"},
        {"zip": "DEF"},
        {"crit": ["x"]},
        {"v": 2},
        {"typ": "JWT"},
        {"salt": ""},
        {"salt": "!"},
        {"to": []},
        {"kid": 1},
    ],
)
def test_a_header_with_other_fields_is_refused(header: dict[str, Any]) -> None:
    first, *rest = SEALER.seal(SEALED, tenant="a").split(".")
    changed = packed(json.dumps({**json.loads(unpacked(first)), **header}).encode())
    assert refused(".".join([changed, *rest])) in {"seal_broken", "seal_foreign"}


@given(
    st.text(max_size=200) | st.text(string.ascii_letters + string.digits + "-_.", max_size=400) | st.binary().map(repr)
)
@many
@example("")
@example("....")
@example("\ud800.....")
@example("e30....")
@example("." * 5_000)
def test_any_string_is_refused(text: str) -> None:
    assert refused(text) == "seal_broken"


@pytest.mark.parametrize(
    "header", [b"[" * 700, b'{"a":' * 150, b"null", b"[]", b'"alg"', b"1e999", b"\xff", b'["alg","enc"]']
)
def test_any_header_is_refused(header: bytes) -> None:
    assert refused(f"{packed(header)}..{packed(b'i' * 12)}.{packed(b'c')}.{packed(b't' * 16)}") == "seal_broken"


# --- tenant, thread and entity -----------------------------------------------------------------------------------


@given(BOUNDS, BOUNDS)
@many
def test_a_token_opens_only_with_its_bounds(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    token = SEALER.seal(SEALED, **theirs)
    wrong = {name for name, value in theirs.items() if value is not None and ours[name] != value}
    if not wrong:
        assert SEALER.open(token, **ours) == SEALED
        return
    with pytest.raises(SealError) as refused:
        SEALER.open(token, **ours)
    message = refused.value.info.message
    assert refused.value.info.code == "seal_foreign"
    if "tenant" in wrong:
        assert message == "this value was not sealed for you"
    else:
        assert {name for name in ("thread", "entity") if name in message} == wrong


def test_nothing_about_the_tenant_or_the_content_is_readable() -> None:
    sealed = replace(SEALED, parts=[ThinkingPart("marker-text", signature="marker-signature")], item_id="marker-item")
    bound = {"tenant": "marker-tenant", "thread": "marker-thread", "entity": "marker-entity"}
    tokens = [SEALER.seal(sealed, **bound) for _ in range(2)]
    headers = []
    for token in tokens:
        assert b"marker" not in b"".join(unpacked(piece) for piece in token.split("."))
        headers.append(json.loads(unpacked(token.split(".")[0])))
    # Two tokens of the same content share only their format and the key's id.
    assert not set(headers[0]["to"]) & set(headers[1]["to"])
    assert headers[0]["salt"] != headers[1]["salt"]


def test_the_length_is_padded() -> None:
    sizes = {
        len(SEALER.seal(replace(SEALED, parts=[ThinkingPart("x" * size)]), tenant="a")) for size in range(2000, 3000)
    }
    assert len(sizes) < 12


# --- keys --------------------------------------------------------------------------------------------------------


def test_old_tokens_open_after_rotation() -> None:
    old = SEALER.seal(SEALED, tenant="a")
    rotated = KEYS.rotate(NOW)
    later = Sealer(rotated)
    assert later.open(old, tenant="a") == SEALED
    new = later.seal(SEALED, tenant="a")
    assert json.loads(unpacked(new.split(".")[0]))["kid"] == rotated.active.kid != KEYS.active.kid
    assert refused(new) == "seal_key_unknown"
    retired = Sealer(rotated.retire(KEYS.active.kid, NOW))
    assert retired.open(new, tenant="a") == SEALED
    assert refused(old, retired) == "seal_key_retired"
    assert refused(old, retired, tenant="b") == "seal_key_retired"


def test_a_key_that_is_to_be_retired_seals_nothing_and_opens_until_then() -> None:
    token = SEALER.seal(SEALED, tenant="a")
    then = NOW + timedelta(days=30)
    keys = KEYS.rotate(NOW).retire(KEYS.active.kid, then)
    assert keys.active.kid != KEYS.active.kid
    assert Sealer(keys).open(token, tenant="a", now=then - timedelta(seconds=1)) == SEALED
    assert refused(token, Sealer(keys), now=then) == "seal_key_retired"


def test_a_sealer_follows_changes_of_its_keys() -> None:
    held = [KEYS]
    sealer = Sealer(lambda: held[0])
    old = sealer.seal(SEALED, tenant="a")
    held[0] = KEYS.rotate(NOW)
    assert sealer.open(old, tenant="a") == sealer.open(sealer.seal(SEALED, tenant="a"), tenant="a")


def test_another_key_of_the_same_name_opens_nothing() -> None:
    other = Keys((Key(KEYS.active.kid, bytes(32), NOW),))
    assert refused(SEALER.seal(SEALED, tenant="a"), Sealer(other)) == "seal_foreign"


# --- sizes -------------------------------------------------------------------------------------------------------


def test_too_large_content_is_neither_sealed_nor_opened() -> None:
    with pytest.raises(SealError) as wrong:
        SEALER.seal(replace(SEALED, parts=[ThinkingPart("x" * MAX_TOKEN)]), tenant="a")
    assert wrong.value.info.code == "seal_too_large"
    assert refused("x" * (MAX_TOKEN + 1)) == "seal_too_large"
    assert refused("x" * MAX_TOKEN) == "seal_broken"


def test_the_largest_sealed_content_can_be_opened() -> None:
    largest = 0
    for size in (11_500_000, 12_000_000, 12_500_000, 13_000_000):
        sealed = replace(SEALED, parts=[ThinkingPart("x" * size)])
        try:
            token = SEALER.seal(sealed, tenant="a", thread="t", entity="e")
        except SealError:
            continue
        assert len(token) <= MAX_TOKEN
        assert SEALER.open(token, tenant="a", thread="t", entity="e") == sealed
        largest = size
    assert largest


@pytest.mark.parametrize(("depth", "fits"), [(400, True), (600, False), (100_000, False)])
@pytest.mark.parametrize("text", ["x", "\ud83d"])
def test_deeply_nested_content_is_refused(depth: int, fits: bool, text: str) -> None:
    native: Any = text
    for _ in range(depth):
        native = [native]
    sealed = replace(SEALED, parts=[OpaquePart("x", native)])
    if fits:
        assert SEALER.open(SEALER.seal(sealed, tenant="a"), tenant="a") == sealed
    else:
        with pytest.raises(SealError) as wrong:
            SEALER.seal(sealed, tenant="a")
        assert wrong.value.info.code == "seal_too_large"
    # The list is taken apart by hand: the interpreter cannot deallocate a list of this depth.
    while isinstance(native, list):
        native = native.pop()


@pytest.mark.parametrize("text", ["x", "\ud83d"])
def test_content_that_is_no_json_is_sealed_as_text(text: str) -> None:
    details = {"a": {1, 2}, "b": {3: object()}, "c": 2**70, "d": [text]}
    opened = SEALER.open(SEALER.seal(replace(SEALED, parts=[OpaquePart("x", details)]), tenant="a"), tenant="a")
    [part] = opened.parts
    assert isinstance(part, OpaquePart)
    assert part.native["b"]["3"].startswith("<object")
    assert {name: part.native[name] for name in "acd"} == {"a": [1, 2], "c": 2**70, "d": [text]}


def test_many_brackets_are_not_deep() -> None:
    sealed = replace(SEALED, parts=[ThinkingPart("[{" * 2000), OpaquePart("x", [[{}]] * 1000)])
    assert SEALER.open(SEALER.seal(sealed, tenant="a"), tenant="a") == sealed


# --- content of an application -----------------------------------------------------------------------------------


@given(st.text() | st.binary(), st.text(), st.none() | st.text())
def test_application_content_round_trips(content: str | bytes, tenant: str, context: str | None) -> None:
    token = encrypt(content, KEYS, tenant=tenant, context=context)
    if isinstance(content, str):
        assert decrypt_text(token, KEYS, tenant=tenant, context=context) == content
    else:
        assert decrypt(token, KEYS, tenant=tenant, context=context) == content
    with pytest.raises(SealError, match="sealed for"):
        decrypt(token, KEYS, tenant=tenant + "x")
    if context not in (None, "another"):
        with pytest.raises(SealError, match="sealed for"):
            decrypt(token, KEYS, tenant=tenant, context="another")


def test_application_content_and_sealed_items_are_separate() -> None:
    assert refused(encrypt("{}", KEYS, tenant="a")) == "seal_foreign"
    with pytest.raises(SealError):
        decrypt(SEALER.seal(SEALED, tenant="a"), KEYS, tenant="a")
    with pytest.raises(SealError, match="bytes, not text"):
        decrypt_text(encrypt(b"\xff", KEYS), KEYS)


# --- cost --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "most"), [(2_000, 2_000), (100_000, 15_000)])
def test_cost_of_sealing_and_opening(size: int, most: int) -> None:
    """Measure CPU time of this thread, which other load does not change; docs/sealing.md has the figures."""
    sealed = replace(SEALED, parts=[ThinkingPart("thought " * (size // 8), origin=Origin("p", "w", "m"))])
    best = 1e9
    for _ in range(20):
        began = time.thread_time()
        SEALER.open(SEALER.seal(sealed, tenant="a"), tenant="a")
        best = min(best, time.thread_time() - began)
    assert best * 1e6 < most


def packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_new_key_has_todays_date() -> None:
    assert datetime.now(UTC) - Keys.generate().active.created_at < timedelta(seconds=5)
