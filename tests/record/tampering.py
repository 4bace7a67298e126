"""Changes that an attacker without the key can make in the database.

Each takes the tables and a source of random choices, and changes the tables; verification must find the change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from pellucid.record.chain import EntryLine, content_digest, entry_hash, genesis_hash
from pellucid.storage.record_export import decode_more

Row: TypeAlias = dict[str, Any]
Tables: TypeAlias = dict[str, list[Row]]
Tampering: TypeAlias = Callable[[Tables, Random], None]

KEYS = {
    "record_scopes": ("owner", "scope"),
    "record_entries": ("owner", "scope", "number"),
    "record_salts": ("owner", "scope", "subject", "kind", "number"),
    "record_checkpoints": ("owner", "number"),
    "responses": ("owner", "id"),
    "response_bodies": ("owner", "response_id"),
    "conversation_entries": ("owner", "conversation_id", "position"),
    "space_envelopes": ("owner", "space", "seq"),
}
# Columns that the store changes itself, or derives from others.
UNRECORDED_COLUMNS = {
    "responses": {"expires_at", "fence"},
    "response_bodies": {"item_ids"},
    "space_envelopes": {"latest"},
}
CONTENTS = ("responses", "response_bodies", "conversation_entries", "space_envelopes")


class NotApplicable(Exception):
    """These tables have nothing to which the change applies."""


def _choose_row(rows: list[Row], choose: Random) -> Row:
    if not rows:
        raise NotApplicable
    return choose.choice(rows)


def _choose_table(tables: Tables, choose: Random, least: int = 1) -> str:
    names = [name for name, rows in tables.items() if len(rows) >= least]
    if not names:
        raise NotApplicable
    return choose.choice(names)


def _different_value(value: Any, choose: Random) -> Any:
    if value is None:
        return choose.choice([b"x", b""])
    if isinstance(value, bool | int):
        return value + choose.choice([1, -1, 1000])
    if isinstance(value, float):
        return value + choose.choice([0.001, 1.0])
    if isinstance(value, str):
        at = choose.randrange(len(value) + 1)
        return (
            value[:at] + "x" + value[at:] if choose.random() < 0.5 or not value[at:] else value[:at] + value[at + 1 :]
        )
    data = bytearray(value)
    if not data:
        return b"x"
    data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    return bytes(data)


def change_a_value(tables: Tables, choose: Random) -> None:
    name = _choose_table(tables, choose)
    row = _choose_row(tables[name], choose)
    column = choose.choice(sorted(set(row) - UNRECORDED_COLUMNS.get(name, set())))
    value = row[column]
    if value is None and not isinstance(_sample_value(tables[name], column), bytes):
        raise NotApplicable
    row[column] = _different_value(value, choose)


def _sample_value(rows: list[Row], column: str) -> Any:
    return next((row[column] for row in rows if row[column] is not None), b"" if column in ("more", "error") else None)


def clear_a_value(tables: Tables, choose: Random) -> None:
    name = choose.choice(["record_entries", "record_scopes"])
    column = {"record_entries": choose.choice(["digest", "more"]), "record_scopes": "seal"}[name]
    row = _choose_row([row for row in tables[name] if row[column] is not None], choose)
    row[column] = None


def delete_a_row(tables: Tables, choose: Random) -> None:
    rows = tables[_choose_table(tables, choose)]
    rows.remove(_choose_row(rows, choose))


def swap_two_rows(tables: Tables, choose: Random) -> None:
    name = _choose_table(tables, choose, 2)
    one, other = choose.sample(tables[name], 2)
    for column in set(one) - set(KEYS[name]) - UNRECORDED_COLUMNS.get(name, set()):
        one[column], other[column] = other[column], one[column]


def insert_a_row(tables: Tables, choose: Random) -> None:
    names = [name for name, rows in tables.items() if rows and name != "response_bodies"]
    if not names:
        raise NotApplicable
    name = choose.choice(names)
    row = dict(_choose_row(tables[name], choose))
    if name == "record_checkpoints":
        row["number"] += 1000
        row["serial"] += 1000
    elif name in ("record_entries", "record_salts"):
        row["number"] += 1000
    elif name == "record_scopes":
        row["scope"] += "x"
    elif name == "responses":
        body = next(body for body in tables["response_bodies"] if body["response_id"] == row["id"])
        row["id"] += "x"
        tables["response_bodies"].append({**body, "response_id": row["id"]})
    elif name == "conversation_entries":
        row["position"] += 1000
        row["id"] += "x"
    else:
        row["seq"] += 1000
    tables[name].append(row)


def _choose_scope(
    tables: Tables, choose: Random, only: Callable[[Row], bool] = lambda row: True
) -> tuple[Row, list[Row]]:
    head = _choose_row([row for row in tables["record_scopes"] if only(row)], choose)
    chain = [row for row in tables["record_entries"] if (row["owner"], row["scope"]) == (head["owner"], head["scope"])]
    return head, sorted(chain, key=lambda row: int(row["number"]))


def rechain(head: Row, chain: list[Row]) -> None:
    """Recompute all hashes of a chain."""
    hash = genesis_hash(head["owner"], head["scope"])
    for number, row in enumerate(chain, 1):
        row["number"] = number
        digest = row["digest"]
        entry = EntryLine(
            number=number,
            at=row["at"],
            kind=row["kind"],
            subject=row["subject"],
            hash="",
            digest=None if digest is None else digest.hex(),
            more=decode_more(row["more"]),
        )
        hash = row["hash"] = entry_hash(hash, entry)
    head["number"], head["hash"] = len(chain), hash
    head["signed"] = min(head["signed"], len(chain))
    if chain:
        head["since"] = chain[0]["at"]


def rewrite_a_chain(tables: Tables, choose: Random) -> None:
    """Change a field of an entry, and recompute the chain."""
    head, chain = _choose_scope(tables, choose)
    row = _choose_row(chain, choose)
    column = choose.choice(["at", "subject", "kind"])
    row[column] = _different_value(row[column], choose)
    rechain(head, chain)


def forge_a_content(tables: Tables, choose: Random) -> None:
    """Replace the digest of an entry by that of another content, and recompute the chain."""
    head, chain = _choose_scope(tables, choose)
    row = _choose_row(chain, choose)
    salt = next((one for one in tables["record_salts"] if _is_same_entry(one, row)), None)
    if salt is None:
        raise NotApplicable
    salt["salt"] = choose.randbytes(16)
    row["digest"] = content_digest(salt["salt"], [b"something else"])
    rechain(head, chain)


def leave_an_entry_out(tables: Tables, choose: Random) -> None:
    head, chain = _choose_scope(tables, choose)
    omitted = _choose_row(chain, choose)
    _delete_entry(tables, omitted)
    rechain(head, [row for row in chain if row is not omitted])


def _is_same_entry(one: Row, other: Row) -> bool:
    return all(one[column] == other[column] for column in ("owner", "scope", "number"))


def _delete_entry(tables: Tables, entry: Row) -> None:
    """Delete an entry and its salt."""
    tables["record_entries"].remove(entry)
    tables["record_salts"] = [row for row in tables["record_salts"] if not _is_same_entry(row, entry)]


def _delete_content(tables: Tables, row: Row) -> None:
    """Delete the content that an entry is about."""
    where, _, of = row["scope"].partition(":")
    if where == "space":
        gone = ("space_envelopes", {"space": of, "seq": int(row["subject"]) if row["subject"].isdecimal() else None})
    elif row["kind"] == "item":
        gone = ("conversation_entries", {"conversation_id": of, "id": row["subject"]})
    else:
        gone = ("responses", {"id": row["subject"]})
        tables["response_bodies"] = [
            body for body in tables["response_bodies"] if body["response_id"] != row["subject"]
        ]
    name, named = gone
    tables[name] = [other for other in tables[name] if any(other[column] != value for column, value in named.items())]


def cut_off_newest_entries(tables: Tables, choose: Random) -> None:
    """Delete the newest entries of a chain and their contents."""
    head, chain = _choose_scope(tables, choose)
    if len(chain) < 2:
        raise NotApplicable
    kept_count = choose.randrange(1, len(chain))
    for row in chain[kept_count:]:
        _delete_entry(tables, row)
        _delete_content(tables, row)
    rechain(head, chain[:kept_count])


def drop_a_scope(tables: Tables, choose: Random) -> None:
    """Delete a signed scope with its entries and contents."""
    head, chain = _choose_scope(tables, choose, lambda row: row["signed"] > 0)
    for row in chain:
        _delete_entry(tables, row)
        _delete_content(tables, row)
    tables["record_scopes"].remove(head)


def drop_checkpoints(tables: Tables, choose: Random) -> None:
    """Delete the newest checkpoints."""
    rows = sorted(tables["record_checkpoints"], key=lambda row: int(row["serial"]))
    if not rows:
        raise NotApplicable
    remaining = rows[: choose.randrange(len(rows))]
    tables["record_checkpoints"] = remaining
    if choose.random() < 0.5:
        for head in tables["record_scopes"]:
            head["signed"] = 0


TAMPERINGS: tuple[Tampering, ...] = (
    change_a_value,
    clear_a_value,
    delete_a_row,
    swap_two_rows,
    insert_a_row,
    rewrite_a_chain,
    forge_a_content,
    leave_an_entry_out,
    cut_off_newest_entries,
    drop_a_scope,
    drop_checkpoints,
)


def tamper(tables: Tables, tampering: Tampering, choose: Random) -> Tables:
    """Return changed tables. Raises `NotApplicable` if nothing changed."""
    after = copy.deepcopy(tables)
    tampering(after, choose)
    if after == tables:
        raise NotApplicable
    return after
