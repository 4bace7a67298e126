"""Group commit: all writes that wait become one transaction, which costs one wait for the disk.

The rules:

* Neighbours that are the same write are done together, which for most means one statement for all of them.
* One that cannot be done fails alone. Since that is rare, it is found out afterwards: the transaction is taken back,
  and done again with a savepoint around each.
* A transaction that came into another's way (a deadlock with another replica, say) is tried again as it is.
* Order is kept.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from .errors import Refused, Unanswered
from .statement import Ask, Bulk, Op

TRIES = 5
BATCH = 256
"""So many writes go into one transaction at most."""

BEGIN, COMMIT, ROLLBACK = Ask("BEGIN", {}), Ask("COMMIT", {}), Ask("ROLLBACK", {})
SNAPSHOT = Ask("SNAPSHOT", {})
"""Begins to read: all that is asked until `COMMIT` is answered as of one moment."""
SAVE, UNDO, KEEP = (Ask(f"{step} one", {}) for step in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT"))


class Write(NamedTuple):
    op: Bulk[Any, Any]
    argument: Any


Outcome: TypeAlias = Any
"""What the write returned, or the exception that is its own."""


def commit(writes: list[Write]) -> Op[list[Outcome]]:
    """Do them all, and say what came of each. Raises `Unanswered` if nothing can be said."""
    for _ in range(TRIES):
        try:
            yield BEGIN
            results = yield from _together(writes)
            yield COMMIT
        except Unanswered:
            raise
        except Exception as error:
            yield ROLLBACK
            if isinstance(error, Refused) and error.again:
                continue
            if len(writes) == 1:
                return [error]
            break
        else:
            return results
    return (yield from _apart(writes))


def _together(writes: list[Write]) -> Op[list[Outcome]]:
    results: list[Outcome] = []
    for op, same in groupby(writes, lambda write: write.op):
        results += yield from op([write.argument for write in same])
    return results


def _apart(writes: list[Write]) -> Op[list[Outcome]]:
    yield BEGIN
    outcomes: list[Outcome] = []
    for write in writes:
        yield SAVE
        try:
            outcomes += yield from write.op([write.argument])
        except Unanswered:
            raise
        except Exception as error:
            yield UNDO
            outcomes.append(error)
        yield KEEP
    yield COMMIT
    return outcomes
