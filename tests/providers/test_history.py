"""What is sent back of an earlier response over Chat Completions: one table, with a row for each profile.

The columns: the fields of the assistant message, other than its text, if the reasoning in it is

* own: produced by the model that is called;
* foreign: produced by another model, with its signature and ids;
* unknown: sent by a client as plain text, without its origin;
* lost: missing, because the client did not send it back;
* cut: own, but truncated.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any, NamedTuple

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
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pellucid.providers import history
from pellucid.providers.openai_chat.encode import encode
from pellucid.settings import ModelCall, ModelSettings
from tests.cases import Cases
from tests.providers.wire_kit import ROWS, body, chunk, origin, response_of, sse

FOREIGN = Origin("elsewhere", "openai_chat", "other")
CALL = ToolCallPart("f", "{}", "c1")
NOTHING: dict[str, Any] = {}


def field(*names: str, text: str = "why") -> dict[str, Any]:
    return dict.fromkeys(names, text)


class Rule(NamedTuple):
    own: dict[str, Any]
    unknown: dict[str, Any]
    lost: dict[str, Any] = NOTHING
    """On a message with tool calls, thinking not switched off."""
    lost_without_calls: dict[str, Any] = NOTHING
    off: dict[str, Any] | None = None
    """Own, with thinking switched off; None: the same as with it on."""


MATRIX: dict[str, Rule] = {
    "openai": Rule(NOTHING, NOTHING),
    "azure": Rule(NOTHING, NOTHING),
    "qwen": Rule(NOTHING, NOTHING),
    "xai": Rule(NOTHING, NOTHING),
    "perplexity": Rule(NOTHING, NOTHING),
    "deepseek": Rule(
        field("reasoning_content"),
        field("reasoning_content"),
        lost=field("reasoning_content", text=""),
        lost_without_calls=field("reasoning_content", text=""),
        off=NOTHING,
    ),
    "kimi": Rule(
        field("reasoning_content"),
        field("reasoning_content"),
        lost=field("reasoning_content", text=" "),
        off=NOTHING,
    ),
    "zai": Rule(field("reasoning_content"), field("reasoning_content")),
    "groq": Rule(field("reasoning"), field("reasoning")),
    "cerebras": Rule(field("reasoning"), field("reasoning")),
    "together": Rule(field("reasoning_content"), field("reasoning_content")),
    "fireworks": Rule(field("reasoning_content"), field("reasoning_content")),
    "huggingface": Rule(field("reasoning_content"), field("reasoning_content")),
    "crusoe": Rule(field("reasoning"), field("reasoning")),
    "bedrock-mantle-chat": Rule(field("reasoning"), field("reasoning")),
    "copilot": Rule(field("reasoning_text"), field("reasoning_text")),
    "openai-compat": Rule(field("reasoning_content"), field("reasoning_content")),
    "vllm": Rule(field("reasoning", "reasoning_content"), field("reasoning", "reasoning_content")),
    "sglang": Rule(field("reasoning_content"), field("reasoning_content")),
    "llama.cpp": Rule(field("reasoning_content"), field("reasoning_content")),
    "ollama": Rule(field("reasoning"), field("reasoning")),
    "lmstudio": Rule(field("reasoning_content"), field("reasoning_content")),
    # Reasoning without details is sent in the plain field. Foreign reasoning is not sent, because the provider behind
    # the router may verify signatures.
    "openrouter": Rule(field("reasoning"), {"reasoning": "why"}),
    "snowflake": Rule(field("reasoning"), {"reasoning": "why"}),
    "minimax": Rule(
        field("content", text="<think>\nwhy\n</think>\n\nso"), field("content", text="<think>\nwhy\n</think>\n\nso")
    ),
}

each = pytest.mark.parametrize("row", MATRIX)
SITUATIONS = list(product((True, False), (None, True, False)))
"""Pairs of: whether the message has calls, and whether thinking is enabled."""


def sent(
    row: str,
    *parts: ModelResponsePart,
    by: Origin | None = None,
    calls: bool = False,
    thinking: bool | None = None,
    known: bool = True,
) -> dict[str, Any]:
    """Return the assistant message without its role, and without text and calls that are as expected."""
    response = ModelResponse([*parts, TextPart("so"), *([CALL] if calls else [])], origin=by or origin(row))
    if not known:
        response = replace(response, origin=None)
    settings: ModelSettings = {} if thinking is None else {"thinking": thinking}
    request = encode(ModelCall("m", [response], settings=settings), ROWS[row], origin(row))
    message: dict[str, Any]
    (message,) = request["messages"]
    assert message.pop("role") == "assistant"
    if calls:
        (one,) = message.pop("tool_calls")
        assert one == {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    if message["content"] == "so":
        del message["content"]
    return message


def test_every_profile_has_a_rule() -> None:
    assert set(MATRIX) == set(ROWS)


def fields_of_lost_reasoning(row: str, calls: bool, thinking: bool | None) -> dict[str, Any]:
    """Return the fields that replace lost reasoning."""
    rule = MATRIX[row]
    return NOTHING if thinking is False else rule.lost if calls else rule.lost_without_calls


@each
def test_own_reasoning_is_sent_as_the_table_says(row: str) -> None:
    rule = MATRIX[row]
    own = ThinkingPart("why", provider_name=row)
    with Cases() as case:
        for calls, thinking in SITUATIONS:
            with case(f"calls: {calls}, thinking: {thinking}"):
                expected = rule.off if thinking is False and rule.off is not None else rule.own
                assert sent(row, own, calls=calls, thinking=thinking) == expected


@each
def test_lost_reasoning_is_replaced_as_the_table_says(row: str) -> None:
    with Cases() as case:
        for calls, thinking in SITUATIONS:
            with case(f"calls: {calls}, thinking: {thinking}"):
                assert sent(row, calls=calls, thinking=thinking) == fields_of_lost_reasoning(row, calls, thinking)


@each
def test_foreign_reasoning_is_treated_as_lost(row: str) -> None:
    foreign = ThinkingPart("why", id="i", signature="s", provider_name="elsewhere", provider_details={"a": "b"})
    with Cases() as case:
        for calls, thinking in SITUATIONS:
            with case(f"calls: {calls}, thinking: {thinking}"):
                assert sent(row, foreign, by=FOREIGN, calls=calls, thinking=thinking) == fields_of_lost_reasoning(
                    row, calls, thinking
                )


@each
def test_truncated_reasoning_is_treated_as_lost(row: str) -> None:
    cut = ThinkingPart("why", signature="s", provider_name=row, complete=False)
    with Cases() as case:
        for calls, thinking in SITUATIONS:
            with case(f"calls: {calls}, thinking: {thinking}"):
                assert sent(row, cut, calls=calls, thinking=thinking) == fields_of_lost_reasoning(row, calls, thinking)


@each
def test_reasoning_of_unknown_origin_is_sent_as_the_table_says(row: str) -> None:
    for calls in (True, False):
        assert sent(row, ThinkingPart("why"), known=False, calls=calls) == MATRIX[row].unknown


@each
def test_foreign_reasoning_is_sent_if_the_profile_permits_it(row: str) -> None:
    welcome = replace(ROWS[row], foreign="field", replay="field")
    response = ModelResponse([ThinkingPart("why", signature="s"), TextPart("so")], origin=FOREIGN)
    (message,) = encode(ModelCall("m", [response]), welcome, origin(row))["messages"]
    assert message[welcome.replay_field] == "why"


@each
def test_another_account_model_or_api_of_the_same_provider_is_foreign(row: str) -> None:
    own = ThinkingPart("why", provider_name=row, signature="s")
    for other in (replace(origin(row), account="b"), replace(origin(row), model="n"), replace(origin(row), api="x")):
        assert sent(row, own, by=other, calls=True) == fields_of_lost_reasoning(row, True, None)


@each
def test_a_response_without_parts_to_send_is_no_message(row: str) -> None:
    response = ModelResponse([ThinkingPart("why", complete=False)], origin=origin(row))
    request = encode(ModelCall("m", [response]), ROWS[row], origin(row))
    assert request["messages"] == []


def test_sealed_reasoning_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        sent("vllm", SealedPart("token"))
    assert refused.value.info.code == "sealed_reasoning"


def test_several_thoughts_are_joined_as_paragraphs() -> None:
    assert sent("groq", ThinkingPart("a"), ThinkingPart("b"))["reasoning"] == "a\n\nb"


def test_a_truncated_call_is_not_sent_back() -> None:
    response = ModelResponse([TextPart("so"), ToolCallPart("f", '{"x', "c1", complete=False)], origin=origin("openai"))
    (message,) = encode(ModelCall("m", [response]), ROWS["openai"], origin("openai"))["messages"]
    assert "tool_calls" not in message


# --- round trips -------------------------------------------------------------------------------------------------


def reasoning_sent_back(row: str, data: bytes) -> dict[str, Any]:
    response = response_of(row, data)
    message: dict[str, Any]
    (message,) = encode(ModelCall("m", [response]), ROWS[row], origin(row))["messages"]
    return message


ENTRIES: dict[str, list[dict[str, Any]]] = {
    "signed text": [{"type": "reasoning.text", "id": "r0", "format": "anthropic-claude-v1", "index": 0,
                     "text": "why", "signature": "S/+="}],
    "summary and its original": [
        {"type": "reasoning.summary", "format": "openai-responses-v1", "index": 0, "summary": "why"},
        {"type": "reasoning.encrypted", "id": "rs_1", "format": "openai-responses-v1", "index": 0, "data": "gAAA"}],
    "several blocks": [{"type": "reasoning.text", "index": n, "text": f"t{n}", "signature": f"S{n}"} for n in range(3)],
    "no index": [{"type": "reasoning.text", "text": "a", "signature": "Sa"},
                 {"type": "reasoning.text", "text": "b", "signature": "Sb"}],
    "a call's": [{"type": "reasoning.encrypted", "id": "c1", "format": "google-gemini-v1", "index": 0, "data": "CiQB"}],
    "unknown": [{"type": "reasoning.server_tool_call", "tool_name": "search", "arguments": "{}", "index": 0}],
}  # fmt: skip


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("row", ["openrouter", "snowflake", "minimax"])
def test_details_are_sent_back_unchanged(name: str, row: str) -> None:
    assert (
        reasoning_sent_back(row, body(content="so", reasoning_details=ENTRIES[name]))["reasoning_details"]
        == ENTRIES[name]
    )


def fragments(entry: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """Split an entry as a server streams it: the text in pieces, then the signature alone."""
    name = next((name for name in ("text", "summary") if name in entry), None)
    if name is None:
        return [entry]
    rest = {key: value for key, value in entry.items() if key not in (name, "signature")}
    pieces = [{**rest, name: entry[name][at : at + size]} for at in range(0, len(entry[name]), size)]
    return pieces + ([{**rest, "signature": entry["signature"]}] if "signature" in entry else [])


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("size", [1, 2, 9])
def test_fragments_are_sent_back_as_complete_blocks(name: str, size: int) -> None:
    pieces = [piece for entry in ENTRIES[name] for piece in fragments(entry, size)]
    data = sse(*(chunk(reasoning_details=[piece]) for piece in pieces), chunk(content="so"), chunk("stop"))
    assert reasoning_sent_back("openrouter", data)["reasoning_details"] == ENTRIES[name]


def test_a_signature_that_arrives_after_the_answer_is_sent_back_with_its_text() -> None:
    indexes: list[dict[str, Any]] = [{"index": 0}, {}]
    for index in indexes:
        text = {"type": "reasoning.text", **index, "text": "why"}
        signature = {"type": "reasoning.text", **index, "signature": "S"}
        data = sse(
            chunk(reasoning_details=[text]), chunk(content="so"), chunk(reasoning_details=[signature]), chunk("stop")
        )
        assert reasoning_sent_back("openrouter", data)["reasoning_details"] == [{**text, "signature": "S"}]


def test_a_signature_of_the_reasoning_field_is_sent_back_with_it() -> None:
    entry = {"type": "reasoning.text", "index": 0, "text": "why", "signature": "S"}
    data = sse(
        chunk(reasoning="w"), chunk(reasoning="hy"), chunk(reasoning_details=[entry]), chunk("stop", content="so")
    )
    assert reasoning_sent_back("openrouter", data)["reasoning_details"] == [entry]


@pytest.mark.parametrize(
    "content", ["<think>\nwhy\n</think>\n\nso", "<think>why</think>so", "<think>\n\nwhy\n\n</think>\nso\n", "so"]
)
def test_tagged_content_is_sent_back_verbatim(content: str) -> None:
    data = sse(*(chunk(content=content[at : at + 3]) for at in range(0, len(content), 3)), chunk("stop"))
    assert reasoning_sent_back("minimax", data)["content"] == content
    assert reasoning_sent_back("minimax", body(content=content))["content"] == content


def test_a_signature_in_a_field_of_its_own_is_sent_back_there() -> None:
    message = reasoning_sent_back("copilot", body(content="so", reasoning_text="why", reasoning_opaque="o=="))
    assert (message["reasoning_text"], message["reasoning_opaque"]) == ("why", "o==")


def test_a_signature_of_a_call_is_sent_back_with_that_call() -> None:
    signed = {"google": {"thought_signature": "CiQB"}}
    one = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = reasoning_sent_back(
        "openai-compat",
        body("tool_calls", content=None, tool_calls=[{**one, "extra_content": signed}, one | {"id": "c2"}]),
    )
    assert [call.get("extra_content") for call in message["tool_calls"]] == [signed, None]


# --- opaque data is not sent to another origin -------------------------------------------------------------------

CANARY = "CANARY-7f3a"
opaque: dict[str, Any] = {
    "id": CANARY,
    "provider_name": CANARY,
    "provider_details": {"type": "reasoning.text", "id": CANARY, "format": CANARY, "open": CANARY, "text": CANARY},
    "signature": CANARY,
}


def opaque_without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in opaque.items() if name not in names}


foreign_parts = st.sampled_from([
    ThinkingPart("why", **opaque),
    ThinkingPart("", form="redacted", **opaque),
    ThinkingPart("why", form="summary", complete=False, **opaque),
    ThinkingPart("", **{**opaque, "provider_details": {"type": "reasoning.encrypted", "index": 0}}),
    TextPart("so", **opaque),
    RefusalPart("no", id=CANARY, provider_name=CANARY),
    ToolCallPart("f", "{}", "c1", **opaque),
    BuiltinToolCallPart("search", "{}", "b1", **opaque_without("signature")),
    BuiltinToolReturnPart("search", "found", "b1", **opaque_without("signature")),
    FilePart("AAAA", "image/png", **opaque),
    CompactionPart("before", **opaque),
    CompactionPart(None, **opaque),
    OpaquePart("reasoning.new", {"type": "reasoning.new", "data": CANARY}, id=CANARY, provider_name=CANARY),
])  # fmt: skip
foreign_origins = st.sampled_from([None, FOREIGN, Origin("openrouter", "openai_chat", "m", account="other")])


@given(
    st.sampled_from(sorted(ROWS)),
    st.lists(foreign_parts, max_size=6),
    foreign_origins,
    st.sampled_from(["drop", "field"]),
    st.booleans(),
)
def test_opaque_data_of_foreign_parts_is_not_sent(
    name: str, parts: list[ModelResponsePart], maker: Origin | None, foreign: Any, marked: bool
) -> None:
    """It is neither in the request nor in the result of `history`; the origin may be on the response or its parts."""
    row = replace(ROWS[name], foreign=foreign)
    target = origin(name)
    if marked and maker is not None:
        parts = [replace(part, origin=maker) if hasattr(part, "origin") else part for part in parts]
    response = ModelResponse(parts, origin=maker)
    assert CANARY not in repr(history.parts_to_send(response, target, row))
    assert CANARY not in json.dumps(encode(ModelCall("m", [response]), row, target))


@given(st.sampled_from(sorted(ROWS)), st.lists(foreign_parts, max_size=6))
def test_a_foreign_part_in_an_own_response_stays_foreign(name: str, parts: list[ModelResponsePart]) -> None:
    parts = [replace(part, origin=FOREIGN) for part in parts if hasattr(part, "origin")]
    response = ModelResponse(parts, origin=origin(name))
    assert CANARY not in json.dumps(encode(ModelCall("m", [response]), ROWS[name], origin(name)))
