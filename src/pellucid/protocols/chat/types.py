"""What an answer is: its segments, and the event that holds them, as the store's readers get it.

`segments` are those of the specification's persisted example, field by field. Optional means absent, never null. Times
are in milliseconds since 1970. `output_index` is a segment's place in `segments`; `sequence_number` is the message's
one counter, from 0, taken by each segment and each part of reasoning as it opens.

The ids of a chat: a question and its answer share one, each with its own prefix, so that either names the other.

chat_XXXX   a conversation
ask_XXXX    the question's event
evt_XXXX    the answer's event, and the turn of both
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...errors import RequestError
from ...parts import View
from ...unicode import truncate

"""In what form reasoning is told, from most to least."""

Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
ToolStatus = Literal["completed", "failed", "incomplete"]
Effort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How hard a model is to think, in the words that people choose from."""

# --- segments ----------------------------------------------------------------------------------------------------


class ReasoningPart(msgspec.Struct, kw_only=True):
    """One part of a thought: a summary, or the thought itself."""

    text: str = ""
    type: Literal["reasoning_text", "summary_text"]
    created_at: int
    is_complete: bool = False
    """False if the model was cut off in it."""
    summary_index: int
    """Its place among the segment's parts."""
    sequence_number: int


class ReasoningSegment(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning"):
    """A stretch of thought. It has no parts where that it happened is all that may be known."""

    id: str
    parts: list[ReasoningPart]
    streaming: Literal[False] = False
    output_index: int
    combined_text: str = ""
    """The parts' texts, a blank line apart."""
    sequence_number: int
    effort_level: str | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET


class Citation(msgspec.Struct, kw_only=True):
    """What a stretch of the text rests on: characters from `start_index` to `end_index`, where that is known."""

    type: Literal["url_citation"] = "url_citation"
    url: str
    title: str
    start_index: int | UnsetType = UNSET
    end_index: int | UnsetType = UNSET


class TextSegment(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    """A stretch of the answer."""

    id: str
    text: str = ""
    annotations: list[Citation] | UnsetType = UNSET


class RefusalSegment(msgspec.Struct, kw_only=True, tag_field="type", tag="refusal"):
    """The model declined, in words."""

    id: str
    text: str = ""


class FileSegment(msgspec.Struct, kw_only=True, tag_field="type", tag="file"):
    """A file that the model made: `data` is base64."""

    id: str
    media_type: str
    data: str | UnsetType = UNSET
    url: str | UnsetType = UNSET


class _Tool(msgspec.Struct, kw_only=True, tag_field="type"):
    id: str
    call_id: str
    name: str
    args: Any = None
    """As JSON; as text, where the model wrote none."""
    status: ToolStatus = "incomplete"
    """`incomplete`: nobody answered it."""
    result: Any | UnsetType = UNSET
    error: str | UnsetType = UNSET
    created_at: int
    sequence_number: int
    output_index: int


class ToolCallSegment(_Tool, kw_only=True, tag="tool_call"):
    """A function that the model called, and what came back."""


class WebSearchSegment(_Tool, kw_only=True, tag="web_search_call"):
    """A search that the model's provider made."""


class CodeInterpreterSegment(_Tool, kw_only=True, tag="code_interpreter_call"):
    """Code that the model's provider ran."""


class BuiltinToolSegment(_Tool, kw_only=True, tag="builtin_tool_call"):
    """Any other tool of the model's provider."""


ToolSegment: TypeAlias = ToolCallSegment | WebSearchSegment | CodeInterpreterSegment | BuiltinToolSegment
Segment: TypeAlias = ReasoningSegment | TextSegment | RefusalSegment | FileSegment | ToolSegment

# --- events ------------------------------------------------------------------------------------------------------


class TokenCounts(msgspec.Struct, kw_only=True):
    """Tokens over all turns; `output_tokens` includes reasoning. What the model did not count is absent, never 0."""

    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET


class Fault(msgspec.Struct, kw_only=True):
    """Why the answer is not whole: what failed, or the limit (`max_output_tokens` …) that it came to."""

    message: str
    code: str | UnsetType = UNSET


class Span(msgspec.Struct, kw_only=True):
    """When a segment was under way."""

    segment_id: str
    started_at: int
    ended_at: int


class Answer(msgspec.Struct, kw_only=True):
    """The canonical event of an answer: what `message_final` brings, and what is read afterwards."""

    id: str
    conversation_id: str
    role: Literal["assistant"] = "assistant"
    model: str
    created_at: int
    status: Status = "in_progress"
    segments: list[Segment]
    completed_at: int | UnsetType = UNSET
    """When it ended, however it did."""
    view: View | UnsetType = UNSET
    effort_level: str | UnsetType = UNSET
    usage: TokenCounts | UnsetType = UNSET
    error: Fault | UnsetType = UNSET
    timeline: list[Span] | UnsetType = UNSET


class Question(msgspec.Struct, kw_only=True):
    """The canonical event of a question."""

    id: str
    conversation_id: str
    role: Literal["user"] = "user"
    created_at: int
    status: Literal["completed"] = "completed"
    segments: list[TextSegment]
    versions: list[str] | UnsetType = UNSET
    """The events that answer it and those that were asked in its place, oldest first, where there are several."""


# --- what is asked -----------------------------------------------------------------------------------------------


class Ask(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /api/chat`."""

    text: str
    conversation_id: str | None = None
    """The chat to go on with; a new one without it."""
    model: str | None = None
    effort: Effort | None = None
    view: View | None = None
    replaces: str | None = None
    """The event, of a question or of its answer, in whose place this is asked."""
    follows: str | None = None
    """The last event that the asker saw of the conversation, an answer or its question: if it goes on from another by
    now, nothing is asked."""


MAX_TITLE_CHARS = 200
"""Characters, of a title that somebody gives."""


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /api/conversations/{id}`: what of a chat can be changed."""

    title: Annotated[str, Meta(min_length=1, max_length=MAX_TITLE_CHARS)] | UnsetType = UNSET
    head: Annotated[str, Meta(pattern="^(evt|ask)_.")] | UnsetType = UNSET
    """The answer that ends the branch to be shown (or its question)."""


CONVERSATION_PREFIX = "chat"
ANSWER_PREFIX = "evt"
QUESTION_PREFIX = "ask"


def question_id(id: str) -> str:
    """The id of the question's event. Raises `RequestError` if `id` is no event's."""
    return f"{QUESTION_PREFIX}_{_shared_suffix(id, None)}"


def answer_id(id: str, param: str | None = None) -> str:
    """The id of the answer's event. Raises `RequestError` if `id` is no event's; `param` says where it stood."""
    return f"{ANSWER_PREFIX}_{_shared_suffix(id, param)}"


def _shared_suffix(id: str, param: str | None) -> str:
    prefix, _, suffix = id.partition("_")
    if prefix not in (ANSWER_PREFIX, QUESTION_PREFIX) or not suffix:
        at = f"{param}: " if param is not None else ""
        hint = f"one begins with '{ANSWER_PREFIX}_' (an answer) or '{QUESTION_PREFIX}_' (a question)"
        raise RequestError(f"{at}{truncate(id)!r} is no event's id; {hint}", code="invalid_value", param=param)
    return suffix
