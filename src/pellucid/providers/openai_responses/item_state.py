"""State of an item and of its parts while they arrive, and tolerant readers of their JSON."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from . import builtin

PartKind: TypeAlias = Literal["text", "refusal", "raw", "summary"]
"""The kind of a part. The kinds of reasoning have the names of a `ThinkingPart`'s forms."""

ItemRole: TypeAlias = Literal["reasoning", "message", "call", "tool", "other"]
"""What the decoder treats an item as, whatever its type."""

KIND_OF_PART: dict[Any, PartKind] = {
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "raw",
    "reasoning": "raw",
    "summary_text": "summary",
}

ROLE_OF_TYPE: dict[Any, ItemRole] = {
    "reasoning": "reasoning",
    "message": "message",
    "function_call": "call",
    "custom_tool_call": "call",
    **dict.fromkeys(builtin.TOOLS, "tool"),
}

# Fields of an item that its parts hold; all other fields are sent back unchanged.
_FIELDS_IN_PARTS: dict[ItemRole, frozenset[str]] = {
    "reasoning": frozenset({"id", "type", "status", "summary", "content", "encrypted_content"}),
    "message": frozenset({"id", "type", "status", "role", "content"}),
    "call": frozenset({"id", "type", "status", "call_id", "name", "arguments", "input"}),
}


class Part:
    """One text of an item."""

    __slots__ = ("annotation_count", "is_announced", "is_over", "item", "key", "kind", "text_length")

    def __init__(self, item: Item, kind: PartKind) -> None:
        self.item = item
        self.kind = kind
        self.key = (item.key, kind, len(item.parts))
        self.is_announced = False
        self.text_length = 0
        """Characters that were emitted."""
        self.annotation_count = 0
        self.is_over = item.is_over

    def add_skipped(self, text: str) -> None:
        """Count text that was emitted without being read (see `SkipRule`)."""
        self.text_length += len(text)


class Item:
    """One item of a response."""

    __slots__ = (
        "arguments_length",
        "details",
        "has_signature",
        "id",
        "is_announced",
        "is_call_open",
        "is_over",
        "key",
        "last_part",
        "native",
        "parts",
        "pieces",
        "role",
        "type",
    )  # fmt: skip

    def __init__(self, key: int, type: str, role: ItemRole) -> None:
        self.key = key
        self.type = type
        self.role = role
        self.id: str | None = None
        self.native: dict[str, Any] = {}
        """The item's JSON when it was announced."""
        self.details: dict[str, Any] = {}
        self.is_announced = False
        self.is_over = False
        self.has_signature = False
        self.parts: dict[tuple[str, int | None], Part] = {}
        self.last_part: Part | None = None
        """The most recent part."""
        self.is_call_open = False
        """Of a call: whether it has a name and was opened."""
        self.pieces: list[str] = []
        """Of a call without a name yet, or of a tool: the arguments so far."""
        self.arguments_length = 0


def extra_fields(native: dict[str, Any], role: ItemRole) -> dict[str, Any]:
    """Return the fields of an item that its parts do not hold."""
    fields_in_parts = _FIELDS_IN_PARTS.get(role)
    if fields_in_parts is None:
        return {}
    return {name: value for name, value in native.items() if name not in fields_in_parts and value is not None}


def arguments_of(native: dict[str, Any]) -> Any:
    """Return the arguments of a call's item."""
    return native.get("input") if native.get("type") == "custom_tool_call" else native.get("arguments")


def json_escaped(text: str) -> str:
    """Escape text for the inside of a JSON string."""
    return msgspec.json.encode(text).decode()[1:-1]


def text_of(value: Any) -> str:
    """Return a text, or the `text` of an object; empty for anything else."""
    if isinstance(value, dict):
        value = value.get("text")
    return value if isinstance(value, str) else ""


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; empty if the value is not a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def id_of(native: dict[str, Any]) -> str | None:
    """Return the id of an item, if it is a text and not empty."""
    id = native.get("id")
    return id if isinstance(id, str) and id else None
