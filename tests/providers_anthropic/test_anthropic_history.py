"""Which parts of an earlier answer are replayed over Messages: a table with a row per profile.

The columns: the content of the assistant's message without its text, if its reasoning is

* own: produced by the same model, and signed;
* unsigned: produced by the same model, without a signature;
* foreign: produced by another model, with its signature and ids;
* unknown: returned by a client as plain text, so its origin is unknown;
* lost: missing (the client did not return it);
* cut: produced by the same model, but incomplete;
* off: own and signed, but thinking is now switched off.
"""

from __future__ import annotations

import json
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
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.anthropic.encode import encode
from pellucid.settings import ModelCall
from tests.providers_anthropic.anthropic_kit import ROWS, body, origin, response_of

FOREIGN = Origin("elsewhere", "anthropic", "claude")
Blocks = list[dict[str, Any]]
NOTHING: Blocks = []


def thought(text: str = "why", signature: str = "sig") -> Blocks:
    return [{"type": "thinking", "thinking": text, "signature": signature}]


class Rule(NamedTuple):
    own: Blocks = thought()
    unsigned: Blocks = NOTHING
    unknown: Blocks = NOTHING
    lost: Blocks = NOTHING
    off: Blocks = NOTHING


ANTHROPIC = Rule()
COMPATIBLE = Rule(unsigned=thought(signature=""), unknown=thought(signature=""), off=thought())

MATRIX: dict[str, Rule] = {
    "anthropic": ANTHROPIC,
    "anthropic-vertex": ANTHROPIC,
    "anthropic-compat": COMPATIBLE,
    "minimax-anthropic": COMPATIBLE,
    "kimi-anthropic": COMPATIBLE,
    "deepseek-anthropic": COMPATIBLE._replace(lost=thought("", ""), off=NOTHING),
}

each = pytest.mark.parametrize("row", MATRIX)


def sent(row: str, *parts: ModelResponsePart, by: Origin | None = None, **how: Any) -> Blocks:
    """Return the assistant's blocks without the text at the end."""
    response = ModelResponse([*parts, TextPart("so")], origin=by or origin(row))
    if how.get("unknown"):
        response = replace(response, origin=None)
    chosen = {"thinking": how["thinking"]} if "thinking" in how else {}
    call = ModelCall("claude", [response], settings=chosen)  # type: ignore[arg-type]
    (message,) = encode(call, ROWS[row], origin(row))["messages"]
    assert message["role"] == "assistant"
    assert message["content"][-1] == {"type": "text", "text": "so"}
    content: Blocks = message["content"][:-1]
    return content


def signed(row: str, **fields: Any) -> ThinkingPart:
    return ThinkingPart("why", **{"signature": "sig", "provider_name": row, **fields})


def test_the_table_is_complete() -> None:
    assert set(MATRIX) == set(ROWS)


@each
def test_own_reasoning(row: str) -> None:
    assert sent(row, signed(row)) == MATRIX[row].own


@each
def test_own_unsigned_reasoning(row: str) -> None:
    assert sent(row, ThinkingPart("why", provider_name=row)) == MATRIX[row].unsigned


@each
def test_foreign_reasoning(row: str) -> None:
    other = ThinkingPart("why", id="rs_1", signature="theirs", provider_name="elsewhere", provider_details={"x": 1})
    assert sent(row, other, by=FOREIGN) == MATRIX[row].lost
    assert sent(row, replace(other, origin=FOREIGN)) == MATRIX[row].lost


@each
def test_the_same_provider_is_another_origin_with_another_model_or_account(row: str) -> None:
    for by in (origin(row, "claude-2"), replace(origin(row), account="b")):
        assert sent(row, signed(row), by=by) == MATRIX[row].lost


@each
def test_reasoning_of_unknown_origin(row: str) -> None:
    assert sent(row, ThinkingPart("why"), unknown=True) == MATRIX[row].unknown


@each
def test_lost_reasoning(row: str) -> None:
    assert sent(row) == MATRIX[row].lost


@each
def test_reasoning_that_was_cut_off(row: str) -> None:
    assert sent(row, signed(row, complete=False)) == MATRIX[row].lost


@each
def test_reasoning_that_led_to_a_call_that_was_cut_off(row: str) -> None:
    """It would be last, so it is not sent; a placeholder is, where the profile requires one."""
    call = ToolCallPart("look", "{", "toolu_1", complete=False)
    response = ModelResponse([TextPart("so"), signed(row), call], origin=origin(row))
    (message,) = encode(ModelCall("claude", [response]), ROWS[row], origin(row))["messages"]
    assert message["content"] == [*MATRIX[row].lost, {"type": "text", "text": "so"}]


@each
def test_reasoning_when_thinking_is_off(row: str) -> None:
    assert sent(row, signed(row), thinking=False) == MATRIX[row].off


@each
def test_omitted_and_redacted_reasoning(row: str) -> None:
    omitted = ThinkingPart("", signature="sig", provider_name=row)
    redacted = ThinkingPart("", id="redacted_thinking", signature="blob", provider_name=row, form="redacted")
    expected = [*thought(""), {"type": "redacted_thinking", "data": "blob"}]
    assert sent(row, omitted, redacted) == expected
    assert sent(row, omitted, redacted, by=FOREIGN) == MATRIX[row].lost


def test_a_fake_signature_is_replayed_to_its_server_and_not_to_anthropic() -> None:
    made_up = ThinkingPart("why", signature="fake", provider_name="anthropic-compat")
    assert sent("anthropic-compat", made_up) == thought(signature="fake")
    assert sent("anthropic", made_up, by=origin("anthropic-compat")) == NOTHING


def test_sealed_reasoning_must_be_opened_first() -> None:
    with pytest.raises(RequestError, match="sealed"):
        sent("anthropic", SealedPart("token"))


# --- other parts -------------------------------------------------------------------------------------------------

CALL = BuiltinToolCallPart("code_execution", {"command": "ls"}, "srv_1", provider_name="anthropic",
                           provider_details={"anthropic_tool_name": "bash_code_execution"})  # fmt: skip
RETURN = BuiltinToolReturnPart("code_execution", {"stdout": ""}, "srv_1", provider_name="anthropic",
                               provider_details={"anthropic_tool_name": "bash_code_execution"})  # fmt: skip
NATIVE = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}

OWN: list[tuple[list[ModelResponsePart], Blocks]] = [
    ([CALL, RETURN],
     [{"type": "server_tool_use", "id": "srv_1", "name": "bash_code_execution", "input": {"command": "ls"}},
      {"type": "bash_code_execution_tool_result", "tool_use_id": "srv_1", "content": {"stdout": ""}}]),
    ([CALL], []),
    ([RETURN], []),
    ([replace(CALL, args='{"comm'), RETURN], []),
    ([OpaquePart("fallback", NATIVE, provider_name="anthropic")], [NATIVE]),
    ([CompactionPart("So far.", signature="s", provider_name="anthropic")],
     [{"type": "compaction", "content": "So far.", "signature": "s"}]),
    ([CompactionPart(None, signature="e", provider_name="anthropic", provider_details={"encrypted_content": "e"})],
     [{"type": "compaction", "content": None, "encrypted_content": "e"}]),
    ([TextPart("a", provider_details={"citations": [{"type": "x"}]}, annotations=[{"type": "url_citation"}])],
     [{"type": "text", "text": "a", "citations": [{"type": "x"}]}]),
    ([ToolCallPart("f", {"a": 1}, "t", provider_details={"caller": {"type": "x"}})],
     [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "caller": {"type": "x"}}]),
    ([ToolCallPart("f", '{"a', "t", complete=False)], []),
    ([RefusalPart("No.")], [{"type": "text", "text": "No."}]),
    ([FilePart("x", "image/png")], []),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "blocks"), OWN)
def test_own_parts(parts: list[ModelResponsePart], blocks: Blocks) -> None:
    assert sent("anthropic", *parts) == blocks


@pytest.mark.parametrize(("parts", "blocks"), OWN)
def test_foreign_parts(parts: list[ModelResponsePart], blocks: Blocks) -> None:
    """Text and calls are replayed; opaque data is not."""
    plain = {
        "text": {"type": "text", "text": "a"},
        "tool_use": {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        "compaction": {"type": "text", "text": "So far."},
    }
    expected = [
        block if block.get("text") == "No." else plain[block["type"]]
        for block in blocks
        if block["type"] in plain and block.get("content", "") is not None
    ]
    assert sent("anthropic", *parts, by=FOREIGN) == expected


def test_a_call_of_a_paused_turn_waits_for_its_result() -> None:
    paused = ModelResponse([TextPart("so"), CALL], origin=origin(), native_finish_reason="pause_turn")
    (message,) = encode(ModelCall("claude", [paused]), ROWS["anthropic"], origin())["messages"]
    assert [block["type"] for block in message["content"]] == ["text", "server_tool_use"]
    rest = ModelResponse([RETURN, TextPart("done")], origin=origin())
    (message,) = encode(ModelCall("claude", [paused, rest]), ROWS["anthropic"], origin())["messages"]
    assert [block["type"] for block in message["content"]] == [
        "text", "server_tool_use", "bash_code_execution_tool_result", "text",
    ]  # fmt: skip


# --- round trips -------------------------------------------------------------------------------------------------

BLOCKS: Blocks = [
    {"type": "thinking", "thinking": "why", "signature": "s1"},
    {"type": "thinking", "thinking": "", "signature": "s2"},
    {"type": "redacted_thinking", "data": "blob"},
    {"type": "text", "text": "so", "citations": [{"type": "char_location", "cited_text": "x"}]},
    {"type": "text", "text": "plain"},
    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1]}},
    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "srv_1",
     "content": [{"type": "web_search_result", "url": "u", "encrypted_content": "e"}]},
    {"type": "mcp_tool_use", "id": "m1", "name": "ask", "server_name": "wiki", "input": {"q": 1}},
    {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": False, "content": []},
    {"type": "compaction", "content": "sum", "encrypted_content": "e", "signature": "s", "tool_changes": []},
    {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
    {"type": "container_upload", "file_id": "f1"},
]  # fmt: skip


@given(st.permutations(BLOCKS))
def test_own_blocks_are_replayed_unchanged_and_in_order(blocks: Blocks) -> None:
    """In any order, except for thoughts at the end."""
    while blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks = blocks[:-1]
    response = response_of(body(*blocks))
    (message,) = encode(ModelCall("claude", [response]), ROWS["anthropic"], origin())["messages"]
    assert message["content"] == blocks


_MARK = "MARKER-of-another"
marked = st.sampled_from([None, _MARK])
details = st.sampled_from([None, {"x": _MARK, "citations": [_MARK], "caller": _MARK, "anthropic_tool_name": _MARK}])
strange_parts = st.one_of(
    st.builds(ThinkingPart, st.sampled_from(["", "t"]), id=marked, signature=marked, provider_details=details,
              form=st.sampled_from(["raw", "summary", "redacted"])),
    st.builds(TextPart, st.just("t"), id=marked, signature=marked, provider_details=details),
    st.builds(ToolCallPart, st.just("f"), st.just("{}"), st.just("c"), id=marked, signature=marked,
              provider_details=details),
    st.builds(BuiltinToolCallPart, st.just("web_search"), st.just("{}"), st.just("c"), id=marked,
              provider_name=st.just("anthropic"), provider_details=details),
    st.builds(BuiltinToolReturnPart, st.just("web_search"), st.just(_MARK), st.just("c"), id=marked,
              provider_name=st.just("anthropic"), provider_details=details),
    st.builds(CompactionPart, st.sampled_from([None, "t"]), signature=marked, provider_name=st.just("anthropic"),
              provider_details=details),
    st.builds(OpaquePart, st.just("x"), st.just({"type": _MARK}), provider_name=st.just("anthropic")),
    st.builds(FilePart, st.just("x"), st.just("image/png"), signature=marked),
)  # fmt: skip


@given(st.sampled_from(sorted(ROWS)), st.lists(strange_parts, max_size=6), st.booleans())
def test_foreign_opaque_data_is_never_sent(row: str, parts: list[ModelResponsePart], known: bool) -> None:
    response = ModelResponse(parts, origin=FOREIGN if known else None)
    request = encode(ModelCall("claude", [response]), ROWS[row], origin(row))
    assert _MARK not in json.dumps(request)


# --- tool loops whose reasoning did not come back ----------------------------------------------------------------


@pytest.mark.parametrize(("model", "thinks"), [("claude-sonnet-4-5", False), ("claude-opus-4-8", True)])
def test_a_tool_loop_that_lost_its_reasoning(model: str, thinks: bool) -> None:
    """Older models refuse to think after a call whose thought is missing, so thinking is switched off."""
    row, prompt = ROWS["anthropic"].for_model(model), UserPromptPart("hi")
    answered = ModelRequest([ToolReturnPart("f", "r", "t")])
    call = ToolCallPart("f", "{}", "t")

    def thinking(*parts: ModelResponsePart, then: ModelRequest = answered) -> bool:
        history: list[ModelMessage] = [
            ModelRequest([prompt]),
            ModelResponse(list(parts), origin=origin(model=model)),
            then,
        ]
        body = encode(ModelCall(model, history, settings={"thinking": "low"}), row, origin(model=model))
        return "thinking" in body

    assert thinking(signed("anthropic"), call)
    assert thinking(call) is thinks
    assert thinking(TextPart("so"), then=ModelRequest([prompt]))
