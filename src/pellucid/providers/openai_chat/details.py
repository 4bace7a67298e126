"""`reasoning_details`: reasoning as a list of typed entries (OpenRouter, Snowflake, MiniMax, Novita).

In a stream, one entry arrives as many fragments with one `index` (or none). Text, summary and data are appended; for
signature, id and format the last value counts. Entries with one index and different types (a summary and its encrypted
original) are two parts of one item. `details_from_parts` sends them back as whole entries, because fragments would
break their signatures.
"""

from __future__ import annotations

from typing import Any

from ...emit import Emitter
from ...parts import Form, ModelResponsePart, OpaquePart, ThinkingPart
from ..lenient_json import text_of
from ..profile import Profile
from .content import FragmentMerger

# For each type of entry, the key of its readable text, and the form of the text.
_TEXT: dict[str, tuple[str, Form]] = {
    "reasoning.text": ("text", "raw"),
    "reasoning.summary": ("summary", "summary"),
}


class DetailsReader:
    """Writes entries to an emitter."""

    def __init__(self, emit: Emitter, profile: Profile) -> None:
        self._emit = emit
        self._profile = profile
        self._mergers: dict[object, FragmentMerger] = {}
        self._data: dict[object, list[str]] = {}
        """The pieces of encrypted data of each block."""
        self._fields_of_block: dict[object, dict[str, Any]] = {}
        self._last_entry: object = None
        self._last_is_signed = False
        self._unindexed = 0

    def read(self, entries: list[dict[str, Any]], sibling_text: str, *, is_whole: bool) -> bool:
        """Read entries.

        Args:
            entries: The entries of one chunk.
            sibling_text: Text that the sibling field sent before any details. It is not emitted again.
            is_whole: Whether this is a whole body, in which every entry is a block. In a stream most entries are
                fragments.

        Returns:
            Whether any entry has text, which the sibling field would only repeat.
        """
        has_text = False
        for entry_index, entry in enumerate(entries):
            kind = entry.get("type")
            if not isinstance(kind, str):
                kind = "reasoning.text"
            index, block = self._key_of(entry, kind, entry_index, is_whole)
            if kind in _TEXT:
                has_text = self._read_text(index, block, kind, entry, sibling_text) or has_text
            elif kind == "reasoning.encrypted":
                self._read_encrypted(index, block, entry)
            else:
                self._emit.whole_part(
                    OpaquePart(kind, entry, id=text_of(entry, "id"), provider_name=self._emit.origin.provider),
                )
        return has_text

    def _read_text(self, index: object, block: object, kind: str, entry: dict[str, Any], sibling_text: str) -> bool:
        name, form = _TEXT[kind]
        text = text_of(entry, name) or ""
        has_text = bool(text)
        self._last_is_signed = "signature" in entry and entry["signature"] is not None
        repeated = {}
        if text and text == sibling_text:
            # The field has sent it. It is stored for the history, in which the signature must come with its text.
            repeated, text = {name: text}, ""
        elif text:
            merger = self._mergers.get(block)
            if merger is None:
                merger = self._mergers[block] = FragmentMerger(self._profile.merge)
            text = merger.new_text(text)
        self._emit_fragment(index, block, kind, entry, text, text_of(entry, "signature"), form, repeated)
        return has_text

    def _read_encrypted(self, index: object, block: object, entry: dict[str, Any]) -> None:
        piece = text_of(entry, "data") or ""
        pieces = self._data.setdefault(block, [])
        pieces.append(piece)
        signature = None if self._emit.append_signature(block, piece) else "".join(pieces) or None
        self._emit_fragment(index, block, "reasoning.encrypted", entry, "", signature, "redacted", {})

    def _emit_fragment(
        self,
        index: object,
        block: object,
        kind: str,
        entry: dict[str, Any],
        text: str,
        signature: str | None,
        form: Form,
        repeated: dict[str, Any],
    ) -> None:
        """Emit one fragment, with the fields that the entry needs in the history: once a part, and if they change."""
        entry_fields = {name: entry[name] for name in ("format", "index", "id") if entry.get(name) is not None}
        block_fields = self._fields_of_block.setdefault(block, {})
        if self._emit.is_open(block):
            details = {name: value for name, value in entry_fields.items() if block_fields.get(name) != value}
            block_fields |= entry_fields
        else:
            block_fields |= entry_fields
            if not (text or signature or repeated):
                return
            details = {"type": kind, **block_fields}
            if text_of(block_fields, "id"):
                del details["id"]  # the part has its own field for it
        self._emit.thinking(
            block,
            text,
            item=("details", index),
            form=form,
            id=text_of(block_fields, "id"),
            signature=signature,
            details=details | repeated,
        )

    def _key_of(self, entry: dict[str, Any], kind: str, entry_index: int, is_whole: bool) -> tuple[object, object]:
        """Return the keys of the entry's item and block.

        An entry without an index continues the last one of its type and id. It begins a new one if the last one has a
        signature, which only a complete block has, or is in the same list.
        """
        index = entry.get("index")
        if not isinstance(index, int):
            entry_id = (kind, text_of(entry, "id"))
            follows_signature = text_of(entry, "text") is not None and self._last_is_signed
            if entry_id != self._last_entry or follows_signature or entry_index > 0 or is_whole:
                self._unindexed += 1
            self._last_entry = entry_id
            index = f"unindexed-{self._unindexed}"
        return index, (index, kind, entry_index) if is_whole else (index, kind)


def details_from_parts(parts: list[ModelResponsePart]) -> list[dict[str, Any]]:
    """Return the entries for the history as their provider requires them: complete, merged, in order."""
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
        details = part.provider_details
        entry: dict[str, Any] = {"type": kind}
        native_id = details.get("id", part.id)
        if native_id is not None:
            entry["id"] = native_id
        entry |= {name: details[name] for name in ("format", "index") if name in details}
        if kind == "reasoning.encrypted":
            entry["data"] = part.signature or ""
        else:
            name = _TEXT[kind][0]
            entry[name] = details.get(name, part.content)
            if part.signature is not None:
                entry["signature"] = part.signature
            # A signature that came after another entry had begun belongs to the earlier text.
            slot = (entry.get("index"), kind)
            earlier = merged.get(slot)
            if earlier is not None and not entry[name] and "signature" not in earlier:
                earlier["signature"] = part.signature
                continue
            merged[slot] = entry
        entries.append(entry)
    return entries
