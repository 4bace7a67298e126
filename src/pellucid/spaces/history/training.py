"""A reasoning as a line of training data, in the form that OpenAI's fine-tuning and TRL's trainers read.

    {"messages": [{"role": "user", "content": …}, {"role": "assistant", "content": …, "reasoning_content": …}, …],
     "tools": […], "metadata": {"space": …, "context": …, …}}

What loaders and chat templates expect, and what follows from it:

* `content` is always a string (OpenAI refuses lists and null in some roles; templates call its methods). It is empty
  only with a tool call: a turn without an answer ends with the last thought as its content.
* Each message has one call, directly followed by its result, also if there was no response (then the content is empty,
  and `unanswered` counts them). OpenAI refuses a call without a result, and gpt-oss's template writes only the first
  call.
* `arguments` is a JSON string. That is OpenAI's form, and Arrow, which aligns the keys of all lines, leaves it alone.
  Names of tools and speakers have only the characters that OpenAI allows; ids of calls are short.
* user and assistant alternate, as many templates demand: messages of several participants are one message, with their
  names in it.
* Where reasoning stands can be chosen: `reasoning_content` (Qwen, DeepSeek, GLM, Kimi), `thinking` (gpt-oss, Harmony),
  `reasoning`, in the content between `<think>` and `</think>`, or nowhere (OpenAI refuses fields it does not know).
* Our own additions stand in `metadata`, with the same keys in every line, and can be left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from ...envelopes import time_text
from .dialogue import AnswerTurn, Dialogue, DialogueTurn, IncomingTurn, ThoughtTurn, ToolCallTurn, json_text

ReasoningForm: TypeAlias = Literal["reasoning_content", "thinking", "reasoning", "think", "none"]
REASONING_FORMS: tuple[ReasoningForm, ...] = get_args(ReasoningForm)

MAX_NAME_LENGTH = 64
_FORBIDDEN_NAME_CHARS = re.compile(r"[^A-Za-z0-9_-]")

PARAGRAPH_BREAK = "\n\n"


def messages(turns: Sequence[DialogueTurn], form: ReasoningForm = "reasoning_content") -> list[dict[str, Any]]:
    """Convert the turns of a dialogue to messages."""
    writer = _MessageWriter(form)
    for turn in turns:
        match turn:
            case IncomingTurn():
                writer.add_incoming(turn)
            case ThoughtTurn(text):
                writer.thoughts.append(text)
            case ToolCallTurn():
                writer.add_tool_call(turn)
            case AnswerTurn(text):
                writer.add_assistant(text)
    writer.finish()
    return writer.messages


def training_line(
    dialogue: Dialogue,
    known: Mapping[str, Mapping[str, Any]],
    extra_metadata: Mapping[str, Any],
    *,
    form: ReasoningForm = "reasoning_content",
    metadata: bool = True,
) -> dict[str, Any]:
    """Build a line of training data.

    Args:
        dialogue: The dialogue.
        known: Descriptions of tools by name, as `tools/list` gives them. Those that were called are in the line.
        extra_metadata: Further metadata.
        form: Where reasoning stands.
        metadata: Whether the line has metadata.
    """
    fields: dict[str, Any] = {"messages": messages(dialogue.turns, form)}
    if called := dict.fromkeys(turn.name for turn in dialogue.turns if isinstance(turn, ToolCallTurn)):
        fields["tools"] = [_tool_definition(name, known.get(name, {})) for name in called]
    if metadata:
        fields["metadata"] = {
            **extra_metadata,
            "owner": dialogue.owner,
            "participants": list(dialogue.participants),
            "trigger": dialogue.trigger,
            "complete": is_complete(dialogue),
            "unanswered": sum(isinstance(turn, ToolCallTurn) and turn.result is None for turn in dialogue.turns),
            "first_seq": dialogue.first.seq,
            "started": time_text(dialogue.first.ts),
        }
    return fields


def is_complete(dialogue: Dialogue) -> bool:
    """Check whether a dialogue begins with a question and ends with an answer or a conclusion."""
    return dialogue.trigger != "none" and dialogue.answered


class _MessageWriter:
    """Builds the messages, turn by turn."""

    def __init__(self, form: ReasoningForm) -> None:
        self.messages: list[dict[str, Any]] = []
        self.thoughts: list[str] = []
        self._form = form
        self._pending: list[IncomingTurn] = []
        self._call_count = 0

    def add_incoming(self, turn: IncomingTurn) -> None:
        # Thoughts before it become an answer: the other participant may have replied to them.
        if self.thoughts:
            self.add_assistant(self.thoughts.pop())
        self._pending.append(turn)

    def add_tool_call(self, turn: ToolCallTurn) -> None:
        self._call_count += 1
        id = f"call_{self._call_count}"
        function = {"name": _allowed_name(turn.name), "arguments": json_text(turn.arguments)}
        self.add_assistant("", tool_calls=[{"id": id, "type": "function", "function": function}])
        self.messages.append({"role": "tool", "tool_call_id": id, "content": turn.result or ""})

    def finish(self) -> None:
        if self.thoughts:
            self.add_assistant(self.thoughts.pop())
        self._add_user()

    def add_assistant(self, content: str, **more: Any) -> None:
        self._add_user()
        reasoning = PARAGRAPH_BREAK.join(self.thoughts)
        self.thoughts.clear()
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if reasoning and self._form == "think":
            message["content"] = f"<think>\n{reasoning}\n</think>{PARAGRAPH_BREAK}{content}"
        elif reasoning and self._form != "none":
            message[self._form] = reasoning
        self.messages.append(message | more)

    def _add_user(self) -> None:
        has_several_speakers = len({turn.speaker for turn in self._pending}) > 1
        if self._pending:
            texts = [f"{turn.speaker}: {turn.text}" if has_several_speakers else turn.text for turn in self._pending]
            message = {"role": "user", "content": PARAGRAPH_BREAK.join(texts)}
            if not has_several_speakers:
                message["name"] = _allowed_name(self._pending[0].speaker)
            self.messages.append(message)
            self._pending.clear()


def _allowed_name(text: str) -> str:
    return _FORBIDDEN_NAME_CHARS.sub("_", text)[:MAX_NAME_LENGTH]


def _tool_definition(name: str, known: Mapping[str, Any]) -> dict[str, Any]:
    description, schema = known.get("description"), known.get("inputSchema")
    function: dict[str, Any] = {"name": _allowed_name(name)}
    if isinstance(description, str):
        function["description"] = description
    function["parameters"] = schema if isinstance(schema, dict) else {"type": "object", "properties": {}}
    return {"type": "function", "function": function}
