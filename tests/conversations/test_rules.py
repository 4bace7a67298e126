"""The strict upstreams are strict: each rule refuses a request that breaks it, and only that rule does.

A valid request (sent by this package, like those of `test_pairs`) is changed in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    Origin,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.conversations.conversation_kit import TOOLS, Conversation, StoryRunner
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
    limits,
    responses,
    typed,
)
from tests.conversations.strict.core import Body
from tests.conversations.strict.hosts import Host, all_hosts

Break = Callable[[Body, Upstream], None]

# --- parts of a request ------------------------------------------------------------------------------------------


def messages_of(body: Body) -> list[Body]:
    """The messages, under any field name."""
    items: list[Body] = next(body[name] for name in ("messages", "contents", "input") if name in body)
    return items


def last_answer(body: Body) -> Body:
    """The last message of the model."""
    return [entry for entry in messages_of(body) if entry.get("role") in ("assistant", "model")][-1]


def last_blocks(body: Body) -> list[Body]:
    """The blocks of the model's last message."""
    message = last_answer(body)
    items: list[Body] = message["content"] if "content" in message else message["parts"]
    return items


def first_of_type(body: Body, *types: str) -> Body:
    """The first block or item of one of these types."""
    candidates = messages_of(body) if "input" in body else last_blocks(body)
    return next(c for c in candidates if c.get("type") in types or any(name in c for name in types))


def remove_blocks(body: Body, *types: str) -> None:
    items = messages_of(body) if "input" in body else last_blocks(body)
    items[:] = [c for c in items if not (c.get("type") in types or any(name in c for name in types))]


# --- edits that break a rule of every upstream -------------------------------------------------------------------


def foreign(body: Body, upstream: Upstream) -> None:
    body["user"] = "cnry.elsewhere.1.sig."


def order(body: Body, upstream: Upstream) -> None:
    """Swap two answers."""
    entries_of_body = messages_of(body)
    users = [place for place, entry in enumerate(entries_of_body) if entry.get("role") == "user"]
    first, second, third = users[-3:]
    entries_of_body[:] = [
        *entries_of_body[: first + 1],
        *entries_of_body[second + 1 : third],
        entries_of_body[second],
        *entries_of_body[first + 1 : second],
        entries_of_body[third],
    ]


def pairing(body: Body, upstream: Upstream) -> None:
    """Remove a result."""
    items, result = messages_of(body), messages_of(body)[-1]
    inner = result.get("content", result.get("parts"))
    if isinstance(inner, list):
        inner.pop()
        inner.append(
            {"text": "Well?"} if "type" not in (last_blocks(body) or [{}])[0] else {"type": "text", "text": "Well?"}
        )
    else:
        items.remove(result)
        items.append({"role": "user", "content": "Well?"})


def unfinished(body: Body, upstream: Upstream) -> None:
    for block in upstream.blocks.values():
        block.whole = False


# --- edits that break a rule of one upstream ---------------------------------------------------------------------


def drop_blocks(*types: str) -> Break:
    return lambda body, upstream: remove_blocks(body, *types)


def set_field(path: str, value: Any, *types: str) -> Break:
    """Set a field of the first block or item of these types; without types, of the model's last message."""

    def change(body: Body, upstream: Upstream) -> None:
        target: Any = first_of_type(body, *types) if types else last_answer(body)
        *way, name = path.split(".")
        for step in way:
            target = target[int(step)] if isinstance(target, list) else target[step]
        target[int(name) if isinstance(target, list) else name] = value

    return change


def set_top_level(name: str, value: Any) -> Break:
    return lambda body, upstream: body.__setitem__(name, value)


def remove_field(name: str, *types: str) -> Break:
    return lambda body, upstream: (first_of_type(body, *types) if types else last_answer(body)).__delitem__(name)


def drop_calls(body: Body, upstream: Upstream) -> None:
    messages_of(body)[:] = [item for item in messages_of(body) if "call_id" not in item]


def thoughts_first(*types: str) -> Break:
    def change(body: Body, upstream: Upstream) -> None:
        last_blocks(body).sort(
            key=lambda block: not (block.get("type") in types or any(name in block for name in types))
        )

    return change


def drop_last_answer(body: Body, upstream: Upstream) -> None:
    """Remove the model's message, so that two user messages follow each other."""
    messages_of(body).remove(last_answer(body))


def drop_first(body: Body, upstream: Upstream) -> None:
    del messages_of(body)[0]


def append_user_after_tool(body: Body, upstream: Upstream) -> None:
    messages_of(body).append({"role": "user", "content": "Well?"})


def drop_final_user(body: Body, upstream: Upstream) -> None:
    del messages_of(body)[-1]


def thought_as_text(body: Body, upstream: Upstream) -> None:
    """Append the thought to the answer's text."""
    message, thought = last_answer(body), next(b for b in upstream.blocks.values() if b.kind == "think").text
    content = message.get("content")
    if isinstance(content, list):
        content.append({"type": "text", "text": thought})
    else:
        message["content"] = f"<think>{thought}</think>{content or ''}"


def empty_last_answer(body: Body, upstream: Upstream) -> None:
    message = last_answer(body)
    for name in [name for name in message if name != "role"]:
        del message[name]
    message["content"] = ""


def drop_from_last(name: str) -> Break:
    return lambda body, upstream: last_answer(body).pop(name, None)


def replace_thought(body: Body, upstream: Upstream) -> None:
    assert isinstance(upstream, chat.Chat)
    last_answer(body)[upstream.accepted_fields[0]] = "something else"


def ids_with_dots(body: Body, upstream: Upstream) -> None:
    for message in messages_of(body):
        for block in message["content"]:
            for name, inner in [("id", block), ("tool_use_id", block)]:
                if name in inner:
                    inner[name] = "functions.look:1"
            for inner in block.values():
                if isinstance(inner, dict) and "toolUseId" in inner:
                    inner["toolUseId"] = "functions/look:1"


LOOP, INTERLEAVED_LOOP, TURNS = "loop", "interleaved", "turns"
"""The request in which a rule is broken: one between a call and its result, the same with thought between two calls, or
the third turn of a conversation without calls."""

_CLAUDE = {
    "starts_with_thinking": (LOOP, drop_blocks("thinking", "redacted_thinking", "reasoningContent")),
    "modified": (INTERLEAVED_LOOP, thoughts_first("thinking", "redacted_thinking", "reasoningContent")),
    "ends_in_thought": (TURNS, drop_blocks("text")),
    "alternate": (TURNS, drop_last_answer),
    "blank": (TURNS, set_field("text", " \n", "text")),
    "id": (LOOP, ids_with_dots),
}

BREAKS: dict[type[Upstream], dict[str, tuple[str, Break]]] = {
    Upstream: {
        "foreign": (LOOP, foreign),
        "order": (TURNS, order),
        "pairing": (LOOP, pairing),
        "unfinished": (TURNS, unfinished),
    },
    responses.Responses: {
        "follower": (LOOP, drop_calls),
        "its_reasoning": (LOOP, drop_blocks("reasoning")),
        "not_found": (LOOP, set_field("encrypted_content", None, "reasoning")),
        "decrypt": (LOOP, set_field("summary.0.type", "reasoning_text", "reasoning")),
    },
    responses.OpenResponses: {
        "encrypted": (LOOP, set_field("encrypted_content", "gAAAA", "reasoning")),
        "raw_text": (LOOP, set_field("content.0.text", "something else", "reasoning")),
    },
    claude._Claude: _CLAUDE,
    claude.Anthropic: {
        "signature": (LOOP, set_field("signature", "", "thinking")),
        "disabled": (LOOP, set_top_level("thinking", {"type": "disabled"})),
        "budget": (LOOP, lambda body, upstream: body["thinking"].update(budget_tokens=1000)),
    },
    claude.DeepSeekMessages: {
        "missing": (LOOP, drop_blocks("thinking")),
        "text": (LOOP, set_field("thinking", "something else", "thinking")),
    },
    claude.Bedrock: {
        "signature": (LOOP, set_field("reasoningContent.reasoningText.text", "something else", "reasoningContent")),
        "disabled": (
            LOOP,
            lambda body, upstream: body["additionalModelRequestFields"]["thinking"].update(type="disabled"),
        ),
        "shape": (LOOP, set_field("reasoningContent", {"text": "why"}, "reasoningContent")),
        "tools": (LOOP, set_top_level("toolConfig", {"tools": []})),
    },
    claude.BedrockUnsigned: {
        "unsigned": (
            LOOP,
            lambda body, upstream: last_blocks(body).insert(
                0, {"reasoningContent": {"reasoningText": {"text": "why"}}}
            ),
        ),
    },
    google.Gemini: {
        "missing": (LOOP, remove_field("thoughtSignature", "functionCall")),
        "invalid": (LOOP, set_field("functionCall.args", {"at": "elsewhere"}, "functionCall")),
        "merged": (TURNS, lambda body, upstream: last_blocks(body)[-1].pop("thoughtSignature")),
        "sentinel": (TURNS, lambda body, upstream: last_blocks(body)[-1].update(thoughtSignature=google.SENTINEL)),
        "roles": (TURNS, drop_first),
    },
    typed.Mistral: {
        "flattened": (TURNS, thought_as_text),
        "chunk": (TURNS, set_field("signature", None, "thinking")),
        "call_id_format": (LOOP, lambda body, upstream: last_answer(body)["tool_calls"][0].update(id="call_1")),
        "after_tool": (LOOP, append_user_after_tool),
        "last": (TURNS, drop_final_user),
        "empty": (TURNS, empty_last_answer),
    },
    typed.Cohere: {
        "flattened": (TURNS, thought_as_text),
        "item": (TURNS, set_field("signature", "s", "thinking")),
    },
    typed.Ollama: {
        "thinking": (LOOP, set_field("thinking", ["why"])),
        "flattened": (TURNS, thought_as_text),
        "arguments": (LOOP, set_field("tool_calls.0.function.arguments", "{}")),
        "images": (TURNS, set_field("content", [{"type": "text", "text": "so"}])),
    },
    chat.Chat: {
        "field": (LOOP, set_field("reasoning_details", [])),
        "text": (LOOP, replace_thought),
        "flattened": (TURNS, thought_as_text),
        "empty": (TURNS, empty_last_answer),
    },
    chat.DeepSeek: {
        "missing": (LOOP, drop_from_last("reasoning_content")),
        "disabled_thinking": (LOOP, set_top_level("thinking", {"type": "disabled"})),
    },
    chat.Kimi: {"missing": (LOOP, set_field("reasoning_content", ""))},
    chat.Copilot: {"signature": (LOOP, set_field("reasoning_opaque", "made up"))},
    chat.OpenRouter: {
        "field": (LOOP, set_field("reasoning_content", "why")),
        "signature": (LOOP, set_field("reasoning_details.0.text", "a fragment")),
        "encrypted": (INTERLEAVED_LOOP, set_field("reasoning_details.1.format", None)),
        "duplicate": (LOOP, set_field("reasoning", "why")),
    },
    chat.MiniMax: {
        "verbatim": (
            LOOP,
            lambda body, upstream: last_answer(body).update(content=last_answer(body)["content"].replace("\n", " ")),
        ),
    },
    chat.Cerebras: {"cleared": (LOOP, set_top_level("clear_thinking", True))},
}

UNSEALED = (
    *(responses.OpenResponses, claude.DeepSeekMessages, claude.BedrockUnsigned, typed.Cohere, typed.Ollama, chat.Chat),
    *(chat.NoReasoning, chat.UnreturnedReasoning, chat.DeepSeek, chat.Kimi, chat.Groq, chat.VLLM, chat.MiniMax),
    *(chat.Cerebras, chat.CerebrasHarmony),
)

EXCLUDED = {
    ("claude", "starts_with_thinking"): "thinking is adaptive",
    ("claude", "budget"): "it has no budget",
    ("bedrock", "starts_with_thinking"): "thinking is adaptive",
    ("gemini-2", "missing"): "a signature is optional",
    ("openrouter", "text"): "its entries are signed, and have a rule for it",
    **{(side, rule): "no reasoning goes back" for side in ("openai-chat", "qwen") for rule in ("text", "flattened")},
}
"""Rules that cannot be broken for a side, with the reason."""

EXCLUDED |= {
    (side, "unfinished"): "it has no opaque data that identifies the block"
    for side, (kind, _, _) in SIDES.items()
    if kind in UNSEALED
}
EXCLUDED |= {(side, "order"): "none of its reasoning goes back" for side in ("bedrock-r", "openai-chat", "qwen")}


def breaks_of(side: str) -> dict[str, tuple[str, Break]]:
    breaks_by_rule: dict[str, tuple[str, Break]] = {}
    for kind in reversed(SIDES[side][0].__mro__):
        breaks_by_rule |= BREAKS.get(kind, {})
    rules = SIDES[side][0].known_rules | SIDES[side][0].rules
    return {
        rule: breaks_by_rule[rule] for rule in rules if (side, rule) not in EXCLUDED
    }  # a rule without a test is a KeyError


def story_of(side: str, request_kind: str) -> Callable[[Conversation], Any]:
    act: Act = {INTERLEAVED_LOOP: INTERLEAVED}.get(request_kind, CALL)

    async def story(conversation: Conversation) -> None:
        conversation.user()
        if request_kind == TURNS:
            for _ in range(2):
                await conversation.turn(side, ANSWER)
                conversation.user()
        else:
            await conversation.turn(side, act)
            conversation.results()
        await conversation.turn(side, ANSWER)

    return story


@pytest.mark.parametrize("side", SIDES)
def test_each_rule_refuses_a_request_that_breaks_it(run_story: StoryRunner, side: str) -> None:
    with Cases() as case:
        for rule, (request_kind, breaks) in breaks_of(side).items():
            with case(rule):
                upstream = run_story(story_of(side, request_kind)).upstream(side)
                request_body = deepcopy(upstream.requests[-1])
                upstream.answers.pop()  # the state before the request
                upstream.check_request(deepcopy(request_body))
                breaks(request_body, upstream)
                with pytest.raises(Refusal) as refused:
                    upstream.check_request(request_body)
                assert refused.value.rule == rule, refused.value
                assert upstream.all_rules()[rule] in str(refused.value), "the message does not quote the rule"


# --- limits: rules about a request besides its history ------------------------------------------------------------


def write(body: Body, path: str, value: Any) -> None:
    """Write a field, and the objects that contain it."""
    *objects, name = path.split(".")
    for inner in objects:
        body = body.setdefault(inner, {})
    body[name] = value


def set_path(path: str, value: Any) -> Callable[[Body], None]:
    return lambda body: write(body, path, value)


def switch_off(body: Body) -> None:
    """Switch thinking off, as any of the providers does."""
    disabled = {"type": "disabled"}
    body |= {"thinking": disabled, "reasoning": {"enabled": False}}
    write(body, "additionalModelRequestFields.thinking", disabled)
    write(body, "generationConfig.thinkingConfig", {"thinkingBudget": 0})


def set_claude_type(type_: str) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        body["thinking"] = {"type": type_}
        write(body, "additionalModelRequestFields.thinking", {"type": type_})

    return change


def item_before_result(body: Body) -> None:
    call = {"type": "function_call", "call_id": "1"}
    body["input"] += [call, {"role": "user", "content": "Well?"}, {"type": "function_call_output", "call_id": "1"}]


LIMIT_BREAKS: dict[str, list[Callable[[Body], None]]] = {
    "level": [set_path("reasoning_effort", "unheard-of")],
    "tools_with_level": [set_path("reasoning_effort", "low")],
    "max_tokens": [set_path("max_tokens", 100)],
    "sampling": [set_path("temperature", 0.5)],
    "temperature": [set_path("temperature", 0.5)],
    "include": [set_path("include", ["reasoning.encrypted_content"])],
    "forced": [set_path("tool_choice", "required")],
    "between_calls": [item_before_result],
    "unknown": [set_path("unheard_of", 1)],
    "unknown_in_assistant": [lambda body: body["messages"].append({"role": "assistant", "unheard_of": 1})],
    "clear_thinking": [set_path("clear_thinking", True)],
    "off": [switch_off],
    "null": [lambda body: body["input"][-1].update(content=None)],
    "adaptive": [set_claude_type("enabled"), set_claude_type("adaptive")],
    "results_alone": [lambda body: body["messages"][-1]["content"].extend([{"toolResult": {}}, {"text": "Well?"}])],
    "status": [lambda body: body["messages"][-1]["content"].append({"toolResult": {"status": "success"}})],
}
"""Changes of a valid request, of which at least one is refused."""


def test_each_limit_refuses_a_request_that_breaks_it() -> None:
    """At one of its models at least: an exception to it may be more particular at others."""
    broken: set[limits.Limit] = set()
    with Cases() as case:
        for host in (host for row in all_hosts().values() for host in row):
            upstream = host.kind(host.side, host.row, host.model)
            for limit in upstream.limits:
                with case(f"{host.row} {host.model}: {limit.name}"):
                    for body in (request_of(host, loop_of(host)), request_of(host, loop_of(host)[:1])):
                        assert limit.offence(body, thinks=upstream.thinks(body)) is None
                        for breaks in LIMIT_BREAKS[limit.name] if limit not in broken else ():
                            broken_body = deepcopy(body)
                            breaks(broken_body)
                            if limit.offence(broken_body, thinks=upstream.thinks(broken_body)):
                                broken.add(limit)
    assert [limit for limit in limits.LIMITS if limit.message and limit not in broken] == []


def loop_of(host: Host) -> list[ModelMessage]:
    """A history with a call and its result."""
    origin = Origin(host.row, host.kind.wire, host.model)
    return [
        ModelRequest([UserPromptPart("Where?")]),
        ModelResponse([ToolCallPart("look", {}, "call00001")], origin=origin),
        ModelRequest([ToolReturnPart("look", "there", "call00001")]),
    ]


def request_of(host: Host, history: list[ModelMessage]) -> Body:
    """The body of a request that asks for thinking."""
    profile = builtin_profiles()[host.row].for_model(host.model)
    call = ModelCall(host.model, history, {"thinking": "high"}, TOOLS)
    return WIRES[profile.wire].encode(call, profile, Origin(host.row, profile.wire, host.model))
