"""Helpers for the tests of the record."""

from __future__ import annotations

from typing import Any

from pellucid.envelopes import Envelope
from pellucid.envelopes.reasoning import ContextPlace
from pellucid.record import Line, Recording, Report, ScopeReport, Signer, Verifier
from pellucid.storage import Append, ConversationEntry, Store, StoredEnvelope, StoredResponse, StoredSpace

SIGNER = Signer.generate()
OWNER = "ann"


class Clock:
    """A clock that advances only when a test sets `now`."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def response(id: str = "resp_1", owner: str = OWNER, **fields: Any) -> StoredResponse:
    """Make a response; it is completed unless `fields` has another status."""
    at = 1_700_000_000.25
    usual: dict[str, Any] = {"created_at": at, "updated_at": at, "status": "completed", "model": "m"}
    return StoredResponse(**{**usual, **fields}, id=id, owner=owner)


def entry(id: str, item: bytes = b'"said"') -> ConversationEntry:
    return ConversationEntry(id=id, item=item, message=b"[]")


def space(name: str = "room", owner: str = OWNER) -> StoredSpace:
    return StoredSpace(owner=owner, name=name, created_at=1.0, settings=b"{}")


def stored_envelope(seq: int, text: str = "hello", note: bytes = b"{}") -> StoredEnvelope:
    envelope = Envelope(id=f"e{seq}", ts=1, sender="bob", kind="chat", payload={"text": text}, seq=seq)
    return StoredEnvelope(envelope, 1_700_000_000_000 + seq, ContextPlace(), note)


def append_of(head: int, *texts: str, name: str = "room", **fields: Any) -> Append:
    envelopes = [stored_envelope(head + 1 + place, text) for place, text in enumerate(texts)]
    return Append(owner=OWNER, space=name, expected_head=head, version=1, envelopes=envelopes, **fields)


async def lines_of(store: Store, **which: Any) -> list[Line]:
    lines: list[Line] = []
    await store.record.export(lines.append, **which)
    return lines


def verify_lines(lines: list[Line], sealed: bool = True, **more: Any) -> tuple[Report, dict[str, ScopeReport]]:
    """Verify lines with the key of the tests; return the report and those of the scopes."""
    recording = Recording(signers=[SIGNER]) if sealed else None
    verifier = Verifier({SIGNER.id: SIGNER.public}, recording, **more)
    through = [verifier.feed(line) for line in lines]
    return verifier.end(), {report.scope: report for report in through if report is not None}


async def check_record(store: Store, **which: Any) -> dict[str, ScopeReport]:
    """Check that the record has no findings; return the report of each scope."""
    report, scopes = verify_lines(await lines_of(store, **which))
    assert report.findings == ()
    return scopes
