"""Gemini's generateContent."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import ClassVar

from .core import Block, Body, Upstream, split_in_half, unnamed_events

SENTINEL = "skip_thought_signature_validator"


class Gemini(Upstream):
    """The first call of a step and the last part of an answer have signatures; calls have no ids."""

    wire = "google"
    rules: ClassVar = {
        "missing": "4.5: Function call is missing a thought_signature: the first of each step of this turn has one",
        "invalid": "4.5: Thought signature is not valid: foreign, changed, or on a part that it did not come with",
        "merged": "4.5: never merge a signed part with an unsigned one",
        "sentinel": "4.5: the documented sentinel replaces only a lost signature of the first call of a step",
        "roles": "the first content is the user's; function responses follow their calls, in order",
    }
    strict: ClassVar[bool] = True
    """True for Gemini 3; before it, a signature was optional."""

    def thinks(self, body: Body) -> bool:
        return bool(body.get("generationConfig", {}).get("thinkingConfig", {}).get("includeThoughts"))

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        if block.kind in ("think", "sealed"):
            return [*block.opaque, *(["text"] if block.kind == "think" else [])]
        return block.opaque

    # --- checks ------------------------------------------------------------------------------------------------

    def check(self, body: Body) -> None:
        contents = body["contents"]
        if contents[0]["role"] != "user":
            self.refuse("roles", "the first role is model")
        user_messages = [
            n for n, c in enumerate(contents) if c["role"] == "user" and any("text" in p for p in c["parts"])
        ]
        for place, content in enumerate(contents):
            if content["role"] != "model":
                continue
            calls = [part for part in content["parts"] if "functionCall" in part]
            for part in content["parts"]:
                self.check_part(part, part in calls[:1])
            if self.strict and place > user_messages[-1] and calls and "thoughtSignature" not in calls[0]:
                name = calls[0]["functionCall"]["name"]
                self.refuse("missing", f"function call `default_api:{name}`, position {place}")
            self.check_step(calls, contents[place + 1 :])

    def check_part(self, part: Body, first_call: bool) -> None:
        signature = part.get("thoughtSignature")
        if signature == SENTINEL:
            if not first_call:
                self.refuse("sentinel", f"{part}")
            return
        if signature is None:
            if "text" in part:
                texts = [block.text for block in self.blocks.values() if block.opaque and block.kind == "text"]
                if part["text"] in texts and not part.get("thought"):
                    self.refuse("merged", f"{part} has lost its signature")
            return
        block = self.owner_of(signature, "invalid")
        if "functionCall" in part:
            same = block.kind == "call" and part["functionCall"]["args"] == block.args
        elif part.get("thought"):
            # The signature came on a part without text, after the thought that it closes.
            before = self.blocks.get(block.number - 1, block)
            same = block.kind == "sealed" and part.get("text", "") in ("", before.text)
        else:
            same = block.kind == "text" and part.get("text") in (block.text, "")
        if not same:
            self.refuse("invalid", f"{part} is not what was signed")

    def check_step(self, calls: list[Body], rest: list[Body]) -> None:
        answers = rest[0]["parts"] if rest else []
        results = [part["functionResponse"] for part in answers if "functionResponse" in part]
        if results and len(results) != len(answers):
            self.refuse("roles", "text of the user is in a content with function responses")
        called = [(call["functionCall"]["name"], call["functionCall"].get("id")) for call in calls]
        self.check_pairing([str(c) for c in called], [str((r["name"], r.get("id"))) for r in results], ordered=True)

    # --- answers -----------------------------------------------------------------------------------------------

    def call_id(self, number: int) -> str:
        return ""

    def sign(self, block: Block) -> str:
        canary = block.canary("sig")
        text = b64encode(b"\xfb\xef\xbe" + (canary + "x" * (-len(canary) % 3)).encode()).decode()
        self.opaque[text] = block
        block.opaque["sig"] = text
        return text

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        out: list[Body] = []
        has_call = False
        for block in answer:
            head, tail = split_in_half(block.text)
            match block.kind:
                case "think":
                    out += [_chunk({"text": p, "thought": True}) for p in ((head, tail) if block.whole else (head,))]
                case "sealed":
                    out.append(_chunk({"text": "", "thought": True, "thoughtSignature": self.sign(block)}))
                case "call":
                    block.whole = True  # a call is one chunk
                    call: Body = {"functionCall": {"name": block.name, "args": block.args}}
                    out.append(_chunk(call if has_call else call | {"thoughtSignature": self.sign(block)}))
                    has_call = True
                case "text":
                    out.append(_chunk({"text": head}))
                    if block.whole:
                        # The signature is last, on an empty text.
                        out += [_chunk({"text": tail}), _chunk({"text": "", "thoughtSignature": self.sign(block)})]
        if not cut:
            usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "thoughtsTokenCount": 3, "totalTokenCount": 21}
            end = {"content": {"parts": [], "role": "model"}, "finishReason": "STOP", "index": 0}
            out.append({"candidates": [end], "usageMetadata": usage})
        return unnamed_events(*out)


class Gemini2(Gemini):
    """Gemini before version 3."""

    strict = False


def _chunk(part: Body) -> Body:
    return {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]}
