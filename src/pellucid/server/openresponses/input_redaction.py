"""Redaction of input items for a viewer.

An input item is shown as it was received, without what the viewer may not see: reasoning, the log-probabilities of an
answer (some models reason and answer in one text), unknown fields, and items of unknown types. A client sends back what
it was shown; a later reader may use another key of the same owner, with a lesser view.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...protocols.openresponses.items import CONTENT_TYPES
from ...view import Viewer

_COMMON_FIELDS = frozenset({"id", "type", "status"})
_CALL_FIELDS = _COMMON_FIELDS | {"call_id", "name", "namespace", "arguments", "input", "output"}
_FIELDS_OF_TYPE = {
    "message": _COMMON_FIELDS | {"role", "phase", "content"},
    **dict.fromkeys(("function_call", "custom_tool_call", "tool_search_call"), _CALL_FIELDS),
    **dict.fromkeys(("function_call_output", "custom_tool_call_output", "local_shell_call_output"), _CALL_FIELDS),
    "compaction": _COMMON_FIELDS | {"encrypted_content"},
}
"""Fields of other items that remain. Items of other types might hold reasoning: only that they were there is shown."""

_CONTENT_FIELDS = frozenset(
    {
        *("type", "text", "annotations", "refusal", "image_url", "video_url", "detail"),
        *("filename", "file_id", "file_data", "file_url", "input_audio"),
    }
)
"""Fields of a part of an item's content or output that remain."""

_NESTED_FIELDS = {
    "annotations": frozenset({"type", "url", "title", "start_index", "end_index"}),
    "input_audio": frozenset({"data", "format"}),
}
"""Fields that remain of objects within such a part."""


def redact_input_items(items: Iterable[dict[str, Any]], viewer: Viewer) -> list[dict[str, Any]]:
    """Return the items that are visible to this viewer, redacted."""
    if viewer.rule.is_full:
        return list(items)
    rule = viewer.rule
    visible_fields = _COMMON_FIELDS | ({"summary"} if "summary" in rule.forms else set())
    if rule.seals:
        visible_fields |= {"encrypted_content"}
    redacted = []
    for item in items:
        if item.get("type") != "reasoning":
            fields = _FIELDS_OF_TYPE.get(str(item.get("type")), _COMMON_FIELDS)
            redacted.append({name: _redact_field(name, value) for name, value in item.items() if name in fields})
        elif rule.items:
            redacted.append({"summary": [], **{name: value for name, value in item.items() if name in visible_fields}})
    return redacted


def _redact_field(name: str, value: Any) -> Any:
    if name == "arguments":
        return value
    if name not in ("content", "output") or not isinstance(value, list):
        return value if isinstance(value, str) else None
    return [
        {
            name: _redact_nested(_NESTED_FIELDS[name], one) if name in _NESTED_FIELDS else one
            for name, one in part.items()
            if name in (_CONTENT_FIELDS if part.get("type") in CONTENT_TYPES else ("type",))
        }
        for part in value
        if isinstance(part, dict) and isinstance(part.get("type"), str)
    ]


def _redact_nested(visible_fields: frozenset[str], value: Any) -> Any:
    """Return an object's (or each object's) plain values with these names, and nothing else that the client added."""
    if isinstance(value, list):
        return [_redact_nested(visible_fields, one) for one in value if isinstance(one, dict)]
    if isinstance(value, dict):
        return {name: one for name, one in value.items() if name in visible_fields and not isinstance(one, list | dict)}
    return None
