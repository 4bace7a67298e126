"""Requests of Responses: settings, tools, and which items are sent back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.parts import (
    Audio,
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    File,
    FilePart,
    Image,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    RetryPromptPart,
    SealedPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
    UserPromptPart,
    Video,
)
from pellucid.providers.openai_responses.encode import encode
from pellucid.settings import ModelCall, OutputFormat, ToolChoice, ToolDefinition
from tests.providers_openai_responses.responses_kit import (
    OPENAI,
    ROWS,
    message,
    origin,
    output_text,
    raw,
    response_of,
    sent,
    summary,
)

ELSEWHERE = Origin("anthropic", "anthropic", "claude")


def request(row: str = OPENAI, model: str = "gpt-5", **fields: Any) -> dict[str, Any]:
    profile = ROWS[row].for_model(model)
    call = ModelCall(model, [ModelRequest([UserPromptPart("q")])], **fields)
    return encode(call, profile, origin(row, model))


# --- requests of thinking --------------------------------------------------------------------------------------------


def test_a_minimal_request() -> None:
    assert request() == {
        "model": "gpt-5",
        "input": [{"role": "user", "content": "q"}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    assert "stream" not in request(stream=False)


@pytest.mark.parametrize(
    ("row", "model", "call_settings", "expected"),
    [
        (OPENAI, "gpt-5", {"thinking": "high"}, {"reasoning": {"effort": "high"}}),
        (OPENAI, "gpt-5", {"thinking": True}, {"reasoning": {"effort": "medium"}}),
        (OPENAI, "gpt-5", {"thinking": False}, {}),
        (OPENAI, "gpt-5.1", {"thinking": False}, {"reasoning": {"effort": "none"}}),
        (OPENAI, "gpt-4o", {"thinking": "high", "openai_reasoning_effort": "high"}, {"include": None}),
        ("bedrock-mantle", "openai.gpt-oss-120b", {"thinking": "max"},
         {"include": None, "reasoning": {"effort": "high"}}),
        ("bedrock-mantle", "openai.gpt-oss-120b", {"thinking": False}, {"include": None}),
        (OPENAI, "gpt-5", {"thinking_summary": "auto"}, {"reasoning": {"summary": "auto"}}),
        (
            OPENAI, "gpt-5",
            {"thinking": "low", "thinking_summary": "auto", "openai_reasoning_effort": "xhigh",
             "openai_reasoning_summary": "detailed", "openai_reasoning_context": "all_turns",
             "openai_reasoning_mode": "pro"},
            {"reasoning": {"effort": "xhigh", "summary": "detailed", "context": "all_turns", "mode": "pro"}},
        ),
        (OPENAI, "gpt-5", {"openai_store": True}, {"store": True}),
        ("vllm-responses", "m", {}, {"store": False, "include": None}),
        ("openresponses", "m", {}, {"store": None, "include": None}),
        (OPENAI, "gpt-5.1", {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "parallel_tool_calls": False},
         {"max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9, "parallel_tool_calls": False}),
        (OPENAI, "gpt-5", {"service_tier": "flex", "user": "u", "metadata": {"a": "b"}, "cache_key": "k"},
         {"service_tier": "flex", "user": "u", "metadata": {"a": "b"}, "prompt_cache_key": "k"}),
        ("openresponses", "m", {"service_tier": "flex", "user": "u", "cache_key": "k", "verbosity": "low"},
         {"store": None, "include": None}),
        (OPENAI, "gpt-5", {"verbosity": "low"}, {"text": {"verbosity": "low"}}),
        ("openresponses", "m", {"openai_text_verbosity": "high"},
         {"store": None, "include": None, "text": {"verbosity": "high"}}),
        (OPENAI, "gpt-5.1", {"logprobs": True, "top_logprobs": 3}, {
            "include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "top_logprobs": 3}),
        # Reasoning models do not accept them.
        (OPENAI, "gpt-5.1", {"thinking": "low", "temperature": 0.5, "logprobs": True, "top_logprobs": 3},
         {"reasoning": {"effort": "low"}}),
        (OPENAI, "gpt-5.6-sol", {"temperature": 0.5}, {}),
        (OPENAI, "gpt-5.6-sol", {"temperature": 0.5, "thinking": False},
         {"temperature": 0.5, "reasoning": {"effort": "none"}}),
        (OPENAI, "gpt-5", {"openai_truncation": "auto"}, {"truncation": "auto"}),
        (OPENAI, "gpt-5", {"extra_body": {"store": True, "x": 1}}, {"store": True, "x": 1}),
        # The wire has no fields for these.
        (OPENAI, "gpt-5", {"seed": 1, "stop_sequences": ["x"], "logit_bias": {}, "top_k": 3, "timeout": 1.0}, {}),
    ],
)  # fmt: skip
def test_settings(row: str, model: str, call_settings: dict[str, Any], expected: dict[str, Any]) -> None:
    body = request(row, model, settings=call_settings)
    plain = {"store": False, "include": ["reasoning.encrypted_content"]} | expected
    assert {k: v for k, v in body.items() if k not in ("model", "input", "stream")} == {
        k: v for k, v in plain.items() if v is not None
    }


TOOL = ToolDefinition("f", {"type": "object"}, "does f", strict=True)
OTHER = ToolDefinition("g")


def test_tools() -> None:
    tools = request(tools=(TOOL, OTHER), settings={"openai_builtin_tools": [{"type": "web_search"}]})["tools"]
    assert tools == [
        {"type": "function", "name": "f", "description": "does f", "parameters": {"type": "object"}, "strict": True},
        {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}}, "strict": False},
        {"type": "web_search"},
    ]


@pytest.mark.parametrize(
    ("choice", "names", "expected"),
    [
        (ToolChoice(), ["f", "g"], None),
        (ToolChoice("none"), ["f", "g"], "none"),
        (ToolChoice("required"), ["f", "g"], "required"),
        (ToolChoice("required", ("f",)), ["f", "g"], {"type": "function", "name": "f"}),
        (ToolChoice("auto", ("f",)), ["f"], None),
        (ToolChoice("required", ("f", "g")), ["f", "g"], "required"),
    ],
)
def test_tool_choice(choice: ToolChoice, names: list[str], expected: Any) -> None:
    body = request(tools=(TOOL, OTHER), tool_choice=choice)
    assert [tool["name"] for tool in body["tools"]] == names
    assert body.get("tool_choice") == expected


def test_a_choice_of_an_unknown_tool_is_refused() -> None:
    with pytest.raises(RequestError, match="tool_choice names h; the tools are: f"):
        request(tools=(TOOL,), tool_choice=ToolChoice("auto", ("h",)))


@pytest.mark.parametrize(
    ("output", "form"),
    [
        (OutputFormat(), None),
        (OutputFormat("json_object"), {"type": "json_object"}),
        (
            OutputFormat("json_schema", "n", {"type": "object"}, "d", True),
            {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True, "description": "d"},
        ),
    ],
)
def test_output_format(output: OutputFormat, form: Any) -> None:
    assert request(output=output).get("text", {}).get("format") == form


# --- user messages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (Text("t"), {"type": "input_text", "text": "t"}),
        (Image(url="https://a"), {"type": "input_image", "detail": "auto", "image_url": "https://a"}),
        (
            Image(data="QQ==", media_type="image/jpeg", detail="low"),
            {"type": "input_image", "detail": "low", "image_url": "data:image/jpeg;base64,QQ=="},
        ),
        (Image(file_id="file-1"), {"type": "input_image", "detail": "auto", "file_id": "file-1"}),
        (File(file_id="file-1"), {"type": "input_file", "file_id": "file-1"}),
        (
            File(data="QQ==", media_type="application/pdf", filename="a.pdf"),
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
        ),
        (File(url="https://a"), {"type": "input_file", "file_url": "https://a"}),
        (
            Audio(data="QQ==", media_type="audio/mpeg"),
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
        ),
    ],
)
def test_user_content(content: Any, expected: dict[str, Any]) -> None:
    assert sent(ModelRequest([UserPromptPart([content])])) == [{"role": "user", "content": [expected]}]


@pytest.mark.parametrize("content", [Video(url="https://a"), Audio(url="https://a"), File(filename="f")])
def test_unsupported_user_content_is_refused(content: Any) -> None:
    with pytest.raises(RequestError, match="cannot be sent over Responses"):
        sent(ModelRequest([UserPromptPart([content])]))


def test_other_request_fields() -> None:
    message = ModelRequest(
        [
            SystemPromptPart("s"),
            SystemPromptPart("d", role="developer"),
            ToolReturnPart("f", {"a": 1}, "c1"),
            ToolReturnPart("f", [Text("t"), Image(url="https://a")], "c2"),
            RetryPromptPart("again", "f", "c3"),
            RetryPromptPart("answer in JSON"),
        ]
    )
    assert sent(message) == [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": "d"},
        {"type": "function_call_output", "call_id": "c1", "output": '{"a":1}'},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [
                {"type": "input_text", "text": "t"},
                {"type": "input_image", "detail": "auto", "image_url": "https://a"},
            ],
        },
        {"type": "function_call_output", "call_id": "c3", "output": "again"},
        {"role": "user", "content": "answer in JSON"},
    ]
    assert sent(message, row="openresponses")[1]["role"] == "system"


def test_the_last_instructions_apply() -> None:
    messages = [ModelRequest([UserPromptPart("a")], instructions=word) for word in ("first", "second", None)]
    body = encode(ModelCall("m", list(messages)), ROWS[OPENAI], origin())
    assert body["instructions"] == "second"
    assert len(body["input"]) == 3


def test_a_custom_call_has_a_custom_output() -> None:
    call = ToolCallPart("sql", {"input": "SELECT 1"}, "c1", id="ct", provider_details={"type": "custom_tool_call"})
    items = sent(ModelResponse([call], origin=origin()), ModelRequest([ToolReturnPart("sql", "1", "c1")]))
    assert [item["type"] for item in items] == ["custom_tool_call", "custom_tool_call_output"]
    assert items[0]["input"] == "SELECT 1"


def test_a_response_stored_by_the_provider_is_not_sent_again() -> None:
    stored = ModelResponse([TextPart("old", id="msg")], origin=origin(), provider_response_id="resp_1")
    history = [ModelRequest([UserPromptPart("a")]), stored, ModelRequest([UserPromptPart("b")])]
    call = ModelCall("m", history, settings={"openai_previous_response_id": "resp_1"})  # type: ignore[arg-type, typeddict-unknown-key]
    body = encode(call, ROWS[OPENAI], origin())
    assert body["previous_response_id"] == "resp_1"
    assert body["input"] == [{"role": "user", "content": "b"}]


def _request_with_auto(*history: ModelRequest | ModelResponse, **more: Any) -> dict[str, Any]:
    call_settings: Any = {"openai_previous_response_id": "auto", **more}
    return encode(ModelCall("m", list(history), settings=call_settings), ROWS[OPENAI], origin())


def _answer(id: str | None, text: str = "old", **more: Any) -> ModelResponse:
    made = {"origin": origin(), "finish_reason": "stop", **more}
    return ModelResponse([TextPart(text, id="msg")], provider_response_id=id, **made)


def _question(text: str) -> ModelRequest:
    return ModelRequest([UserPromptPart(text)])


A, B, C = (_question(name) for name in "abc")


def test_auto_continues_from_the_last_stored_response() -> None:
    body = _request_with_auto(A, _answer("resp_1"), B, _answer("resp_2"), C)
    assert (body["previous_response_id"], body["store"]) == ("resp_2", True)
    assert body["input"] == [{"role": "user", "content": "c"}]


def test_auto_requests_storage_at_the_start() -> None:
    body = _request_with_auto(A)
    assert "previous_response_id" not in body
    assert body["store"] is True


@pytest.mark.parametrize(
    "lost",
    [
        _answer(None),
        _answer("resp_2", finish_reason="error"),
        _answer("resp_2", finish_reason=None),
        _answer("resp_2", origin=Origin("elsewhere", "openai_responses", "m")),
        _answer("resp_2", origin=None),
    ],
)
def test_auto_skips_responses_that_the_provider_does_not_store(lost: ModelResponse) -> None:
    body = _request_with_auto(A, _answer("resp_1"), B, lost, C)
    assert body["previous_response_id"] == "resp_1"
    assert [item["content"] for item in body["input"] if item["role"] == "user"] == ["b", "c"]
    assert "previous_response_id" not in _request_with_auto(A, lost, C)


@pytest.mark.parametrize(
    "more",
    [
        {"openai_store": False},
        {"openai_conversation_id": "conv_1"},
        {"openai_conversation_id": "conv_1", "openai_store": True},
    ],
)
def test_auto_has_no_effect_without_storage_or_with_a_conversation(more: dict[str, Any]) -> None:
    history: list[ModelMessage] = [A, _answer("resp_1"), B]
    plain: Any = more
    assert _request_with_auto(*history, **more) == encode(
        ModelCall("m", list(history), settings=plain), ROWS[OPENAI], origin()
    )


def test_auto_without_new_messages_sends_all_messages() -> None:
    body = _request_with_auto(A, _answer("resp_1"))
    assert "previous_response_id" not in body
    assert len(body["input"]) == 2


# --- the send-back matrix --------------------------------------------------------------------------------------------

SEALED = ThinkingPart("s", id="rs", signature="E", form="summary")
OPEN = ThinkingPart("r", id="rs")
SUMMARY = ThinkingPart("s", id="rs", form="summary")
NOTHING = ThinkingPart("", id="rs")
TEXT = TextPart("t", id="msg")
CALL = ToolCallPart("f", "{}", "c", id="fc")
SEARCH = BuiltinToolCallPart(
    "web_search", {}, "ws", id="ws",
    provider_details={"native": {"type": "web_search_call", "id": "ws", "status": "completed"}})  # fmt: skip

OPEN_WEIGHT = "openresponses"


def items(*parts: ModelResponsePart, made_by: Origin | None, row: str = OPENAI, **call_settings: Any) -> list[str]:
    """Return the items sent back as `type:id`, with `!` if there is encrypted content."""
    out = sent(ModelResponse(list(parts), origin=made_by), row=row, **call_settings)
    return [
        f"{item.get('type', item.get('role'))}:{item.get('id', '')}{'!' if item.get('encrypted_content') else ''}"
        for item in out
    ]


OWN = origin()

MATRIX = [
    # row, origin, parts, settings, items sent back
    (OPENAI, "own", (SEALED, TEXT), {}, ["reasoning:rs!", "message:msg"]),
    (OPENAI, "own", (SEALED, CALL), {}, ["reasoning:rs!", "function_call:fc"]),
    (OPENAI, "own", (SEALED, SEARCH, TEXT), {}, ["reasoning:rs!", "web_search_call:ws", "message:msg"]),
    # Neither stored nor encrypted: the provider could not find the item, nor the items that refer to it.
    (OPENAI, "own", (SUMMARY, TEXT), {}, ["assistant:"]),
    (OPENAI, "own", (NOTHING, CALL), {}, ["function_call:"]),
    (OPENAI, "own", (NOTHING, SEARCH, TEXT), {}, ["assistant:"]),
    # Stored by the provider: the id suffices.
    (OPENAI, "own", (NOTHING, CALL), {"openai_store": True}, ["reasoning:rs", "function_call:fc"]),
    # The provider refuses reasoning without the item that follows it.
    (OPENAI, "own", (SEALED,), {}, []),
    (OPENAI, "own", (TEXT, SEALED), {}, ["message:msg"]),
    # Tokens of reasoning were counted, but no item came: nothing is missing.
    (OPENAI, "counted", (TEXT,), {}, ["message:msg"]),
    (OPENAI, "own", (TEXT,), {}, ["message:msg"]),
    # Ids are disabled.
    (OPENAI, "own", (SEALED, TEXT, CALL), {"openai_send_reasoning_ids": False},
     ["reasoning:!", "assistant:", "function_call:"]),
    (OPENAI, "own", (SUMMARY, TEXT), {"openai_send_reasoning_ids": False, "openai_store": True}, ["assistant:"]),
    (OPENAI, "own", (SEALED, SEARCH, TEXT), {"openai_send_reasoning_ids": False}, ["assistant:"]),
    # The origin is foreign or unknown.
    (OPENAI, "foreign", (SEALED, OPEN, TEXT, CALL, SEARCH), {}, ["assistant:", "function_call:"]),
    (OPENAI, "unknown", (SEALED, OPEN, TEXT, CALL), {}, ["assistant:", "function_call:"]),
    # A server with plain reasoning accepts it without encrypted content, and requires an id.
    (OPEN_WEIGHT, "own", (OPEN, TEXT), {}, ["reasoning:rs", "message:msg"]),
    (OPEN_WEIGHT, "own", (SUMMARY, CALL), {}, ["reasoning:rs", "function_call:fc"]),
    (OPEN_WEIGHT, "own", (OPEN, CALL), {"openai_send_reasoning_ids": False}, ["reasoning:rs_1", "function_call:"]),
    (OPEN_WEIGHT, "unknown", (OPEN, TEXT), {}, ["reasoning:rs_1", "assistant:"]),
    (OPEN_WEIGHT, "unknown", (SUMMARY, TEXT), {}, ["assistant:"]),
    (OPEN_WEIGHT, "foreign", (OPEN, TEXT), {}, ["assistant:"]),
]  # fmt: skip


@pytest.mark.parametrize(("row", "maker", "parts", "call_settings", "expected"), MATRIX)
def test_the_matrix_of_items_sent_back(
    row: str, maker: str, parts: Any, call_settings: dict[str, Any], expected: list[str]
) -> None:
    made_by = {"foreign": ELSEWHERE, "unknown": None}.get(maker, origin(row))
    usage = Usage(output_reasoning_tokens=5) if maker == "counted" else Usage()
    out = sent(ModelResponse(list(parts), origin=made_by, usage=usage), row=row, **call_settings)
    rows = [
        f"{item.get('type', item.get('role'))}:{item.get('id', '')}{'!' if item.get('encrypted_content') else ''}"
        for item in out
    ]
    assert rows == expected


def test_every_account_is_another_origin() -> None:
    made_by = msgspec.structs.replace(origin(), account="eu")
    response = ModelResponse([SEALED, TEXT], origin=made_by)
    assert [item.get("encrypted_content") for item in sent(response)] == [None]
    assert [item.get("encrypted_content") for item in sent(response, target=made_by)] == ["E", None]


def test_foreign_reasoning_is_sent_if_the_profile_permits_it() -> None:
    row = msgspec.structs.replace(ROWS[OPEN_WEIGHT], foreign="field")
    made = ModelResponse([ThinkingPart("sum", id="x", signature="S", form="summary"), TextPart("t")], origin=ELSEWHERE)
    for field in ("content", "summary"):
        profile = msgspec.structs.replace(row, replay_field=field)
        reasoning, _ = encode(ModelCall("m", [made]), profile, origin(OPEN_WEIGHT))["input"]
        kind = "reasoning_text" if field == "content" else "summary_text"
        assert reasoning == {"type": "reasoning", "id": "rs_0", "summary": [], field: [{"type": kind, "text": "sum"}]}


def test_own_text_is_sent_back_with_its_annotations_and_id() -> None:
    cite = [{"type": "url_citation", "url": "u"}]
    item = message(output_text("t") | {"annotations": cite}, id="msg", phase="final_answer")
    text = TextPart("t", id="msg", annotations=cite, provider_details={"phase": "final_answer"})
    assert sent(ModelResponse([text], origin=OWN)) == [item]
    assert sent(ModelResponse([text], origin=ELSEWHERE)) == [{"role": "assistant", "content": "t"}]


def test_refusals_are_sent_back() -> None:
    assert sent(ModelResponse([RefusalPart("no")], origin=OWN)) == [{"role": "assistant", "content": "no"}]
    mixed = sent(ModelResponse([TEXT, RefusalPart("no")], origin=OWN))
    assert mixed[0]["content"][1] == {"type": "refusal", "refusal": "no"}


def test_messages_are_neither_split_nor_merged() -> None:
    parts = [TextPart("a", id="m1"), TextPart("b", id="m1"), TextPart("c", id="m2")]
    out = sent(ModelResponse(list(parts), origin=OWN))
    assert [[entry["text"] for entry in item["content"]] for item in out] == [["a", "b"], ["c"]]
    foreign = sent(ModelResponse(list(parts), origin=ELSEWHERE))
    assert foreign == [{"role": "assistant", "content": "abc"}]
    bare = sent(ModelResponse(list(parts), origin=OWN), openai_send_reasoning_ids=False)
    assert [item["content"] for item in bare] == ["ab", "c"]


def test_truncated_and_empty_parts_are_not_sent_back() -> None:
    cut = [ThinkingPart("a", id="rs", signature="E"), ThinkingPart("b", id="rs", complete=False)]
    assert sent(ModelResponse([*cut, TextPart("", id="msg")], origin=OWN)) == []
    assert sent(ModelResponse([ToolCallPart("f", '{"a', "c", id="fc", complete=False)], origin=OWN)) == []


def test_sealed_parts_are_refused() -> None:
    with pytest.raises(RequestError, match="not opened"):
        sent(ModelResponse([SealedPart("t")]))


def test_compaction_is_sent_back_to_its_origin_and_its_text_to_others() -> None:
    part = CompactionPart("short", signature="E", id="cmp")
    assert sent(ModelResponse([part], origin=OWN)) == [{"type": "compaction", "id": "cmp", "encrypted_content": "E"}]
    assert sent(ModelResponse([part], origin=ELSEWHERE)) == [{"role": "assistant", "content": "short"}]


def test_opaque_parts_that_are_no_items_are_not_sent() -> None:
    late = OpaquePart("late_arguments", {"tool_call_id": "c", "arguments": "{}"})
    assert sent(ModelResponse([late], origin=OWN)) == []


def test_encoding_changes_nothing_in_the_history() -> None:
    response = response_of(
        b'{"output": [{"type": "message", "id": "m", "content": [{"type": "output_text", "text": "a"},'
        b'{"type": "x"}, {"type": "y"}]}], "status": "completed"}'
    )
    before = msgspec.json.encode(response)
    assert sent(response) == sent(response)
    assert msgspec.json.encode(response) == before


# --- opaque data is not sent to another origin ----------------------------------------------------------------------

MARK = "OPAQUE-MARK"
_opaque = st.none() | st.just(MARK)
_details = st.none() | st.just({"native": {"type": "web_search_call", "id": MARK}, "phase": MARK, "type": MARK})
_parts: st.SearchStrategy[ModelResponsePart] = st.one_of(
    st.builds(ThinkingPart, st.sampled_from(["", "thought"]), id=_opaque, signature=_opaque, provider_details=_details,
              provider_name=_opaque, form=st.sampled_from(["raw", "summary"])),
    st.builds(TextPart, st.sampled_from(["", "text"]), id=_opaque, signature=_opaque, provider_details=_details),
    st.builds(ToolCallPart, st.just("f"), st.just("{}"), st.just("c"), id=_opaque, signature=_opaque,
              provider_details=_details),
    st.builds(BuiltinToolCallPart, st.just("web_search"), st.just({}), id=_opaque, provider_details=_details),
    st.builds(BuiltinToolReturnPart, st.just("web_search"), st.just({}), id=_opaque, provider_details=_details),
    st.builds(FilePart, st.just("QQ=="), st.just("image/png"), id=_opaque, signature=_opaque),
    st.builds(CompactionPart, st.none() | st.just("words"), signature=_opaque, id=_opaque, provider_details=_details),
    st.builds(OpaquePart, st.just("x"), st.just({"type": "x", "id": MARK, "data": MARK}), id=_opaque),
    st.builds(RefusalPart, st.just("no"), id=_opaque),
)  # fmt: skip


@given(
    st.lists(_parts, max_size=5),
    st.sampled_from([ELSEWHERE, None, Origin(OPENAI, "openai_responses", "n"), Origin("x", "openai_responses", "m")]),
    st.sampled_from(sorted(ROWS)),
    st.sampled_from(["drop", "field"]),
    st.booleans(),
)  # fmt: skip
def test_opaque_data_is_not_sent_to_another_origin(
    parts: list[ModelResponsePart], made_by: Origin | None, row: str, foreign: Any, ids: bool
) -> None:
    profile = msgspec.structs.replace(ROWS[row], foreign=foreign)
    call = ModelCall("m", [ModelResponse(parts, origin=made_by)], settings={"openai_send_reasoning_ids": ids})  # type: ignore[typeddict-unknown-key]
    body = encode(call, profile, Origin(row, "openai_responses", "m"))
    assert MARK not in msgspec.json.encode(body).decode()


@given(st.lists(_parts, max_size=6), st.sampled_from(sorted(ROWS)), st.booleans())
def test_reasoning_is_always_followed_by_an_item_and_ids_follow_the_setting(
    parts: list[ModelResponsePart], row: str, ids: bool
) -> None:
    target = Origin(row, "openai_responses", "m")
    call = ModelCall("m", [ModelResponse(parts, origin=target)], settings={"openai_send_reasoning_ids": ids})  # type: ignore[typeddict-unknown-key]
    out = encode(call, ROWS[row], target)["input"]
    if out:
        assert out[-1].get("type") != "reasoning"
    for item in out:
        if item.get("type") == "reasoning":
            assert item.get("encrypted_content") or ROWS[row].replay_field or ROWS[row].store is not False
        if not ids and item.get("type") in ("message", "function_call", None):
            assert "id" not in item


def test_raw_reasoning_is_sent_back_unchanged() -> None:
    part = ThinkingPart("r", id="rs")
    (reasoning, _) = sent(ModelResponse([part, TEXT], origin=origin(OPEN_WEIGHT)), row=OPEN_WEIGHT)
    assert reasoning == {"type": "reasoning", "id": "rs", "summary": [], "content": raw("r")}
    (reasoning, _) = sent(ModelResponse([SUMMARY, TEXT], origin=origin(OPEN_WEIGHT)), row=OPEN_WEIGHT)
    assert reasoning == {"type": "reasoning", "id": "rs", "summary": summary("s")}
