"""Shared by the strict upstreams: how they answer, what they remember, and how they refuse.

A strict upstream (`Upstream`) applies the rules of one provider to the history that it receives. It answers as a test
scripts it (`Act`). Everything in its answers that it alone understands (ids of items, signatures, sealed blobs) and the
text of its reasoning carries a canary: `cnry.SIDE.NUMBER.KIND.`, numbered in the order of production. So it knows of
every request what of its own came back, whether that is complete and in order, and what comes from another upstream.

A rule has a name and a reference to `providers.md`; a refusal names the rule that was broken. The rules of a class are
about the history. What a model refuses otherwise (levels, forced calls, fields) is a row of `limits`.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn

from .limits import limits_of

Body = dict[str, Any]
Step = Literal["think", "sealed", "call", "output", "text"]
"""`output` is a call of the tool with which an agent's model gives its typed output."""

OUTPUT_TOOL = "final_result"
CANARY = re.compile(r"cnry\.([a-z0-9-]+)\.(\d+)\.([a-z]+)\.")


class Refusal(Exception):
    """An error response: its status, and the rule that was broken."""

    def __init__(self, rule: str, message: str, status: int = 400) -> None:
        super().__init__(f"[{rule}] {message}")
        self.rule, self.status = rule, status


class Act(NamedTuple):
    """The script of an answer: its steps in order; with `cut`, it hangs in the middle of the last step."""

    steps: tuple[Step, ...]
    cut: bool = False


CALL = Act(("think", "call"))
INTERLEAVED = Act(("think", "call", "sealed", "call"))
TYPED_ANSWER = Act(("think", "output"))
ANSWER = Act(("think", "sealed", "text"))
CUT_THOUGHT = Act(("think",), cut=True)
CUT_CALL = Act(("think", "call"), cut=True)
CUT_SECOND_CALL = Act(("think", "call", "call"), cut=True)
CUT_TEXT = Act(("think", "text"), cut=True)


@dataclass
class Block:
    """One block of an upstream's answers."""

    side: str
    number: int
    kind: Step
    whole: bool = True
    text: str = ""
    """The text of reasoning or of an answer."""
    call_id: str = ""
    name: str = ""
    args: Body = field(default_factory=dict)
    answer: int = 0
    """The index of the upstream's answer that contains it."""
    opaque: dict[str, str] = field(default_factory=dict)
    """Opaque data by kind: signature, blob, id."""

    def canary(self, kind: str) -> str:
        return f"cnry.{self.side}.{self.number}.{kind}."


class CanaryMatch(NamedTuple):
    """A canary in a request."""

    side: str
    number: int
    kind: str


def iter_strings(value: Any) -> Iterator[str]:
    """All strings in a JSON value, in their order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield name
            yield from iter_strings(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from iter_strings(entry)


def find_canaries(value: Any) -> list[CanaryMatch]:
    """All canaries in a JSON value, also in base64 and in JSON that is a string."""
    matches: list[CanaryMatch] = []
    for text in iter_strings(value):
        for readable in {text: None, _decode_base64(text): None}:
            matches += [CanaryMatch(side, int(number), kind) for side, number, kind in CANARY.findall(readable)]
    return matches


def _decode_base64(text: str) -> str:
    try:
        return b64decode(text, validate=True).decode("utf-8", "replace")
    except (Base64Error, ValueError):
        return ""


class Upstream:
    """One strict provider. The class of a wire defines `check`, `stream` and its `rules`."""

    wire: ClassVar[str]
    rules: ClassVar[dict[str, str]] = {}
    """Each rule, with its reference."""
    interleaves: ClassVar[bool] = True
    """Whether reasoning can be between calls."""
    one_thought: ClassVar[bool] = False
    """Whether all reasoning of an answer is one text."""
    shows_thought: ClassVar[bool] = True
    """Whether its reasoning is streamed."""
    content_type: ClassVar[str] = "text/event-stream"
    functions: tuple[str, ...] = ("look",)
    """The functions that it calls, in turn."""
    known_rules: ClassVar[dict[str, str]] = {
        "foreign": "App. A: opaque fields never cross, and reasoning text only if the caller opts in",
        "order": "0.4: the order of parts must not change",
        "pairing": "the results of a message's calls, by id, follow it directly",
        "unfinished": "0.12: an interrupted part must not be replayed",
    }

    def __init__(self, side: str, row: str, model: str) -> None:
        self.side, self.row, self.model = side, row, model
        self.blocks: dict[int, Block] = {}
        self.opaque: dict[str, Block] = {}
        """The block of each opaque string."""
        self.calls: dict[str, Block] = {}
        self.requests: list[Body] = []
        self.raw: list[bytes] = []
        self.received_canaries: list[CanaryMatch] = []
        """The canaries in the last request."""
        self.received: list[list[CanaryMatch]] = []
        """The canaries in each request that was not refused."""
        self.next = ANSWER
        self.script: list[Act] = []
        """What it does next, before `next`."""
        self.limits = limits_of(row, model)
        self.answers: list[list[Block]] = []

    # --- requests ----------------------------------------------------------------------------------------------

    def handle_request(self, raw: bytes, path: str = "") -> tuple[list[bytes], bool]:
        """Check a request; return the pieces of the answer, and whether the stream never ends. Raises `Refusal`."""
        body = json.loads(raw)
        self.raw.append(raw)
        self.requests.append(body)
        self.check_request(body)
        self.received.append(self.received_canaries)
        act = self.script.pop(0) if self.script else self.next
        steps = [step for step in act.steps if self.thinks(body) or step not in ("think", "sealed")]
        if not self.interleaves:
            steps.sort(key=("think", "sealed", "text", "call", "output").index)
        if self.one_thought:
            steps = [step for step in steps if step != "sealed"]
        answer = [self._produce(step) for step in steps or ["text"]]
        answer[-1].whole = not act.cut
        self.answers.append(answer)
        return self.stream(answer, act.cut), act.cut

    def check_request(self, body: Body) -> None:
        """Check a request against all rules. Raises `Refusal`."""
        self.received_canaries = matches = find_canaries(body)
        for canary in matches:
            if canary.side != self.side:
                self.refuse("foreign", f"{canary} came with the request")
        self.check(body)
        for limit in self.limits:
            if offence := limit.offence(body, thinks=self.thinks(body)):
                self.refuse(limit.name, offence)
        numbers = [canary.number for canary in matches]
        if numbers != sorted(numbers):
            self.refuse("order", f"the blocks {sorted(numbers)} came back as {numbers}")

    def check(self, body: Body) -> None:
        """Check a request against the rules of this wire. Raises `Refusal`."""
        raise NotImplementedError

    def thinks(self, body: Body) -> bool:
        """Whether the request enables thinking, or does not disable it."""
        raise NotImplementedError

    def stream(self, answer: list[Block], cut: bool) -> list[bytes]:
        """The bytes of the answer."""
        raise NotImplementedError

    def all_rules(self) -> dict[str, str]:
        limits = {limit.name: f"{limit.message}; {limit.source}" for limit in self.limits}
        return self.known_rules | self.rules | limits

    def refuse(self, rule: str, message: str, status: int = 400) -> NoReturn:
        raise Refusal(rule, f"{self.side}: {message} ({self.all_rules()[rule]})", status)

    # --- answers -----------------------------------------------------------------------------------------------

    def _produce(self, kind: Step) -> Block:
        number = len(self.blocks)
        block = Block(self.side, number, "call" if kind == "output" else kind, answer=len(self.answers))
        if kind in ("think", "sealed"):
            block.text = f"Let me see: {block.canary('text')} perhaps."
        elif kind == "text":
            block.text = f"It is said-{self.side}-{number}- and no more."
        else:
            block.call_id, block.args = self.call_id(number), {"at": f"said-{self.side}-{number}-"}
            block.name = OUTPUT_TOOL if kind == "output" else self.functions[self._call_count() % len(self.functions)]
            self.calls[block.call_id] = block
        self.blocks[number] = block
        return block

    def _call_count(self) -> int:
        return sum(block.kind == "call" for block in self.blocks.values())

    def call_id(self, number: int) -> str:
        return f"call_{self.side.replace('-', '_')}_{number}"

    def make_opaque(self, block: Block, kind: str, form: str = "{}") -> str:
        """Make an opaque string for this block."""
        text = form.format(block.canary(kind) + "x" * (3 - len(block.canary(kind)) % 3))
        self.opaque[text] = block
        block.opaque[kind] = text
        return text

    # --- returned data -----------------------------------------------------------------------------------------

    def required_canaries(self, answer: list[Block], thinking: bool) -> set[tuple[int, str]]:
        """The canaries (number and kind) of a complete answer that must come back, with thinking on or off."""
        return {(block.number, kind) for block in answer for kind in self.required_kinds(block, thinking)}

    def required_kinds(self, block: Block, thinking: bool) -> Iterable[str]:
        raise NotImplementedError

    def owner_of(self, opaque: str | None, rule: str) -> Block:
        """The block of this opaque string; refused if there is none, or if the block was cut off."""
        block = self.opaque.get(opaque or "")
        if block is None:
            self.refuse(rule, f"{opaque!r} was not made by this provider")
        if not block.whole:
            self.refuse("unfinished", f"{opaque!r} belongs to a block that was cut off")
        return block

    def check_pairing(self, called: list[str], returned: list[str], ordered: bool = False) -> None:
        """Refuse unless the results that follow a message are those of its calls."""
        match = called == returned if ordered else sorted(called) == sorted(returned)
        if not match:
            self.refuse("pairing", f"the calls {called} are followed by results for {returned}")

    def refuse_reasoning_in_text(self, text: str, rule: str) -> None:
        """Refuse reasoning in the text of an answer."""
        if CANARY.search(text):
            self.refuse(rule, f"reasoning is in the answer: {text!r}")


def unnamed_events(*values: Any) -> list[bytes]:
    """Server-sent events without names."""
    return [f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode() for value in values]


def named_events(*values: Body) -> list[bytes]:
    """Server-sent events named after their type."""
    return [f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode() for value in values]


def split_in_half(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]
