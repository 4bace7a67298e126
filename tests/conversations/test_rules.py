"""The strict upstreams are strict: each rule refuses a request that breaks it, and only it.

A request that is in order (asked by this package, so it is one of those of `test_pairs`) is changed in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.cases import Cases
from tests.conversations.conversing import Conversation, Talk
from tests.conversations.strict import (
    ANSWER,
    CALL,
    INTERLEAVED,
    SIDES,
    Act,
    Refusal,
    Upstream,
    chat,
    claude,
    google,
    responses,
    typed,
)
from tests.conversations.strict.core import Body

Break = Callable[[Body, Upstream], None]

# --- finding the place -------------------------------------------------------------------------------------------


def entries(body: Body) -> list[Body]:
    """The messages, whatever they are called."""
    found: list[Body] = next(body[name] for name in ("messages", "contents", "input") if name in body)
    return found


def last(body: Body) -> Body:
    """The model's last message."""
    return [entry for entry in entries(body) if entry.get("role") in ("assistant", "model")][-1]


def blocks(body: Body) -> list[Body]:
    """What it consists of."""
    message = last(body)
    found: list[Body] = message["content"] if "content" in message else message["parts"]
    return found


def of_type(body: Body, *types: str) -> Body:
    """The first block or item that is one of these."""
    candidates = entries(body) if "input" in body else blocks(body)
    return next(c for c in candidates if c.get("type") in types or any(name in c for name in types))


def without(body: Body, *types: str) -> None:
    found = entries(body) if "input" in body else blocks(body)
    found[:] = [c for c in found if not (c.get("type") in types or any(name in c for name in types))]


# --- what breaks every one of them -------------------------------------------------------------------------------


def foreign(body: Body, upstream: Upstream) -> None:
    body["user"] = "cnry.elsewhere.1.sig."


def order(body: Body, upstream: Upstream) -> None:
    """Two answers change places."""
    found = entries(body)
    users = [place for place, entry in enumerate(found) if entry.get("role") == "user"]
    first, second, third = users[-3:]
    found[:] = [
        *found[: first + 1],
        *found[second + 1 : third],
        found[second],
        *found[first + 1 : second],
        found[third],
    ]


def pairing(body: Body, upstream: Upstream) -> None:
    """A result gets lost."""
    found, result = entries(body), entries(body)[-1]
    inner = result.get("content", result.get("parts"))
    if isinstance(inner, list):
        inner.pop()
        inner.append(
            {"text": "Well?"} if "type" not in (blocks(body) or [{}])[0] else {"type": "text", "text": "Well?"}
        )
    else:
        found.remove(result)
        found.append({"role": "user", "content": "Well?"})


def unfinished(body: Body, upstream: Upstream) -> None:
    for block in upstream.blocks.values():
        block.whole = False


# --- what breaks one ---------------------------------------------------------------------------------------------


def drop(*types: str) -> Break:
    return lambda body, upstream: without(body, *types)


def put(path: str, value: Any, *types: str) -> Break:
    """Set something in the first block (or item) of these types; without types, in the last message of the model."""

    def change(body: Body, upstream: Upstream) -> None:
        target: Any = of_type(body, *types) if types else last(body)
        *way, name = path.split(".")
        for step in way:
            target = target[int(step)] if isinstance(target, list) else target[step]
        target[int(name) if isinstance(target, list) else name] = value

    return change


def top(name: str, value: Any) -> Break:
    return lambda body, upstream: body.__setitem__(name, value)


def take(name: str, *types: str) -> Break:
    return lambda body, upstream: (of_type(body, *types) if types else last(body)).__delitem__(name)


def no_calls(body: Body, upstream: Upstream) -> None:
    entries(body)[:] = [item for item in entries(body) if "call_id" not in item]


def thoughts_first(*types: str) -> Break:
    def change(body: Body, upstream: Upstream) -> None:
        blocks(body).sort(key=lambda block: not (block.get("type") in types or any(name in block for name in types)))

    return change


def no_answer(body: Body, upstream: Upstream) -> None:
    """The model's message is taken away: the user speaks twice."""
    entries(body).remove(last(body))


def headless(body: Body, upstream: Upstream) -> None:
    del entries(body)[0]


def after_tool(body: Body, upstream: Upstream) -> None:
    entries(body).append({"role": "user", "content": "Well?"})


def ends_with_model(body: Body, upstream: Upstream) -> None:
    del entries(body)[-1]


def as_text(body: Body, upstream: Upstream) -> None:
    """The thought is said aloud."""
    message, thought = last(body), next(b for b in upstream.blocks.values() if b.kind == "think").text
    content = message.get("content")
    if isinstance(content, list):
        content.append({"type": "text", "text": thought})
    else:
        message["content"] = f"<think>{thought}</think>{content or ''}"


def nothing(body: Body, upstream: Upstream) -> None:
    message = last(body)
    for name in [name for name in message if name != "role"]:
        del message[name]
    message["content"] = ""


def lost(name: str) -> Break:
    return lambda body, upstream: last(body).pop(name, None)


def another_thought(body: Body, upstream: Upstream) -> None:
    assert isinstance(upstream, chat.Chat)
    last(body)[upstream.takes[0]] = "something else"


def with_dots(body: Body, upstream: Upstream) -> None:
    for message in entries(body):
        for block in message["content"]:
            for name, inner in [("id", block), ("tool_use_id", block)]:
                if name in inner:
                    inner[name] = "functions.look:1"
            for inner in block.values():
                if isinstance(inner, dict) and "toolUseId" in inner:
                    inner["toolUseId"] = "functions/look:1"


LOOP, INTERLEAVED_LOOP, TURNS = "loop", "interleaved", "turns"
"""In which request the rule is broken: between a call and its answer, or the same with thought between two calls; in a
third turn without calls."""

_CLAUDE = {
    "starts_with_thinking": (LOOP, drop("thinking", "redacted_thinking", "reasoningContent")),
    "modified": (INTERLEAVED_LOOP, thoughts_first("thinking", "redacted_thinking", "reasoningContent")),
    "ends_in_thought": (TURNS, drop("text")),
    "alternate": (TURNS, no_answer),
    "blank": (TURNS, put("text", " \n", "text")),
    "id": (LOOP, with_dots),
}

BREAKS: dict[type[Upstream], dict[str, tuple[str, Break]]] = {
    Upstream: {
        "foreign": (LOOP, foreign),
        "order": (TURNS, order),
        "pairing": (LOOP, pairing),
        "unfinished": (TURNS, unfinished),
    },
    responses.Responses: {
        "follower": (LOOP, no_calls),
        "its_reasoning": (LOOP, drop("reasoning")),
        "not_found": (LOOP, put("encrypted_content", None, "reasoning")),
        "decrypt": (LOOP, put("summary.0.type", "reasoning_text", "reasoning")),
    },
    responses.OpenResponses: {
        "encrypted": (LOOP, put("encrypted_content", "gAAAA", "reasoning")),
        "raw_text": (LOOP, put("content.0.text", "something else", "reasoning")),
    },
    claude._Claude: _CLAUDE,
    claude.Anthropic: {
        "signature": (LOOP, put("signature", "", "thinking")),
        "disabled": (LOOP, top("thinking", {"type": "disabled"})),
        "budget": (LOOP, lambda body, upstream: body["thinking"].update(budget_tokens=1000)),
        "adaptive_only": (LOOP, top("thinking", {"type": "enabled", "budget_tokens": 2000})),
    },
    claude.Unsigned: {
        "missing": (LOOP, drop("thinking")),
        "text": (LOOP, put("thinking", "something else", "thinking")),
    },
    claude.Bedrock: {
        "signature": (LOOP, put("reasoningContent.reasoningText.text", "something else", "reasoningContent")),
        "disabled": (
            LOOP,
            lambda body, upstream: body["additionalModelRequestFields"]["thinking"].update(type="disabled"),
        ),
        "shape": (LOOP, put("reasoningContent", {"text": "why"}, "reasoningContent")),
        "tools": (LOOP, top("toolConfig", {"tools": []})),
    },
    claude.BedrockUnsigned: {
        "unsigned": (
            LOOP,
            lambda body, upstream: blocks(body).insert(0, {"reasoningContent": {"reasoningText": {"text": "why"}}}),
        ),
    },
    google.Gemini: {
        "missing": (LOOP, take("thoughtSignature", "functionCall")),
        "invalid": (LOOP, put("functionCall.args", {"at": "elsewhere"}, "functionCall")),
        "merged": (TURNS, lambda body, upstream: blocks(body)[-1].pop("thoughtSignature")),
        "sentinel": (TURNS, lambda body, upstream: blocks(body)[-1].update(thoughtSignature=google.SENTINEL)),
        "roles": (TURNS, headless),
    },
    typed.Mistral: {
        "flattened": (TURNS, as_text),
        "chunk": (TURNS, put("signature", None, "thinking")),
        "nine": (LOOP, lambda body, upstream: last(body)["tool_calls"][0].update(id="call_1")),
        "after_tool": (LOOP, after_tool),
        "last": (TURNS, ends_with_model),
        "empty": (TURNS, nothing),
    },
    typed.Cohere: {
        "flattened": (TURNS, as_text),
        "item": (TURNS, put("signature", "s", "thinking")),
    },
    typed.Ollama: {
        "thinking": (LOOP, put("thinking", ["why"])),
        "flattened": (TURNS, as_text),
        "arguments": (LOOP, put("tool_calls.0.function.arguments", "{}")),
        "images": (TURNS, put("content", [{"type": "text", "text": "so"}])),
    },
    chat.Chat: {
        "field": (LOOP, put("reasoning_details", [])),
        "text": (LOOP, another_thought),
        "flattened": (TURNS, as_text),
        "empty": (TURNS, nothing),
    },
    chat.DeepSeek: {
        "missing": (LOOP, lost("reasoning_content")),
        "unasked": (LOOP, top("thinking", {"type": "disabled"})),
    },
    chat.Kimi: {"missing": (LOOP, put("reasoning_content", ""))},
    chat.Copilot: {"signature": (LOOP, put("reasoning_opaque", "made up"))},
    chat.OpenRouter: {
        "field": (LOOP, put("reasoning_content", "why")),
        "signature": (LOOP, put("reasoning_details.0.text", "a fragment")),
        "encrypted": (INTERLEAVED_LOOP, put("reasoning_details.1.format", None)),
        "twice": (LOOP, put("reasoning", "why")),
    },
    chat.MiniMax: {
        "verbatim": (LOOP, lambda body, upstream: last(body).update(content=last(body)["content"].replace("\n", " "))),
    },
}

UNSEALED = (
    *(responses.OpenResponses, claude.Unsigned, claude.BedrockUnsigned, typed.Cohere, typed.Ollama, chat.Chat),
    *(chat.Silent, chat.Forgetful, chat.DeepSeek, chat.Kimi, chat.Reasoning, chat.VLLM, chat.MiniMax),
)

CANNOT = {
    ("claude", "starts_with_thinking"): "it thinks as it sees fit",
    ("claude", "budget"): "it is given none",
    ("claude-manual", "adaptive_only"): "it takes a budget",
    ("bedrock", "starts_with_thinking"): "it thinks as it sees fit",
    ("gemini-2", "missing"): "a signature is optional there",
    ("openrouter", "text"): "its entries are signed, and have a rule for it",
    **{(side, rule): "no reasoning goes there" for side in ("openai-chat", "qwen") for rule in ("text", "flattened")},
}
"""What this side cannot be broken in."""

CANNOT |= {
    (side, "unfinished"): "nothing is sealed there, by which it would be known"
    for side, (kind, _, _) in SIDES.items()
    if kind in UNSEALED
}
CANNOT |= {(side, "order"): "nothing of its own goes back there" for side in ("bedrock-r", "openai-chat", "qwen")}


def breaks_of(side: str) -> dict[str, tuple[str, Break]]:
    found: dict[str, tuple[str, Break]] = {}
    for kind in reversed(SIDES[side][0].__mro__):
        found |= BREAKS.get(kind, {})
    rules = SIDES[side][0].known_rules | SIDES[side][0].rules
    return {rule: found[rule] for rule in rules if (side, rule) not in CANNOT}  # a rule without a test is a KeyError


def story_of(side: str, request: str) -> Callable[[Conversation], Any]:
    act: Act = {INTERLEAVED_LOOP: INTERLEAVED}.get(request, CALL)

    async def story(conversation: Conversation) -> None:
        conversation.user()
        if request == TURNS:
            for _ in range(2):
                await conversation.turn(side, ANSWER)
                conversation.user()
        else:
            await conversation.turn(side, act)
            conversation.results()
        await conversation.turn(side, ANSWER)

    return story


@pytest.mark.parametrize("side", SIDES)
def test_a_rule_refuses_what_breaks_it(talk: Talk, side: str) -> None:
    with Cases() as case:
        for rule, (request, breaks) in breaks_of(side).items():
            with case(rule):
                upstream = talk(story_of(side, request)).upstream(side)
                asked = deepcopy(upstream.requests[-1])
                upstream.answers.pop()  # as it was before the request
                upstream.check_all(deepcopy(asked))
                breaks(asked, upstream)
                with pytest.raises(Refusal) as refused:
                    upstream.check_all(asked)
                assert refused.value.rule == rule, refused.value
                assert upstream.all_rules()[rule] in str(refused.value), "it says where the rule stands"
