"""Which parts of an earlier answer are replayed over Converse: a table with a row per family of models.

The columns: the content of the assistant's message before its text, if its reasoning is

* signed: produced by the same model, with a signature;
* unsigned: produced by the same model, without a signature;
* sealed: produced by the same model, redacted;
* unknown: returned by a client as plain text, so its origin is unknown;
* foreign: produced by another model, with its signature and ids;
* cut: produced by the same model, but incomplete.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.errors import RequestError
from pellucid.parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.bedrock.encode import encode
from pellucid.settings import ModelCall, ToolDefinition
from tests.providers_bedrock.bedrock_kit import (
    CLAUDE,
    NOVA,
    b64,
    delta,
    message_end,
    origin,
    redacted,
    response_of,
    row_of,
    stop,
    stream,
    text,
    thought,
    tool,
)

FOREIGN = Origin("anthropic", "anthropic", "claude-sonnet-4-5")
OTHER_MODEL = origin("us.anthropic.claude-opus-4-1-20250805-v1:0")
OTHER_ACCOUNT = replace(origin(), account="second")

Blocks = list[dict[str, Any]]


def block(text: str, signature: str | None = None) -> Blocks:
    inner = {"text": text} | ({"signature": signature} if signature else {})
    return [{"reasoningContent": {"reasoningText": inner}}]


SEALED: Blocks = [{"reasoningContent": {"redactedContent": b64(b"Etk")}}]
NOTHING: Blocks = []


class Rule(NamedTuple):
    signed: Blocks
    unsigned: Blocks
    sealed: Blocks
    unknown: Blocks
    off: Blocks
    """Signed, with thinking switched off."""


ONLY_SIGNED = Rule(block("why", "sig"), NOTHING, SEALED, NOTHING, NOTHING)
ALL = Rule(block("why", "sig"), block("why"), SEALED, block("why"), NOTHING)
NONE = Rule(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)

MATRIX: dict[str, Rule] = {
    "us.anthropic.claude-3-7-sonnet-20250219-v1:0": ONLY_SIGNED,
    CLAUDE: ONLY_SIGNED,
    "us.anthropic.claude-opus-4-7": ONLY_SIGNED,
    "anthropic.claude-3-5-haiku-20241022-v1:0": NONE,
    "openai.gpt-oss-120b-1:0": ALL._replace(off=block("why", "sig")),  # it always thinks
    "openai.gpt-6-luna": ONLY_SIGNED,
    "us.deepseek.r1-v1:0": NONE,
    "deepseek.v3-v1:0": ONLY_SIGNED,
    "qwen.qwen3-32b-v1:0": ONLY_SIGNED,
    "global.amazon.nova-2-lite-v1:0": ALL,
    # No field of the request switches their thinking off.
    NOVA: ALL._replace(off=block("why", "sig")),
    "minimax.minimax-m2": ALL._replace(off=block("why", "sig")),
    "moonshot.kimi-k2-thinking": ALL._replace(off=block("why", "sig")),
    "meta.llama4-maverick-17b-instruct-v1:0": ONLY_SIGNED._replace(off=block("why", "sig")),
}


def sent(part: ModelResponsePart, model: str, made_by: Origin | None, **settings: Any) -> Blocks:
    """Return the content before the text."""
    response = ModelResponse([part, TextPart("because")], origin=made_by)
    call = ModelCall(model=model, messages=[response], settings=settings)  # type: ignore[arg-type]
    (message,) = encode(call, row_of(model), origin(model))["messages"]
    assert message["content"][-1] == {"text": "because"}
    return list(message["content"][:-1])


OWN = ThinkingPart("why", signature="sig", provider_name="bedrock")
REDACTED = ThinkingPart("", signature="Etk", form="redacted", provider_name="bedrock")


@pytest.mark.parametrize("model", MATRIX)
def test_replayed_reasoning_by_family(model: str) -> None:
    rule, own = MATRIX[model], origin(model)
    assert sent(OWN, model, own) == rule.signed
    assert sent(replace(OWN, signature=None), model, own) == rule.unsigned
    assert sent(REDACTED, model, own) == rule.sealed
    assert sent(ThinkingPart("why"), model, None) == rule.unknown
    assert sent(OWN, model, own, thinking=False) == rule.off
    assert sent(replace(OWN, complete=False), model, own) == NOTHING
    for other in (FOREIGN, OTHER_ACCOUNT, origin("another-model")):
        assert sent(OWN, model, other) == NOTHING
        assert sent(REDACTED, model, other) == NOTHING


def test_a_signature_without_text_is_replayed() -> None:
    assert sent(replace(OWN, content=""), CLAUDE, origin()) == block("", "sig")


def test_tagged_thinking_is_replayed_in_its_text() -> None:
    tagged_text = "<thinking> a </thinking>\n\nb"
    for cut_up in ([tagged_text], list(tagged_text)):
        response = response_of(stream(text(0, *cut_up), tool(1, "f", "{}"), message_end("tool_use")), NOVA)
        (message,) = encode(ModelCall(NOVA, [response]), row_of(NOVA), origin(NOVA))["messages"]
        assert message["content"][0] == {"text": tagged_text}
        assert "toolUse" in message["content"][1]


def test_tagged_thinking_is_not_sent_to_other_models() -> None:
    response = response_of(stream(text(0, "<thinking>a</thinking>b"), message_end()), NOVA)
    (message,) = encode(ModelCall(CLAUDE, [response]), row_of(), origin())["messages"]
    assert message["content"] == [{"text": "b"}]


def test_an_answer_is_replayed_in_order() -> None:
    response = response_of(
        stream(
            thought(0, "a", signature="s0"),
            redacted(1, b"x", b"yz"),
            tool(2, "f", '{"n":1}', id="t1"),
            thought(3, signature="s3"),
            text(4, "b"),
            tool(5, "g", id="t2"),
            message_end("tool_use"),
        )
    )
    (message,) = encode(ModelCall(CLAUDE, [response]), row_of(), origin())["messages"]
    assert message == {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "a", "signature": "s0"}}},
            {"reasoningContent": {"redactedContent": b64(b"xyz")}},
            {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"n": 1}}},
            {"reasoningContent": {"reasoningText": {"text": "", "signature": "s3"}}},
            {"text": "b"},
            {"toolUse": {"toolUseId": "t2", "name": "g", "input": {}}},
        ],
    }


def test_a_thought_that_was_cut_before_its_signature_is_not_replayed() -> None:
    data = stream(delta(0, reasoningContent={"text": "Let me"}), stop(0), message_end("max_tokens"))
    assert encode(ModelCall(CLAUDE, [response_of(data)]), row_of(), origin())["messages"] == []


def test_sealed_reasoning_must_have_been_opened() -> None:
    with pytest.raises(RequestError, match="sealed reasoning"):
        encode(ModelCall(CLAUDE, [ModelResponse([SealedPart("token")], origin=origin())]), row_of(), origin())


# --- a call whose reasoning is lost ----------------------------------------------------------------------------------


def encoded_thinking(*parts: ModelResponsePart, model: str = CLAUDE, made_by: Origin | None = None) -> Any:
    messages: list[ModelMessage] = [
        ModelRequest([UserPromptPart("?")]),
        ModelResponse(list(parts), origin=made_by or origin(model)),
        ModelRequest([ToolReturnPart("f", "x", "t")]),
    ]
    call = ModelCall(model, messages, settings={"thinking": True}, tools=(ToolDefinition("f"),))
    return encode(call, row_of(model), origin(model)).get("additionalModelRequestFields", {}).get("thinking")


def test_older_claudes_do_not_think_if_the_thought_before_a_call_is_lost() -> None:
    """With thinking on, they refuse a call without a thought before it."""
    call = ToolCallPart("f", "{}", "t")
    assert encoded_thinking(OWN, call)["type"] == "enabled"
    assert encoded_thinking(call) is None
    assert encoded_thinking(OWN, call, made_by=FOREIGN) is None
    assert encoded_thinking(call, model="us.anthropic.claude-opus-4-7")["type"] == "adaptive"


# --- foreign opaque data -------------------------------------------------------------------------------------------

MARK = "OPAQUE"
marks: dict[str, Any] = {"id": MARK, "signature": MARK, "provider_name": MARK, "provider_details": {MARK: MARK}}
bare: dict[str, Any] = {name: value for name, value in marks.items() if name != "signature"}
foreign_parts = st.sampled_from(
    [
        ThinkingPart("why", **marks),
        ThinkingPart("", form="redacted", **marks),
        ThinkingPart("why", **{**marks, "provider_details": {"open": f"<{MARK}>", "close": MARK}}),
        TextPart("text", **marks),
        TextPart("text", **{**marks, "provider_details": {"citations": [{"title": MARK}]}}),
        ToolCallPart("f", "{}", "call_1", **marks),
        BuiltinToolCallPart("w", {"q": MARK}, MARK, **bare),
        BuiltinToolReturnPart("w", MARK, MARK, **bare),
        FilePart(MARK, "image/png", **marks),
        CompactionPart("earlier", **marks),
        CompactionPart(None, **marks),
        OpaquePart("x", {"x": MARK}, id=MARK, provider_name=MARK),
    ]
)


@given(
    st.lists(foreign_parts, max_size=6),
    st.sampled_from([FOREIGN, OTHER_MODEL, OTHER_ACCOUNT, None]),
    st.sampled_from([model for model in MATRIX if model != OTHER_MODEL.model]),
)
def test_foreign_opaque_data_is_never_sent(parts: list[ModelResponsePart], made_by: Origin | None, model: str) -> None:
    response = ModelResponse(parts, origin=made_by)
    body = encode(ModelCall(model, [ModelRequest([UserPromptPart("?")]), response]), row_of(model), origin(model))
    assert MARK not in msgspec.json.encode(body).decode()
    assert "signature" not in json.dumps(body)
