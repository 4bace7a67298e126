"""The dialects: how raw reasoning is sent, and in which form errors are.

Everybody who needs to know which dialects there are reads `DIALECTS`.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from . import types as t

PROTOCOL = "openresponses"
"""The protocol's name, in stored runs and in the options of the command line."""

Dialect: TypeAlias = Literal["openresponses", "openai"]
"""Whose names the events of raw reasoning have. The fields are the same."""


class ContentKind(NamedTuple):
    """How one kind of content of an item is sent."""

    text_event: str
    """The name of the events of the text, without `.delta` and `.done`."""
    content_type: type[Any]
    """The type of the content in its item."""
    part_event: str = "response.content_part"
    """The name of the events around the text, without `.added` and `.done`."""
    index_field: Literal["content_index", "summary_index"] = "content_index"
    """The field that has the content's place among the contents of the item that share this field."""
    text_field: str = "text"


OUTPUT_TEXT = ContentKind("response.output_text", t.OutputText)
REFUSAL = ContentKind("response.refusal", t.Refusal, text_field="refusal")
SUMMARY = ContentKind(
    "response.reasoning_summary_text", t.SummaryText, "response.reasoning_summary_part", "summary_index"
)


class DialectRow(NamedTuple):
    """One dialect."""

    reasoning: ContentKind
    """How raw reasoning is sent."""
    has_error_object: bool = True
    """Whether the fields of an `error` event are in an object `error`. (On a socket they always are.)"""


DIALECTS: dict[Dialect, DialectRow] = {
    "openresponses": DialectRow(ContentKind("response.reasoning", t.ReasoningText)),
    "openai": DialectRow(ContentKind("response.reasoning_text", t.ReasoningText), has_error_object=False),
}
