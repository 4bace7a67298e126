"""The protocol of the chat: `POST /api/chat`, for a page that shows a model's reasoning live, and then its answer.

* `parse_request(body)` returns the question as a `Request`.
* `encoder = Encoder(event_id, conversation_id, model, created_at, view=…, effort_level=…, after=…)` encodes the answer.
* `encoder.start()` and `encoder.feed(events, now)` return its frames.
* `encoder.event` is its canonical event; `build_answer(…)` makes it without a stream.
* `build_question(…)` returns the canonical event of the question.
"""

from .encode import Encoder, build_answer, build_question
from .frames import error_body
from .request import THINKING_LEVELS, Request, parse_request
from .types import (
    ANSWER_PREFIX,
    CONVERSATION_PREFIX,
    MAX_TITLE_CHARS,
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
    "MAX_TITLE_CHARS",
    "PROTOCOL",
    "QUESTION_PREFIX",
    "THINKING_LEVELS",
    "Answer",
    "Ask",
    "Change",
    "Effort",
    "Encoder",
    "Question",
    "Request",
    "Segment",
    "answer_id",
    "build_answer",
    "build_question",
    "error_body",
    "parse_request",
    "question_id",
]
