"""Parse a request of `useChat`: the conversation, and the options of this gateway.

The body is that of the AI SDK's `DefaultChatTransport`: `{id, messages, trigger, messageId}`, and the fields that the
page adds (`body`). Three of these are ours:

    model      the model's public name
    effort     how much to think: off, minimal, low, medium, high, xhigh, max
    view       the form in which reasoning leaves: raw, summary, sealed, hidden

Others are ignored. Each request has the whole conversation, so a request to regenerate an answer
(`regenerate-message`) needs no handling of its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ...parts import ModelMessage, SealedPart
from ...settings import Effort, ModelCall, ModelSettings, ToolDefinition
from ...view import View
from ..decoding import BodyRequest, convert, invalid, read_json
from ..tool_choice import merge_tools
from .encode import Encoder
from .messages import UIMessage, history_of, token_path

PROTOCOL = "ai-sdk"
"""The value of `?protocol=` for this protocol."""


class Body(msgspec.Struct):
    """The body that `useChat` sends, and the options that a page may add to it."""

    messages: list[UIMessage]
    id: str | None = None
    model: str | None = None
    effort: Literal["off", Effort] | None = None
    view: View | None = None


class Request(BodyRequest, frozen=True):
    """A parsed request."""

    body: Body
    messages: list[ModelMessage]
    """The conversation."""

    @property
    def view(self) -> View | None:
        """The view that the page wants; None for the fullest that the key allows."""
        return self.body.view

    @property
    def stream(self) -> bool:
        """Always true: all responses are streams."""
        return True

    @property
    def continued_message_id(self) -> str | None:
        """The id of the client's last message if it is the assistant's: the response continues that message."""
        last = self.body.messages[-1]
        return last.id if last.role == "assistant" else None

    def call(
        self, messages: Sequence[ModelMessage] | None = None, server_tools: Sequence[ToolDefinition] = ()
    ) -> ModelCall:
        """Return the call of the model (see `ClientRequest`); by default, with the conversation of the request."""
        effort = self.body.effort
        settings: ModelSettings = {} if effort is None else {"thinking": False if effort == "off" else effort}
        messages = self.messages if messages is None else messages
        return ModelCall(self.body.model or "", list(messages), settings, merge_tools((), server_tools))

    def encoder(self, id: str, model: str, created: int, server_tools: Container[str]) -> Encoder:
        """Return the encoder of the response (see `StatelessRequest`).

        `id` is the id of the message, if the response does not continue the page's last message.
        """
        return Encoder(self.continued_message_id or id, model)

    def token_path(self, part: SealedPart) -> str:
        """Return the path of a sealed token in the body."""
        return token_path(self.body.messages, part.token)


def recognises(body: Mapping[str, Any], query: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> bool:
    """Return whether a request is of the AI SDK: by `protocol` of the query, else by `messages` in the body."""
    protocol = dict(query).get("protocol")
    return protocol == PROTOCOL if protocol is not None else "messages" in body


def parse_request(body: bytes | dict[str, Any]) -> Request:
    """Parse a request.

    Args:
        body: The body, or the JSON object in it.

    Raises:
        RequestError: The request is invalid; the message has the field and what is allowed.
    """
    raw = read_json(body) if isinstance(body, bytes) else body
    parsed = convert(raw, Body)
    messages = history_of(parsed.messages)
    if not messages:
        raise invalid("messages", "at least one message for a model is required", "missing")
    return Request(parsed, messages)
