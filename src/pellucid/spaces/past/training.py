"""A reasoning as a line of training data, as OpenAI's fine-tuning and TRL's trainers read it.

    {"messages": [{"role": "user", "content": …}, {"role": "assistant", "content": …, "reasoning_content": …}, …],
     "tools": […], "metadata": {"space": …, "context": …, …}}

What loaders and chat templates expect, and what follows from it:

* `content` is always a string (OpenAI refuses lists and null in some roles; templates call its methods), and empty only
  beside a tool call: a turn without an answer ends with what was thought last.
* One call in each message, with its result right behind it, also where nobody responded (the content is empty then, and
  `unanswered` counts them): OpenAI refuses a call without a result, and gpt-oss's template writes the first call alone.
* `arguments` is a JSON string: OpenAI's form; and Arrow, which aligns the keys of all lines, leaves it alone. Names of
  tools, and of speakers, are of the characters that OpenAI allows; ids of calls are short.
* user and assistant alternate, as many templates demand: what several said is one message, with their names in it.
* Where reasoning stands is chosen: `reasoning_content` (Qwen, DeepSeek, GLM, Kimi), `thinking` (gpt-oss, Harmony),
  `reasoning`, in the content between `<think>` and `</think>`, or nowhere (OpenAI refuses fields it does not know).
* All that is ours stands in `metadata`, with the same keys in every line, and can be left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from ...envelopes import time_text
from .dialogue import Answer, Called, Dialogue, Heard, Thought, Turn, json_text

ReasoningForm: TypeAlias = Literal["reasoning_content", "thinking", "reasoning", "think", "none"]
REASONING_FORMS: tuple[ReasoningForm, ...] = get_args(ReasoningForm)

MOST_NAME = 64
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")

APART = "\n\n"
_OPEN: Mapping[str, Any] = {"type": "object", "properties": {}}
"""The parameters of a tool that nobody described."""


def messages(turns: Sequence[Turn], form: ReasoningForm = "reasoning_content") -> list[dict[str, Any]]:
    """The turns of a dialogue, as messages."""
    writer = _Writer(form)
    for turn in turns:
        match turn:
            case Heard():
                writer.heard(turn)
            case Thought(text):
                writer.thoughts.append(text)
            case Called():
                writer.called(turn)
            case Answer(text):
                writer.says(text)
    writer.ends()
    return writer.messages


def tools(turns: Sequence[Turn], known: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools that were called, as their servers describe them (`known`, by name), if they do."""
    return [_tool(name, known.get(name, {})) for name in dict.fromkeys(t.name for t in turns if isinstance(t, Called))]


def line(
    said: Dialogue,
    known: Mapping[str, Mapping[str, Any]],
    about: Mapping[str, Any],
    *,
    form: ReasoningForm = "reasoning_content",
    metadata: bool = True,
) -> dict[str, Any]:
    """`about`: what else is told of it in `metadata`."""
    written: dict[str, Any] = {"messages": messages(said.turns, form)}
    if called := tools(said.turns, known):
        written["tools"] = called
    if metadata:
        written["metadata"] = {
            **about,
            "owner": said.owner,
            "participants": list(said.participants),
            "trigger": said.trigger,
            "complete": is_complete(said),
            "unanswered": sum(isinstance(turn, Called) and turn.result is None for turn in said.turns),
            "first_seq": said.first.seq,
            "started": time_text(said.first.ts),
        }
    return written


def is_complete(said: Dialogue) -> bool:
    """Whether there is a question at its beginning, and an answer or a conclusion at its end."""
    return said.trigger != "none" and said.answered


class _Writer:
    def __init__(self, form: ReasoningForm) -> None:
        self.messages: list[dict[str, Any]] = []
        self.thoughts: list[str] = []
        self._form = form
        self._waiting: list[Heard] = []
        self._calls = 0

    def heard(self, turn: Heard) -> None:
        # What was thought before was said before: others answer to it.
        if self.thoughts:
            self.says(self.thoughts.pop())
        self._waiting.append(turn)

    def says(self, text: str) -> None:
        self._assistant(text)

    def called(self, turn: Called) -> None:
        self._calls += 1
        id = f"call_{self._calls}"
        function = {"name": _name(turn.name), "arguments": json_text(turn.arguments)}
        self._assistant("", tool_calls=[{"id": id, "type": "function", "function": function}])
        self.messages.append({"role": "tool", "tool_call_id": id, "content": turn.result or ""})

    def ends(self) -> None:
        if self.thoughts:
            self.says(self.thoughts.pop())
        self._user()

    def _assistant(self, content: str, **more: Any) -> None:
        self._user()
        reasoning = APART.join(self.thoughts)
        self.thoughts.clear()
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if reasoning and self._form == "think":
            message["content"] = f"<think>\n{reasoning}\n</think>{APART}{content}"
        elif reasoning and self._form != "none":
            message[self._form] = reasoning
        self.messages.append(message | more)

    def _user(self) -> None:
        several = len({turn.speaker for turn in self._waiting}) > 1
        if self._waiting:
            texts = [f"{turn.speaker}: {turn.text}" if several else turn.text for turn in self._waiting]
            message = {"role": "user", "content": APART.join(texts)}
            if not several:
                message["name"] = _name(self._waiting[0].speaker)
            self.messages.append(message)
            self._waiting.clear()


def _name(text: str) -> str:
    return _NO_NAME.sub("_", text)[:MOST_NAME]


def _tool(name: str, known: Mapping[str, Any]) -> dict[str, Any]:
    described, schema = known.get("description"), known.get("inputSchema")
    function: dict[str, Any] = {"name": _name(name)}
    if isinstance(described, str):
        function["description"] = described
    function["parameters"] = schema if isinstance(schema, dict) else dict(_OPEN)
    return {"type": "function", "function": function}
