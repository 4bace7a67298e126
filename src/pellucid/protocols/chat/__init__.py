"""The chat: `POST /api/chat`, where a page watches a model think, and then reads the answer.

parse_request(body)                              what is asked
encoder = Encoder(event_id, conversation_id, model, created_at, view=…, effort_level=…, after=…)
encoder.start(); encoder.feed(events, now) …     its frames
encoder.event                                    the canonical event: `answer` gives it without a stream
question(…)                                      that of the question
"""

from .encode import Encoder, answer, question
from .frames import error_body, status_of
from .request import THINKING, Request, parse_request
from .types import (
    ANSWER,
    CONVERSATION,
    LONGEST_TITLE,
    QUESTION,
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
    "ANSWER",
    "CONVERSATION",
    "LONGEST_TITLE",
    "QUESTION",
    "THINKING",
    "Answer",
    "Ask",
    "Change",
    "Effort",
    "Encoder",
    "Question",
    "Request",
    "Segment",
    "answer",
    "answer_id",
    "error_body",
    "parse_request",
    "question",
    "question_id",
    "status_of",
]
