"""A `useChat`'s request, read: the conversation, and what it asks of this gateway.

The body is that of the AI SDK's `DefaultChatTransport`: `{id, messages, trigger, messageId}`, and beside them whatever
the page adds (`body`). Of that, three are ours:

    model      the model's public name
    effort     how much to think: off, minimal, low, medium, high, xhigh, max
    view       the form of reasoning that may be seen: raw, summary, sealed, hidden

Others are left alone. The whole conversation comes each time, so that an answer that is asked for again
(`regenerate-message`) is a request like others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from ...errors import RequestError
from ...parts import ModelMessage, SealedPart, View
from ...settings import ModelCall, ModelSettings, ToolDefinition
from ..decoding import convert, read_json
from ..tool_choice import merge_tools
from .encode import Encoder
from .messages import UIMessage, history_of, token_path

Effort = Literal["off", "none", "minimal", "low", "medium", "high", "xhigh", "max"]

PROTOCOL = "ai-sdk"
"""What `?protocol=` says of it."""


class Body(msgspec.Struct):
    messages: list[UIMessage]
    id: str | None = None
    model: str | None = None
    effort: Effort | None = None
    view: View | None = None


class Request(NamedTuple):
    """A request as it was understood."""

    body: Body
    messages: list[ModelMessage]
    """The conversation."""

    @property
    def model(self) -> str | None:
        """The model's public name; None for the server's default."""
        return self.body.model

    @property
    def view(self) -> View | None:
        """In what form the page wants reasoning; None for what the key allows."""
        return self.body.view

    @property
    def stream(self) -> bool:
        """All answers are streams."""
        return True

    @property
    def continued_message_id(self) -> str | None:
        """The id of the message that the client will go on with: its last, if that is an answer."""
        last = self.body.messages[-1]
        return last.id if last.role == "assistant" else None

    @property
    def client_tools(self) -> frozenset[str]:
        """The AI SDK's pages name no tools; those that they run are in no request."""
        return frozenset()

    @property
    def wants_summaries(self) -> bool:
        """Where summaries are all that may be seen, there are some; beside the raw text they have no place here."""
        return False

    @property
    def max_tool_calls(self) -> int | None:
        return None

    def call(
        self, messages: Sequence[ModelMessage] | None = None, server_tools: Sequence[ToolDefinition] = ()
    ) -> ModelCall:
        """What to ask the model, whose name is still the public one: by default, the conversation as it came."""
        effort = self.body.effort
        settings: ModelSettings = {} if effort is None else {"thinking": False if effort == "off" else effort}
        messages = self.messages if messages is None else messages
        return ModelCall(self.body.model or "", list(messages), settings, merge_tools((), server_tools))

    def encoder(self, id: str, model: str, created: int, server_tools: set[str]) -> Encoder:
        """The encoder of the answer, which goes on with the page's last message if that is an answer."""
        return Encoder(self.continued_message_id or id, model)

    def token_path(self, part: SealedPart) -> str:
        """Where in the body this token stands."""
        return token_path(self.body.messages, part.token)


def recognises(body: Mapping[str, Any], query: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> bool:
    """Whether this is the AI SDK's: by what the query says of its protocol, else by the messages in the body."""
    protocol = dict(query).get("protocol")
    return protocol == PROTOCOL if protocol is not None else "messages" in body


def parse_request(body: bytes | dict[str, Any]) -> Request:
    """A body, or the JSON that was read of it. Raises `RequestError` naming the field and what would be right."""
    raw = read_json(body) if isinstance(body, bytes) else body
    parsed = convert(raw, Body)
    messages = history_of(parsed.messages)
    if not messages:
        raise RequestError("messages: at least one that a model can read is required", code="missing", param="messages")
    return Request(parsed, messages)
