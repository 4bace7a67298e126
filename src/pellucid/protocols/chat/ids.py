"""The ids of a chat: a question and its answer share one, each with its own prefix, so that either names the other.

chat_XXXX   a conversation
ask_XXXX    the question's event
evt_XXXX    the answer's event, and the turn of both
"""

from __future__ import annotations

from ...errors import RequestError
from ...text import brief

CONVERSATION = "chat"
ANSWER = "evt"
QUESTION = "ask"


def question_id(id: str) -> str:
    """The id of the question's event. Raises `RequestError` if `id` is no event's."""
    return f"{QUESTION}_{_same(id, None)}"


def answer_id(id: str, param: str | None = None) -> str:
    """The id of the answer's event. Raises `RequestError` if `id` is no event's; `param` says where it stood."""
    return f"{ANSWER}_{_same(id, param)}"


def _same(id: str, param: str | None) -> str:
    prefix, _, rest = id.partition("_")
    if prefix not in (ANSWER, QUESTION) or not rest:
        at = f"{param}: " if param is not None else ""
        right = f"one begins with '{ANSWER}_' (an answer) or '{QUESTION}_' (a question)"
        raise RequestError(f"{at}{brief(id)!r} is no event's id; {right}", code="invalid_value", param=param)
    return rest
