"""Claude: Anthropic Messages, and Converse on Bedrock, which has the same rules in another format."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from tests.event_stream_messages import eventstream_message

from .core import Block, Body, Upstream, named_events, split_in_half
from .limits import levels_of


class MessageBlock(NamedTuple):
    """A block of a message, independent of the format."""

    kind: str
    """think, sealed, call, result, text or other."""
    text: str = ""
    opaque: str = ""
    """Signature, data, or the id of a call."""


CLAUDE_RULES = {
    "signature": "3.4: Invalid 'signature' in 'thinking' block: blank, foreign, or not over this text",
    "starts_with_thinking": "3.4: when 'thinking' is enabled, the last assistant message with calls starts with it",
    "modified": "3.4: thinking blocks in the latest assistant message cannot be modified, removed or moved",
    "disabled": "3.4: with thinking disabled, the last assistant message holds no thinking",
    "ends_in_thought": "3.4: thinking is before the block that it led to, never last",
    "alternate": "roles alternate, no message is empty, the first role is user",
    "blank": "a text must not be blank",
    "id": "ids of calls allow a limited set of characters",
}


class _Claude(Upstream):
    manual: ClassVar[str] = ""

    def check_messages(self, messages: list[tuple[str, list[MessageBlock]]], thinking: str | None) -> None:
        roles = [role for role, _ in messages]
        if roles != [("user", "assistant")[n % 2] for n in range(len(roles))] or not all(
            content for _, content in messages
        ):
            self.refuse("alternate", f"the roles are {roles}")
        for place, (role, content) in enumerate(messages):
            if any(block.kind == "text" and not block.text.strip() for block in content):
                self.refuse("blank", f"{content}")
            if role == "assistant":
                after = messages[place + 1][1] if place + 1 < len(messages) else []
                results = [block.opaque for block in after if block.kind == "result"]
                self.check_pairing([block.opaque for block in content if block.kind == "call"], results)
                if [block.kind for block in after[: len(results)]] != ["result"] * len(results):
                    self.refuse("pairing", "results are first in their message")
                self.check_thoughts(content)
        self.check_latest(messages, thinking)

    def check_thoughts(self, content: list[MessageBlock]) -> None:
        for block in content:
            if block.kind in ("think", "sealed"):
                owner = self.owner_of(block.opaque, "signature")
                if owner.kind != block.kind or (block.kind == "think" and owner.text != block.text):
                    self.refuse("signature", f"{block} is not what was signed")
        if content[-1].kind in ("think", "sealed"):
            self.refuse("ends_in_thought", f"{content}")

    def check_latest(self, messages: list[tuple[str, list[MessageBlock]]], thinking: str | None) -> None:
        answers = [content for role, content in messages if role == "assistant"]
        if not answers:
            return
        last = answers[-1]
        thoughts = [block for block in last if block.kind in ("think", "sealed")]
        if thinking == "disabled" and thoughts:
            self.refuse("disabled", f"{thoughts}")
        calls = [block for block in last if block.kind == "call"]
        answered = any(block.kind == "result" for block in messages[-1][1])
        if thinking == "enabled" and calls and answered and last[0].kind not in ("think", "sealed"):
            self.refuse("starts_with_thinking", f"found {last[0].kind!r}")
        if thoughts or (thinking in ("enabled", "adaptive") and calls and answered):
            self.check_unmodified(last)

    def check_unmodified(self, last: list[MessageBlock]) -> None:
        """Refuse unless the thoughts of each answer in this message are complete, and in order with its calls."""
        ours = [self.block_of(block) for block in last if block.kind in ("think", "sealed", "call")]
        for answer in {block.answer for block in ours if block is not None}:
            numbers_received = [block.number for block in ours if block is not None and block.answer == answer]
            numbers_sent = [
                block.number
                for block in self.answers[answer]
                if block.whole and (block.kind in ("think", "sealed") or block.number in numbers_received)
            ]
            while (
                numbers_sent
                and self.blocks[numbers_sent[-1]].kind != "call"
                and not self.has_text_after(answer, numbers_sent[-1])
            ):
                numbers_sent.pop()  # no block that came back follows it
            if numbers_received != numbers_sent:
                self.refuse("modified", f"{numbers_sent} came back as {numbers_received}")

    def has_text_after(self, answer: int, number: int) -> bool:
        """Whether text follows in the answer, complete or not."""
        return any(block.kind == "text" and block.number > number for block in self.answers[answer])

    def block_of(self, received: MessageBlock) -> Block | None:
        if received.kind == "call":
            return next((block for id, block in self.calls.items() if self.id_as_sent(id) == received.opaque), None)
        return self.opaque.get(received.opaque)

    def id_as_sent(self, call_id: str) -> str:
        return call_id


class Anthropic(_Claude):
    wire = "anthropic"
    rules: ClassVar = CLAUDE_RULES | {
        "budget": "3.1: budget_tokens is at least 1024 and less than max_tokens",
    }

    def thinks(self, body: Body) -> bool:
        # Notes between calls are thoughts, too.
        return bool(body.get("thinking", {}).get("type") in ("enabled", "adaptive", "between_tools"))

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        if not thinking or block.kind not in ("think", "sealed"):
            return []
        return [*block.opaque, *(["text"] if block.kind == "think" else [])]

    def check(self, body: Body) -> None:
        config = body.get("thinking", {})
        if config.get("type") == "enabled" and not 1024 <= config["budget_tokens"] < body["max_tokens"]:
            self.refuse("budget", f"{config} of {body['max_tokens']}")
        messages = [
            (message["role"], [self.parse_block(block) for block in message["content"]]) for message in body["messages"]
        ]
        self.check_messages(messages, config.get("type"))

    def parse_block(self, block: Body) -> MessageBlock:
        match block["type"]:
            case "thinking":
                return MessageBlock("think", block["thinking"], block.get("signature") or "")
            case "redacted_thinking":
                return MessageBlock("sealed", "", block["data"])
            case "tool_use" | "tool_result":
                id = block["id"] if block["type"] == "tool_use" else block["tool_use_id"]
                if not re.fullmatch("[a-zA-Z0-9_-]+", id):
                    self.refuse("id", f"{id!r}")
                return MessageBlock("call" if block["type"] == "tool_use" else "result", "", id)
            case "text":
                return MessageBlock("text", block["text"])
            case _:
                return MessageBlock("other")

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        usage = {"input_tokens": 9, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "content": []}
        out: list[Body] = [{"type": "message_start", "message": message | {"usage": usage}}]
        for index, block in enumerate(answer):
            at = {"index": index}
            start, deltas = self.pieces(block)
            out.append({"type": "content_block_start", **at, "content_block": start})
            deltas = deltas if block.whole else deltas[:1]
            out += [{"type": "content_block_delta", **at, "delta": delta} for delta in deltas]
            if block.whole:
                out.append({"type": "content_block_stop", **at})
        if not cut:
            reason = "tool_use" if any(block.kind == "call" for block in answer) else "end_turn"
            out.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}})
            out.append({"type": "message_stop"})
        return named_events(*out)

    def pieces(self, block: Block) -> tuple[Body, list[Body]]:
        head, tail = split_in_half(block.text)
        match block.kind:
            case "sealed":
                return {"type": "redacted_thinking", "data": self.make_opaque(block, "data", "Emw{}")}, []
            case "think":
                signed = {"type": "signature_delta", "signature": self.signature(block)}
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in (head, tail)]
                return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
            case "call":
                deltas = [
                    {"type": "input_json_delta", "partial_json": p} for p in split_in_half(json.dumps(block.args))
                ]
                return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}, deltas
            case _:
                return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in (head, tail)]

    def signature(self, block: Block) -> str:
        return self.make_opaque(block, "sig", "Eu8B{}")


class DeepSeekMessages(Anthropic):
    """DeepSeek's Messages API: nothing is signed, and an answer without a thought is refused."""

    rules: ClassVar = {
        "missing": "10: the 'reasoning_content' in the thinking mode must be passed back; it may be empty",
        "text": "10: the text passed back is that of a thought",
    }

    def check(self, body: Body) -> None:
        thinking = self.thinks(body)
        for message in body["messages"]:
            thoughts = [block for block in message["content"] if block["type"] == "thinking"]
            if message["role"] == "assistant" and thinking and self.is_missing(message["content"], thoughts):
                self.refuse("missing", f"{message}")
            for thought in thoughts:
                texts = {block.text for block in self.blocks.values()} | {"", " "}
                if thought["thinking"] not in texts:
                    self.refuse("text", f"{thought}")
        for message, after in pairwise([*body["messages"], {"content": []}]):
            called = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
            self.check_pairing(
                called, [block["tool_use_id"] for block in after["content"] if block["type"] == "tool_result"]
            )

    def thinks(self, body: Body) -> bool:
        thinking = body.get("thinking", {}).get("type")
        return bool(thinking == "enabled" if self.model == "deepseek-chat" else thinking != "disabled")

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return ["text"] if thinking and block.kind in ("think", "sealed") else []

    def is_missing(self, content: list[Body], thoughts: list[Body]) -> bool:
        return not thoughts

    def pieces(self, block: Block) -> tuple[Body, list[Body]]:
        if block.kind == "sealed":
            block.kind = "think"
        return super().pieces(block)

    def signature(self, block: Block) -> str:
        return ""


class KimiMessages(DeepSeekMessages):
    """Kimi's Messages API: a message with calls needs a thought, which must not be empty."""

    rules: ClassVar = {
        "missing": "21: thinking is enabled but reasoning_content is missing in assistant tool call message at index N "
        "(the same on this endpoint: NousResearch/hermes-agent#17057)",
        "text": "21: the text passed back is that of a thought",
    }

    def is_missing(self, content: list[Body], thoughts: list[Body]) -> bool:
        return any(block["type"] == "tool_use" for block in content) and not any(t["thinking"] for t in thoughts)

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return super().required_kinds(block, True)


class UnsignedMessages(DeepSeekMessages):
    """Servers that neither sign a thought nor require one (vLLM, Ollama, llama.cpp)."""

    rules: ClassVar = {"text": "3.5: the text passed back is that of a thought"}

    def is_missing(self, content: list[Body], thoughts: list[Body]) -> bool:
        return False

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return super().required_kinds(block, True)


class MiniMaxMessages(Anthropic):
    """MiniMax's Messages API: blocks are signed, and accepted at any time."""

    rules: ClassVar = {name: rule for name, rule in Anthropic.rules.items() if name != "disabled"}

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return super().required_kinds(block, True)

    def check_latest(self, messages: list[tuple[str, list[MessageBlock]]], thinking: str | None) -> None:
        super().check_latest(messages, thinking if thinking != "disabled" else None)


class Bedrock(_Claude):
    """Converse with Claude."""

    wire = "bedrock"
    content_type = "application/vnd.amazon.eventstream"
    rules: ClassVar = CLAUDE_RULES | {
        "shape": "9.3: reasoningText or redactedContent goes back, not the shape of a delta",
        "tools": "toolConfig must be defined where the messages hold toolUse or toolResult",
    }

    def thinks(self, body: Body) -> bool:
        return bool(self.thinking_type(body) in ("enabled", "adaptive", "between_tools"))

    def thinking_type(self, body: Body) -> Any:
        return body.get("additionalModelRequestFields", {}).get("thinking", {}).get("type")

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        if not thinking or block.kind not in ("think", "sealed"):
            return []
        return [*block.opaque, *(["text"] if block.kind == "think" else [])]

    def check(self, body: Body) -> None:
        messages = [
            (message["role"], [self.parse_block(block) for block in message["content"]]) for message in body["messages"]
        ]
        has_tools = any(block.kind in ("call", "result") for _, content in messages for block in content)
        if has_tools and not body.get("toolConfig", {}).get("tools"):
            self.refuse("tools", "toolConfig has no tools")
        self.check_messages(messages, self.thinking_type(body))

    def parse_block(self, block: Body) -> MessageBlock:
        [(name, value)] = block.items()
        match name:
            case "reasoningContent":
                return self.parse_reasoning(value)
            case "toolUse" | "toolResult":
                if not re.fullmatch("[a-zA-Z0-9_.:-]{1,64}", value["toolUseId"]):
                    self.refuse("id", f"{value['toolUseId']!r}")
                return MessageBlock("call" if name == "toolUse" else "result", "", value["toolUseId"])
            case "text":
                return MessageBlock("text", value)
            case _:
                return MessageBlock("other")

    def parse_reasoning(self, value: Body) -> MessageBlock:
        if "reasoningText" in value:
            return MessageBlock("think", value["reasoningText"]["text"], value["reasoningText"].get("signature") or "")
        if "redactedContent" in value:
            try:
                return MessageBlock("sealed", "", b64decode(value["redactedContent"], validate=True).decode())
            except (Base64Error, ValueError):
                self.refuse("shape", "redactedContent is not base64")
        self.refuse("shape", f"{value}")

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        out = [_frame("messageStart", role="assistant")]
        for index, block in enumerate(answer):
            start, deltas = self.pieces(block)
            if start:
                out.append(_frame("contentBlockStart", contentBlockIndex=index, start=start))
            deltas = deltas if block.whole else deltas[:1]
            out += [_frame("contentBlockDelta", contentBlockIndex=index, delta=delta, p="abc") for delta in deltas]
            if block.whole:
                out.append(_frame("contentBlockStop", contentBlockIndex=index))
        if not cut:
            reason = "tool_use" if any(block.kind == "call" for block in answer) else "end_turn"
            out.append(_frame("messageStop", stopReason=reason))
            out.append(_frame("metadata", usage={"inputTokens": 9, "outputTokens": 9, "totalTokens": 18}))
        return out

    def pieces(self, block: Block) -> tuple[Body, list[Body]]:
        head, tail = split_in_half(block.text)
        match block.kind:
            case "sealed":
                # A blob in two deltas, each with its own padding.
                first, second = split_in_half(self.make_opaque(block, "data", "Emw{}x"))
                pieces = [b64encode(piece.encode()).decode() for piece in (first, second)]
                return {}, [{"reasoningContent": {"redactedContent": piece}} for piece in pieces]
            case "think":
                deltas = [{"reasoningContent": {"text": piece}} for piece in (head, tail)]
                signature = self.signature(block)
                return {}, [*deltas, *([{"reasoningContent": {"signature": signature}}] if signature else [])]
            case "call":
                deltas = [{"toolUse": {"input": piece}} for piece in split_in_half(json.dumps(block.args))]
                return {"toolUse": {"toolUseId": block.call_id, "name": block.name}}, deltas
            case _:
                return {}, [{"text": piece} for piece in (head, tail)]

    def signature(self, block: Block) -> str:
        return self.make_opaque(block, "sig", "EvYB{}")


class BedrockUnsigned(Bedrock):
    """Converse with a model that does not sign: R1 does not accept its reasoning."""

    rules: ClassVar = {name: CLAUDE_RULES[name] for name in ("alternate", "blank", "id")} | {
        "tools": Bedrock.rules["tools"],
        "unsigned": "9.3: only signed reasoning goes back; DeepSeek-R1 rejects reasoningContent in its input",
    }

    def thinks(self, body: Body) -> bool:
        return True

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return []

    def check_thoughts(self, content: list[MessageBlock]) -> None:
        if any(block.kind in ("think", "sealed") for block in content):
            self.refuse("unsigned", f"{content}")

    def check_latest(self, messages: list[tuple[str, list[MessageBlock]]], thinking: str | None) -> None:
        pass

    def signature(self, block: Block) -> str:
        return ""

    def pieces(self, block: Block) -> tuple[Body, list[Body]]:
        if block.kind == "sealed":
            block.kind = "think"
        return super().pieces(block)


class BedrockOnRequest(BedrockUnsigned):
    """Qwen, DeepSeek and GLM on Bedrock: they think only if a level asks for it."""

    def thinks(self, body: Body) -> bool:
        return any(level != "none" for _, level in levels_of(body))


class BedrockReadable(BedrockUnsigned):
    """gpt-oss, MiniMax and Nova 2: unsigned reasoning goes back."""

    rules: ClassVar = {name: rule for name, rule in BedrockUnsigned.rules.items() if name != "unsigned"} | {
        "text": "9.3: reasoningText goes back with its text unmodified",
    }

    def thinks(self, body: Body) -> bool:
        return "disabled" not in str(body.get("additionalModelRequestFields"))

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return ["text"] if thinking and block.kind == "think" else []

    def check_thoughts(self, content: list[MessageBlock]) -> None:
        texts = {block.text for block in self.blocks.values()}
        if any(block.kind != "call" and block.kind == "think" and block.text not in texts for block in content):
            self.refuse("text", f"{content}")


class BedrockTagged(BedrockUnsigned):
    """Kimi and Nova 1: reasoning is in tags in the text, and goes back in the same form."""

    one_thought = True
    interleaves = False
    tag: ClassVar[str] = "think"
    rules: ClassVar = BedrockUnsigned.rules | {"verbatim": "9.3: text goes back as it came"}

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return ["text"] if block.kind == "think" else []

    def thinks(self, body: Body) -> bool:
        return not any(level == "none" for _, level in levels_of(body))

    def check_thoughts(self, content: list[MessageBlock]) -> None:
        super().check_thoughts(content)
        for block in content:
            for thought in self.blocks.values():
                if thought.kind == "think" and thought.text in block.text and self.tagged(thought) not in block.text:
                    self.refuse("verbatim", f"{block}")

    def tagged(self, block: Block) -> str:
        return f"<{self.tag}>{block.text}</{self.tag}>"

    def pieces(self, block: Block) -> tuple[Body, list[Body]]:
        if block.kind != "think":
            return super().pieces(block)
        return {}, [{"text": piece} for piece in split_in_half(self.tagged(block))]


class BedrockNova(BedrockTagged):
    tag = "thinking"


class BedrockEncrypted(Bedrock):
    """Closed GPTs and Grok on Bedrock: all reasoning is encrypted."""

    interleaves = False
    rules: ClassVar = {name: BedrockUnsigned.rules[name] for name in ("alternate", "blank", "id", "tools")} | {
        "shape": Bedrock.rules["shape"],
        "signature": "9.2: redactedContent goes back unmodified",
        "ends_in_thought": CLAUDE_RULES["ends_in_thought"],
    }

    def thinks(self, body: Body) -> bool:
        return not any(level == "none" for _, level in levels_of(body))

    def check_latest(self, messages: list[tuple[str, list[MessageBlock]]], thinking: str | None) -> None:
        pass

    def pieces(self, block: Block) -> tuple[Body, list[Body]]:
        if block.kind == "think":
            block.kind = "sealed"
        return super().pieces(block)


def _frame(kind: str, **value: Any) -> bytes:
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return eventstream_message(json.dumps(value).encode(), headers)
