"""The chat: `POST /api/chat`, where a page watches a model think, and then reads the answer.

parse_request(body)                              what is asked
encoder = Encoder(event_id, conversation_id, model, created_at, view=…, effort_level=…, after=…)
encoder.start(); encoder.feed(events, now) …     its frames
encoder.event                                    the canonical event: `answer` gives it without a stream
question(…)                                      that of the question
"""

from .encode import Encoder, build_answer, build_question
from .frames import error_body, status_of
from .request import THINKING_LEVELS, Request, parse_request
from .types import (
    ANSWER_PREFIX,
    CONVERSATION_PREFIX,
    MAX_TITLE_CHARS,
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
    "status_of",
]
