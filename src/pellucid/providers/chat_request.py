"""Common encoder of the chat wires' requests, with a table for each wire.

Chat Completions, Mistral, Cohere and Ollama take a list of messages: one for the instructions, for each system prompt,
each prompt of the user, each result of a function and each earlier response. Each wire's table defines how these are
written. Images and files that a function returned follow as a message of the user (`history.results_as_text`).
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
from .effort import switches_thinking_off
from .profile import Profile
from .setting_fields import Body, SettingFields, Settings
from .tool_schema import with_possible_choice


class AssistantMessage(NamedTuple):
    """The parts of an earlier response that may be sent."""

    parts: list[ModelResponsePart]
    calls: list[Body]
    """Its function calls, encoded for the wire."""
    profile: Profile
    thinking_off: bool
    """Whether the request switches thinking off."""

    @property
    def text(self) -> str:
        """All of its text, for wires whose messages have one text."""
        return "".join(part.content for part in self.parts if isinstance(part, TextPart | RefusalPart))

    def chunks(
        self,
        thinking: Callable[[ThinkingPart], list[Body]],
        text: Callable[[TextPart | RefusalPart], list[Body]],
    ) -> list[Body]:
        """Encode its content in order, for wires whose content is a list. Opaque blocks are sent back unchanged.

        Args:
            thinking: Encodes a thinking part.
            text: Encodes a text or refusal part.
        """
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
    """Encode a function call as most wires do."""
    function = {"name": part.tool_name, "arguments": part.args_as_json()}
    return {"id": part.tool_call_id, "type": "function", "function": function}


def tool_result(call_id: str, name: str, content: str) -> Body:
    """Encode a function's result as most wires do."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@dataclass(frozen=True, kw_only=True)
class ChatMessages:
    """A wire's encoders of messages."""

    user: Callable[[UserPromptPart], Body]
    answer: Callable[[AssistantMessage], Body]
    """Encodes an earlier response, without its role; empty to leave it out."""
    tool_call: Callable[[ToolCallPart], Body] = tool_call
    tool_result: Callable[[str, str, str], Body] = tool_result
    """Encodes a result, from the call's id, the function's name and the text."""

    def write(self, call: ModelCall, profile: Profile, target: Origin) -> list[Body]:
        """Encode the messages of a request.

        Raises:
            RequestError: The wire cannot carry a message.
        """
        messages: list[Body] = []
        for message in history.repair_calls(call.messages):
            if isinstance(message, ModelRequest):
                messages += self._request(message, profile)
            elif message_body := self._answer(message, profile, target, switches_thinking_off(call.settings, profile)):
                messages.append({"role": "assistant"} | message_body)
        return messages

    def _answer(self, response: ModelResponse, profile: Profile, target: Origin, thinking_off: bool) -> Body:
        parts = history.parts_to_send(response, target, profile, thinking_off=thinking_off)
        calls = [self.tool_call(part) for part in parts if isinstance(part, ToolCallPart)]
        return self.answer(AssistantMessage(parts, calls, profile, thinking_off))

    def _request(self, message: ModelRequest, profile: Profile) -> list[Body]:
        out: list[Body] = []
        if message.instructions:
            out.append({"role": profile.system_role, "content": message.instructions})
        for part in history.results_as_text(message.parts):
            match part:
                case SystemPromptPart():
                    role = part.role if profile.system_role == "developer" else "system"
                    out.append({"role": role, "content": part.content})
                case UserPromptPart():
                    out.append(self.user(part))
                case ToolReturnPart():
                    out.append(self.tool_result(part.tool_call_id, part.tool_name, part.content_as_text()))
        return out


def stream_flag(stream: bool, profile: Profile) -> Body:
    """Return the `stream` field as most wires have it: present only for a stream."""
    return {"stream": True} if stream else {}


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """A wire's encoder of requests, for wires whose settings are a table."""

    settings: Callable[[Profile], Mapping[str, str]]
    """The settings that are sent as they are, each with its path in the body."""
    provider_settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the wire's maker, which win over the others. A profile with `own` settings replaces them."""
    thinking: Callable[[SettingFields, Profile], None]
    """Writes the settings of thinking."""
    finish: Callable[[SettingFields, Profile], None] = lambda fields, profile: None
    """Removes the fields that the model does not take together with the others."""
    messages: Callable[[ModelCall, Profile, Origin], list[Body]]
    tools: Callable[[ModelCall], Body]
    output: Callable[[OutputFormat], Body]
    stream: Callable[[bool, Profile], Body] = stream_flag

    def encode(self, call: ModelCall, profile: Profile, target: Origin) -> Body:
        """Encode a request's JSON body. Raises `RequestError` if the wire cannot carry a part of it."""
        profile = profile.for_functions() if call.tools else profile
        call = with_possible_choice(call, profile)
        body: Body = {"model": call.model, "messages": self.messages(call, profile, target)}
        body |= self.stream(call.stream, profile)
        self._write_settings(SettingFields(call.settings, body), profile, self.tools(call) | self.output(call.output))
        return body

    def setting_fields(self, settings: Settings, profile: Profile) -> SettingFields:
        """Return the fields of the body that come from settings."""
        fields = SettingFields(settings)
        self._write_settings(fields, profile, {})
        if switches_thinking_off(settings, profile):
            fields.claim_history(profile)
        return fields

    def _write_settings(self, fields: SettingFields, profile: Profile, others: Body) -> None:
        """Write the settings. The provider's own settings win over `others`, which come from elsewhere."""
        fields.put_defaults(profile)
        fields.put_all(self.settings(profile))
        fields.body |= others
        self.thinking(fields, profile)
        fields.put_all(profile.own or self.provider_settings, skip_none=True)
        self.finish(fields, profile)
        fields.put_extra_body()


def user_message(content_of: Callable[[UserContent], Body]) -> Callable[[UserPromptPart], Body]:
    """Return an encoder of the user's prompts, as text or as a list of content parts."""

    def write(part: UserPromptPart) -> Body:
        content = part.content if isinstance(part.content, str) else [content_of(piece) for piece in part.content]
        return {"role": "user", "content": content}

    return write
