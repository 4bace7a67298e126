"""Requests to Gemini: the body for a call."""

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
    UserContent,
    UserPromptPart,
    Video,
)
from pellucid.providers.google.encode import encode, headers, path
from pellucid.settings import ModelCall, OutputFormat, ToolChoice, ToolDefinition
from tests.providers_google.google_kit import GEMINI_3, GEMINI_25, ROWS, origin

HELLO = ModelRequest([UserPromptPart("hello")])
SENTINEL = "skip_thought_signature_validator"


def request(model: str = GEMINI_3, row: str = "google", **fields: Any) -> dict[str, Any]:
    fields.setdefault("messages", [HELLO])
    body = encode(ModelCall(model, **fields), ROWS[row].for_model(model), origin(row, model))
    msgspec.json.encode(body)
    return body


def request_fields(settings: dict[str, Any], model: str = GEMINI_3) -> dict[str, Any]:
    """Return the fields that settings add to the body."""
    body = request(model, settings=settings)
    del body["contents"]
    return body


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


# --- path and headers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "model", "stream", "there"),
    [
        ("google", "gemini-3-pro", True, "/models/gemini-3-pro:streamGenerateContent?alt=sse"),
        ("google", "models/gemini-3-pro", False, "/models/gemini-3-pro:generateContent"),
        ("google-vertex", "gemini-3-pro", True, "/publishers/google/models/gemini-3-pro:streamGenerateContent?alt=sse"),
        ("google-vertex", "gemini-3-pro", False, "/publishers/google/models/gemini-3-pro:generateContent"),
        ("google", "..x/y?key=1#", False, "/models/..x%2Fy%3Fkey%3D1%23:generateContent"),
    ],
)
def test_the_path_names_the_model_and_the_method(row: str, model: str, stream: bool, there: str) -> None:
    assert path(ModelCall(model, [HELLO], stream=stream), ROWS[row]) == there


@pytest.mark.parametrize("model", ["../x", "x/..", "models/./x", ".."])
def test_a_model_is_no_other_path(model: str) -> None:
    with pytest.raises(RequestError, match=r"no segment \. or \.\."):
        path(ModelCall(model, [HELLO]), ROWS["google"])


def test_authentication_headers() -> None:
    assert headers(ROWS["google"], "k", ModelCall("m", [HELLO])) == {"x-goog-api-key": "k"}
    assert headers(ROWS["google-vertex"], "k", ModelCall("m", [HELLO])) == {"Authorization": "Bearer k"}
    assert headers(ROWS["google"], None, ModelCall("m", [HELLO])) == {}


# --- settings ----------------------------------------------------------------------------------------------------


def test_a_minimal_request() -> None:
    assert request() == {"contents": [user({"text": "hello"})]}
    assert request(stream=False) == request(stream=True), "streaming is in the path"


def test_settings_have_googles_names() -> None:
    settings = {
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 1, "presence_penalty": 0.1,
        "frequency_penalty": 0.2, "stop_sequences": ["x"], "logprobs": True, "top_logprobs": 3,
    }  # fmt: skip
    assert request_fields(settings) == {
        "generationConfig": {
            "maxOutputTokens": 9, "temperature": 0.5, "topP": 0.9, "topK": 4, "seed": 1, "presencePenalty": 0.1,
            "frequencyPenalty": 0.2, "stopSequences": ["x"], "responseLogprobs": True, "logprobs": 3,
        }
    }  # fmt: skip


def test_settings_that_only_google_has() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    assert request_fields(
        {
            "google_safety_settings": safety, "google_cached_content": "cachedContents/1",
            "google_labels": {"my_team": "a"}, "google_video_resolution": "MEDIA_RESOLUTION_LOW",
        }
    ) == {
        "safetySettings": safety, "cachedContent": "cachedContents/1", "labels": {"my_team": "a"},
        "generationConfig": {"mediaResolution": "MEDIA_RESOLUTION_LOW"},
    }  # fmt: skip


def test_unsupported_settings_are_not_sent() -> None:
    assert request_fields({"timeout": 5.0, "user": "u", "metadata": {"a": "b"}, "parallel_tool_calls": False}) == {}


@pytest.mark.parametrize(("asks", "gets"), [("flex", "flex"), ("default", "standard"), ("auto", None)])
def test_service_tiers(asks: str, gets: str | None) -> None:
    assert request_fields({"service_tier": asks}).get("serviceTier") == gets
    assert request_fields({"service_tier": asks, "google_service_tier": "priority"})["serviceTier"] == "priority"


def test_an_extra_body_overrides_single_settings() -> None:
    body = request_fields(
        {"temperature": 1, "top_p": 0.5, "extra_body": {"generationConfig": {"temperature": 0}, "new": [1]}}
    )
    assert body == {"generationConfig": {"temperature": 0, "topP": 0.5}, "new": [1]}


# --- thought -----------------------------------------------------------------------------------------------------

SHOWN = {"includeThoughts": True}
# The fields for thinking on, off, minimal, xhigh and max.
THINKING_FIELDS: dict[str, tuple[Any, ...]] = {
    "gemini-3.1-pro-preview": (None, "low", "low", "high", "high"),
    "gemini-3-pro-preview": (None, "low", "low", "high", "high"),
    "gemini-3-flash-preview": (None, "minimal", "minimal", "high", "high"),
    "gemini-3.5-flash-lite": (None, "minimal", "minimal", "high", "high"),
    "gemini-3.6-flash": (None, "minimal", "minimal", "high", "high"),
    "gemini-3.8-flash": (None, "low", "low", "high", "high"),
    "gemini-4-hydrogen": (None, "low", "low", "high", "xhigh"),
    "gemini-2.5-flash": (-1, 0, 128, 24576, 24576),
    "gemini-2.5-flash-lite": (-1, 0, 512, 24576, 24576),
    "gemini-2.5-pro": (-1, 128, 128, 24576, 32768),
}


@pytest.mark.parametrize("model", THINKING_FIELDS)
@pytest.mark.parametrize("row", ROWS)
def test_thinking_levels(model: str, row: str) -> None:
    for level, amount in zip((True, False, "minimal", "high", "max"), THINKING_FIELDS[model], strict=True):
        wanted: dict[str, Any] = {} if level is False else dict(SHOWN)
        if amount is not None:
            wanted["thinkingLevel" if isinstance(amount, str) else "thinkingBudget"] = amount
        body = request(model, row, settings={"thinking": level})
        assert body["generationConfig"]["thinkingConfig"] == wanted, level
        assert request(model, row, settings={"thinking": "none"}) == request(model, row, settings={"thinking": False})


def test_models_without_thinking_get_no_thinking_config() -> None:
    for model in ("gemini-2.0-flash", "gemini-2.5-flash-image"):
        for level in (True, False, "high"):
            assert config({"thinking": level, "thinking_budget": 5}, model) is None


def config(settings: dict[str, Any], model: str = GEMINI_3) -> Any:
    return request_fields(settings, model).get("generationConfig", {}).get("thinkingConfig")


def test_googles_own_setting_takes_precedence_and_is_unchanged() -> None:
    own = {"include_thoughts": True, "thinking_budget": 2048}
    sent = {"includeThoughts": True, "thinkingBudget": 2048}
    assert config({"google_thinking_config": own, "thinking": "high"}) == sent
    assert config({"google_thinking_config": sent}) == sent, "in snake case and camel case"
    assert config({"google_thinking_config": {"thinking_level": "HIGH"}, "thinking": False}) == {
        "thinkingLevel": "HIGH"
    }
    assert config({"google_thinking_config": {}, "thinking": "high"}) is None


def test_a_budget_and_a_level_never_go_together() -> None:
    for model in (GEMINI_3, GEMINI_25):
        asks = config({"thinking": "high", "thinking_budget": 100}, model)
        assert asks == {"includeThoughts": True, "thinkingBudget": 100}
    assert config({"thinking_budget": 0}, GEMINI_25) == {"thinkingBudget": 0}


def test_thinking_summary_sets_include_thoughts() -> None:
    assert config({"thinking_summary": "auto"}) == SHOWN
    assert config({}) is None, "without settings, nothing is sent"


# --- tools and output --------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"a_b": {"type": "string"}}}
TOOLS = (ToolDefinition("f", SCHEMA, "does f"), ToolDefinition("g"))
F, G = {"name": "f", "description": "does f", "parametersJsonSchema": SCHEMA}, {"name": "g", "description": ""}


@pytest.mark.parametrize(
    ("choice", "declared", "config"),
    [
        (ToolChoice(), [F, G], None),
        (ToolChoice("none"), [F, G], {"mode": "NONE"}),
        (ToolChoice("required"), [F, G], {"mode": "ANY"}),
        (ToolChoice("required", ("f",)), [F, G], {"mode": "ANY", "allowedFunctionNames": ["f"]}),
        # Allowed tools without a forced call: only these are offered.
        (ToolChoice("auto", ("g",)), [G], None),
    ],
)
def test_tools(choice: ToolChoice, declared: list[Any], config: Any) -> None:
    body = request(tools=TOOLS, tool_choice=choice)
    assert body["tools"] == [{"functionDeclarations": declared}]
    assert body.get("toolConfig") == (None if config is None else {"functionCallingConfig": config})


def test_a_tool_choice_without_tools_is_not_sent() -> None:
    assert request(tool_choice=ToolChoice("required")) == request()
    with pytest.raises(RequestError, match="the tools are: f, g"):
        request(tools=TOOLS, tool_choice=ToolChoice("required", ("h",)))


def test_output_formats() -> None:
    json_only = {"responseMimeType": "application/json"}
    assert request(output=OutputFormat("json_object"))["generationConfig"] == json_only
    body = request(output=OutputFormat("json_schema", "n", SCHEMA), settings={"thinking": True})
    assert body["generationConfig"] == json_only | {"responseJsonSchema": SCHEMA, "thinkingConfig": SHOWN}


# --- user content ------------------------------------------------------------------------------------------------


def test_instructions_and_system_prompts_are_the_system_instruction() -> None:
    messages: list[ModelMessage] = [
        ModelRequest([SystemPromptPart("be brief"), UserPromptPart("hi")], instructions="be kind"),
        ModelResponse([TextPart("hello")]),
        ModelRequest([SystemPromptPart("be exact", "developer"), UserPromptPart("go on")], instructions="be kind"),
    ]
    body = request(messages=messages)
    assert body["systemInstruction"] == {"parts": [{"text": "be kind"}, {"text": "be brief"}, {"text": "be exact"}]}
    assert [content["role"] for content in body["contents"]] == ["user", "model", "user"]


@pytest.mark.parametrize(
    "messages", [[], [ModelRequest([SystemPromptPart("s")])], [ModelResponse([TextPart("a")])], [ModelRequest([])]]
)
def test_the_first_content_has_the_role_user(messages: list[ModelMessage]) -> None:
    assert request(messages=messages)["contents"][0] == user({"text": ""})


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        (Text("a"), {"text": "a"}),
        (Image(data="AA=="), {"inlineData": {"mimeType": "image/png", "data": "AA=="}}),
        (Image(url="data:image/gif;base64,AA=="), {"inlineData": {"mimeType": "image/gif", "data": "AA=="}}),
        (Image(url="https://x/y.png"), {"fileData": {"fileUri": "https://x/y.png"}}),
        (Video(url="gs://b/v", media_type="video/mp4"), {"fileData": {"fileUri": "gs://b/v", "mimeType": "video/mp4"}}),
        (Audio(data="AA==", media_type="audio/mp3"), {"inlineData": {"mimeType": "audio/mp3", "data": "AA=="}}),
        (File(file_id="https://x/files/1"), {"fileData": {"fileUri": "https://x/files/1"}}),
    ],
)  # fmt: skip
def test_media(content: UserContent, sent: dict[str, Any]) -> None:
    assert request(messages=[ModelRequest([UserPromptPart([content])])])["contents"] == [user(sent)]


@pytest.mark.parametrize("content", [Image(), File(filename="x"), Image(url="data:text/plain,hello")])
def test_media_that_cannot_be_sent(content: UserContent) -> None:
    with pytest.raises(RequestError, match="to be sent to Gemini"):
        request(messages=[ModelRequest([UserPromptPart([content])])])


# --- results of functions ----------------------------------------------------------------------------------------


def step(*calls: ToolCallPart) -> ModelResponse:
    return ModelResponse(list(calls), origin=origin())


def returned(name: str, response: Any, call_id: str = "") -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": response} | ({"id": call_id} if call_id else {})}


def test_results_follow_their_calls_in_one_content_and_in_their_order() -> None:
    """Also if they came one by one, in another order, without the function's name, and with a prompt of the user."""
    messages: list[ModelMessage] = [
        HELLO,
        step(ToolCallPart("f", {}, "1", signature="S"), ToolCallPart("g", {}, "2")),
        ModelRequest([UserPromptPart("both?"), ToolReturnPart("", "two", "2"), ToolReturnPart("f", {"one": 1}, "1")]),
    ]
    contents = request(messages=messages)["contents"]
    answers = user(returned("f", {"one": 1}, "1"), returned("g", {"output": "two"}, "2"))
    assert contents[2:] == [answers, user({"text": "both?"})]
    one_by_one = [*messages[:2], *(ModelRequest([ToolReturnPart(n, n, i)]) for n, i in (("f", "1"), ("g", "2")))]
    contents = request(messages=one_by_one)["contents"]
    assert contents[2:] == [user(returned("f", {"output": "f"}, "1"), returned("g", {"output": "g"}, "2"))]


@pytest.mark.parametrize(
    ("part", "response"),
    [
        (ToolReturnPart("f", "text"), {"output": "text"}),
        (ToolReturnPart("f", None), {"output": None}),
        (ToolReturnPart("f", [1, {"a_b": 2}]), {"output": [1, {"a_b": 2}]}),
        (ToolReturnPart("f", {"a_b": 2}), {"a_b": 2}),
        (ToolReturnPart("f", [Text("a")]), {"output": "a"}),
        (ToolReturnPart("f", "no such city", outcome="failed"), {"error": "no such city"}),
        (RetryPromptPart("city is missing", "f"), {"error": "city is missing"}),
    ],
)
def test_a_result_is_an_object(part: Any, response: Any) -> None:
    contents = request(messages=[HELLO, step(ToolCallPart("f", {})), ModelRequest([part])])["contents"]
    assert contents[2] == user(returned("f", response))


def test_media_that_a_function_returned() -> None:
    part = ToolReturnPart("f", [Text("a map"), Image(data="AA==")], "1")
    contents = request(messages=[HELLO, step(ToolCallPart("f", {}, "1")), ModelRequest([part])])["contents"]
    image = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    assert contents[2]["parts"] == [
        {"functionResponse": {"name": "f", "id": "1", "response": {"output": "a map"}, "parts": [image]}}
    ]


def test_a_retry_without_a_call_is_text() -> None:
    assert request(messages=[ModelRequest([RetryPromptPart("again")])])["contents"] == [user({"text": "again"})]


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        ('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1}), (None, {}), ("", {}),
        ("[1]", {"invalid_json": "[1]"}), ("{oops", {"invalid_json": "{oops"}),
    ],
)  # fmt: skip
def test_arguments_are_an_object(args: Any, sent: Any) -> None:
    (_, content) = request(messages=[HELLO, step(ToolCallPart("f", args, "1", signature="S"))])["contents"]
    assert content["parts"] == [{"functionCall": {"name": "f", "args": sent, "id": "1"}, "thoughtSignature": "S"}]


# --- replayed parts ----------------------------------------------------------------------------------------------

OWN = origin()
OTHERS = [
    Origin("anthropic", "anthropic", "claude"),
    Origin("google", "google", "gemini-2.5-pro"),
    Origin("google-vertex", "google", GEMINI_3),
    Origin("google", "google", GEMINI_3, "another account"),
]
DETAILS = {"thought_signature": "S"}
CODE, RESULT = {"code": "1", "language": "PYTHON"}, {"outcome": "OUTCOME_OK", "output": "1"}

IMAGE = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
SEARCH = {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["q"]}, "id": "i"}
CALL = {"functionCall": {"name": "f", "args": {}, "id": "1"}}
A, T = {"text": "a"}, {"text": "t", "thought": True}
NEW = {"hologram": 1, "thoughtSignature": "S"}
SIGNED = {"thoughtSignature": "S"}
GOOGLE: dict[str, Any] = {"provider_name": "google", "provider_details": DETAILS}

# A part; its form for the same origin; its form for another origin; its form if the origin is unknown.
SEND_BACK: list[tuple[ModelResponsePart, Any, Any, Any]] = [
    (ThinkingPart("t"), T, None, T),
    (ThinkingPart("t", signature="S"), T | SIGNED, None, T),
    (ThinkingPart("", signature="S"), {"text": "", "thought": True} | SIGNED, None, None),
    (ThinkingPart("so I", complete=False), None, None, None),
    (TextPart("a"), A, A, A),
    (TextPart("a", signature="S"), A | SIGNED, A, A),
    (TextPart("a", provider_details=DETAILS), A | SIGNED, A, A),
    (TextPart("", signature="S"), {"text": ""} | SIGNED, None, None),
    (RefusalPart("no"), {"text": "no"}, {"text": "no"}, {"text": "no"}),
    (ToolCallPart("f", {}, "1", signature="S"), CALL | SIGNED, CALL, CALL),
    (ToolCallPart("f", '{"a', "1", complete=False), None, None, None),
    (BuiltinToolCallPart("code_execution", CODE, "c", **GOOGLE), {"executableCode": CODE} | SIGNED, None, None),
    (
        BuiltinToolReturnPart("code_execution", RESULT, "c", **GOOGLE),
        {"codeExecutionResult": RESULT} | SIGNED,
        None,
        None,
    ),
    (BuiltinToolCallPart("web_search", {"queries": ["q"]}, "i", **GOOGLE), {"toolCall": SEARCH} | SIGNED, None, None),
    (
        BuiltinToolReturnPart("google_maps", {"r": 1}, "i", provider_name="google"),
        {"toolResponse": {"toolType": "GOOGLE_MAPS", "response": {"r": 1}, "id": "i"}},
        None,
        None,
    ),
    # Parts that were made from metadata; parts that Google refuses.
    (BuiltinToolCallPart("web_search", {}, "metadata:web_search", provider_name="google"), None, None, None),
    (BuiltinToolCallPart("media_processing", None, "i", provider_name="google"), None, None, None),
    (OpaquePart("thought_signature", {"thoughtSignature": "S"}), None, None, None),
    (OpaquePart("hologram", NEW), NEW, None, None),
    (FilePart("AA==", "image/png", signature="S"), IMAGE | SIGNED, IMAGE, IMAGE),
    (FilePart("AA==", "image/png", thought=True), None, None, None),
    (CompactionPart("earlier"), {"text": "earlier"}, {"text": "earlier"}, {"text": "earlier"}),
    (CompactionPart(signature="S"), None, None, None),
]


def sent_of(parts: list[ModelResponsePart], made_by: Origin | None) -> list[Any]:
    """Encode the parts in a turn that is over, in which no sentinel replaces a signature."""
    called = [part for part in parts if isinstance(part, ToolCallPart) and part.complete]
    returned = [ToolReturnPart(part.tool_name, "ok", part.tool_call_id) for part in called]
    messages = [HELLO, ModelResponse(parts, origin=made_by), ModelRequest([*returned, UserPromptPart("and?")])]
    contents = request(messages=messages)["contents"]
    return contents[1]["parts"] if contents[1]["role"] == "model" else []


@pytest.mark.parametrize(("part", "own", "foreign", "unknown"), SEND_BACK)
def test_replayed_parts_by_origin(part: ModelResponsePart, own: Any, foreign: Any, unknown: Any) -> None:
    assert sent_of([part], OWN) == ([own] if own else [])
    for other in OTHERS:
        assert sent_of([part], other) == ([foreign] if foreign else []), other
    assert sent_of([part], None) == ([unknown] if unknown else [])


def test_own_parts_are_replayed_in_order_and_not_merged() -> None:
    assert sent_of([part for part, *_ in SEND_BACK], OWN) == [own for _, own, *_ in SEND_BACK if own]


def test_sealed_reasoning_must_be_opened_first() -> None:
    with pytest.raises(RequestError, match="sealed"):
        sent_of([SealedPart("token")], OWN)


secrets = st.sampled_from(["SECRET-1", "SECRET-2"])
opaque: dict[str, Any] = {
    "signature": st.none() | secrets,
    "provider_name": st.sampled_from(["google", "SECRET-name"]),
    "provider_details": st.none() | st.builds(lambda s: {"thought_signature": s, "native": {"id": s}}, secrets),
    "id": st.none() | secrets,
}
unsigned = {name: strategy for name, strategy in opaque.items() if name != "signature"}
foreign_parts = st.one_of(
    st.builds(ThinkingPart, st.just("SECRET-thought"), **opaque),
    st.builds(TextPart, st.sampled_from(["", "text"]), **opaque),
    st.builds(ToolCallPart, st.just("f"), st.just("{}"), st.just("call_1"), **opaque),
    st.builds(FilePart, st.just("AA=="), st.just("image/png"), **opaque),
    st.builds(OpaquePart, st.just("x"), st.builds(lambda s: {"text": s}, secrets), id=secrets),
    st.builds(CompactionPart, st.none(), signature=secrets),
    st.builds(BuiltinToolCallPart, st.just("code_execution"), st.just({"code": "SECRET"}), **opaque),
    st.builds(BuiltinToolReturnPart, st.just("code_execution"), st.just({"output": "SECRET"}), **unsigned),
)


@given(st.lists(foreign_parts, max_size=6), st.sampled_from(OTHERS), st.booleans())
def test_foreign_opaque_data_is_never_sent(parts: list[ModelResponsePart], other: Origin, turn_is_over: bool) -> None:
    messages: list[ModelMessage] = [HELLO, ModelResponse(parts, origin=other)]
    if turn_is_over:
        messages.append(HELLO)
    assert b"SECRET" not in msgspec.json.encode(request(messages=messages))


# --- calls must be signed ----------------------------------------------------------------------------------------


def signatures(messages: list[ModelMessage], model: str = GEMINI_3) -> list[list[str | None]]:
    """Return the signatures of the calls of each step."""
    contents = request(model, messages=messages)["contents"]
    return [
        [part.get("thoughtSignature") for part in content["parts"] if "functionCall" in part]
        for content in contents
        if content["role"] == "model"
    ]


def test_the_first_unsigned_call_of_each_step_of_the_current_turn_gets_the_sentinel() -> None:
    ok = ModelRequest([ToolReturnPart("f", "ok", "1"), ToolReturnPart("g", "ok", "2")])
    unsigned, signed = ToolCallPart("f", {}, "1"), ToolCallPart("f", {}, "1", signature="S")
    second = ToolCallPart("g", {}, "2")
    assert signatures([HELLO, step(unsigned, second), ok, step(signed, second), ok, step(unsigned)]) == [
        [SENTINEL, None], ["S", None], [SENTINEL],
    ]  # fmt: skip
    # Earlier turns are not checked; a retry as text begins a turn, too.
    assert signatures([HELLO, step(unsigned), ok, HELLO, step(unsigned)]) == [[None], [SENTINEL]]
    assert signatures([HELLO, step(unsigned), ok, ModelRequest([RetryPromptPart("again")])]) == [[None]]
    assert signatures([HELLO, step(unsigned), ModelRequest([RetryPromptPart("again", "f", "1")])]) == [[SENTINEL]]


def test_a_call_of_another_model_gets_the_sentinel_and_not_its_signature() -> None:
    for other in OTHERS:
        calls = ModelResponse([TextPart("a", signature="S"), ToolCallPart("f", {}, "1", signature="S")], origin=other)
        assert signatures([HELLO, calls]) == [[SENTINEL]]


def test_models_that_do_not_check_get_no_sentinel() -> None:
    for model in ("gemini-2.5-pro", "gemini-2.0-flash", "gemma-4-26b-a4b-it"):
        assert signatures([HELLO, ModelResponse([ToolCallPart("f", {}, "1")])], model) == [[None]]
