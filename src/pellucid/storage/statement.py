"""Statements and operations of the store, independent of a database driver.

A `Statement` is a SQLAlchemy Core expression, compiled once for each dialect. An `Operation` is a generator that yields
`Execute` requests, is sent the rows, and returns its result. A driver runs it (`database`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

R = TypeVar("R")
A = TypeVar("A")
S = TypeVar("S", bound=msgspec.Struct)

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
        element: The SQLAlchemy expression.
        sqlite: The expression for SQLite, if it is different.
        replan: Whether PostgreSQL makes a new plan for the values of each execution.
        erases: Whether deleted data must also vanish from the disk. Default: true for a DELETE.
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


def upsert(build: Callable[[Any], Executable]) -> Statement:
    """Return the statement that `build` makes of the dialect's own INSERT, which knows ON CONFLICT."""
    return Statement(build(postgresql.insert), sqlite=build(sqlite.insert))


def param(name: str, kind: type[sa.types.TypeEngine[Any]] = sa.Text) -> sa.BindParameter[Any]:
    """Return a bind parameter, whose value is passed with each execution."""
    return sa.bindparam(name, type_=kind(), required=False)


OWNER, ID, NAME = param("for_owner"), param("for_id"), param("for_name")
NOW, LIMIT = param("now", sa.Double), param("most", sa.BigInteger)
ONE: sa.ColumnClause[Any] = sa.literal_column("1")
"""Parameters and values of many statements."""


def not_expired(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition that a row has not expired at the time `NOW`."""
    return sa.or_(table.c.expires_at.is_(None), table.c.expires_at > NOW)


def columns_of(struct: type[msgspec.Struct], table: sa.Table) -> list[sa.Column[Any]]:
    """Return the columns that have the names of the struct's fields, in their order."""
    return [table.c[name] for name in struct.__struct_fields__]


def struct_from_row(struct: type[S], row: Row) -> S:
    """Build a struct from a row that begins with its `columns_of`."""
    return struct(**dict(zip(struct.__struct_fields__, row, strict=False)))


def raw_sql(text: str, **params: type[sa.types.TypeEngine[Any]]) -> Executable:
    """Return a statement from SQL text with parameters (`:name`), where SQLAlchemy cannot express it."""
    named = [sa.bindparam(name, type_=kind(), required=False) for name, kind in params.items()]
    return sa.text(text).bindparams(*named)


class _JsonElements(FunctionElement[Any]):
    inherit_cache = True


@compiles(_JsonElements)
def _in_postgresql(elements: _JsonElements, compiler: SQLCompiler, **options: Any) -> str:
    return f"jsonb_array_elements_text(CAST({compiler.process(elements.clauses, **options)} AS JSONB))"


@compiles(_JsonElements, "sqlite")
def _in_sqlite(elements: _JsonElements, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(elements.clauses, **options)})"


def json_list(name: str) -> sa.TableValuedAlias:
    """Return a parameter that is a JSON list, as a table with the column `value`, whose type is text in PostgreSQL."""
    return _JsonElements(param(name)).table_valued("value")


def json_text(values: Collection[Any]) -> str:
    """Return the value of a parameter that is a JSON list."""
    return msgspec.json.encode(values).decode()


def over_json_rows(text: str, columns: dict[str, str], **params: type[sa.types.TypeEngine[Any]]) -> Statement:
    """Return a statement over the parameter `requested`, which is a JSON list of objects.

    Args:
        text: SQL, in which `{requested}` is the table of the objects, and `{name}` one of its columns.
        columns: Name and SQL type of each column.
        params: Further parameters (`:name`) and their types.
    """
    fields = ", ".join(f"{name} {type}" for name, type in columns.items())
    general = {name: f"requested.{name}" for name in columns}
    general["requested"] = f"json_to_recordset(CAST(:requested AS json)) AS requested({fields})"
    sqlite = {name: f"json_extract(requested.value, '$.{name}')" for name in columns}
    sqlite["requested"] = "json_each(:requested) AS requested"
    params["requested"] = sa.Text
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


def read_first(statement: Statement, decode: Callable[[Row], R]) -> Callable[[Params], Operation[R | None]]:
    """Make an operation that returns the first row of a statement, decoded; None if there is no row."""

    def operate(params: Params) -> Operation[R | None]:
        rows = yield Execute(statement, params)
        return decode(rows[0]) if rows else None

    return operate


def read_rows(statement: Statement, decode: Callable[[Row], R]) -> Callable[[Params], Operation[list[R]]]:
    """Make an operation that returns all rows of a statement, decoded."""

    def operate(params: Params) -> Operation[list[R]]:
        return [decode(row) for row in (yield Execute(statement, params))]

    return operate


def has_rows(statement: Statement) -> Callable[[Params], Operation[bool]]:
    """Make an operation that executes a statement, and returns whether it returned a row."""

    def operate(params: Params) -> Operation[bool]:
        return bool((yield Execute(statement, params)))

    return operate


def insert_rows(statement: Statement) -> BulkOperation[Params, None]:
    """Make a bulk operation that inserts one row for each write, with one statement."""

    def operate(rows: list[Params]) -> Operation[list[None]]:
        yield Execute(statement, rows)
        return [None] * len(rows)

    return operate
