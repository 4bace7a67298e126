"""The content of an answer: its segments, and the event that holds them, as readers of the store get it.

`segments` are those of the persisted example in the specification, field by field. An optional field is absent, never
null. Times are in milliseconds since 1970. `output_index` is a segment's place in `segments`. `sequence_number` is one
counter for the whole message, from 0, which each segment and each part of reasoning takes when it opens.

A question and its answer share one id with two prefixes, so that the id of either gives the other:

chat_XXXX   a conversation
ask_XXXX    the event of the question
evt_XXXX    the event of the answer, and the turn of both
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...errors import RequestError
from ...events import AnsweringDeployment
from ...unicode import truncate
from ...view import View

Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
ToolStatus = Literal["completed", "failed", "incomplete"]
Effort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
"""The effort that a user can choose for the model's reasoning."""

# --- segments ----------------------------------------------------------------------------------------------------


class ReasoningPart(msgspec.Struct, kw_only=True):
    """One part of the reasoning: a summary, or the raw text."""

    text: str = ""
    type: Literal["reasoning_text", "summary_text"]
    created_at: int
    is_complete: bool = False
    """False if the model was cut off within this part."""
    summary_index: int
    """The part's place in the segment."""
    sequence_number: int


class SummaryNote(msgspec.Struct, kw_only=True):
    """That the summaries of a stretch of reasoning are the gateway's, not of the model that reasoned."""

    author: str
    """The model that writes them."""
    missing: Literal["late", "failed"] | UnsetType = UNSET
    """Why there are none, or not all: they were not written in time, or could not be written."""


class ReasoningSegment(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning"):
    """One stretch of reasoning. It has no parts where the reader may know only that the model reasoned."""

    id: str
    parts: list[ReasoningPart]
    streaming: Literal[False] = False
    output_index: int
    combined_text: str = ""
    """The texts of the parts, separated by a blank line."""
    sequence_number: int
    effort_level: str | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    summary: SummaryNote | UnsetType = UNSET
    """Only if another model summarizes the reasoning."""


class Citation(msgspec.Struct, kw_only=True):
    """A source of the text from character `start_index` to `end_index`, where the range is known."""

    type: Literal["url_citation"] = "url_citation"
    url: str
    title: str
    start_index: int | UnsetType = UNSET
    end_index: int | UnsetType = UNSET


class TextSegment(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    """One stretch of the answer's text."""

    id: str
    text: str = ""
    annotations: list[Citation] | UnsetType = UNSET


class RefusalSegment(msgspec.Struct, kw_only=True, tag_field="type", tag="refusal"):
    """The text with which the model refused."""

    id: str
    text: str = ""


class FileSegment(msgspec.Struct, kw_only=True, tag_field="type", tag="file"):
    """A file that the model made. `data` is base64."""

    id: str
    media_type: str
    data: str | UnsetType = UNSET
    url: str | UnsetType = UNSET


class _Tool(msgspec.Struct, kw_only=True, tag_field="type"):
    id: str
    call_id: str
    name: str
    args: Any = None
    """The arguments as JSON values; as text, where the model wrote no valid JSON."""
    args_text: str | UnsetType = UNSET
    """The JSON text of the arguments as the model wrote it, where `args` has its values."""
    status: ToolStatus = "incomplete"
    """`incomplete`: the call got no result."""
    result: Any | UnsetType = UNSET
    error: str | UnsetType = UNSET
    created_at: int
    sequence_number: int
    output_index: int


class ToolCallSegment(_Tool, kw_only=True, tag="tool_call"):
    """A function that the model called, and its result."""


class WebSearchSegment(_Tool, kw_only=True, tag="web_search_call"):
    """A search by the model's provider."""


class CodeInterpreterSegment(_Tool, kw_only=True, tag="code_interpreter_call"):
    """Code that the model's provider ran."""


class BuiltinToolSegment(_Tool, kw_only=True, tag="builtin_tool_call"):
    """A call of any other tool of the model's provider."""


ToolSegment: TypeAlias = ToolCallSegment | WebSearchSegment | CodeInterpreterSegment | BuiltinToolSegment
Segment: TypeAlias = ReasoningSegment | TextSegment | RefusalSegment | FileSegment | ToolSegment

# --- events ------------------------------------------------------------------------------------------------------


class TokenCounts(msgspec.Struct, kw_only=True):
    """Tokens of all turns.

    `output_tokens` includes reasoning. A count that the model did not report is absent, never 0.
    """

    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    cost: float | UnsetType = UNSET
    """In the currency of the gateway's prices, if there are prices."""
    reasoning_cost: float | UnsetType = UNSET
    """The part of the cost that is for tokens of reasoning."""


class Fault(msgspec.Struct, kw_only=True):
    """Why the answer is not complete: an error, or the limit (`max_output_tokens` …) that it reached."""

    message: str
    code: str | UnsetType = UNSET


class Span(msgspec.Struct, kw_only=True):
    """The time in which a segment was in progress. That of reasoning ends with the last of its parts, if it has any.

    If another model summarizes it, it ends when the reasoning ended, not when its summary was written.
    """

    segment_id: str
    started_at: int
    ended_at: int


Rating = Literal["up", "down"]


class Feedback(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the reader thinks of an answer."""

    rating: Rating
    comment: str = ""


class Answer(msgspec.Struct, kw_only=True):
    """The canonical event of an answer: the content of `message_final`, and what is read later."""

    id: str
    conversation_id: str
    role: Literal["assistant"] = "assistant"
    model: str
    created_at: int
    status: Status = "in_progress"
    segments: list[Segment]
    completed_at: int | UnsetType = UNSET
    """When the answer ended, in any status."""
    view: View | UnsetType = UNSET
    effort_level: str | UnsetType = UNSET
    usage: TokenCounts | UnsetType = UNSET
    deployment: AnsweringDeployment | UnsetType = UNSET
    """The deployment that answered, if the model has several."""
    error: Fault | UnsetType = UNSET
    timeline: list[Span] | UnsetType = UNSET
    feedback: Feedback | UnsetType = UNSET


class AttachmentInfo(msgspec.Struct, kw_only=True):
    """An attachment of a question. Its content is at `url`."""

    id: str
    name: str
    media_type: str
    size: int
    """In bytes."""
    url: str


class Question(msgspec.Struct, kw_only=True):
    """The canonical event of a question."""

    id: str
    conversation_id: str
    role: Literal["user"] = "user"
    created_at: int
    status: Literal["completed"] = "completed"
    segments: list[TextSegment]
    versions: list[str] | UnsetType = UNSET
    """The answers to this question and to those asked in its place, oldest first, if there are several."""
    attachments: list[AttachmentInfo] | UnsetType = UNSET


# --- requests ----------------------------------------------------------------------------------------------------


class AttachmentInput(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An attachment of a question: a new one with its content, or an earlier one by its id."""

    name: str | None = None
    media_type: str | None = None
    data: str | None = None
    """The content, in base64."""
    id: str | None = None
    """The id of an attachment of an earlier question."""


MAX_INSTRUCTIONS_CHARS = 8000
"""Maximum length of the instructions of a chat, in characters."""


class Ask(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /api/chat`."""

    text: str
    attachments: list[AttachmentInput] | None = None
    conversation_id: str | None = None
    """The chat to continue; without it, a new chat."""
    model: str | None = None
    """The model's public name; without it, the server's default."""
    effort: Effort | None = None
    """Without it, the default of the model."""
    view: View | None = None
    """Without it, the most that this reader may see."""
    replaces: str | None = None
    """The event, of a question or of its answer, that this question replaces."""
    follows: str | None = None
    """The last event of the conversation that the client has seen, a question or its answer.

    If the conversation has moved on since, the question is refused.
    """
    instructions: str | None = None
    """The instructions of a new chat."""
    tools: list[str] | None = None
    """The tools of the server that the model may call; without it, all."""


MAX_TITLE_CHARS = 200
"""Maximum length of a title that a user sets, in characters."""


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /api/conversations/{id}`: the changes of a chat."""

    title: Annotated[str, Meta(min_length=1, max_length=MAX_TITLE_CHARS)] | UnsetType = UNSET
    head: Annotated[str, Meta(pattern="^(evt|ask)_.")] | UnsetType = UNSET
    """The answer (or its question) that ends the branch to be shown."""
    instructions: Annotated[str, Meta(max_length=MAX_INSTRUCTIONS_CHARS)] | UnsetType | None = UNSET
    """The instructions of the chat from now on; null or an empty text: none."""


MAX_COMMENT_CHARS = 4000
"""Maximum length of a comment on an answer, in characters."""


class SetFeedback(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PUT /api/chat/{event_id}/feedback`."""

    rating: Rating | None
    """None deletes the feedback."""
    comment: Annotated[str, Meta(max_length=MAX_COMMENT_CHARS)] = ""


class NewShare(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /api/conversations/{id}/shares`."""

    view: View = "hidden"
    """How reasoning is shown to who has the link."""
    head: Annotated[str, Meta(pattern="^(evt|ask)_.")] | UnsetType = UNSET
    """The answer (or its question) that ends what is shared; by default the last one of the shown branch."""
    expires_in_seconds: Annotated[float, Meta(ge=1, le=10 * 366 * 86_400)] | UnsetType = UNSET


PROTOCOL = "chat"
"""The protocol's name, in stored runs and in the options of the command line."""

ASK_PATH = "/api/chat"
CONVERSATIONS_PATH = "/api/conversations"
MODELS_PATH = "/api/models"
TOOLS_PATH = "/api/tools"
ATTACHMENTS_PATH = "/api/attachments"
FEED_PATH = "/api/events"
SHARED_PATH = "/api/shared"
PATHS = (ASK_PATH, CONVERSATIONS_PATH, MODELS_PATH, TOOLS_PATH, ATTACHMENTS_PATH, FEED_PATH, SHARED_PATH)
"""The paths of the protocol. A question is sent to the first."""

CONVERSATION_PREFIX = "chat"
ANSWER_PREFIX = "evt"
QUESTION_PREFIX = "ask"


def question_id(id: str) -> str:
    """Return the id of the question's event. Raises `RequestError` if `id` is not an event's id."""
    return f"{QUESTION_PREFIX}_{_shared_suffix(id, None)}"


def answer_id(id: str, param: str | None = None) -> str:
    """Return the id of the answer's event.

    Args:
        id: The id of the answer's or the question's event.
        param: The name of the field that held the id, for the error.

    Raises:
        RequestError: `id` is not the id of an event.
    """
    return f"{ANSWER_PREFIX}_{_shared_suffix(id, param)}"


def _shared_suffix(id: str, param: str | None) -> str:
    prefix, _, suffix = id.partition("_")
    if prefix not in (ANSWER_PREFIX, QUESTION_PREFIX) or not suffix:
        path = f"{param}: " if param is not None else ""
        hint = f"an id begins with '{ANSWER_PREFIX}_' (an answer) or '{QUESTION_PREFIX}_' (a question)"
        raise RequestError(f"{path}{truncate(id)!r} is not an event's id; {hint}", code="invalid_value", param=param)
    return suffix
