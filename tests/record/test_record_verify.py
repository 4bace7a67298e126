"""A finding names the location of the error, and a change of any byte of an export is found."""

from __future__ import annotations

import asyncio
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from pellucid.errors import ConfigError, RequestError
from pellucid.record import CheckpointLine, EntryLine, KeyLine, Line, Recording, ScopeLine, Signer, Verifier
from pellucid.record.chain import (
    Begin,
    ChainHead,
    Checkpoint,
    canonical_json,
    content_digest,
    decode_line,
    entry_hash,
    frame_content,
    genesis_hash,
)
from pellucid.record.keys import key_id, parse_pem_keys, public_pem
from pellucid.storage import open_store
from tests.examples import costly
from tests.record.record_kit import OWNER, SIGNER, Clock, append_of, lines_of, response, space, verify_lines


@cache
def full_export() -> tuple[Line, ...]:
    """Export a space of twelve envelopes, one of them erased, signed after the fifth and the tenth; and a response."""

    async def run() -> tuple[Line, ...]:
        clock = Clock()
        store = await open_store("sqlite://", clock=clock, recording=Recording(signers=[SIGNER]))
        await store.spaces.put(space(), [])
        await store.spaces.append(append_of(0, *"abcde"))
        await store.record.sign()
        clock.now += 1
        await store.spaces.append(append_of(5, *"fghij"))
        await store.responses.put(response("r", "bob", log=b"\xff"))
        await store.record.sign()
        await store.spaces.append(append_of(10, *"kl"))
        await store.spaces.erase(OWNER, "room", [3], at_ms=int(clock.now * 1000))
        lines = await lines_of(store, keys=[KeyLine(id=key_id(SIGNER.public), pem=public_pem(SIGNER.public))])
        await store.aclose()
        return tuple(lines)

    return asyncio.run(run())


def change_lines(choose: Any, change: Any) -> list[Line]:
    """Replace each chosen line by what `change` returns; None removes it."""
    replaced = [change(line) if choose(line) else line for line in full_export()]
    return [line for line in replaced if line is not None]


def is_entry(number: int) -> Any:
    """Return a predicate: whether a line is the entry of the space with this number."""
    rooms = [line for line in full_export() if isinstance(line, EntryLine) and line.kind != "response"]
    expected = next(line for line in rooms if line.number == number)
    return lambda line: line is expected


def findings_of(lines: list[Line], **more: Any) -> list[tuple[str, str | None, int | None]]:
    report, _ = verify_lines(lines, **more)
    return [(finding.what, finding.scope, finding.entry) for finding in report.findings]


ROOM = "space:room"
OTHER = "00" * 32


def test_an_unchanged_export_has_no_findings() -> None:
    report, scopes = verify_lines(list(full_export()))
    assert report.findings == ()
    assert (report.entries, report.contents, report.gone, report.checkpoints) == (14, 13, 1, 3)
    assert (scopes[ROOM].signed, scopes[ROOM].checkpoint, scopes["response:r"].checkpoint) == (10, 2, 1)


@pytest.mark.parametrize(
    "change",
    [{"at": 1}, {"kind": "item"}, {"subject": "77"}, {"more": {"redacted": ["x"]}}, {"hash": OTHER}, {"hash": "XY"}],
    ids=str,
)
def test_a_changed_entry_is_named(change: dict[str, Any]) -> None:
    for number in (1, 4, 12):
        lines = change_lines(is_entry(number), lambda line: replace(line, **change))
        expected = [("entry", ROOM, number)] + [("head", ROOM, None)] * (number == 1 and "at" in change)
        assert findings_of(lines) == expected


def test_a_changed_content_is_found() -> None:
    for change in ({"content": "other"}, {"salt": "00" * 16}):
        lines = change_lines(is_entry(4), lambda line, change=change: replace(line, **change))
        assert findings_of(lines) == [("content", ROOM, 4)]
    assert findings_of(change_lines(is_entry(4), lambda line: replace(line, digest=OTHER))) == [
        ("entry", ROOM, 4),
        ("content", ROOM, 4),
    ]


def test_a_content_that_was_removed_without_an_entry_is_found() -> None:
    for change in ({"salt": None, "content": None}, {"salt": None}, {"content": None}):
        lines = change_lines(is_entry(4), lambda line, change=change: replace(line, **change))
        assert findings_of(lines) == [("gone", ROOM, 4)]


def test_a_content_that_should_be_erased_is_found() -> None:
    assert findings_of(change_lines(is_entry(3), lambda line: replace(line, salt="00" * 16))) == [("kept", ROOM, 3)]


def test_a_missing_entry_is_found() -> None:
    assert findings_of(change_lines(is_entry(4), lambda line: None)) == [("missing", ROOM, 4), ("cut", None, None)]
    last = findings_of(change_lines(is_entry(13), lambda line: None))
    # The entry that explained the missing content 3 is gone, too.
    assert last == [("gone", ROOM, 3), ("missing", ROOM, 13), ("cut", None, None)]


def test_swapped_entries_are_found() -> None:
    four, five = (next(line for line in full_export() if is_entry(number)(line)) for number in (4, 5))
    moved = [five if line is four else four if line is five else line for line in full_export()]
    assert {(what, entry) for what, _, entry in findings_of(moved)} >= {("missing", 4), ("entry", 4)}
    # Swap their numbers, too.
    assert isinstance(four, EntryLine)
    assert isinstance(five, EntryLine)
    new = {4: replace(five, number=4), 5: replace(four, number=5)}
    lines = change_lines(lambda line: line in (four, five), lambda line: new[line.number])
    assert [(what, entry) for what, _, entry in findings_of(lines)][:2] == [("entry", 4), ("entry", 5)]


def rehash(lines: list[Line], scope: str = ROOM) -> list[Line]:
    """Recompute all hashes of a scope, without the key."""
    rehashed: list[Line] = []
    entries = [line for line in lines if isinstance(line, EntryLine) and line.kind != "response"]
    hash = genesis_hash(OWNER, scope)
    new: dict[int, EntryLine] = {}
    for number, old in enumerate(entries, 1):
        hash = entry_hash(hash, replace(old, number=number))
        new[id(old)] = replace(old, number=number, hash=hash.hex())
    for line in lines:
        if isinstance(line, ScopeLine) and line.scope == scope:
            line = replace(line, number=len(entries), hash=hash.hex())
        rehashed.append(new.get(id(line), line) if isinstance(line, EntryLine) else line)
    return rehashed


def test_a_rewritten_chain_is_found() -> None:
    for number, first in ((2, 1), (7, 6)):
        lines = rehash(change_lines(is_entry(number), lambda line: replace(line, subject="other")))
        # The checkpoint names the first entry that differs.
        assert findings_of(lines)[0] == ("rewritten", ROOM, first)
        assert ("seal", ROOM, 13) in findings_of(lines)
    # Entries that no checkpoint covers are protected by the seal.
    assert findings_of(rehash(change_lines(is_entry(12), lambda line: replace(line, at=5)))) == [("seal", ROOM, 13)]


def test_a_truncated_chain_is_found() -> None:
    def truncate(length: int) -> list[Line]:
        return rehash([line for line in full_export() if not any(is_entry(n)(line) for n in range(length + 1, 14))])

    # The erasure entry is removed, too.
    assert ("seal", ROOM, 12) in findings_of(truncate(12))
    assert ("missing", ROOM, 8) in findings_of(truncate(7))


def test_a_missing_scope_is_found() -> None:
    lines = [line for line in full_export() if not (isinstance(line, ScopeLine) and line.scope == "response:r")]
    lines = [line for line in lines if not (isinstance(line, EntryLine) and line.kind == "response")]
    assert ("vanished", "response:r", None) in findings_of(lines)


def test_changed_and_missing_checkpoints_are_found() -> None:
    marks = [line for line in full_export() if isinstance(line, CheckpointLine)]
    assert [(line.owner, line.number, line.serial) for line in marks] == [("ann", 1, 1), ("ann", 2, 2), ("bob", 1, 3)]

    def findings_without(omitted: CheckpointLine) -> list[tuple[str, str | None, int | None]]:
        return findings_of([line for line in full_export() if line is not omitted])

    assert [what for what, _, _ in findings_without(marks[0])] == ["checkpoint", "checkpoint", "cut"]
    assert ("checkpoint", ROOM, None) in findings_without(marks[1])
    assert ("checkpoint", "response:r", None) in findings_without(marks[2])
    second = marks[1].checkpoint
    assert second is not None
    for change, what in (
        ({"signature": bytes(64)}, "signature"),
        ({"number": 7}, "checkpoint"),
        ({"checkpoint": None}, "checkpoint"),
        ({"checkpoint": replace(second, at=5)}, "signature"),
        ({"checkpoint": replace(second, heads={})}, "signature"),
        ({"checkpoint": replace(second, key="0" * 16)}, "key"),
    ):
        lines = change_lines(lambda line: line is marks[1], lambda line, change=change: replace(line, **change))
        assert what in {what for what, _, _ in findings_of(lines)}


def test_another_key_is_not_trusted_and_the_export_key_is_reported_as_such() -> None:
    verifier = Verifier({(other := Signer.generate()).id: other.public})
    for line in full_export():
        verifier.feed(line)
    assert {finding.what for finding in verifier.end().findings} >= {"key"}
    verifier = Verifier()
    for line in full_export():
        verifier.feed(line)
    report = verifier.end()
    assert (report.keys, report.findings) == ("own", ())


def test_known_checkpoints_must_be_present() -> None:
    known = [line for line in full_export() if isinstance(line, CheckpointLine)]
    assert verify_lines(list(full_export()), known=known)[0].findings == ()
    assert known[1].checkpoint is not None
    checkpoint = replace(known[1].checkpoint, at=5)
    other = replace(known[1], checkpoint=checkpoint, signature=SIGNER.sign(checkpoint.body()))
    report, _ = verify_lines(list(full_export()), known=[other])
    assert [(finding.what, finding.owner, finding.checkpoint) for finding in report.findings] == [("known", "ann", 2)]


def test_truncated_and_concatenated_exports_are_found() -> None:
    lines = list(full_export())
    assert "cut" in {what for what, _, _ in findings_of(lines[:-1])}
    assert "cut" in {what for what, _, _ in findings_of(lines[:5] + lines[6:])}
    assert "cut" in {what for what, _, _ in findings_of(lines[1:])} or findings_of(lines[1:])
    assert "cut" in {what for what, _, _ in findings_of([*lines, *lines])}
    assert findings_of([]) == [("cut", None, None)]
    assert "entry" in {what for what, _, _ in findings_of([line for line in lines if not isinstance(line, ScopeLine)])}


def test_absurd_entry_numbers_are_found() -> None:
    """No number takes much time or memory."""
    for number in (0, -5, 10**15):
        assert findings_of(change_lines(is_entry(4), lambda line, number=number: replace(line, number=number)))
    for ends in ([[1, 10**15]], [[0, 1]], [[2, 1]], [["a", "b"]], [1], "all", [[True, True]]):
        assert ("entry", ROOM, 13) in findings_of(
            change_lines(is_entry(13), lambda line, ends=ends: replace(line, more={"ends": ends}))
        )


@cache
def encoded_export() -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in full_export())


@given(st.data())
def test_a_changed_byte_of_an_export_is_found(data: Any) -> None:
    text = bytearray(encoded_export())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] ^= 1 << data.draw(st.integers(0, 7))
    lines: list[Line] = []
    try:
        for number, line in enumerate(bytes(text).splitlines(), 1):
            lines.append(decode_line(line, number))
    except RequestError:
        return
    signed_lines = [line for line in full_export() if not isinstance(line, Begin | KeyLine)]
    if [line for line in lines if not isinstance(line, Begin | KeyLine)] == signed_lines:
        return  # the same lines, or changes in fields that are not signed: the time of export, and the key
    assert findings_of(lines), bytes(text).splitlines()[bytes(text[:at]).count(b"\n")]


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(RequestError, match="line 3"):
        decode_line(data, 3)


@costly
@given(st.randoms(use_true_random=False))
def test_lines_in_any_order_do_not_crash_the_verifier(choose: Random) -> None:
    lines = list(full_export())
    choose.shuffle(lines)
    for what, _, _ in findings_of(lines):
        assert what


texts = st.text(st.characters(exclude_categories=[]), max_size=12)


@given(
    st.integers(1, 2**53),
    st.integers(0, 2**53),
    texts,
    texts,
    st.none() | st.just(OTHER),
    st.dictionaries(texts, texts),
)
def test_the_hash_of_an_entry_is_that_of_its_canonical_json(
    number: int, at: int, kind: str, subject: str, digest: str | None, more: dict[str, Any]
) -> None:
    from hashlib import sha256

    entry = EntryLine(number=number, at=at, kind=kind, subject=subject, hash="", digest=digest, more=more)
    fields = {name: value for name, value in asdict(entry).items() if name != "hash" and value not in (None, {})}
    assert entry_hash(b"before", entry) == sha256(b"before" + canonical_json(fields)).digest()


def test_hashes_are_as_documented() -> None:
    """These values never change, so that other implementations of a verifier agree."""
    assert genesis_hash("ann", "space:room").hex() == "b1c8b3dcb017a00408dda1371f283bee3b63c4cb18d58988f3fa029dfc508ae9"
    entry = EntryLine(number=1, at=5, kind="envelope", subject="1", hash="", digest="ab" * 32, more={"redacted": ["é"]})
    assert (
        entry_hash(genesis_hash("ann", "space:room"), entry).hex()
        == "ebef655124810d792a3a5e543286c533515698858a01bd5a23823863d44796c7"
    )
    content = frame_content({"id": "r", "n": 1.5}, {"a": b"xyz", "b": None})
    assert b"".join(content) == b'{"id":"r","n":1.5,"pieces":[["a",3],["b",null]]}\nxyz'
    assert (
        content_digest(bytes(16), content).hex() == "a12d2d073d406eb42a784bcd5d6dbb15aaca896a6418b55ef3b83ec8f335cffb"
    )
    checkpoint = Checkpoint(
        owner="ann", number=1, previous="", serial=1, before="", at=5, key="k", heads={"space:room": (1, OTHER)}
    )
    assert checkpoint.body() == (
        b'{"at":5,"before":"","heads":{"space:room":[1,"' + OTHER.encode() + b'"]},"key":"k",'
        b'"number":1,"owner":"ann","previous":"","serial":1}'
    )


@pytest.mark.parametrize("text", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_invalid_keys_are_refused(text: bytes) -> None:
    with pytest.raises(ConfigError, match="here: it must hold Ed25519 keys"):
        parse_pem_keys(text, "here")


def test_the_first_key_signs_and_older_keys_verify() -> None:
    """The first key signs and seals; signatures and seals of the previous key are still valid."""
    old, new = Signer.generate(), Signer.generate()
    signers, trusted = parse_pem_keys(new.pem() + old.pem(), "here")
    assert [signer.id for signer in signers] == [new.id, old.id]
    assert trusted == {new.id: new.public, old.id: old.public}
    assert parse_pem_keys(new.pem() + public_pem(old.public).encode(), "here")[1] == trusted
    before, after = Recording(signers=[old]), Recording(signers=signers)
    head = ChainHead(OWNER, "s", 1, b"hash", 0)
    sealed = before.seal(head)
    assert after.is_sealed(sealed)
    assert after.seal(head) != sealed
    assert not before.is_sealed(after.seal(head))
    assert "PRIVATE" not in repr(new)
    assert msgspec.json.encode(public_pem(new.public))
