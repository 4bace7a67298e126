"""Append envelopes to the log of a space: all of them or none, at the end of the log as its writer knows it.

The rules:

* Sequence numbers of envelopes begin with 1, and have no gaps. A writer states the end of the log for which it
  validated its envelopes (`expected_head`), and the version of the settings and participants (`version`). If one of the
  two has changed, nothing is appended and the writer gets an `AppendConflict`: it reads the new envelopes, validates
  again, and tries again.
* A writer may name ids that must be new in the space (`new_ids`). They are looked up in the same transaction, which
  costs less than a query before it.
* This is decided under a lock on the row of the space, in the transaction that appends. Of two concurrent writers, in
  one process or in two, one is first and the other gets the conflict. One transaction may contain several appends to
  one space.
* A snapshot of the space's state is stored in the same transaction as its last envelope. An invited participant can
  connect when the invitation is in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import sqlalchemy as sa

from ..record import Recording
from . import record_write, search, space_log, space_rows, tables
from .envelopes import INSERT, INSERT_LINKS, StoredEnvelope, link_rows, read_note, row_of, search_text
from .errors import AppendConflict, IdsExist, SpaceNotFound
from .names import check_names
from .record_write import ENVELOPE
from .space_rows import StoredParticipant, space_params
from .statement import NAME, OWNER, Execute, Operation, Params, Statement, json_list, json_text, param, read_first


class SpaceHead(NamedTuple):
    """The end of a space's log, and the version of its settings and participants."""

    head: int
    version: int


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """One append to the log of a space."""

    owner: str
    space: str
    expected_head: int
    """The head of the log as the writer knows it."""
    version: int
    """The version for which the writer validated the envelopes."""
    envelopes: Sequence[StoredEnvelope]
    """Their sequence numbers begin with `expected_head` + 1. If empty, only the snapshot is stored, if the head is
    unchanged."""
    new_ids: Sequence[str] = ()
    """Ids of the envelopes that must not be in the log. If any is, nothing is appended, and the error is `IdsExist`."""
    state: bytes | None = None
    """Snapshot of the state after the last envelope."""
    participants: Sequence[StoredParticipant] = ()
    """Participants that these envelopes invite. A participant that was invited before gets the new token and
    capabilities. A participant of the configuration or of a command is not changed. The version stays the same."""
    recorded: bool = True
    """Whether the envelopes are added to the record."""


_S, _N = tables.spaces, tables.states
_this_space = sa.and_(_S.c.owner == OWNER, _S.c.name == NAME, _S.c.removed_at.is_(None))
_state_of_space = sa.and_(_N.c.owner == OWNER, _N.c.space == NAME)

_LOCK = Statement(sa.select(_S.c.head, _S.c.version, _S.c.latest).where(_this_space).with_for_update())
_GET_HEAD = Statement(sa.select(_S.c.head, _S.c.version).where(_this_space))
_GET_HEADS = Statement(
    sa.select(_S.c.owner, _S.c.name, _S.c.head, _S.c.version).where(
        _S.c.removed_at.is_(None), _S.c.name.in_(sa.select(json_list("names").c.value))
    )
)
_UPDATE_HEAD = Statement(
    sa.update(_S)
    .where(_this_space)
    .values(head=param("to_head", sa.BigInteger), latest=param("to_latest", sa.BigInteger))
)
_GET_STATE = Statement(sa.select(_N.c.seq, _N.c.state).where(_state_of_space))
_DELETE_STATE = Statement(sa.delete(_N).where(_state_of_space), erases=False)  # it is replaced in the same transaction
_INSERT_STATE = Statement(sa.insert(_N))


class PreparedAppend(NamedTuple):
    """An append, with the rows to write."""

    append: Append
    rows: list[Params]
    texts: list[search.Text]
    links: list[Params]
    recording: Recording
    time_ms: int
    """Time of the append, in milliseconds since 1970."""


def prepare(append: Append, recording: Recording, time_ms: int) -> PreparedAppend:
    """Build the rows of an append.

    Raises:
        ValueError: If the sequence numbers do not follow `expected_head`.
        RequestError: If a name cannot be stored.
    """
    owner, space, envelopes = append.owner, append.space, append.envelopes
    for index, stored in enumerate(envelopes):
        envelope = stored.envelope
        if envelope.seq != append.expected_head + 1 + index:
            raise ValueError(f"envelopes[{index}] has the seq {envelope.seq}, not {append.expected_head + 1 + index}")
        check_names(**{"id": envelope.id, "from": envelope.sender, "kind": envelope.kind, "context": stored.place.path})
    for participant in append.participants:
        check_names(participant=participant.id)
    texts = [text for stored in envelopes if (text := search_text(owner, space, stored)) is not None]
    rows = [row_of(owner, space, stored) for stored in envelopes]
    return PreparedAppend(append, rows, texts, link_rows(owner, space, envelopes), recording, time_ms)


AppendResult: TypeAlias = SpaceHead | AppendConflict | IdsExist | SpaceNotFound


class _Position(NamedTuple):
    head: int
    version: int
    latest: int


def append(appends: list[PreparedAppend]) -> Operation[list[AppendResult]]:
    """Append to one or more spaces, in order; return the new head of each, or its error.

    An error is returned, because an exception would repeat all writes of the transaction.
    """
    positions: dict[tuple[str, str], _Position | None] = {}
    for owner, space in sorted({(prepared.append.owner, prepared.append.space) for prepared in appends}):
        # Always in the same order, so that two transactions do not deadlock.
        rows = yield Execute(_LOCK, space_params(owner, space))
        positions[owner, space] = _Position(*rows[0]) if rows else None
    results: list[AppendResult] = []
    accepted: list[PreparedAppend] = []
    rows_to_insert: list[Params] = []
    links: list[Params] = []
    texts: list[search.Text] = []
    record_entries: list[record_write.NewEntry] = []
    for prepared in appends:
        owner, space = key = prepared.append.owner, prepared.append.space
        position = positions[key]
        if position is None:
            results.append(SpaceNotFound(space))
        elif (position.head, position.version) != (prepared.append.expected_head, prepared.append.version):
            results.append(AppendConflict(position.head, position.version))
        elif prepared.append.new_ids and (
            ids := (yield from space_log.existing_ids({**space_params(owner, space), "ids": prepared.append.new_ids}))
        ):
            results.append(IdsExist(ids))
        else:
            latest = position.latest
            for row in prepared.rows:
                latest = max(latest, row["at"])
                rows_to_insert.append({**row, "latest": latest})
            positions[key] = position = _Position(position.head + len(prepared.rows), position.version, latest)
            results.append(SpaceHead(position.head, position.version))
            accepted.append(prepared)
            links += prepared.links
            texts += prepared.texts
            if prepared.append.recorded:
                record_entries += _record_entries(prepared)
    if rows_to_insert:
        yield Execute(INSERT, rows_to_insert)
        if links:
            yield Execute(INSERT_LINKS, links)
        yield from search.insert_texts(texts)
        moved_spaces = {(prepared.append.owner, prepared.append.space) for prepared in accepted if prepared.rows}
        yield Execute(
            _UPDATE_HEAD,
            [_head_params(key, position) for key in sorted(moved_spaces) if (position := positions[key]) is not None],
        )
    yield from _write_snapshots(accepted)
    for prepared in accepted:
        for participant in prepared.append.participants:
            yield from space_rows.invite(prepared.append.owner, prepared.append.space, participant)
    if record_entries:
        time_ms = max(prepared.time_ms for prepared in accepted)
        yield from record_write.append_entries(accepted[0].recording, time_ms, record_entries)
    return results


def _record_entries(prepared: PreparedAppend) -> Iterator[record_write.NewEntry]:
    owner, scope = prepared.append.owner, record_write.space_scope(prepared.append.space)
    for row in prepared.rows:
        redacted = sorted(set(read_note(row["note"]).redacted))
        content, more = record_write.build_content(ENVELOPE, row), {"redacted": redacted} if redacted else {}
        yield record_write.NewEntry(owner, scope, ENVELOPE, str(row["seq"]), content, more)


def _head_params(key: tuple[str, str], position: _Position) -> Params:
    return {**space_params(*key), "to_head": position.head, "to_latest": position.latest}


def _write_snapshots(accepted: list[PreparedAppend]) -> Operation[None]:
    """Store the last snapshot of each space."""
    last_appends = {
        (one.append.owner, one.append.space): one.append for one in accepted if one.append.state is not None
    }
    if last_appends:
        yield Execute(_DELETE_STATE, [space_params(*key) for key in last_appends])
        yield Execute(
            _INSERT_STATE,
            [
                {
                    "owner": owner,
                    "space": space,
                    "seq": append.expected_head + len(append.envelopes),
                    "state": append.state,
                }
                for (owner, space), append in last_appends.items()
            ],
        )


def get_heads(names: Sequence[str]) -> Operation[dict[tuple[str, str], SpaceHead]]:
    """Return the heads of those of these spaces that exist, by owner and name."""
    rows = yield Execute(_GET_HEADS, {"names": json_text(names)})
    return {(owner, name): SpaceHead(head, version) for owner, name, head, version in rows}


get_head = read_first(_GET_HEAD, SpaceHead._make)
get_state = read_first(_GET_STATE, tuple[int, bytes])
