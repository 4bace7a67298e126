"""The body of `POST /api/chat`, checked: one question, where it belongs, and how it is to be answered.

Everything that is wrong is said with its place. What is not known here is refused by name: whoever misspells a field
must not get an answer to another question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import RequestError
from ...parts import ModelMessage, ModelRequest, SealedPart, UserPromptPart, View
from ...settings import ModelCall, ModelSettings, ThinkingLevel, ToolDefinition
from ..decoding import convert, read_json
from . import types as t
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
"""What an effort is to a model."""


class Request(NamedTuple):
    """A question as it was understood."""

    body: t.Ask

    @property
    def text(self) -> str:
        return self.body.text

    @property
    def conversation_id(self) -> str | None:
        """None: a chat is begun."""
        return self.body.conversation_id

    @property
    def model(self) -> str | None:
        """The model's public name; None for the server's default."""
        return self.body.model

    @property
    def effort(self) -> t.Effort | None:
        """None: as the model has it."""
        return self.body.effort

    @property
    def view(self) -> View | None:
        """None: as much as this reader may see."""
        return self.body.view

    @property
    def replaces(self) -> str | None:
        """The answer's id of the turn in whose place this is asked."""
        return None if self.body.replaces is None else answer_id(self.body.replaces, "replaces")

    @property
    def follows(self) -> str | None:
        """The answer's id of the turn that the asker saw last."""
        return None if self.body.follows is None else answer_id(self.body.follows, "follows")

    @property
    def client_tools(self) -> frozenset[str]:
        """A page calls no functions of its own."""
        return frozenset()

    @property
    def wants_summaries(self) -> bool:
        """Where summaries are all that may be seen, there are some; the raw thought is shown without."""
        return False

    @property
    def max_tool_calls(self) -> int | None:
        """No page asks for a limit."""
        return None

    @property
    def user_message(self) -> ModelMessage:
        """What the question adds to the conversation."""
        return ModelRequest([UserPromptPart(self.body.text)])

    def token_path(self, part: SealedPart) -> str:
        """What is sealed is kept here: nobody gives it back."""
        return "conversation_id"

    def call(
        self, messages: Sequence[ModelMessage] | None = None, server_tools: Sequence[ToolDefinition] = ()
    ) -> ModelCall:
        """What to ask the model, whose name is still the public one: by default, the question alone."""
        settings: ModelSettings = {} if self.effort is None else {"thinking": THINKING_LEVELS[self.effort]}
        return ModelCall(
            model=self.model or "",
            messages=list([self.user_message] if messages is None else messages),
            settings=settings,
            tools=tuple(server_tools),
        )


def parse_request(body: bytes | dict[str, Any]) -> Request:
    """A body, or the JSON that was read of it. Raises `RequestError` naming the field and what would be right."""
    ask = convert(read_json(body) if isinstance(body, bytes) else body, t.Ask)
    if not ask.text.strip():
        raise RequestError("text: it is empty; it must be what is asked", code="invalid_value", param="text")
    for name in ("conversation_id", "model", "replaces", "follows"):
        if getattr(ask, name) == "":
            raise RequestError(f"{name}: it is empty; leave it out", code="invalid_value", param=name)
    request = Request(ask)
    _ = request.replaces
    if request.follows is not None:
        _check_follows(ask)
    return request


def _check_follows(ask: t.Ask) -> None:
    if ask.replaces is not None:
        problem = "replaces names the place already; leave out one of the two"
        raise RequestError(f"follows: {problem}", code="invalid_value", param="follows")
    if ask.conversation_id is None:
        problem = "it is required beside follows: say which conversation goes on, or leave out both"
        raise RequestError(f"conversation_id: {problem}", code="missing", param="conversation_id")
