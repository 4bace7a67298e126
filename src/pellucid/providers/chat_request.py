"""The requests of chat wires: what they have in common, with a row for each wire.

Chat Completions, Mistral, Cohere and Ollama take a list of messages: one for the instructions, for each system prompt,
each prompt of the user, each result of a function and each earlier answer. What these hold is the wire's: the row says
how it is written. Results that a function returned beside text follow as a message of the user (`history.in_words`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..parts import (
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from ..settings import ModelCall, OutputFormat
from . import history
from .effort import is_thinking_off
from .profile import Profile
from .setting_fields import Body, SettingFields, Settings


class AssistantMessage(NamedTuple):
    """What of an earlier answer may be sent."""

    parts: list[ModelResponsePart]
    calls: list[Body]
    """Its calls of functions, as the wire writes them."""
    row: Profile
    thinking_off: bool
    """Whether the model is told not to think."""

    @property
    def text(self) -> str:
        """All that it says, for wires on which that is one text."""
        return "".join(part.content for part in self.parts if isinstance(part, TextPart | RefusalPart))

    def chunks(
        self,
        thinking: Callable[[ThinkingPart], list[Body]],
        text: Callable[[TextPart | RefusalPart], list[Body]],
    ) -> list[Body]:
        """Its content in the order in which it came, for wires on which that is a list. What only its maker understands
        goes back as it came."""
        chunks: list[Body] = []
        for part in self.parts:
            match part:
                case ThinkingPart():
                    chunks += thinking(part)
                case TextPart() | RefusalPart():
                    chunks += text(part)
                case OpaquePart() if isinstance(part.native, dict) and isinstance(part.native.get("type"), str):
                    chunks.append(part.native)
        return chunks


def tool_call(part: ToolCallPart) -> Body:
    """A call of a function, as most wires write it."""
    function = {"name": part.tool_name, "arguments": part.args_as_json()}
    return {"id": part.tool_call_id, "type": "function", "function": function}


def tool_result(call_id: str, name: str, content: str) -> Body:
    """The result of a function, as most wires write it."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@dataclass(frozen=True, kw_only=True)
class ChatMessages:
    """How a wire writes its messages."""

    user: Callable[[UserPromptPart], Body]
    answer: Callable[[AssistantMessage], Body]
    """An earlier answer, but for its role; empty when there is nothing to say."""
    tool_call: Callable[[ToolCallPart], Body] = tool_call
    tool_result: Callable[[str, str, str], Body] = tool_result
    """Of a call's id, the function's name, and the text."""

    def write(self, call: ModelCall, row: Profile, target: Origin) -> list[Body]:
        """The messages of a request. Raises `RequestError` for what the wire cannot carry."""
        messages: list[Body] = []
        for message in history.repair_calls(call.messages):
            if isinstance(message, ModelRequest):
                messages += self._request(message, row)
            elif message_body := self._answer(message, row, target, is_thinking_off(call.settings)):
                messages.append({"role": "assistant"} | message_body)
        return messages

    def _answer(self, response: ModelResponse, row: Profile, target: Origin, thinking_off: bool) -> Body:
        parts = history.parts_to_send(response, target, row, thinking_off=thinking_off)
        calls = [self.tool_call(part) for part in parts if isinstance(part, ToolCallPart)]
        return self.answer(AssistantMessage(parts, calls, row, thinking_off))

    def _request(self, message: ModelRequest, row: Profile) -> list[Body]:
        out: list[Body] = []
        if message.instructions:
            out.append({"role": row.system_role, "content": message.instructions})
        for part in history.results_as_text(message.parts):
            match part:
                case SystemPromptPart():
                    role = part.role if row.system_role == "developer" else "system"
                    out.append({"role": role, "content": part.content})
                case UserPromptPart():
                    out.append(self.user(part))
                case ToolReturnPart():
                    out.append(self.tool_result(part.tool_call_id, part.tool_name, part.content_as_text()))
                case RetryPromptPart() if part.tool_name is not None:
                    out.append(self.tool_result(part.tool_call_id, part.tool_name, part.content))
                case RetryPromptPart():
                    out.append({"role": "user", "content": part.content})
        return out


def stream_flag(stream: bool, row: Profile) -> Body:
    """`stream`, as most wires have it: it is said only to ask for it."""
    return {"stream": True} if stream else {}


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """How a wire writes a request whose settings are a table."""

    settings: Callable[[Profile], Mapping[str, str]]
    """Settings that are sent as they are: each one's path in the body."""
    provider_settings: Mapping[str, str] = field(default_factory=dict)
    """Those of the wire's maker, which win; a row that has others says so."""
    thinking: Callable[[SettingFields, Profile], None]
    """Writes how the model is to think."""
    finish: Callable[[SettingFields, Profile], None] = lambda fields, row: None
    """Takes back what this model does not take beside the rest."""
    messages: Callable[[ModelCall, Profile, Origin], list[Body]]
    tools: Callable[[ModelCall], Body]
    output: Callable[[OutputFormat], Body]
    stream: Callable[[bool, Profile], Body] = stream_flag

    def encode(self, call: ModelCall, row: Profile, target: Origin) -> Body:
        """The request's JSON body. Raises `RequestError` for what this wire cannot carry."""
        body: Body = {"model": call.model, "messages": self.messages(call, row, target)}
        body |= self.stream(call.stream, row)
        self._write_settings(SettingFields(call.settings, body), row, self.tools(call) | self.output(call.output))
        return body

    def setting_fields(self, settings: Settings, row: Profile) -> SettingFields:
        """The fields of the body that come from settings."""
        fields = SettingFields(settings)
        self._write_settings(fields, row, {})
        if is_thinking_off(settings):
            fields.claim_history(row)
        return fields

    def _write_settings(self, fields: SettingFields, row: Profile, others: Body) -> None:
        """`others`: fields that come from elsewhere, and give way to the provider's own settings."""
        fields.put_all(self.settings(row))
        fields.body |= others
        self.thinking(fields, row)
        fields.put_all(row.own or self.provider_settings, skip_none=True)
        self.finish(fields, row)
        fields.put_extra_body()


def user_message(content_of: Callable[[UserContent], Body]) -> Callable[[UserPromptPart], Body]:
    """A prompt of the user as text, or as a list of pieces."""

    def write(part: UserPromptPart) -> Body:
        content = part.content if isinstance(part.content, str) else [content_of(piece) for piece in part.content]
        return {"role": "user", "content": content}

    return write
