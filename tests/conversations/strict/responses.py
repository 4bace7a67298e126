"""OpenAI's Responses API, and other providers of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import ClassVar

from .core import Block, Body, Upstream, named_events, split_in_half

_CALLS = ("function_call", "custom_tool_call")


class Responses(Upstream):
    """Reasoning is encrypted, and nothing is stored (`store: false`)."""

    wire = "openai_responses"
    rules: ClassVar = {
        "follower": "2.5: Item 'rs_…' of type 'reasoning' was provided without its required following item",
        "its_reasoning": "2.5: Item 'fc_…' or 'msg_…' was provided without its required 'reasoning' item",
        "not_found": "2.5: Item with id '…' not found: items are not persisted when 'store' is false",
        "decrypt": "2.5: the encrypted content could not be decrypted: the item must be unmodified",
    }

    def thinks(self, body: Body) -> bool:
        return bool(body.get("reasoning", {}).get("effort") != "none")

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        # The summary and the item's id; a sealed item has no text.
        return [*block.opaque, *(["text"] if block.kind == "think" else [])]

    # --- checks ------------------------------------------------------------------------------------------------

    def check(self, body: Body) -> None:
        if body.get("store") is not False:
            self.refuse("not_found", "store must be false: nothing is stored here")
        items = body["input"]
        for place, item in enumerate(items):
            if "id" in item and item["id"] not in self.opaque:
                self.refuse("not_found", f"Item with id {item['id']!r} not found", 404)
            if item.get("type") == "reasoning":
                self.check_reasoning(item)
                self.check_follower(item, items[place + 1 :])
            elif "id" in item:
                self.check_reasoning_before(item, items[:place])
        self.check_outputs(items)

    def check_reasoning(self, item: Body) -> None:
        if not item.get("encrypted_content"):
            self.refuse("not_found", f"{item.get('id')!r} has no encrypted content, and is not stored", 404)
        block = self.owner_of(item["encrypted_content"], "decrypt")
        if item != self.reasoning_item(block):
            self.refuse("decrypt", f"{item} differs from the original item: {self.reasoning_item(block)}")

    def check_follower(self, item: Body, rest: list[Body]) -> None:
        block = self.opaque[item["id"]]
        after = self.answers[block.answer][self.answers[block.answer].index(block) + 1 :]
        expected, actual = after[0] if after else None, (rest or [{}])[0]
        if expected is None:
            self.refuse("follower", f"nothing followed {item['id']!r}")
        kinds = {"call": actual.get("type") in _CALLS, "text": actual.get("role") == "assistant"}
        is_same = kinds.get(expected.kind, actual.get("type") == "reasoning")
        if not is_same or actual.get("call_id", expected.call_id) != expected.call_id:
            self.refuse("follower", f"{item['id']!r} is followed by {actual}")

    def check_reasoning_before(self, item: Body, before: list[Body]) -> None:
        block = self.opaque[item["id"]]
        answer = self.answers[block.answer]
        earlier = answer[: answer.index(block)]
        if (
            earlier
            and earlier[-1].kind in ("think", "sealed")
            and (not before or before[-1].get("id") != earlier[-1].opaque["rs"])
        ):
            self.refuse("its_reasoning", f"{item['id']!r} came without {earlier[-1].opaque['rs']!r}")

    def check_outputs(self, items: list[Body]) -> None:
        called: list[str] = []
        returned: list[str] = []
        for item in items:
            if item.get("type") in _CALLS:
                called.append(item["call_id"])
            elif item.get("type") == "function_call_output":
                returned.append(item["call_id"])
            elif item.get("role") == "user":
                self.check_pairing(called, returned)
        self.check_pairing(called, returned)

    # --- answers -----------------------------------------------------------------------------------------------

    def reasoning_item(self, block: Block) -> Body:
        """A complete reasoning item."""
        summary = [{"type": "summary_text", "text": block.text}] if block.kind == "think" else []
        seal = block.opaque.get("enc") or self.make_opaque(block, "enc", "gAAAA{}")
        return {"type": "reasoning", "id": block.opaque["rs"], "summary": summary, "encrypted_content": seal}

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        out: list[Body] = [{"type": "response.created", "response": {"id": f"resp_{len(self.answers)}"}}]
        for index, block in enumerate(answer):
            is_complete = block.whole
            at = {"output_index": index}
            if block.kind in ("think", "sealed"):
                out += self.reasoning_events(block, at, is_complete)
            elif block.kind == "call":
                out += self.call_events(block, at, is_complete)
            else:
                out += self.message_events(block, at, is_complete)
        if not cut:
            thought = sum(block.kind in ("think", "sealed") for block in answer)
            usage = {"input_tokens": 9, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": thought}}
            out.append({"type": "response.completed", "response": {"status": "completed", "usage": usage}})
        return named_events(*out)

    def reasoning_events(self, block: Block, at: Body, is_complete: bool) -> list[Body]:
        item_id = self.make_opaque(block, "rs", "rs_{}")
        whole = self.reasoning_item(block) if is_complete else {"type": "reasoning", "id": item_id}
        # The encrypted content of the start differs from that of the end.
        out = [
            {"type": "response.output_item.added", **at, "item": whole | {"summary": [], "encrypted_content": "gAA"}}
        ]
        if block.kind == "think":
            out += self.summary_events(block, at | {"item_id": item_id}, is_complete)
        return [*out, *([{"type": "response.output_item.done", **at, "item": whole}] if is_complete else [])]

    def summary_events(self, block: Block, at: Body, is_complete: bool) -> list[Body]:
        at |= {"summary_index": 0}
        head, tail = split_in_half(block.text)
        name = "response.reasoning_summary"
        out = [{"type": f"{name}_part.added", **at, "part": {"type": "summary_text", "text": ""}}]
        out.append({"type": f"{name}_text.delta", **at, "delta": head})
        if is_complete:
            out.append({"type": f"{name}_text.delta", **at, "delta": tail})
            out.append({"type": f"{name}_text.done", **at, "text": block.text})
            out.append({"type": f"{name}_part.done", **at, "part": {"type": "summary_text", "text": block.text}})
        return out

    def call_events(self, block: Block, at: Body, is_complete: bool) -> list[Body]:
        item_id = self.make_opaque(block, "fc", "fc_{}")
        item = {"type": "function_call", "id": item_id, "call_id": block.call_id, "name": block.name, "arguments": ""}
        args = json.dumps(block.args)
        head, tail = split_in_half(args)
        name = "response.function_call_arguments"
        out = [{"type": "response.output_item.added", **at, "item": item | {"status": "in_progress"}}]
        out.append({"type": f"{name}.delta", **at, "item_id": item_id, "delta": head})
        if is_complete:
            out.append({"type": f"{name}.delta", **at, "item_id": item_id, "delta": tail})
            out.append({"type": f"{name}.done", **at, "item_id": item_id, "arguments": args})
            done = item | {"status": "completed", "arguments": args}
            out.append({"type": "response.output_item.done", **at, "item": done})
        return out

    def message_events(self, block: Block, at: Body, is_complete: bool) -> list[Body]:
        item_id = self.make_opaque(block, "msg", "msg_{}")
        item = {"type": "message", "id": item_id, "role": "assistant", "status": "in_progress", "content": []}
        head, tail = split_in_half(block.text)
        in_item = {**at, "item_id": item_id, "content_index": 0}
        part = {"type": "output_text", "text": block.text, "annotations": []}
        out = [{"type": "response.output_item.added", **at, "item": item}]
        out.append({"type": "response.content_part.added", **in_item, "part": part | {"text": ""}})
        out.append({"type": "response.output_text.delta", **in_item, "delta": head})
        if is_complete:
            out.append({"type": "response.output_text.delta", **in_item, "delta": tail})
            out.append({"type": "response.output_text.done", **in_item, "text": block.text})
            out.append({"type": "response.content_part.done", **in_item, "part": part})
            done = item | {"status": "completed", "content": [part]}
            out.append({"type": "response.output_item.done", **at, "item": done})
        return out


class OpenResponses(Responses):
    """Reasoning is readable (vLLM)."""

    rules: ClassVar = {
        "encrypted": "11: Encrypted content is not supported",
        "raw_text": "2.2: raw reasoning is content of type reasoning_text, unmodified",
    }

    def check(self, body: Body) -> None:
        for item in body["input"]:
            if item.get("type") != "reasoning":
                continue
            if item.get("encrypted_content"):
                self.refuse("encrypted", f"{item}")
            for entry in item.get("content", []):
                blocks = [block for block in self.blocks.values() if block.text == entry["text"]]
                if entry["type"] != "reasoning_text" or not blocks:
                    self.refuse("raw_text", f"{entry}")
        self.check_outputs(body["input"])

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        # Every provider may read it, so the text goes back, too.
        return [*block.opaque, *(["text"] if block.kind in ("think", "sealed") else [])]

    def reasoning_item(self, block: Block) -> Body:
        content = [{"type": "reasoning_text", "text": block.text}]
        return {"type": "reasoning", "id": block.opaque["rs"], "summary": [], "content": content}

    def reasoning_events(self, block: Block, at: Body, is_complete: bool) -> list[Body]:
        item_id = self.make_opaque(block, "rs", "rs_{}")
        in_item = {**at, "item_id": item_id, "content_index": 0}
        head, tail = split_in_half(block.text)
        item = {"type": "reasoning", "id": item_id, "summary": [], "content": []}
        out = [{"type": "response.output_item.added", **at, "item": item}]
        out.append({"type": "response.reasoning_text.delta", **in_item, "delta": head})
        if is_complete:
            out.append({"type": "response.reasoning_text.delta", **in_item, "delta": tail})
            out.append({"type": "response.reasoning_text.done", **in_item, "text": block.text})
            out.append({"type": "response.output_item.done", **at, "item": self.reasoning_item(block)})
        return out


class CopilotResponses(Responses):
    """GitHub Copilot: an item has another id in each event."""

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        events = [json.loads(event.split(b"data: ")[1]) for event in super().stream(answer, cut)]
        for number, event in enumerate(events):
            if "item_id" in event:
                event["item_id"] += f"~{number}"
            if "item" in event:
                event["item"]["id"] += f"~{number}"
        return named_events(*events)

    def check(self, body: Body) -> None:
        # Each of its ids names the item.
        items = [item | ({"id": item["id"].partition("~")[0]} if "id" in item else {}) for item in body["input"]]
        super().check(body | {"input": items})


class LateResponses(OpenResponses):
    """OpenRouter: reasoning is readable and encrypted, and its end is reported after everything else."""

    rules: ClassVar = {"decrypt": Responses.rules["decrypt"]}

    def check(self, body: Body) -> None:
        for item in body["input"]:
            if item.get("type") == "reasoning":
                block = self.owner_of(item.get("encrypted_content"), "decrypt")
                if item != self.reasoning_item(block):
                    self.refuse("decrypt", f"{item} differs from the original item: {self.reasoning_item(block)}")
        self.check_outputs(body["input"])

    def reasoning_item(self, block: Block) -> Body:
        seal = block.opaque.get("enc") or self.make_opaque(block, "enc", "gAAAA{}")
        return super().reasoning_item(block) | {"encrypted_content": seal}

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        events = super().stream(answer, cut)
        late = [event for event in events if b"output_item.done" in event and b"gAAAA" in event]
        rest = [event for event in events if event not in late]
        return [*rest, *late] if cut else [*rest[:-1], *late, rest[-1]]


class DeepSeekResponses(OpenResponses):
    interleaves = False
    one_thought = True

    def thinks(self, body: Body) -> bool:
        return super().thinks(body) and (self.model != "deepseek-chat" or "reasoning" in body)
