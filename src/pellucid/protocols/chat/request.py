"""Parses the body of `POST /api/chat`: one question, its place in a chat, and how it is to be answered.

Errors name the path of the problem. An unknown field is refused by its name: a misspelt field must not give an answer
to another question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ...parts import ModelMessage, ModelRequest, SealedPart, Text, UserContent, UserPromptPart
from ...settings import ModelCall, ModelSettings, ThinkingLevel, ToolDefinition
from ..decoding import PlainRequest, convert, invalid, read_json
from . import types as t
from .attachments import DEFAULT_LIMITS, Attachment, Limits, read_attachments
from .types import answer_id

THINKING_LEVELS: dict[t.Effort, ThinkingLevel] = {
    "off": False,
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
"""The model setting `thinking` for each effort."""


class Request(PlainRequest, frozen=True):
    """A parsed question."""

    body: t.Ask
    attachments: tuple[Attachment | str, ...] = ()
    """The attachments in their order: new ones, and the ids of earlier ones (see `with_attachments`)."""

    def with_attachments(self, attachments: Sequence[Attachment]) -> Request:
        """Return the request with these attachments, which have no ids of earlier ones any more."""
        return replace(self, attachments=tuple(attachments))

    @property
    def replaces(self) -> str | None:
        """The id of the answer in the turn that this question replaces."""
        return None if self.body.replaces is None else answer_id(self.body.replaces, "replaces")

    @property
    def follows(self) -> str | None:
        """The id of the answer in the last turn that the client has seen."""
        return None if self.body.follows is None else answer_id(self.body.follows, "follows")

    @property
    def user_message(self) -> ModelMessage:
        """The message that the question adds to the conversation."""
        contents = [one.content for one in self.attachments if not isinstance(one, str)]
        if not contents:
            return ModelRequest([UserPromptPart(self.body.text)])
        question: list[UserContent] = [Text(text=self.body.text)] if self.body.text.strip() else []
        return ModelRequest([UserPromptPart([*contents, *question])])

    @property
    def instructions(self) -> str | None:
        """The instructions of a new chat."""
        return clean_instructions(self.body.instructions)

    def token_path(self, part: SealedPart) -> str:
        """Return the path of the chat's id: sealed tokens are stored here, and no client sends them back."""
        return "conversation_id"

    def call(
        self, messages: Sequence[ModelMessage] | None = None, server_tools: Sequence[ToolDefinition] = ()
    ) -> ModelCall:
        """Return the call of the model (see `ClientRequest`); by default, with the question alone."""
        effort = self.body.effort
        settings: ModelSettings = {} if effort is None else {"thinking": THINKING_LEVELS[effort]}
        return ModelCall(
            model=self.body.model or "",
            messages=list([self.user_message] if messages is None else messages),
            settings=settings,
            tools=tuple(server_tools),
        )


def clean_instructions(text: str | None) -> str | None:
    """Return the instructions of a chat without white space around them; None if there are none.

    Raises:
        RequestError: They are too long.
    """
    text = (text or "").strip()
    if len(text) > t.MAX_INSTRUCTIONS_CHARS:
        raise invalid(
            "instructions",
            f"they have {len(text)} characters, and those of a conversation have at most {t.MAX_INSTRUCTIONS_CHARS}",
        )
    return text or None


def parse_request(body: bytes | dict[str, Any], limits: Limits = DEFAULT_LIMITS) -> Request:
    """Parse a body, or the JSON object that was already read from it.

    Args:
        body: The body.
        limits: The limits of attachments.

    Raises:
        RequestError: The message names the field and says what would be valid.
    """
    ask = convert(read_json(body) if isinstance(body, bytes) else body, t.Ask)
    if not ask.text.strip() and not ask.attachments:
        raise invalid("text", "it is empty; it must be the question")
    for name in ("conversation_id", "model", "replaces", "follows"):
        if getattr(ask, name) == "":
            raise invalid(name, "it is empty; leave it out")
    request = Request(ask, tuple(read_attachments(ask.attachments or (), limits)))
    _ = request.replaces
    if request.instructions is not None and (ask.conversation_id is not None or ask.replaces is not None):
        problem = "they are those of a new chat; to change them in this one, send PATCH /api/conversations/{id}"
        raise invalid("instructions", problem)
    if request.follows is not None:
        _check_follows(ask)
    return request


def _check_follows(ask: t.Ask) -> None:
    if ask.replaces is not None:
        raise invalid("follows", "replaces names the place in the chat already; leave out one of the two")
    if ask.conversation_id is None:
        problem = "it is required together with follows: name the conversation to continue, or leave out both"
        raise invalid("conversation_id", problem, "missing")
