"""Envelopes of a space: how they are stored and erased. `space_log` reads them.

The rules:

* `at` is the clock time of the replica that accepted an envelope, so it may decrease. `latest` is the maximum of `at`
  so far, and never decreases: the first envelope at or after a time is found by binary search.
* The searched text is every string of the payload, beginning with the text that the sender wrote for people. Strings
  that JSON-RPC needs are left out of MCP messages. The text itself is not stored twice, only its folded form.
* A link is an id to which an envelope correlates, and its sequence number. It contains no content, and remains when the
  envelope is erased.
* An erased envelope keeps its place in the log, and loses its content. The space gets a new version, so that replicas
  with the space in memory read it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from ..envelopes import ERASED, Envelope, Flag, context, searched_text
from ..envelopes.reasoning import ContextPlace
from ..record import Recording
from . import record_write, search, tables
from .names import is_storable
from .record_write import ENVELOPE
from .statement import LIMIT, NAME, OWNER, Execute, Operation, Params, Row, Statement, for_each, has_rows, param


class StoredEnvelope(msgspec.Struct, frozen=True):
    """An envelope as it is stored."""

    envelope: Envelope
    """The envelope, with its sequence number."""
    at: int
    """When the gateway accepted it, in milliseconds since 1970."""
    place: ContextPlace
    note: bytes = b"{}"
    """JSON of the space's writer: flags, links, the contexts that the envelope ended …"""

    @property
    def with_flags(self) -> Envelope:
        """The envelope as participants receive it: with the flags of its note."""
        flags = read_note(self.note).flags
        return replace(self.envelope, flags=flags) if flags else self.envelope


class _Note(msgspec.Struct):
    flags: tuple[Flag, ...] = ()
    redacted: tuple[str, ...] = ()


_note_decoder = msgspec.json.Decoder(_Note)


def read_note(note: bytes) -> _Note:
    """Read the flags of an envelope, and the names of the patterns that redacted it, from its note."""
    if b'"flags"' in note or b'"redacted"' in note:
        with suppress(msgspec.DecodeError):
            return _note_decoder.decode(note)
    return _Note()


def _without_flags(note: bytes) -> bytes:
    """Return the note without its flags, because they quote the content."""
    if not read_note(note).flags:
        return note
    fields: dict[str, msgspec.Raw] = msgspec.json.decode(note, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: value for name, value in fields.items() if name != "flags"})


# ---------------------------------------------------------------------------------------------- statements

_E, _L, _S = tables.envelopes, tables.links, tables.spaces
ENVELOPE_COLUMNS = [_E.c.at, _E.c.path, _E.c.role, _E.c.of, _E.c.note, _E.c.body]
"""Columns of `envelope_from_row`."""
IN_SPACE = sa.and_(_E.c.owner == OWNER, _E.c.space == NAME)

_this_envelope = sa.and_(IN_SPACE, _E.c.seq == param("seq", sa.BigInteger))
_GET_LOCKED = Statement(sa.select(*ENVELOPE_COLUMNS).where(_this_envelope).with_for_update())
INSERT, INSERT_LINKS = Statement(sa.insert(_E)), Statement(sa.insert(_L))
_ERASE = Statement(
    sa.update(_E)
    .where(_this_envelope)
    .values(body=param("to_body", sa.LargeBinary), note=param("to_note", sa.LargeBinary)),
    erases=True,
)
_BUMP_VERSION = Statement(
    sa.update(_S).where(_S.c.owner == OWNER, _S.c.name == NAME).values(version=_S.c.version + sa.literal_column("1"))
)
_key = (_E.c.owner, _E.c.space, _E.c.seq)
_first_keys = sa.select(*_key).where(IN_SPACE).order_by(_E.c.seq).limit(LIMIT)
_DELETE = Statement(sa.delete(_E).where(sa.tuple_(*_key).in_(_first_keys)).returning(_E.c.seq))
_link_key = (_L.c.owner, _L.c.space, _L.c.about, _L.c.seq)
_first_links = (
    sa.select(*_link_key).where(_L.c.owner == OWNER, _L.c.space == NAME).order_by(_L.c.about, _L.c.seq).limit(LIMIT)
)
_DELETE_LINKS = Statement(sa.delete(_L).where(sa.tuple_(*_link_key).in_(_first_links)).returning(_L.c.seq))

SEQ_DIGITS = 12
"""Number of digits of a sequence number in the id of a text, so that texts are in the order of the log."""
MAX_SEQ: int = 10**SEQ_DIGITS - 1


# ---------------------------------------------------------------------------------------------- rows


space_scope = record_write.space_scope


def row_of(owner: str, name: str, stored: StoredEnvelope) -> Params:
    """Return the row of an envelope, without `latest`."""
    envelope, at, place, note = stored.envelope, stored.at, stored.place, stored.note
    return {
        "owner": owner,
        "space": name,
        "seq": envelope.seq,
        "id": envelope.id,
        "at": at,
        "sender": envelope.sender,
        "family": envelope.family,
        "kind": envelope.kind,
        "of": place.owner,
        "role": place.role,
        "root": None if place.path is None else context.root(place.path),
        "path": place.path,
        "note": note,
        "body": msgspec.json.encode(envelope),
    }


def search_text(owner: str, name: str, stored: StoredEnvelope) -> search.Text | None:
    """Return the searchable text of an envelope; None if it has none."""
    envelope = stored.envelope
    text = searched_text(envelope)
    if not text:
        return None
    traits = [sender_trait(envelope.sender), kind_trait(envelope.family), kind_trait(envelope.kind)]
    if (path := stored.place.path) is not None:
        traits += [context_trait(one) for one in (path, *context.ancestors(path))]
    return search.Text(
        owner, space_scope(name), name, text_id(envelope.seq), text, traits=tuple(traits), is_stored=False
    )


def text_id(seq: int) -> str:
    """Return the id of an envelope's searchable text: its sequence number with leading zeros."""
    return f"{seq:0{SEQ_DIGITS}d}"


def sender_trait(sender: str) -> str:
    """Return the search trait of envelopes of this sender."""
    return f"from {sender}"


def kind_trait(kind: str) -> str:
    """Return the search trait of envelopes of this kind, or family of kinds."""
    return f"kind {kind}"


def context_trait(path: str) -> str:
    """Return the search trait of envelopes in this context, or below it."""
    return f"in {path}"


_decode_envelope = msgspec.json.Decoder(Envelope).decode


def envelope_from_row(row: Row) -> StoredEnvelope:
    at, path, role, of, note, body = row
    return StoredEnvelope(_decode_envelope(body), at, ContextPlace(path, role, of), note)


def link_rows(owner: str, name: str, envelopes: Iterable[StoredEnvelope]) -> list[Params]:
    """Return the rows of the links of these envelopes."""
    return [
        {"owner": owner, "space": name, "about": about, "seq": stored.envelope.seq}
        for stored in envelopes
        for about in dict.fromkeys(stored.envelope.correlation_id)
        if is_storable(about)
    ]


# ---------------------------------------------------------------------------------------------- erasing and deleting


class Erasure(msgspec.Struct, frozen=True):
    """Arguments of `erase_envelopes`."""

    owner: str
    name: str
    seqs: tuple[int, ...]
    time_ms: int
    recording: Recording


def erase_envelopes(erasure: Erasure) -> Operation[int]:
    """Erase the content of envelopes; return how many were not erased before."""
    params = {"for_owner": erasure.owner, "for_name": erasure.name}
    scope = space_scope(erasure.name)
    bodies: list[Params] = []
    remaining: dict[str, list[bytes]] = {}
    for seq in erasure.seqs:
        rows = yield Execute(_GET_LOCKED, {**params, "seq": seq})
        if not rows:
            continue
        stored = envelope_from_row(rows[0])
        # The mark in `extra` alone is no evidence that the envelope is erased: a sender may have written it.
        erased = replace(stored.envelope, payload={}, extra=ERASED, context_operation=None)
        if erased != stored.envelope:
            stored = replace(stored, envelope=erased, note=_without_flags(stored.note))
            row = row_of(erasure.owner, erasure.name, stored)
            bodies.append({**params, "seq": seq, "to_body": row["body"], "to_note": row["note"]})
            remaining[str(seq)] = record_write.build_content(ENVELOPE, row)
    if bodies:
        yield Execute(_BUMP_VERSION, params)
        yield Execute(_ERASE, bodies)
        yield from search.delete_texts(erasure.owner, scope, [text_id(body["seq"]) for body in bodies])
        removed = [record_write.RemovedContent(erasure.owner, scope, ENVELOPE, subject) for subject in remaining]
        yield from record_write.record_removals(erasure.recording, erasure.time_ms, "erased", removed, remaining)
    return len(bodies)


erase = for_each(erase_envelopes)


@for_each
def remove(params: Params) -> Operation[int]:
    """Delete the first envelopes of a space; return their number."""
    rows = yield Execute(_DELETE, params)
    owner, scope = params["for_owner"], space_scope(params["for_name"])
    yield from search.delete_texts(owner, scope, [text_id(seq) for (seq,) in rows])
    removed = [record_write.RemovedContent(owner, scope, ENVELOPE, str(seq)) for (seq,) in rows]
    yield from record_write.record_removals_of(params, removed)
    return len(rows)


remove_links = for_each(has_rows(_DELETE_LINKS))
"""Delete the first links of a space; return whether there were any."""
