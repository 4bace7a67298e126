"""One item of an answer, and one of its parts, as they come; and how their JSON is read, whatever is in it."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from . import builtin

PartKind: TypeAlias = Literal["text", "refusal", "raw", "summary"]
"""What a part is. The kinds of reasoning are called as the forms of a `ThinkingPart`."""

ItemRole: TypeAlias = Literal["reasoning", "message", "call", "tool", "other"]
"""What an item is to us, whatever its type."""

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

# Fields of an item that its parts hold; what else there is goes back as it came.
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
        """How much of it was told."""
        self.annotation_count = 0
        self.is_over = item.is_over

    def add_skipped(self, text: str) -> None:
        """This was told without being read (see `SkipRule`)."""
        self.text_length += len(text)


class Item:
    """One item of an answer."""

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
        """The item as it was announced."""
        self.details: dict[str, Any] = {}
        self.is_announced = False
        self.is_over = False
        self.has_signature = False
        self.parts: dict[tuple[str, int | None], Part] = {}
        self.last_part: Part | None = None
        """The part that came last."""
        self.is_call_open = False
        """Of a call: whether it has a name, and was opened."""
        self.pieces: list[str] = []
        """Of a call without a name yet, or of a tool: the arguments so far."""
        self.arguments_length = 0


def extra_fields(native: dict[str, Any], role: ItemRole) -> dict[str, Any]:
    """What an item says that its parts have no place for."""
    fields_in_parts = _FIELDS_IN_PARTS.get(role)
    if fields_in_parts is None:
        return {}
    return {name: value for name, value in native.items() if name not in fields_in_parts and value is not None}


def arguments_of(native: dict[str, Any]) -> Any:
    return native.get("input") if native.get("type") == "custom_tool_call" else native.get("arguments")


def json_escaped(text: str) -> str:
    """`text` as it stands within a JSON text."""
    return msgspec.json.encode(text).decode()[1:-1]


def text_of(value: Any) -> str:
    """A text, or the text in an object; anything else is nothing."""
    if isinstance(value, dict):
        value = value.get("text")
    return value if isinstance(value, str) else ""


def objects_in(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def id_of(native: dict[str, Any]) -> str | None:
    id = native.get("id")
    return id if isinstance(id, str) and id else None
