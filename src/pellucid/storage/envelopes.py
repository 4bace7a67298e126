"""Envelopes of a space: how they are stored, read and erased.

The rules:

* `at` is the clock time of the replica that accepted an envelope, so it may decrease. `latest` is the maximum of `at`
  so far, and never decreases: the first envelope at or after a time is found by binary search.
* The searched text is every string of the payload, beginning with the text that the sender wrote for people. Strings
  that JSON-RPC needs are left out of MCP messages. The text itself is not stored twice, only its folded form.
* An erased envelope keeps its place in the log, and loses its content. The space gets a new version, so that replicas
  with the space in memory read it again.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from ..envelopes import ERASED, Envelope, Flag, context, searched_text
from ..envelopes.reasoning import ContextPlace, NameSet
from ..record import Recording
from . import record_content, record_write, search, tables
from .names import is_storable
from .record_content import ENVELOPE
from .statement import Execute, Operation, Params, Row, Statement, for_each, json_list, param


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
        flags = _flags_in(self.note)
        return replace(self.envelope, flags=flags) if flags else self.envelope


class _NoteFlags(msgspec.Struct):
    flags: tuple[Flag, ...] = ()


_note_flags_decoder = msgspec.json.Decoder(_NoteFlags)


def _flags_in(note: bytes) -> tuple[Flag, ...]:
    if b'"flags"' not in note:
        return ()
    try:
        return _note_flags_decoder.decode(note).flags
    except msgspec.DecodeError:
        return ()


def _without_flags(note: bytes) -> bytes:
    """Return the note without its flags, because they quote the content."""
    if not _flags_in(note):
        return note
    fields: dict[str, msgspec.Raw] = msgspec.json.decode(note, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: value for name, value in fields.items() if name != "flags"})


# ---------------------------------------------------------------------------------------------- statements

_E, _S = tables.envelopes, tables.spaces
stored_columns = [_E.c.at, _E.c.path, _E.c.role, _E.c.of, _E.c.note, _E.c.body]

_owner, _name, _id = param("for_owner"), param("for_name"), param("for_id")
_seq, _before = param("seq", sa.BigInteger), param("before", sa.BigInteger)
_limit = param("most", sa.BigInteger)
_in_space = sa.and_(_E.c.owner == _owner, _E.c.space == _name)
_this_envelope = sa.and_(_in_space, _E.c.seq == _seq)
_sender = param("sender")


def first_from(select: sa.Select[Any], seq: sa.ColumnElement[int]) -> sa.Select[Any]:
    """Return a statement for the first row of `select` at or after a sequence number, along the primary key.

    PostgreSQL has no statistics of a new table. For an equality condition, it may choose an index in which another
    column precedes `seq`, and read the whole log for one envelope, as long as it caches that plan. A range in the order
    of `seq` can only use the primary key.
    """
    return select.where(_E.c.seq >= seq).order_by(_E.c.seq).limit(sa.literal_column("1"))


_GET = Statement(first_from(sa.select(_E.c.seq, *stored_columns).where(_in_space), _seq))
_GET_LOCKED = Statement(sa.select(*stored_columns).where(_this_envelope).with_for_update())
_BY_ID = Statement(
    sa.select(*stored_columns)
    .where(_in_space, _E.c.id == _id, _E.c.seq < _before, sa.or_(_sender.is_(None), _E.c.sender == _sender))
    .order_by(_E.c.seq.desc())
    .limit(sa.literal_column("1"))
)
_GET_LATEST = Statement(first_from(sa.select(_E.c.latest).where(_in_space), _seq))
_GET_HEAD = Statement(sa.select(_S.c.head).where(_S.c.owner == _owner, _S.c.name == _name, _S.c.removed_at.is_(None)))


def _existing_names(column: sa.Column[Any], *more: Any) -> Statement:
    """Build the statement that selects the existing ones from a JSON list of names.

    Each name is looked up by a subquery: for EXISTS, PostgreSQL would choose a join instead.
    """
    match: sa.Select[Any] = sa.select(sa.literal_column("1")).where(_in_space, *more).limit(sa.literal_column("1"))
    queries = [
        sa.select(names.c.value).where(match.where(column == names.c.value).scalar_subquery().is_not(None))
        for names in json_list("names")
    ]
    return Statement(queries[0], sqlite=queries[1])


_EXISTING_IDS = _existing_names(_E.c.id)
_EXISTING_PATHS = _existing_names(_E.c.path, sa.text("role = 'opens'"))

INSERT = Statement(sa.insert(_E))
_ERASE = Statement(
    sa.update(_E)
    .where(_this_envelope)
    .values(body=param("to_body", sa.LargeBinary), note=param("to_note", sa.LargeBinary)),
    erases=True,
)
_BUMP_VERSION = Statement(
    sa.update(_S).where(_S.c.owner == _owner, _S.c.name == _name).values(version=_S.c.version + sa.literal_column("1"))
)
_first_keys = sa.select(_E.c.owner, _E.c.space, _E.c.seq).where(_in_space).order_by(_E.c.seq).limit(_limit)
_DELETE = Statement(
    sa.delete(_E).where(sa.tuple_(_E.c.owner, _E.c.space, _E.c.seq).in_(_first_keys)).returning(_E.c.seq)
)

SEQ_DIGITS = 12
"""Number of digits of a sequence number in the id of a text, so that texts are in the order of the log."""


# ---------------------------------------------------------------------------------------------- rows


space_scope = record_content.space_scope


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


# ---------------------------------------------------------------------------------------------- reading


MAX_SEQ = 10**SEQ_DIGITS - 1


def seq_or_zero(seq: int) -> int:
    """Return a sequence number if it is in the possible range, else 0, which no envelope has."""
    return seq if 0 < seq <= MAX_SEQ else 0


def get_envelope(params: Params) -> Operation[StoredEnvelope | None]:
    rows = yield Execute(_GET, params)
    return envelope_from_row(rows[0][1:]) if rows and rows[0][0] == params["seq"] else None


def get_envelope_by_id(params: Params) -> Operation[StoredEnvelope | None]:
    rows = yield Execute(_BY_ID, params)
    return envelope_from_row(rows[0]) if rows else None


def first_seq_since(params: Params) -> Operation[int]:
    """Find the first envelope at or after a time, by binary search over `latest`."""
    head = yield Execute(_GET_HEAD, params)
    first, end = 1, (head[0][0] if head else 0) + 1
    while first < end:
        middle = (first + end) // 2
        rows = yield Execute(_GET_LATEST, {**params, "seq": middle})
        if not rows or rows[0][0] >= params["at"]:
            end = middle
        else:
            first = middle + 1
    return first


class NamesQuery(msgspec.Struct, frozen=True):
    """Arguments of `existing_names`."""

    owner: str
    name: str
    names: NameSet


def existing_names(query: NamesQuery) -> Operation[NameSet]:
    """Return those ids and paths that exist in a space."""
    existing: list[frozenset[str]] = []
    for statement, names in (_EXISTING_IDS, query.names.ids), (_EXISTING_PATHS, query.names.paths):
        storable_names = [name for name in names if is_storable(name)]
        params = {
            "for_owner": query.owner,
            "for_name": query.name,
            "names": msgspec.json.encode(storable_names).decode(),
        }
        existing.append(
            frozenset(row[0] for row in (yield Execute(statement, params))) if storable_names else frozenset()
        )
    return NameSet(*existing)


# ---------------------------------------------------------------------------------------------- erasing and deleting


class Erasure(msgspec.Struct, frozen=True):
    """Arguments of `erase_envelopes`."""

    owner: str
    name: str
    seqs: tuple[int, ...]
    at_ms: int
    recording: Recording


def erase_envelopes(erasure: Erasure) -> Operation[int]:
    """Erase the content of envelopes; return how many were not erased before."""
    params = {"for_owner": erasure.owner, "for_name": erasure.name}
    bodies: list[Params] = []
    remaining: dict[tuple[str, str, str], list[bytes]] = {}
    for seq in erasure.seqs:
        rows = yield Execute(_GET_LOCKED, {**params, "seq": seq})
        stored = envelope_from_row(rows[0]) if rows else None
        # The mark in `extra` alone is no evidence that the envelope is erased: a sender may have written it.
        if (
            stored
            and (erased := replace(stored.envelope, payload={}, extra=ERASED, context_operation=None))
            != stored.envelope
        ):
            row = row_of(
                erasure.owner, erasure.name, replace(stored, envelope=erased, note=_without_flags(stored.note))
            )
            bodies.append({**params, "seq": seq, "to_body": row["body"], "to_note": row["note"]})
            remaining[erasure.owner, space_scope(erasure.name), str(seq)] = record_content.build_content(ENVELOPE, row)
    if bodies:
        yield Execute(_BUMP_VERSION, params)
        yield Execute(_ERASE, bodies)
        text_ids = [text_id(body["seq"]) for body in bodies]
        yield from search.delete_texts(erasure.owner, space_scope(erasure.name), text_ids)
        removed = [record_write.RemovedContent(owner, scope, ENVELOPE, subject) for owner, scope, subject in remaining]
        yield from record_write.record_removals(erasure.recording, erasure.at_ms, "erased", removed, remaining)
    return len(bodies)


def _remove(params: Params) -> Operation[int]:
    """Delete the first envelopes of a space; return their number."""
    rows = yield Execute(_DELETE, params)
    text_ids = [text_id(row[0]) for row in rows]
    owner, scope = params["for_owner"], space_scope(params["for_name"])
    yield from search.delete_texts(owner, scope, text_ids)
    yield from record_write.record_removals_of(
        params, [record_write.RemovedContent(owner, scope, ENVELOPE, str(row[0])) for row in rows]
    )
    return len(text_ids)


erase, remove = for_each(erase_envelopes), for_each(_remove)
