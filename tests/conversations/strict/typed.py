"""Wires with typed reasoning blocks and rules of their own: Mistral, Cohere, and Ollama's native API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import ClassVar

from .core import Block, Body, Upstream, split_in_half, unnamed_events


class _Messages(Upstream):
    """Messages with one tool message for each result."""

    def check_tool_messages(self, messages: list[Body], id_of: str = "tool_call_id") -> None:
        called: list[str] = []
        returned: list[str] = []
        for message in messages:
            if message["role"] == "tool":
                returned.append(message[id_of])
                continue
            self.check_pairing(called, returned)
            called, returned = [call["id"] for call in message.get("tool_calls") or ()], []
        self.check_pairing(called, returned)


class Mistral(_Messages):
    wire = "mistral"
    rules: ClassVar = {
        "flattened": "6: a thought is a thinking chunk, not text",
        "chunk": "6: a thinking chunk holds chunks, and the signature that came with them",
        "call_id_format": "a call's id has nine letters and digits",
        "after_tool": "a user message must not follow a tool message",
        "last": "the last message is of a user or a tool, or is a prefix",
        "empty": "an assistant's message has content or calls",
    }

    def thinks(self, body: Body) -> bool:
        return body.get("reasoning_effort") == "high"

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return [*block.opaque, "text"] if block.kind in ("think", "sealed") else []

    def call_id(self, number: int) -> str:
        return f"mi{number:07}"

    def check(self, body: Body) -> None:
        before = ""
        for message in body["messages"]:
            role = message["role"]
            if before == "tool" and role == "user":
                self.refuse("after_tool", f"{message}")
            before = role
            for id in [call["id"] for call in message.get("tool_calls") or ()] + [message.get("tool_call_id")]:
                if id is not None and not re.fullmatch("[a-zA-Z0-9]{9}", id):
                    self.refuse("call_id_format", f"{id!r}")
            if role == "assistant":
                self.check_content(message)
        if before == "assistant" and not body["messages"][-1].get("prefix"):
            self.refuse("last", f"{body['messages'][-1]}")
        self.check_tool_messages(body["messages"])

    def check_content(self, message: Body) -> None:
        content = message["content"]
        if not content and not message.get("tool_calls"):
            self.refuse("empty", f"{message}")
        for chunk in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if chunk["type"] == "text":
                self.refuse_reasoning_in_text(chunk["text"], "flattened")
                continue
            if not isinstance(chunk["thinking"], list):
                self.refuse("chunk", f"{chunk}")
            text = "".join(inner["text"] for inner in chunk["thinking"])
            if self.owner_of(chunk.get("signature"), "chunk").text != text:
                self.refuse("chunk", f"{chunk}")

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        out: list[Body] = []
        calls = 0
        for block in answer:
            head, tail = split_in_half(block.text)
            match block.kind:
                case "think" | "sealed":
                    out += self.thought_deltas(block)
                case "text":
                    out += [_delta(content=text) for text in ((head, tail) if block.whole else (head,))]
                case "call":
                    args = json.dumps(block.args)
                    args = args if block.whole else args[:5]
                    call = {"id": block.call_id, "function": {"name": block.name, "arguments": args}, "index": calls}
                    out.append(_delta(tool_calls=[call]))
                    calls += 1
        return unnamed_events(*out, *([] if cut else [_delta("tool_calls" if calls else "stop"), "[DONE]"]))

    def thought_deltas(self, block: Block) -> list[Body]:
        head, tail = split_in_half(block.text)
        texts = [{"type": "text", "text": text} for text in ((head, tail) if block.whole else (head,))]
        out = [_delta(content=[{"type": "thinking", "thinking": [text]}]) for text in texts]
        if block.whole:
            signed = {"type": "thinking", "thinking": [], "signature": self.make_opaque(block, "sig")}
            out.append(_delta(content=[signed | {"closed": True}]))
        return out


class Magistral(Mistral):
    """It always thinks."""

    def thinks(self, body: Body) -> bool:
        return True


class MagistralTagged(Magistral):
    """Magistral 2506: reasoning is in tags in the text, and goes back in the same form."""

    one_thought = True
    rules: ClassVar = {name: text for name, text in Mistral.rules.items() if name not in ("flattened", "chunk")} | {
        "verbatim": "6: old magistral models have <think> tags in the text",
    }

    def check_content(self, message: Body) -> None:
        content = message["content"]
        if not isinstance(content, str):
            self.refuse("verbatim", f"{message}")
        for block in self.blocks.values():
            if block.kind == "think" and block.text in content and self.tagged(block) not in content:
                self.refuse("verbatim", f"{content!r}")

    def tagged(self, block: Block) -> str:
        return f"<think>\n{block.text}\n</think>\n"

    def thought_deltas(self, block: Block) -> list[Body]:
        head, tail = split_in_half(self.tagged(block))
        return [_delta(content=text) for text in ((head, tail) if block.whole else (head,))]


class Cohere(_Messages):
    wire = "cohere"
    rules: ClassVar = {
        "flattened": "7: thought goes back as an item of type thinking",
        "item": "7: content items are {type: thinking, thinking} and {type: text, text}; there is no signature",
    }

    def thinks(self, body: Body) -> bool:
        return bool(body.get("thinking", {}).get("type") != "disabled")

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return ["text"] if block.kind in ("think", "sealed") else []

    def check(self, body: Body) -> None:
        for message in body["messages"]:
            content = message.get("content")
            for item in content if message["role"] == "assistant" and content else []:
                if set(item) != {"type", item["type"]} or item["type"] not in ("thinking", "text"):
                    self.refuse("item", f"{item}")
                if item["type"] == "text":
                    self.refuse_reasoning_in_text(item["text"], "flattened")
                elif item["thinking"] not in {block.text for block in self.blocks.values()}:
                    self.refuse("item", f"{item} is not a thought of this provider")
        self.check_tool_messages(body["messages"])

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        out: list[Body] = [{"type": "message-start", "id": "1", "delta": {"message": {"role": "assistant"}}}]
        for index, block in enumerate(answer):
            head, tail = split_in_half(block.text or json.dumps(block.args))
            pieces = (head, tail) if block.whole else (head,)
            if block.kind == "call":
                function = {"name": block.name, "arguments": ""}
                call = {"id": block.call_id, "type": "function", "function": function}
                out.append(_event("tool-call-start", index, tool_calls=call))
                out += [_event("tool-call-delta", index, tool_calls={"function": {"arguments": p}}) for p in pieces]
            else:
                name = "text" if block.kind == "text" else "thinking"
                out.append(_event("content-start", index, content={"type": name, name: ""}))
                out += [_event("content-delta", index, content={name: piece}) for piece in pieces]
            if block.whole:
                out.append({"type": "tool-call-end" if block.kind == "call" else "content-end", "index": index})
        if not cut:
            reason = "TOOL_CALL" if any(block.kind == "call" for block in answer) else "COMPLETE"
            out.append({"type": "message-end", "delta": {"finish_reason": reason, "usage": {}}})
        return unnamed_events(*out)

    interleaves = False


class CoherePlan(Cohere):
    """Models that write a plan before they call tools, and nothing else of their reasoning."""

    one_thought = True
    rules: ClassVar = Cohere.rules | {"plan": "7: the plan of an answer goes back as its tool_plan, a string"}

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        has_calls = any(b.kind == "call" for b in self.answers[block.answer])
        return ["text"] if block.kind == "think" and has_calls else []

    def check(self, body: Body) -> None:
        for message in body["messages"]:
            plan = message.get("tool_plan", "")
            if plan and (not message.get("tool_calls") or plan not in {b.text for b in self.blocks.values()}):
                self.refuse("plan", f"{message}")
        super().check(body)

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        spoken = [block for block in answer if block.kind != "think"]
        out = super().stream(spoken, cut)
        plans = [block for block in answer if block.kind == "think" and len(spoken) < len(answer)]
        if not any(block.kind == "call" for block in answer):
            answer[:] = spoken  # such an answer has no plan
            return out
        events = [
            {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": piece}}}
            for block in plans
            for piece in split_in_half(block.text)
        ]
        return [out[0], *unnamed_events(*events), *out[1:]]


class Ollama(Upstream):
    wire = "ollama"
    content_type = "application/x-ndjson"
    interleaves = False
    one_thought = True
    rules: ClassVar = {
        "thinking": "13: thought goes back as message.thinking, a string",
        "flattened": "13: content is the answer, without the thought",
        "arguments": "13: arguments are an object",
        "images": "13: content is a string",
    }

    def thinks(self, body: Body) -> bool:
        return bool(body.get("think", True))

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        return ["text"] if block.kind in ("think", "sealed") else []

    def call_id(self, number: int) -> str:
        return ""

    def check(self, body: Body) -> None:
        called: list[str] = []
        returned: list[str] = []
        for message in body["messages"]:
            if not isinstance(message["content"], str):
                self.refuse("images", f"{message}")
            if message["role"] == "tool":
                returned.append(message["tool_name"])
                continue
            self.check_pairing(called, returned)
            calls = message.get("tool_calls") or []
            if any(not isinstance(call["function"]["arguments"], dict) for call in calls):
                self.refuse("arguments", f"{calls}")
            called, returned = [call["function"]["name"] for call in calls], []
            if message["role"] == "assistant":
                self.refuse_reasoning_in_text(message["content"], "flattened")
                thought = message.get("thinking", "")
                whole = "\n\n".join(b.text for b in self.blocks.values() if b.kind in ("think", "sealed"))
                if not isinstance(thought, str) or thought not in whole:
                    self.refuse("thinking", f"{thought!r}")
        self.check_pairing(called, returned)

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        out: list[Body] = []
        for block in answer:
            if block.kind == "call":
                block.whole = True  # a call is one line
                out.append({"content": "", "tool_calls": [{"function": {"name": block.name, "arguments": block.args}}]})
                continue
            head, tail = split_in_half(block.text)
            field: Body = {} if block.kind == "text" else {"content": ""}
            name = "content" if block.kind == "text" else "thinking"
            out += [field | {name: piece} for piece in ((head, tail) if block.whole else (head,))]
        lines = [{"model": self.model, "message": {"role": "assistant", **message}, "done": False} for message in out]
        if not cut:
            end = {"model": self.model, "message": {"role": "assistant", "content": ""}}
            lines.append(end | {"done": True, "done_reason": "stop", "eval_count": 9, "prompt_eval_count": 9})
        return [json.dumps(line).encode() + b"\n" for line in lines]


def _delta(finish: str | None = None, **fields: object) -> Body:
    return {"id": "1", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def _event(kind: str, index: int, **message: object) -> Body:
    return {"type": kind, "index": index, "delta": {"message": message}}
