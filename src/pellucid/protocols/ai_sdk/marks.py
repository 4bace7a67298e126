"""What is ours in `providerMetadata`, and what a client may make of it before it comes back.

    {"pellucid": {"item": ID, "sealed": TOKEN, "form": "summary" | "redacted", "complete": false, "refusal": true}}

Each only where it says something: `item` is the public id of the item; `sealed` what its maker will want to see again;
`form` what a reasoning text is, if it is not the thought itself; `complete` is false where the model was cut off;
`refusal` marks words by which it declined. The same stands in the `data` of a `data-pellucid` part.
"""

from __future__ import annotations

from typing import Any

from ...parts import Form

OURS = "pellucid"

_FORMS: dict[str, Form] = {"summary": "summary", "redacted": "redacted"}
"""What a text may say that it is; if it says nothing that is known, it is the thought."""


class Mark:
    """What was found there. Anybody may have written it, so nothing of it is believed that could not be."""

    __slots__ = ("complete", "form", "item", "refusal", "sealed")

    def __init__(self, value: Any) -> None:
        fields = value if isinstance(value, dict) else {}
        self.item = _text(fields.get("item"))
        self.sealed = _text(fields.get("sealed"))
        self.form = _FORMS.get(_text(fields.get("form")) or "", "raw")
        self.complete = fields.get("complete") is not False
        self.refusal = fields.get("refusal") is True


def mark_of(metadata: Any) -> Mark:
    """The mark in a part's `providerMetadata`; an empty one where there is none of ours."""
    return Mark(metadata.get(OURS) if isinstance(metadata, dict) else None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
