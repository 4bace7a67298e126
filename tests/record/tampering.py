"""What somebody may do to a database who can write into it, and has not the key. Each takes the tables as they are and
a source of choices, changes them, and says nothing: what it did is to be found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from pellucid.record import Entry, content_digest, entry_hash, genesis_hash
from pellucid.storage.record_write import decode_more

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
# What the store changes itself, or makes of the rest.
LOOSE = {"responses": {"expires_at", "fence"}, "response_bodies": {"item_ids"}, "space_envelopes": {"latest"}}
CONTENTS = ("responses", "response_bodies", "conversation_entries", "space_envelopes")


class Nothing(Exception):
    """There is nothing here that could be changed so."""


def _some(rows: list[Row], choose: Random) -> Row:
    if not rows:
        raise Nothing
    return choose.choice(rows)


def _table(tables: Tables, choose: Random, least: int = 1) -> str:
    names = [name for name, rows in tables.items() if len(rows) >= least]
    if not names:
        raise Nothing
    return choose.choice(names)


def _other(value: Any, choose: Random) -> Any:
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
    name = _table(tables, choose)
    row = _some(tables[name], choose)
    column = choose.choice(sorted(set(row) - LOOSE.get(name, set())))
    value = row[column]
    if value is None and not isinstance(_like(tables[name], column), bytes):
        raise Nothing
    row[column] = _other(value, choose)


def _like(rows: list[Row], column: str) -> Any:
    return next((row[column] for row in rows if row[column] is not None), b"" if column in ("more", "error") else None)


def forget_a_value(tables: Tables, choose: Random) -> None:
    name = choose.choice(["record_entries", "record_scopes"])
    column = {"record_entries": choose.choice(["digest", "more"]), "record_scopes": "seal"}[name]
    row = _some([row for row in tables[name] if row[column] is not None], choose)
    row[column] = None


def delete_a_row(tables: Tables, choose: Random) -> None:
    rows = tables[_table(tables, choose)]
    rows.remove(_some(rows, choose))


def swap_two_rows(tables: Tables, choose: Random) -> None:
    name = _table(tables, choose, 2)
    one, other = choose.sample(tables[name], 2)
    for column in set(one) - set(KEYS[name]) - LOOSE.get(name, set()):
        one[column], other[column] = other[column], one[column]


def insert_a_row(tables: Tables, choose: Random) -> None:
    names = [name for name, rows in tables.items() if rows and name != "response_bodies"]
    if not names:
        raise Nothing
    name = choose.choice(names)
    row = dict(_some(tables[name], choose))
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


def _scope(tables: Tables, choose: Random, only: Callable[[Row], bool] = lambda row: True) -> tuple[Row, list[Row]]:
    head = _some([row for row in tables["record_scopes"] if only(row)], choose)
    chain = [row for row in tables["record_entries"] if (row["owner"], row["scope"]) == (head["owner"], head["scope"])]
    return head, sorted(chain, key=lambda row: int(row["number"]))


def rechain(head: Row, chain: list[Row]) -> None:
    """All hashes anew, as if nothing had happened."""
    hash = genesis_hash(head["owner"], head["scope"])
    for number, row in enumerate(chain, 1):
        row["number"] = number
        made = row["digest"]
        entry = Entry(
            number=number,
            at=row["at"],
            kind=row["kind"],
            subject=row["subject"],
            digest=None if made is None else made.hex(),
            more=decode_more(row["more"]),
        )
        hash = row["hash"] = entry_hash(hash, entry)
    head["number"], head["hash"] = len(chain), hash
    head["signed"] = min(head["signed"], len(chain))
    if chain:
        head["since"] = chain[0]["at"]


def write_a_chain_anew(tables: Tables, choose: Random) -> None:
    """Something about an entry is another; and all that follows fits it."""
    head, chain = _scope(tables, choose)
    row = _some(chain, choose)
    column = choose.choice(["at", "subject", "kind"])
    row[column] = _other(row[column], choose)
    rechain(head, chain)


def forge_a_content(tables: Tables, choose: Random) -> None:
    """Nobody said that; and the chain says they did."""
    head, chain = _scope(tables, choose)
    row = _some(chain, choose)
    salt = next((one for one in tables["record_salts"] if _same(one, row)), None)
    if salt is None:
        raise Nothing
    salt["salt"] = choose.randbytes(16)
    row["digest"] = content_digest(salt["salt"], [b"something else"])
    rechain(head, chain)


def leave_an_entry_out(tables: Tables, choose: Random) -> None:
    head, chain = _scope(tables, choose)
    gone = _some(chain, choose)
    _leave_out(tables, gone)
    rechain(head, [row for row in chain if row is not gone])


def _same(one: Row, other: Row) -> bool:
    return all(one[column] == other[column] for column in ("owner", "scope", "number"))


def _leave_out(tables: Tables, gone: Row) -> None:
    """An entry and its salt."""
    tables["record_entries"].remove(gone)
    tables["record_salts"] = [row for row in tables["record_salts"] if not _same(row, gone)]


def _forget(tables: Tables, row: Row) -> None:
    """What an entry is about, as if it had never been."""
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
    tables[name] = [kept for kept in tables[name] if any(kept[column] != value for column, value in named.items())]


def cut_an_end_off(tables: Tables, choose: Random) -> None:
    """The newest entries of a chain and what they are about."""
    head, chain = _scope(tables, choose)
    if len(chain) < 2:
        raise Nothing
    kept = choose.randrange(1, len(chain))
    for row in chain[kept:]:
        _leave_out(tables, row)
        _forget(tables, row)
    rechain(head, chain[:kept])


def drop_a_scope(tables: Tables, choose: Random) -> None:
    """One that was signed, with all that is about it."""
    head, chain = _scope(tables, choose, lambda row: row["signed"] > 0)
    for row in chain:
        _leave_out(tables, row)
        _forget(tables, row)
    tables["record_scopes"].remove(head)


def drop_checkpoints(tables: Tables, choose: Random) -> None:
    """The newest ones, as if they had not been made."""
    rows = sorted(tables["record_checkpoints"], key=lambda row: int(row["serial"]))
    if not rows:
        raise Nothing
    kept = rows[: choose.randrange(len(rows))]
    tables["record_checkpoints"] = kept
    if choose.random() < 0.5:
        for head in tables["record_scopes"]:
            head["signed"] = 0


TAMPERINGS: tuple[Tampering, ...] = (
    change_a_value,
    forget_a_value,
    delete_a_row,
    swap_two_rows,
    insert_a_row,
    write_a_chain_anew,
    forge_a_content,
    leave_an_entry_out,
    cut_an_end_off,
    drop_a_scope,
    drop_checkpoints,
)


def tampered(tables: Tables, tampering: Tampering, choose: Random) -> Tables:
    """The tables as they are afterwards. Raises `Nothing` if they are as they were."""
    after = copy.deepcopy(tables)
    tampering(after, choose)
    if after == tables:
        raise Nothing
    return after
