"""OpenAI's Responses, and who else speaks it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import ClassVar

from .core import Block, Body, Upstream, events, halves

_CALLS = ("function_call", "custom_tool_call")


class Responses(Upstream):
    """Reasoning is encrypted, and nothing is kept (`store: false`)."""

    wire = "openai_responses"
    rules: ClassVar = {
        "follower": "2.5: Item 'rs_…' of type 'reasoning' was provided without its required following item",
        "its_reasoning": "2.5: Item 'fc_…' or 'msg_…' was provided without its required 'reasoning' item",
        "not_found": "2.5: Item with id '…' not found: items are not persisted when 'store' is false",
        "decrypt": "2.5: the encrypted content could not be decrypted: it is to be the unmodified item",
    }

    def thinks(self, body: Body) -> bool:
        return bool(body.get("reasoning", {}).get("effort") != "none")

    def sends_back(self, block: Block, thinking: bool) -> Iterable[str]:
        # A summary that was asked for, and the item's id; what is sealed has no words.
        return [*block.opaque, *(["text"] if block.kind == "think" else [])]

    # --- checking ----------------------------------------------------------------------------------------------

    def check(self, body: Body) -> None:
        if body.get("store") is not False:
            self.refuse("not_found", "store must be false: nothing is kept here")
        items = body["input"]
        for place, item in enumerate(items):
            if "id" in item and item["id"] not in self.opaque:
                self.refuse("not_found", f"Item with id {item['id']!r} not found", 404)
            if item.get("type") == "reasoning":
                self.reasoning(item)
                self.follower(item, items[place + 1 :])
            elif "id" in item:
                self.led_to(item, items[:place])
        self.outputs(items)

    def reasoning(self, item: Body) -> None:
        if not item.get("encrypted_content"):
            self.refuse("not_found", f"{item.get('id')!r} has no encrypted content, and is not kept", 404)
        block = self.owner(item["encrypted_content"], "decrypt")
        if item != self.item(block):
            self.refuse("decrypt", f"{item} is not the item as it was: {self.item(block)}")

    def follower(self, item: Body, rest: list[Body]) -> None:
        block = self.opaque[item["id"]]
        after = self.answers[block.answer][self.answers[block.answer].index(block) + 1 :]
        wanted, found = after[0] if after else None, (rest or [{}])[0]
        if wanted is None:
            self.refuse("follower", f"nothing followed {item['id']!r}")
        kinds = {"call": found.get("type") in _CALLS, "text": found.get("role") == "assistant"}
        as_it_was = kinds.get(wanted.kind, found.get("type") == "reasoning")
        if not as_it_was or found.get("call_id", wanted.call_id) != wanted.call_id:
            self.refuse("follower", f"{item['id']!r} is followed by {found}")

    def led_to(self, item: Body, before: list[Body]) -> None:
        block = self.opaque[item["id"]]
        said = self.answers[block.answer]
        led = said[: said.index(block)]
        if led and led[-1].kind in ("think", "sealed") and (not before or before[-1].get("id") != led[-1].opaque["rs"]):
            self.refuse("its_reasoning", f"{item['id']!r} came without {led[-1].opaque['rs']!r}")

    def outputs(self, items: list[Body]) -> None:
        called: list[str] = []
        returned: list[str] = []
        for item in items:
            if item.get("type") in _CALLS:
                called.append(item["call_id"])
            elif item.get("type") == "function_call_output":
                returned.append(item["call_id"])
            elif item.get("role") == "user":
                self.pairs(called, returned)
        self.pairs(called, returned)

    # --- answering ---------------------------------------------------------------------------------------------

    def item(self, block: Block) -> Body:
        """A reasoning item, whole."""
        summary = [{"type": "summary_text", "text": block.text}] if block.kind == "think" else []
        seal = block.opaque.get("enc") or self.seal(block, "enc", "gAAAA{}")
        return {"type": "reasoning", "id": block.opaque["rs"], "summary": summary, "encrypted_content": seal}

    def stream(self, said: list[Block], cut: bool) -> list[bytes]:
        out: list[Body] = [{"type": "response.created", "response": {"id": f"resp_{len(self.answers)}"}}]
        for index, block in enumerate(said):
            ended = block.whole
            at = {"output_index": index}
            if block.kind in ("think", "sealed"):
                out += self.thought(block, at, ended)
            elif block.kind == "call":
                out += self.call(block, at, ended)
            else:
                out += self.message(block, at, ended)
        if not cut:
            thought = sum(block.kind in ("think", "sealed") for block in said)
            usage = {"input_tokens": 9, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": thought}}
            out.append({"type": "response.completed", "response": {"status": "completed", "usage": usage}})
        return events(*out)

    def thought(self, block: Block, at: Body, ended: bool) -> list[Body]:
        item_id = self.seal(block, "rs", "rs_{}")
        whole = self.item(block) if ended else {"type": "reasoning", "id": item_id}
        # What the start says of the encrypted content is not the end's.
        out = [
            {"type": "response.output_item.added", **at, "item": whole | {"summary": [], "encrypted_content": "gAA"}}
        ]
        if block.kind == "think":
            out += self.words(block, at | {"item_id": item_id}, ended)
        return [*out, *([{"type": "response.output_item.done", **at, "item": whole}] if ended else [])]

    def words(self, block: Block, at: Body, ended: bool) -> list[Body]:
        at |= {"summary_index": 0}
        head, tail = halves(block.text)
        name = "response.reasoning_summary"
        out = [{"type": f"{name}_part.added", **at, "part": {"type": "summary_text", "text": ""}}]
        out.append({"type": f"{name}_text.delta", **at, "delta": head})
        if ended:
            out.append({"type": f"{name}_text.delta", **at, "delta": tail})
            out.append({"type": f"{name}_text.done", **at, "text": block.text})
            out.append({"type": f"{name}_part.done", **at, "part": {"type": "summary_text", "text": block.text}})
        return out

    def call(self, block: Block, at: Body, ended: bool) -> list[Body]:
        item_id = self.seal(block, "fc", "fc_{}")
        item = {"type": "function_call", "id": item_id, "call_id": block.call_id, "name": block.name, "arguments": ""}
        args = json.dumps(block.args)
        head, tail = halves(args)
        name = "response.function_call_arguments"
        out = [{"type": "response.output_item.added", **at, "item": item | {"status": "in_progress"}}]
        out.append({"type": f"{name}.delta", **at, "item_id": item_id, "delta": head})
        if ended:
            out.append({"type": f"{name}.delta", **at, "item_id": item_id, "delta": tail})
            out.append({"type": f"{name}.done", **at, "item_id": item_id, "arguments": args})
            done = item | {"status": "completed", "arguments": args}
            out.append({"type": "response.output_item.done", **at, "item": done})
        return out

    def message(self, block: Block, at: Body, ended: bool) -> list[Body]:
        item_id = self.seal(block, "msg", "msg_{}")
        item = {"type": "message", "id": item_id, "role": "assistant", "status": "in_progress", "content": []}
        head, tail = halves(block.text)
        in_item = {**at, "item_id": item_id, "content_index": 0}
        part = {"type": "output_text", "text": block.text, "annotations": []}
        out = [{"type": "response.output_item.added", **at, "item": item}]
        out.append({"type": "response.content_part.added", **in_item, "part": part | {"text": ""}})
        out.append({"type": "response.output_text.delta", **in_item, "delta": head})
        if ended:
            out.append({"type": "response.output_text.delta", **in_item, "delta": tail})
            out.append({"type": "response.output_text.done", **in_item, "text": block.text})
            out.append({"type": "response.content_part.done", **in_item, "part": part})
            done = item | {"status": "completed", "content": [part]}
            out.append({"type": "response.output_item.done", **at, "item": done})
        return out


class OpenResponses(Responses):
    """Reasoning is there for all to read (vLLM)."""

    rules: ClassVar = {
        "encrypted": "11: Encrypted content is not supported",
        "raw_text": "2.2: raw reasoning is content of type reasoning_text, as it came",
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
        self.outputs(body["input"])

    def sends_back(self, block: Block, thinking: bool) -> Iterable[str]:
        # Everybody may read it: so the words go back as well.
        return [*block.opaque, *(["text"] if block.kind in ("think", "sealed") else [])]

    def item(self, block: Block) -> Body:
        content = [{"type": "reasoning_text", "text": block.text}]
        return {"type": "reasoning", "id": block.opaque["rs"], "summary": [], "content": content}

    def thought(self, block: Block, at: Body, ended: bool) -> list[Body]:
        item_id = self.seal(block, "rs", "rs_{}")
        in_item = {**at, "item_id": item_id, "content_index": 0}
        head, tail = halves(block.text)
        item = {"type": "reasoning", "id": item_id, "summary": [], "content": []}
        out = [{"type": "response.output_item.added", **at, "item": item}]
        out.append({"type": "response.reasoning_text.delta", **in_item, "delta": head})
        if ended:
            out.append({"type": "response.reasoning_text.delta", **in_item, "delta": tail})
            out.append({"type": "response.reasoning_text.done", **in_item, "text": block.text})
            out.append({"type": "response.output_item.done", **at, "item": self.item(block)})
        return out
