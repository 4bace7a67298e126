"""Chat Completions: one wire, with different rules about reasoning for each provider."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import ClassVar

from .core import Block, Body, split_in_half, unnamed_events
from .typed import _delta, _Messages

FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "reasoning_opaque", "reasoning_details")


class Chat(_Messages):
    """Reasoning in a field next to the content. `field` has it in answers; `accepted_fields` may return it."""

    wire = "openai_chat"
    interleaves = False
    one_thought = True
    field: ClassVar[str] = "reasoning_content"
    accepted_fields: ClassVar[tuple[str, ...]] = ("reasoning_content",)
    rules: ClassVar = {
        "field": "App. A: this provider accepts reasoning in this field only",
        "text": "App. A: returned reasoning is that of one answer, in order",
        "flattened": "0.15: never reasoning as text in an assistant's turn",
        "empty": "an assistant message has content, calls or reasoning",
    }

    def thinks(self, body: Body) -> bool:
        settings = [body.get("thinking"), body.get("reasoning")]
        off = any(
            isinstance(way, dict) and (way.get("type") == "disabled" or way.get("enabled") is False) for way in settings
        )
        effort = body.get("reasoning_effort") or (body.get("reasoning") or {}).get("effort")
        switches = body.get("chat_template_kwargs", {}).values()
        return not (off or effort == "none" or False in switches or body.get("enable_thinking") is False)

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return ["text"] if self.accepted_fields and block.kind in ("think", "sealed") else []

    def check(self, body: Body) -> None:
        thinking = self.thinks(body)
        for message in body["messages"]:
            if message["role"] != "assistant":
                continue
            for name in FIELDS:
                if name in message and name not in self.accepted_fields:
                    self.refuse("field", f"{name!r} is not supported")
            if not (message.get("content") or message.get("tool_calls") or any(message.get(f) for f in FIELDS)):
                self.refuse("empty", f"{message}")
            self.refuse_reasoning_in_text(message.get("content") or "", "flattened")
            self.check_reasoning(message, thinking)
        self.check_tool_messages(body["messages"])

    def check_reasoning(self, message: Body, thinking: bool) -> None:
        for name in self.accepted_fields:
            text = message.get(name)
            if text is not None and text.strip() and text not in self.thoughts():
                self.refuse("text", f"{text!r}")

    def thoughts(self) -> set[str]:
        """The reasoning of each answer, as far as it is complete."""
        return {
            "\n\n".join(texts)
            for answer in self.answers
            if (texts := [block.text for block in answer if block.kind in ("think", "sealed") and block.whole])
        } | {block.text for block in self.blocks.values()}

    # --- answers -----------------------------------------------------------------------------------------------

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        out: list[Body] = [_delta(role="assistant", content="")]
        calls = 0
        for block in answer:
            if block.kind == "call":
                head, tail = split_in_half(json.dumps(block.args))
                function = {"name": block.name, "arguments": head}
                out.append(_delta(tool_calls=[{"index": calls, "id": block.call_id, "function": function}]))
                if block.whole:
                    out.append(_delta(tool_calls=[{"index": calls, "function": {"arguments": tail}}]))
                calls += 1
            elif block.kind == "text":
                out += [_delta(content=piece) for piece in self.pieces(block)]
            else:
                out += self.thought_deltas(block)
        return unnamed_events(*out, *([] if cut else [_delta("tool_calls" if calls else "stop"), "[DONE]"]))

    def pieces(self, block: Block) -> tuple[str, ...]:
        head, tail = split_in_half(block.text)
        return (head, tail) if block.whole else (head,)

    def thought_deltas(self, block: Block) -> list[Body]:
        return [_delta(**{self.field: piece}) for piece in self.pieces(block)]


class NoReasoning(Chat):
    """OpenAI, and providers that do the same: no reasoning is returned, and none is accepted."""

    field = ""
    accepted_fields = ()
    shows_thought = False

    def thought_deltas(self, block: Block) -> list[Body]:
        return []


class UnreturnedReasoning(Chat):
    """Reasoning is returned, and not accepted (Qwen)."""

    accepted_fields = ()


class Qwen(Chat):
    """Qwen since 3.6: reasoning goes back with `preserve_thinking`, while it thinks."""

    rules: ClassVar = Chat.rules | {
        "preserved": "20: without preserve_thinking, the model does not get its earlier reasoning",
    }

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return super().required_kinds(block, thinking) if thinking else []

    def check(self, body: Body) -> None:
        returns_reasoning = any("reasoning_content" in message for message in body["messages"])
        if returns_reasoning and body.get("preserve_thinking") is not True:
            self.refuse("preserved", f"preserve_thinking: {body.get('preserve_thinking')}")
        super().check(body)


class DeepSeek(Chat):
    """It thinks by default; its old name `deepseek-chat` only on request."""

    rules: ClassVar = Chat.rules | {
        "missing": "10: the 'reasoning_content' in the thinking mode must be passed back, on every assistant's message",
        "disabled_thinking": "10: with thinking disabled, it is omitted",
    }

    def thinks(self, body: Body) -> bool:
        return super().thinks(body) and (self.model != "deepseek-chat" or "thinking" in body)

    def check(self, body: Body) -> None:
        super().check(body)
        for message in body["messages"]:
            if body.get("thinking", {}).get("type") == "disabled" and "reasoning_content" in message:
                self.refuse("disabled_thinking", f"{message}")

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return super().required_kinds(block, thinking) if thinking else []

    def check_reasoning(self, message: Body, thinking: bool) -> None:
        if thinking and message.get("reasoning_content") is None:
            self.refuse("missing", f"{message}")
        super().check_reasoning(message, thinking)


class Kimi(Chat):
    rules: ClassVar = Chat.rules | {
        "missing": "21: thinking is enabled but reasoning_content is missing in assistant tool call message at index N",
    }

    def call_id(self, number: int) -> str:
        return f"functions.look:{number}"

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return super().required_kinds(block, thinking) if thinking else []

    def check_reasoning(self, message: Body, thinking: bool) -> None:
        if thinking and message.get("tool_calls") and not message.get("reasoning_content"):
            self.refuse("missing", f"{message}")
        super().check_reasoning(message, thinking)


class Groq(Chat):
    """Groq: the field's name is `reasoning`."""

    field = "reasoning"
    accepted_fields: ClassVar[tuple[str, ...]] = ("reasoning",)


class VLLM(Groq):
    accepted_fields = ("reasoning", "reasoning_content")

    def call_id(self, number: int) -> str:
        return f"chatcmpl-tool-{number:032x}"


class Together(Chat):
    """Two names for the field, of which the answers have one."""

    field = "reasoning"
    accepted_fields = ("reasoning", "reasoning_content")


class Copilot(Chat):
    field = "reasoning_text"
    accepted_fields = ("reasoning_text", "reasoning_opaque")
    rules: ClassVar = Chat.rules | {"signature": "25: reasoning_opaque is the signature that came with the text"}

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return [*super().required_kinds(block, thinking), *block.opaque]

    def check_reasoning(self, message: Body, thinking: bool) -> None:
        text, opaque = message.get("reasoning_text"), message.get("reasoning_opaque")
        if text and text not in self.thoughts():
            self.refuse("text", f"{text!r}")
        if opaque is not None and self.owner_of(opaque, "signature").text != text:
            self.refuse("signature", f"{message}")

    def thought_deltas(self, block: Block) -> list[Body]:
        if not block.whole:
            return super().thought_deltas(block)
        return [*super().thought_deltas(block), _delta(reasoning_opaque=self.make_opaque(block, "sig"))]


class OpenRouter(Chat):
    """Claude behind OpenRouter: `reasoning_details`, in fragments."""

    format: ClassVar[str] = "anthropic-claude-v1"
    thinks_by_default: ClassVar[bool] = False
    one_thought = False
    field = "reasoning"
    accepted_fields = ("reasoning", "reasoning_details")
    rules: ClassVar = Chat.rules | {
        "signature": "15: Invalid 'signature' in 'thinking' block: entries come back merged, whole and signed",
        "encrypted": "15: a reasoning.encrypted entry comes back with its data, id and format",
        "duplicate": "0.1: reasoning and reasoning_details have the same text: send one of them",
    }

    def thinks(self, body: Body) -> bool:
        return super().thinks(body) and (self.thinks_by_default or "reasoning" in body)

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        if block.kind == "sealed":
            return block.opaque
        return ["text", *block.opaque] if block.kind == "think" else []

    def check_reasoning(self, message: Body, thinking: bool) -> None:
        details = message.get("reasoning_details")
        if details is not None and "reasoning" in message:
            self.refuse("duplicate", f"{message}")
        for entry in details or ():
            if entry["type"] == "reasoning.encrypted":
                owner = self.owner_of(entry["data"], "encrypted")
                sent = {name: value for name, value in self.sealed_entry(owner).items() if value is not None}
                if entry != sent:
                    self.refuse("encrypted", f"{entry}")
            else:
                self.check_text(entry)

    def check_text(self, entry: Body) -> None:
        if self.owner_of(entry.get("signature"), "signature").text != entry["text"]:
            self.refuse("signature", f"{entry}")

    def sealed_entry(self, block: Block) -> Body:
        data = block.opaque.get("data") or self.make_opaque(block, "data")
        entry = {"type": "reasoning.encrypted", "data": data, "format": self.format, "index": self.index_of(block)}
        return entry | {"id": self.entry_id(block)}

    def entry_id(self, block: Block) -> str | None:
        return None

    def index_of(self, block: Block) -> int:
        return [b.number for b in self.answers[block.answer]].index(block.number)

    def text_entries(self, block: Block) -> list[Body]:
        about = {"format": self.format, "index": self.index_of(block)}
        return [
            _delta(content="", reasoning=text, reasoning_details=[{"type": "reasoning.text", "text": text} | about])
            for text in self.pieces(block)
        ]

    def thought_deltas(self, block: Block) -> list[Body]:
        if block.kind == "sealed":
            return [_delta(content="", reasoning_details=[self.sealed_entry(block)])]
        out = self.text_entries(block)
        if block.whole:
            signed: Body = {"type": "reasoning.text", "signature": self.make_opaque(block, "sig")}
            signed |= {"format": self.format, "index": self.index_of(block)}
            out.append(_delta(content="", reasoning=None, reasoning_details=[signed]))
        return out


class OpenRouterReadable(OpenRouter):
    """Models that do not sign, behind OpenRouter."""

    format = "unknown"
    thinks_by_default = True
    one_thought = True
    rules: ClassVar = OpenRouter.rules | {"entry": "15: entries come back merged and whole"}

    def check_text(self, entry: Body) -> None:
        whole = [b.text for b in self.blocks.values() if b.kind == "think" and b.whole]
        if entry.get("text") not in whole or entry.get("format") != self.format:
            self.refuse("entry", f"{entry}")

    def thought_deltas(self, block: Block) -> list[Body]:
        return self.text_entries(block)


class OpenRouterSealed(OpenRouterReadable):
    """OpenAI behind OpenRouter: a summary, and an encrypted entry with the id of the item."""

    format = "openai-responses-v1"

    def check_text(self, entry: Body) -> None:
        super().check_text(entry | {"text": entry.get("summary", entry.get("text"))})

    def index_of(self, block: Block) -> int:
        return 1

    def entry_id(self, block: Block) -> str | None:
        return block.opaque.get("rs") or self.make_opaque(block, "rs", "rs_{}")

    def text_entries(self, block: Block) -> list[Body]:
        about: Body = {"type": "reasoning.summary", "format": self.format, "index": 0}
        return [
            _delta(content="", reasoning=text, reasoning_details=[about | {"summary": text}])
            for text in self.pieces(block)
        ]

    def thought_deltas(self, block: Block) -> list[Body]:
        sealed = [_delta(content="", reasoning_details=[self.sealed_entry(block)])] if block.whole else []
        return [*self.text_entries(block), *sealed]


class OpenRouterGemini(OpenRouterSealed):
    """Gemini behind OpenRouter: one encrypted entry in each turn, with the id of the turn's first call."""

    format = "google-gemini-v1"

    def entry_id(self, block: Block) -> str | None:
        return next((b.call_id for b in self.answers[block.answer] if b.kind == "call"), None)

    def text_entries(self, block: Block) -> list[Body]:
        return OpenRouter.text_entries(self, block)

    def index_of(self, block: Block) -> int:
        return 0


class MiniMax(Chat):
    """Reasoning is in tags in the content, and goes back in the same form."""

    accepted_fields = ()
    rules: ClassVar = {
        "field": Chat.rules["field"],
        "empty": Chat.rules["empty"],
        "verbatim": "23: <think>…</think> inside content must be sent back verbatim",
    }

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return ["text"] if block.kind in ("think", "sealed") else []

    def refuse_reasoning_in_text(self, text: str, rule: str) -> None:
        for number, answer in enumerate(self.answers):
            if answer and answer[0].kind in ("think", "sealed") and answer[0].text in text:
                whole = "".join(f"<think>\n{b.text}\n</think>\n\n" for b in answer if b.kind in ("think", "sealed"))
                if not text.startswith(whole):
                    self.refuse("verbatim", f"answer {number} came back as {text!r}")

    def thought_deltas(self, block: Block) -> list[Body]:
        head, *tail = self.pieces(block)
        closed = [_delta(content=f"{tail[0]}\n</think>\n\n")] if tail else []
        return [_delta(content=f"<think>\n{head}"), *closed]


class Perplexity(Chat):
    """Reasoning is in tags in the content, and does not go back."""

    accepted_fields = ()
    thought_deltas = MiniMax.thought_deltas


class Cerebras(MiniMax):
    """GLM on Cerebras: reasoning is in a field, and goes back in tags in the content."""

    rules: ClassVar = MiniMax.rules | {
        "cleared": "19: without clear_thinking: false, the model does not get the reasoning in the content",
    }

    def check(self, body: Body) -> None:
        if body.get("clear_thinking") is not False:
            self.refuse("cleared", f"clear_thinking: {body.get('clear_thinking')}")
        super().check(body)

    def thought_deltas(self, block: Block) -> list[Body]:
        return [_delta(reasoning=piece) for piece in self.pieces(block)]


class CerebrasHarmony(Groq):
    """gpt-oss on Cerebras: it always thinks."""

    def thinks(self, body: Body) -> bool:
        return True
