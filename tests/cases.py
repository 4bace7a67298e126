"""Many cases of one rule in one test, each with a name.

    def test_every_status_has_a_kind() -> None:
        with Cases() as case:
            for status in STATUSES:
                with case(str(status)):
                    assert kind_of(status)

A case that fails does not stop the others; the test then fails with all failures, each with its name. This does what
`parametrize` does in a fraction of the time, for tables of dozens of rows and more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import pytest


class CasesFailed(ExceptionGroup[Exception]):
    """The cases of a test that failed, each with its name as a note."""


class Cases:
    """Collects the failures of named cases, and raises them together at the end of the block."""

    def __init__(self) -> None:
        self._count = 0
        self._failed: list[Exception] = []
        self._names: list[str] = []

    @contextmanager
    def __call__(self, name: object) -> Iterator[None]:
        self._count += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            failure = error if isinstance(error, Exception) else AssertionError(str(error))
            failure.add_note(f"case: {name}")
            self._failed.append(failure)
            self._names.append(str(name))

    def __enter__(self) -> Cases:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None and not self._count:
            raise AssertionError("there was no case: a table is empty")
        if self._failed and (error is None or isinstance(error, Exception)):
            names = ", ".join(self._names)
            raise CasesFailed(f"{len(self._failed)} of {self._count} cases failed: {names}", self._failed)
