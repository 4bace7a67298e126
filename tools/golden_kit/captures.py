"""What a gateway did, case by case, in a file: a capture. Equal texts are stored once."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from .normal import Clock, Normaliser, as_text

BROKEN = "the case broke"
"""The label of what a case ended with that could not be carried out. It is a fault, also where both sides have it."""


class Case:
    """The records of one case, in order: pairs of a label and a text."""

    def __init__(self) -> None:
        self.records: list[tuple[str, str]] = []
        self._normal = Normaliser()
        self._clock = Clock()

    def know(self, *sent: bytes | str) -> None:
        """Leave the ids and times of these as they are: the same is sent in every run."""
        for value in sent:
            self._normal.know(as_text(value) if isinstance(value, bytes) else value)

    def add(self, label: str, value: bytes | str) -> None:
        text = as_text(value) if isinstance(value, bytes) else value
        self.records.append((label, self._normal(text)))
        if faults := self._clock.faults(text):
            self.records.append((f"{label}: times", "\n".join(dict.fromkeys(faults))))

    def number(self, kind: str, text: str) -> str:
        """What varies and cannot be recognised by its form, by order of appearance."""
        return self._normal.number(kind, text)

    def add_unordered(self, label: str, values: Iterable[str]) -> None:
        """Values whose order is that of random ids: sorted when those have become numbers."""
        self.records += [(label, text) for text in sorted(self._normal(value) for value in values)]


class Capture:
    """A capture, being written or read."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("CREATE TABLE IF NOT EXISTS texts (hash BLOB PRIMARY KEY, text BLOB) WITHOUT ROWID")
        self._db.execute("CREATE TABLE IF NOT EXISTS records (name TEXT, n INTEGER, label TEXT, hash BLOB)")
        self._db.execute("CREATE INDEX IF NOT EXISTS by_name ON records (name, n)")

    def put(self, name: str, case: Case) -> None:
        for n, (label, text) in enumerate(case.records):
            data = text.encode("utf-8", "surrogatepass")
            digest = blake2b(data, digest_size=20).digest()
            known = self._db.execute("SELECT 1 FROM texts WHERE hash = ?", (digest,)).fetchone()
            if known is None:
                self._db.execute("INSERT INTO texts VALUES (?, ?)", (digest, zlib.compress(data, 1)))
            self._db.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (name, n, label, digest))

    def commit(self) -> None:
        self._db.commit()

    def names(self) -> list[str]:
        return [name for (name,) in self._db.execute("SELECT DISTINCT name FROM records ORDER BY rowid")]

    def digests(self, name: str) -> list[tuple[str, bytes]]:
        return list(self._db.execute("SELECT label, hash FROM records WHERE name = ? ORDER BY n", (name,)))

    def groups(self) -> dict[str, str]:
        """Return a digest of each group of cases: their names, and the labels and texts of their records."""
        hashes: dict[str, blake2b] = {}
        for row in self._db.execute("SELECT name, n, label, hash FROM records ORDER BY name, n"):
            group = row[0].partition("/")[0]
            hashes.setdefault(group, blake2b(digest_size=16)).update(repr(row).encode())
        return {group: hashed.hexdigest() for group, hashed in sorted(hashes.items())}

    def text(self, digest: bytes) -> str:
        (data,) = self._db.execute("SELECT text FROM texts WHERE hash = ?", (digest,)).fetchone()
        return zlib.decompress(data).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        self._db.commit()
        self._db.close()

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def differences(one: Capture, other: Capture, name: str) -> Iterator[tuple[str, str, str]]:
    """The records of a case that differ, as (label, text in one, text in the other); a missing one is empty."""
    left, right = one.digests(name), other.digests(name)
    for n in range(max(len(left), len(right))):
        a, b = (side[n] if n < len(side) else ("(none)", b"") for side in (left, right))
        if a != b:
            texts = (side.text(entry[1]) if entry[1] else "" for side, entry in ((one, a), (other, b)))
            label = a[0] if a[0] == b[0] else f"{a[0]} | {b[0]}"
            yield (label, *texts)  # type: ignore[misc]
