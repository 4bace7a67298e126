"""What is asked of a database, without a database.

A `Statement` is SQLAlchemy Core, compiled once for each dialect. An `Operation` is a generator that yields an `Ask` and is
sent the rows; what it returns is the answer. A driver (`sqlite`, `postgres`) carries it out; a `Database` is what it is
to those who ask.

Group commit (`commit`): all writes that wait become one transaction, which costs one wait for the disk. Its rules:

* Neighbours that are the same write are done together, which for most means one statement for all of them.
* One that cannot be done fails alone. Since that is rare, it is found out afterwards: the transaction is taken back,
  and done again with a savepoint around each.
* A transaction that came into another's way (a deadlock with another replica, say) is tried again as it is.
* Order is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler

from .errors import StatementFailed, StoreUnavailable

R = TypeVar("R")
A = TypeVar("A")

Row: TypeAlias = tuple[Any, ...]
Params: TypeAlias = dict[str, Any]


class CompiledStatement:
    """A statement as one dialect's driver takes it: text, and values by position."""

    def __init__(self, element: Executable, dialect: Dialect, replan: bool = False, erases: bool | None = None) -> None:
        self.replan = replan
        compiled = element.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})  # type: ignore[attr-defined]
        assert isinstance(compiled, SQLCompiler)
        self.text = str(compiled)
        self.erases = self.text.lstrip().upper().startswith("DELETE") if erases is None else erases
        self._names = tuple(compiled.positiontup or ())
        self._constants = {name: value for name, value in compiled.params.items() if value is not None}

    def values(self, params: Params) -> tuple[Any, ...]:
        all_params = {**self._constants, **params} if self._constants else params
        return tuple([all_params[name] for name in self._names])


class Statement:
    """One statement, whose parameters are `given` ones (or, of an insert, its columns). `sqlite`: what is said there
    in its place. `replan`: how it is best answered depends on the values, so PostgreSQL is to look at them each time.
    `erases`: whether what it takes away must be gone from the disk too; what deletes does, if nothing else is said.
    """

    def __init__(
        self,
        element: Executable,
        *,
        sqlite: Executable | None = None,
        replan: bool = False,
        erases: bool | None = None,
    ) -> None:
        self._element = element
        self._replan = replan
        self._erases = erases
        self._dialect_elements = {} if sqlite is None else {"sqlite": sqlite}
        self._compiled: dict[str, CompiledStatement] = {}

    def compile_for(self, dialect: Dialect) -> CompiledStatement:
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            element = self._dialect_elements.get(dialect.name, self._element)
            compiled = self._compiled[dialect.name] = CompiledStatement(element, dialect, self._replan, self._erases)
        return compiled


def param(name: str, kind: type[sa.types.TypeEngine[Any]] = sa.Text) -> sa.BindParameter[Any]:
    """A parameter, to be given with each asking."""
    return sa.bindparam(name, type_=kind(), required=False)


def raw_sql(text: str, **params: type[sa.types.TypeEngine[Any]]) -> Executable:
    """A statement that SQLAlchemy has no words for, and the parameters in it (`:name`)."""
    named = [sa.bindparam(name, type_=kind(), required=False) for name, kind in params.items()]
    return sa.text(text).bindparams(*named)


class JsonList(NamedTuple):
    """The values of a JSON list, to be selected from: `value` is text in PostgreSQL, what it is in SQLite."""

    postgresql: sa.TableValuedAlias
    sqlite: sa.TableValuedAlias


def json_list(name: str) -> JsonList:
    """A parameter that is a list, as JSON."""
    values = param(name)
    return JsonList(
        sa.func.jsonb_array_elements_text(sa.cast(values, JSONB)).table_valued("value"),
        sa.func.json_each(values).table_valued("value"),
    )


def over_json_rows(text: str, columns: dict[str, str], **params: type[sa.types.TypeEngine[Any]]) -> Statement:
    """A statement over a parameter that is a list of objects, as JSON: `asked`. In its text, `{asked}` is what is to be
    selected from, and `{name}` is one of its `columns`, of which each has its type."""
    fields = ", ".join(f"{name} {type}" for name, type in columns.items())
    general = {name: f"asked.{name}" for name in columns}
    general["asked"] = f"json_to_recordset(CAST(:asked AS json)) AS asked({fields})"
    sqlite = {name: f"json_extract(asked.value, '$.{name}')" for name in columns}
    sqlite["asked"] = "json_each(:asked) AS asked"
    params["asked"] = sa.Text
    return Statement(raw_sql(text.format(**general), **params), sqlite=raw_sql(text.format(**sqlite), **params))


class Execute(NamedTuple):
    """Carry this out: once with the parameters and give the rows, or once for each of several, without rows."""

    statement: Statement | str
    """A string is a step of the transaction itself."""
    params: Params | list[Params]


Operation: TypeAlias = Generator[Execute, list[Row], R]
BulkOperation: TypeAlias = Callable[[list[A]], Operation[list[R]]]
"""A write that is written for many at once: the arguments of each, the results of each, in order."""


def for_each(op: Callable[[A], Operation[R]]) -> BulkOperation[A, R]:
    """A bulk write out of one that gains nothing by being many."""

    def operate(arguments: list[A]) -> Operation[list[R]]:
        results: list[R] = []
        for argument in arguments:
            result = yield from op(argument)
            results.append(result)
        return results

    return operate


class Database(Protocol):
    transactions: int
    """Of writes, begun so far by this process."""

    async def read(self, op: Callable[[A], Operation[R]], argument: A) -> R:
        """Carry out an op that writes nothing. It may be begun twice."""

    async def write(self, op: BulkOperation[A, R], argument: A) -> R:
        """Carry it out together with others that wait. When this returns, it is on the disk.

        A caller that is cancelled meanwhile does not take it back."""

    async def aclose(self) -> None:
        """Finish what waits, and let go of everything."""


# ----------------------------------------------------------------------------------------------------- group commit

MAX_TRIES = 5
MAX_BATCH = 256
"""So many writes go into one transaction at most."""

BEGIN, COMMIT, ROLLBACK = Execute("BEGIN", {}), Execute("COMMIT", {}), Execute("ROLLBACK", {})
SNAPSHOT = Execute("SNAPSHOT", {})
"""Begins to read: all that is asked until `COMMIT` is answered as of one moment."""
SAVEPOINT, ROLLBACK_TO_SAVEPOINT, RELEASE_SAVEPOINT = (
    Execute(f"{step} one", {}) for step in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)


class Write(NamedTuple):
    op: BulkOperation[Any, Any]
    argument: Any


Outcome: TypeAlias = Any
"""What the write returned, or the exception that is its own."""


def commit(writes: list[Write]) -> Operation[list[Outcome]]:
    """Do them all, and say what came of each. Raises `StoreUnavailable` if nothing can be said."""
    for _ in range(MAX_TRIES):
        try:
            yield BEGIN
            results = yield from _run_together(writes)
            yield COMMIT
        except StoreUnavailable:
            raise
        except Exception as error:
            yield ROLLBACK
            if isinstance(error, StatementFailed) and error.is_retryable:
                continue
            if len(writes) == 1:
                return [error]
            break
        else:
            return results
    return (yield from _run_with_savepoints(writes))


def _run_together(writes: list[Write]) -> Operation[list[Outcome]]:
    results: list[Outcome] = []
    for op, same in groupby(writes, lambda write: write.op):
        results += yield from op([write.argument for write in same])
    return results


def _run_with_savepoints(writes: list[Write]) -> Operation[list[Outcome]]:
    yield BEGIN
    outcomes: list[Outcome] = []
    for write in writes:
        yield SAVEPOINT
        try:
            outcomes += yield from write.op([write.argument])
        except StoreUnavailable:
            raise
        except Exception as error:
            yield ROLLBACK_TO_SAVEPOINT
            outcomes.append(error)
        yield RELEASE_SAVEPOINT
    yield COMMIT
    return outcomes
