"""Statements and operations of the store, independent of a database driver.

A `Statement` is a SQLAlchemy Core expression, compiled once for each dialect. An `Operation` is a generator that yields
`Execute` requests, is sent the rows, and returns its result. A driver (`sqlite`, `postgres`) runs it. `Database` is the
interface of the drivers.

Group commit (`commit`): all waiting writes become one transaction, which costs one wait for the disk. Its rules:

* Adjacent writes with the same operation are executed together, in most cases with one statement for all.
* A write that fails does not affect the others. Since failures are rare, they are isolated afterwards: the transaction
  is rolled back, and repeated with a savepoint around each write.
* A transaction that conflicts with another one (for example a deadlock with another replica) is repeated unchanged.
* The order of writes is preserved.
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
    """A statement for the driver of one dialect: SQL text, with values by position."""

    def __init__(self, element: Executable, dialect: Dialect, replan: bool = False, erases: bool | None = None) -> None:
        self.replan = replan
        compiled = element.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})  # type: ignore[attr-defined]
        assert isinstance(compiled, SQLCompiler)
        self.text = str(compiled)
        self.erases = self.text.lstrip().upper().startswith("DELETE") if erases is None else erases
        self._names = tuple(compiled.positiontup or ())
        self._constants = {name: value for name, value in compiled.params.items() if value is not None}

    def values(self, params: Params) -> tuple[Any, ...]:
        """Return the values of parameters, in the order of their positions."""
        all_params = {**self._constants, **params} if self._constants else params
        return tuple([all_params[name] for name in self._names])


class Statement:
    """One SQL statement. Its parameters are made by `param`; those of an INSERT are its columns.

    Args:
        element: the SQLAlchemy expression.
        sqlite: the expression for SQLite, if it is different.
        replan: whether PostgreSQL makes a new plan for the values of each execution.
        erases: whether deleted data must also vanish from the disk. Default: true for a DELETE.
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
        """Return the statement for a dialect. It is compiled once."""
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            element = self._dialect_elements.get(dialect.name, self._element)
            compiled = self._compiled[dialect.name] = CompiledStatement(element, dialect, self._replan, self._erases)
        return compiled


def param(name: str, kind: type[sa.types.TypeEngine[Any]] = sa.Text) -> sa.BindParameter[Any]:
    """Return a bind parameter, whose value is passed with each execution."""
    return sa.bindparam(name, type_=kind(), required=False)


def raw_sql(text: str, **params: type[sa.types.TypeEngine[Any]]) -> Executable:
    """Return a statement from SQL text with parameters (`:name`), where SQLAlchemy cannot express it."""
    named = [sa.bindparam(name, type_=kind(), required=False) for name, kind in params.items()]
    return sa.text(text).bindparams(*named)


class JsonList(NamedTuple):
    """The elements of a JSON list as a table with the column `value`, whose type is text in PostgreSQL."""

    postgresql: sa.TableValuedAlias
    sqlite: sa.TableValuedAlias


def json_list(name: str) -> JsonList:
    """Return a parameter that is a JSON list, as a table."""
    values = param(name)
    return JsonList(
        sa.func.jsonb_array_elements_text(sa.cast(values, JSONB)).table_valued("value"),
        sa.func.json_each(values).table_valued("value"),
    )


def over_json_rows(text: str, columns: dict[str, str], **params: type[sa.types.TypeEngine[Any]]) -> Statement:
    """Return a statement over the parameter `asked`, which is a JSON list of objects.

    Args:
        text: SQL, in which `{asked}` is the table of the objects, and `{name}` one of its columns.
        columns: name and SQL type of each column.
        params: further parameters (`:name`) and their types.
    """
    fields = ", ".join(f"{name} {type}" for name, type in columns.items())
    general = {name: f"asked.{name}" for name in columns}
    general["asked"] = f"json_to_recordset(CAST(:asked AS json)) AS asked({fields})"
    sqlite = {name: f"json_extract(asked.value, '$.{name}')" for name in columns}
    sqlite["asked"] = "json_each(:asked) AS asked"
    params["asked"] = sa.Text
    return Statement(raw_sql(text.format(**general), **params), sqlite=raw_sql(text.format(**sqlite), **params))


class Execute(NamedTuple):
    """Request to execute a statement once, with rows as its result; or once for each of several parameters."""

    statement: Statement | str
    """A text is a transaction command, for example `COMMIT`."""
    params: Params | list[Params]


Operation: TypeAlias = Generator[Execute, list[Row], R]
BulkOperation: TypeAlias = Callable[[list[A]], Operation[list[R]]]
"""An operation for several writes: takes the arguments of all, and returns the results of all, in the same order."""


def for_each(op: Callable[[A], Operation[R]]) -> BulkOperation[A, R]:
    """Make a bulk operation that runs `op` for each argument, where no common statement is possible."""

    def operate(arguments: list[A]) -> Operation[list[R]]:
        results: list[R] = []
        for argument in arguments:
            result = yield from op(argument)
            results.append(result)
        return results

    return operate


class Database(Protocol):
    """A database driver."""

    transactions: int
    """Number of write transactions that this process has begun."""

    async def read(self, op: Callable[[A], Operation[R]], argument: A) -> R:
        """Run an operation that writes nothing. After a connection error, it may be started a second time."""

    async def write(self, op: BulkOperation[A, R], argument: A) -> R:
        """Run a write, in one transaction with other waiting writes. When this returns, the data is on the disk.

        If the caller is cancelled, the write is not undone.
        """

    async def aclose(self) -> None:
        """Finish waiting writes, and close all connections."""


# ----------------------------------------------------------------------------------------------------- group commit

MAX_TRIES = 5
MAX_BATCH = 256
"""Maximum number of writes in one transaction."""

BEGIN, COMMIT, ROLLBACK = Execute("BEGIN", {}), Execute("COMMIT", {}), Execute("ROLLBACK", {})
SNAPSHOT = Execute("SNAPSHOT", {})
"""Begins a read transaction: all queries until `COMMIT` see the state of one moment."""
SAVEPOINT, ROLLBACK_TO_SAVEPOINT, RELEASE_SAVEPOINT = (
    Execute(f"{step} one", {}) for step in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)


class Write(NamedTuple):
    """One write: an operation and its argument."""

    op: BulkOperation[Any, Any]
    argument: Any


Outcome: TypeAlias = Any
"""The result of a write, or its exception."""


def commit(writes: list[Write]) -> Operation[list[Outcome]]:
    """Execute all writes in one transaction, or each in its own savepoint if one fails.

    Returns:
        The result or the exception of each write, in order.

    Raises:
        StoreUnavailable: if the database does not answer, so that the results are unknown.
    """
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
