"""The requests of chat wires: what they have in common, with a row for each wire.

Chat Completions, Mistral, Cohere and Ollama take a list of messages: one for the instructions, for each system prompt,
each prompt of the user, each result of a function and each earlier answer. What these hold is the wire's: the row says
how it is written. Results that a function returned beside text follow as a message of the user (`history.in_words`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..parts import (
    ModelRequest,
    ModelResponse,
    Origin,
    RetryPromptPart,
    SystemPromptPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from ..settings import ModelCall, OutputFormat
from . import history
from .profile import Profile
from .setting_fields import Body, SettingFields, Settings


def tool_result(call_id: str, name: str, content: str) -> Body:
    """The result of a function, as most wires write it."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@dataclass(frozen=True, kw_only=True)
class ChatMessages:
    """How a wire writes its messages."""

    user: Callable[[UserPromptPart], Body]
    assistant: Callable[[ModelResponse, Profile, Origin, ModelCall], Body | None]
    """One earlier answer; None when nothing of it may be sent."""
    tool_result: Callable[[str, str, str], Body] = tool_result
    """Of a call's id, the function's name, and the text."""

    def write(self, call: ModelCall, row: Profile, target: Origin) -> list[Body]:
        """The messages of a request. Raises `RequestError` for what the wire cannot carry."""
        messages: list[Body] = []
        for message in history.settled(call.messages):
            if isinstance(message, ModelRequest):
                messages += self._request(message, row)
            elif (answer := self.assistant(message, row, target, call)) is not None:
                messages.append(answer)
        return messages

    def _request(self, message: ModelRequest, row: Profile) -> list[Body]:
        out: list[Body] = []
        if message.instructions:
            out.append({"role": row.system_role, "content": message.instructions})
        for part in history.in_words(message.parts):
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


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """How a wire writes a request whose settings are a table."""

    settings: Mapping[str, str]
    """Settings that are sent as they are: each one's path in the body."""
    thinking: Callable[[SettingFields, Profile], None]
    """Writes how the model is to think."""
    messages: Callable[[ModelCall, Profile, Origin], list[Body]]
    tools: Callable[[ModelCall], Body]
    output: Callable[[OutputFormat], Body]
    always_stream: bool = False
    """Whether `stream` is sent as false, too."""

    def encode(self, call: ModelCall, row: Profile, target: Origin) -> Body:
        """The request's JSON body. Raises `RequestError` for what this wire cannot carry."""
        body: Body = {"model": call.model, "messages": self.messages(call, row, target)}
        if call.stream or self.always_stream:
            body["stream"] = call.stream
        self._write_settings(SettingFields(call.settings, body), row, self.tools(call) | self.output(call.output))
        return body

    def setting_fields(self, settings: Settings, row: Profile) -> SettingFields:
        """The fields of the body that come from settings."""
        fields = SettingFields(settings)
        self._write_settings(fields, row, {})
        return fields

    def _write_settings(self, fields: SettingFields, row: Profile, others: Body) -> None:
        """`others`: fields that do not come from settings."""
        fields.put_all(self.settings)
        fields.body |= others
        self.thinking(fields, row)
        fields.put_all(row.own, skip_none=True)
        fields.put_extra_body()


def user_message(content_of: Callable[[UserContent], Body]) -> Callable[[UserPromptPart], Body]:
    """A prompt of the user as text, or as a list of pieces."""

    def write(part: UserPromptPart) -> Body:
        content = part.content if isinstance(part.content, str) else [content_of(piece) for piece in part.content]
        return {"role": "user", "content": content}

    return write
