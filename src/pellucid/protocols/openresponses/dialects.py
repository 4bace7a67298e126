"""The dialects: how raw reasoning is sent, in which form errors are, and which clients get which dialect.

Everybody who needs to know which dialects there are reads `DIALECTS`. The dialect of a request is decided by
`server/openresponses/run_header.py`: what the request names, then the key's setting, then what the client says it is
(`CLIENTS`), then the server's default.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from . import types as t

PROTOCOL = "openresponses"
"""The protocol's name, in stored runs and in the options of the command line."""

Dialect: TypeAlias = Literal["openresponses", "openai", "summary"]
"""Whose names the events of raw reasoning have: the specification's, OpenAI's, or those of summaries.

`summary` is for clients that show nothing else: raw text is in the events and in the field of summaries. In items it is
also in `content`, so that a client that returns the whole item returns raw text as such.
"""


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

    @property
    def is_raw_distinct(self) -> bool:
        """Whether raw reasoning and summaries have names of their own."""
        return self.reasoning is not SUMMARY


DIALECTS: dict[Dialect, DialectRow] = {
    "openresponses": DialectRow(ContentKind("response.reasoning", t.ReasoningText)),
    "openai": DialectRow(ContentKind("response.reasoning_text", t.ReasoningText), has_error_object=False),
    "summary": DialectRow(SUMMARY),
}


class ClientRow(NamedTuple):
    """Clients that a header of their requests identifies."""

    header: str
    """The header's name, in lower case."""
    pattern: str
    """Regular expression that the beginning of its value matches."""
    dialect: Dialect


CLIENTS: tuple[ClientRow, ...] = (
    ClientRow("originator", r"codex", "summary"),
    ClientRow("user-agent", r"ai/|.*\bai-sdk[/-]", "summary"),
    ClientRow("user-agent", r"litellm/", "summary"),
    ClientRow("user-agent", r"Agents/|langchain|lm15", "summary"),
    # LangChain, LlamaIndex and others send what OpenAI's own client for Python sends, which reads summaries, too.
    ClientRow("x-stainless-lang", r"python", "summary"),
    ClientRow("x-stainless-lang", r"", "openai"),
)
"""The dialect of clients if neither the request nor its key names one. The first row that matches counts.

`summary` is for clients that show summaries and not raw reasoning. `tests/clients` runs them, and `docs/clients.md` has
the result.
"""


def client_dialect(header: Callable[[str], str | None]) -> Dialect | None:
    """Return the dialect of the client that sent a request; None if the client is not known.

    Args:
        header: Returns the value of a request header, or None.
    """
    for row in CLIENTS:
        value = header(row.header)
        if value is not None and re.match(row.pattern, value, re.IGNORECASE):
            return row.dialect
    return None
