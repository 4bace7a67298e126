"""`reasoning_details`: reasoning as a list of typed entries (OpenRouter, Snowflake, MiniMax, Novita).

In a stream, one entry comes as many fragments with one `index` (or none); text, summary and data add up, and for
signature, id and format the last value counts. Entries of one index and different types (a summary and its encrypted
original) are two parts of one item. On the way back (`details_of`) the fragments are whole again: replayed as
fragments they would break their signatures.
"""

from __future__ import annotations

from typing import Any

from ...emit import Emitter
from ...parts import Form, ModelResponsePart, OpaquePart, ThinkingPart
from ..profiles import Profile
from .merge import Merge

# Which key of an entry holds its readable text, and what that text is to the thought.
_TEXT: dict[str, tuple[str, Form]] = {
    "reasoning.text": ("text", "raw"),
    "reasoning.summary": ("summary", "summary"),
}


class DetailsReader:
    """Reads entries into an emitter."""

    def __init__(self, emit: Emitter, row: Profile) -> None:
        self._emit = emit
        self._row = row
        self._merges: dict[object, Merge] = {}
        self._data: dict[object, str] = {}
        self._last: object = None
        self._unindexed = 0
        self._told: dict[object, dict[str, Any]] = {}

    def read(self, entries: list[dict[str, Any]], already: str) -> None:
        """`already` is text that came in the sibling field before any details did: not to be told twice."""
        for entry in entries:
            kind = entry.get("type")
            if not isinstance(kind, str):
                kind = "reasoning.text"
            key = self._key(entry, kind)
            if kind in _TEXT:
                self._text(key, kind, entry, already)
            elif kind == "reasoning.encrypted":
                self._encrypted(key, entry)
            else:
                self._emit.whole(
                    OpaquePart(kind, entry, id=_str(entry, "id"), provider_name=self._emit.origin.provider),
                )

    def _text(self, key: tuple[object, str], kind: str, entry: dict[str, Any], already: str) -> None:
        name, form = _TEXT[kind]
        text = _str(entry, name) or ""
        if text and text == already:
            text = ""
        elif text:
            merge = self._merges.get(key)
            if merge is None:
                merge = self._merges[key] = Merge(self._row.merge)
            text = merge.next(text)
        self._emit.thinking(
            key,
            text,
            item=("details", key[0]),
            form=form,
            id=_str(entry, "id"),
            signature=_str(entry, "signature"),
            details=self._news(key, kind, entry),
        )

    def _encrypted(self, key: tuple[object, str], entry: dict[str, Any]) -> None:
        data = self._data[key] = self._data.get(key, "") + (_str(entry, "data") or "")
        self._emit.thinking(
            key,
            item=("details", key[0]),
            form="redacted",
            id=_str(entry, "id"),
            signature=data or None,
            details=self._news(key, "reasoning.encrypted", entry),
        )

    def _key(self, entry: dict[str, Any], kind: str) -> tuple[object, str]:
        """An entry without an index goes on with the last one of its type and id, or begins a new one."""
        index = entry.get("index")
        if not isinstance(index, int):
            about = (kind, _str(entry, "id"))
            if about != self._last:
                self._unindexed += 1
            self._last = about
            index = f"unindexed-{self._unindexed}"
        return (index, kind)

    def _news(self, key: object, kind: str, entry: dict[str, Any]) -> dict[str, Any] | None:
        """What must be said again when the entry goes back; None while it is what was already told."""
        told = self._told.get(key)
        said = {name: entry[name] for name in ("format", "index", "id") if entry.get(name) is not None}
        if told is None:
            # An id that comes with the first fragment is the part's own id.
            self._told[key] = {"type": kind, **said}
            return {"type": kind, **{name: value for name, value in said.items() if name != "id"}}
        news = {name: value for name, value in said.items() if told.get(name) != value}
        told.update(news)
        return news or None


def details_of(parts: list[ModelResponsePart]) -> list[dict[str, Any]]:
    """The entries as their maker wants them back: complete, merged, in order."""
    entries: list[dict[str, Any]] = []
    merged: dict[object, dict[str, Any]] = {}
    for part in parts:
        if isinstance(part, OpaquePart) and part.type.startswith("reasoning.") and isinstance(part.native, dict):
            entries.append(part.native)
        if not isinstance(part, ThinkingPart) or not part.provider_details:
            continue
        kind = part.provider_details.get("type")
        if kind not in (*_TEXT, "reasoning.encrypted"):
            continue
        entry: dict[str, Any] = {"type": kind}
        native_id = part.provider_details.get("id", part.id)
        if native_id is not None:
            entry["id"] = native_id
        entry |= {name: part.provider_details[name] for name in ("format", "index") if name in part.provider_details}
        if kind == "reasoning.encrypted":
            entry["data"] = part.signature or ""
        else:
            entry[_TEXT[kind][0]] = part.content
            if part.signature is not None:
                entry["signature"] = part.signature
        # A signature that came after its text had already been left belongs to that text.
        slot = (entry["index"], kind) if "index" in entry else None
        earlier = merged.get(slot) if slot is not None else None
        if earlier is not None and not part.content and "signature" in entry:
            earlier["signature"] = entry["signature"]
            continue
        if slot is not None:
            merged[slot] = entry
        entries.append(entry)
    return entries


def _str(entry: dict[str, Any], name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) and value else None
