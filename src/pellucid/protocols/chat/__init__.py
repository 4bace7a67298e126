"""The protocol of the chat: `POST /api/chat`, for a page that shows a model's reasoning live, and then its answer.

* `parse_request(body)` returns the question as a `Request`.
* `encoder = Encoder(message_started(event_id, conversation_id, model, created_at, …), after=…)` encodes the answer.
* `encoder.start()` and `encoder.feed(events, now)` return its frames.
* `encoder.event` is its canonical event; `build_answer(…)` makes it without a stream.
* `build_question(…)` returns the canonical event of the question.
"""

from .attachments import (
    MEDIA_TYPES,
    Attachment,
    Limits,
    Medium,
    StoredAttachment,
    attachment_not_found,
    check_total,
    download_of,
    medium_of,
    parse_attachment_id,
    stored_attachments,
)
from .encode import Encoder, build_answer, build_question
from .frames import MessageStarted, error_body, message_started
from .request import THINKING_LEVELS, Request, clean_instructions, parse_request
from .types import (
    ANSWER_PREFIX,
    CONVERSATION_PREFIX,
    MAX_INSTRUCTIONS_CHARS,
    MAX_TITLE_CHARS,
    PATHS,
    PROTOCOL,
    QUESTION_PREFIX,
    Answer,
    Ask,
    Change,
    Effort,
    Question,
    Segment,
    answer_id,
    question_id,
)

__all__ = [
    "ANSWER_PREFIX",
    "CONVERSATION_PREFIX",
    "MAX_INSTRUCTIONS_CHARS",
    "MAX_TITLE_CHARS",
    "MEDIA_TYPES",
    "PATHS",
    "PROTOCOL",
    "QUESTION_PREFIX",
    "THINKING_LEVELS",
    "Answer",
    "Ask",
    "Attachment",
    "Change",
    "Effort",
    "Encoder",
    "Limits",
    "Medium",
    "MessageStarted",
    "Question",
    "Request",
    "Segment",
    "StoredAttachment",
    "answer_id",
    "attachment_not_found",
    "build_answer",
    "build_question",
    "check_total",
    "clean_instructions",
    "download_of",
    "error_body",
    "medium_of",
    "message_started",
    "parse_attachment_id",
    "parse_request",
    "question_id",
    "stored_attachments",
]
