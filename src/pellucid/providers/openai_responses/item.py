"""One item of an answer, and one of its parts, as they come; and how their JSON is read, whatever is in it."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from . import builtin

Kind: TypeAlias = Literal["text", "refusal", "raw", "summary"]
"""What a part is. The kinds of reasoning are called as the forms of a `ThinkingPart`."""

Role: TypeAlias = Literal["reasoning", "message", "call", "tool", "other"]
"""What an item is to us, whatever its type."""

KIND_OF_PART: dict[Any, Kind] = {
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "raw",
    "reasoning": "raw",
    "summary_text": "summary",
}

ROLE_OF_TYPE: dict[Any, Role] = {
    "reasoning": "reasoning",
    "message": "message",
    "function_call": "call",
    "custom_tool_call": "call",
    **dict.fromkeys(builtin.TOOLS, "tool"),
}

# Fields of an item that its parts hold; what else there is goes back as it came.
_HELD: dict[Role, frozenset[str]] = {
    "reasoning": frozenset({"id", "type", "status", "summary", "content", "encrypted_content"}),
    "message": frozenset({"id", "type", "status", "role", "content"}),
    "call": frozenset({"id", "type", "status", "call_id", "name", "arguments", "input"}),
}


class Part:
    """One text of an item."""

    __slots__ = ("annotations", "announced", "item", "key", "kind", "length", "over")

    def __init__(self, item: Item, kind: Kind) -> None:
        self.item = item
        self.kind = kind
        self.key = (item.key, kind, len(item.parts))
        self.announced = False
        self.length = 0
        """How much of it was told."""
        self.annotations = 0
        self.over = item.over

    def skipped(self, text: str) -> None:
        """This was told without being read (see `SkipRule`)."""
        self.length += len(text)


class Item:
    """One item of an answer."""

    __slots__ = (
        "announced", "details", "id", "key", "length", "native", "over", "part", "parts", "pieces", "role", "signed",
        "told", "type",
    )  # fmt: skip

    def __init__(self, key: int, type: str, role: Role) -> None:
        self.key = key
        self.type = type
        self.role = role
        self.id: str | None = None
        self.native: dict[str, Any] = {}
        """The item as it was announced."""
        self.details: dict[str, Any] = {}
        self.announced = False
        self.over = False
        self.signed = False
        self.parts: dict[tuple[str, int | None], Part] = {}
        self.part: Part | None = None
        """The part that came last."""
        self.told = False
        """Of a call: whether it has a name, and was opened."""
        self.pieces: list[str] = []
        """Of a call without a name yet, or of a tool: the arguments so far."""
        self.length = 0


def more_of(native: dict[str, Any], role: Role) -> dict[str, Any]:
    """What an item says that its parts have no place for."""
    held = _HELD.get(role)
    if held is None:
        return {}
    return {name: value for name, value in native.items() if name not in held and value is not None}


def arguments_of(native: dict[str, Any]) -> Any:
    return native.get("input") if native.get("type") == "custom_tool_call" else native.get("arguments")


def escaped(text: str) -> str:
    """`text` as it stands within a JSON text."""
    return msgspec.json.encode(text).decode()[1:-1]


def text_of(value: Any) -> str:
    """A text, or the text in an object; anything else is nothing."""
    if isinstance(value, dict):
        value = value.get("text")
    return value if isinstance(value, str) else ""


def objects(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def id_of(native: dict[str, Any]) -> str | None:
    id = native.get("id")
    return id if isinstance(id, str) and id else None
