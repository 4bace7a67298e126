"""Every key of a profile has an effect in a row of an operator: on a request that leaves, or on what is decoded.

A case is a row, the key with another value than that of the row, and the one place in which the difference is seen. A
key without a case fails `test_every_key_has_a_case`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import fields

from pellucid.errors import ErrorInfo, ModelError, PellucidError
from pellucid.fold import fold
from pellucid.models.media import MediaModel
from pellucid.parts import (
    Image,
    ModelRequest,
    ModelResponse,
    Origin,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.server.catalog import Catalog
from pellucid.server.config import check_config
from pellucid.settings import ModelCall, ToolChoice, ToolDefinition
from pellucid.upstream import UpstreamClient
from tests.providers.wire_kit import chunk, sse

ENVIRON = {"LAB_KEY": "key of the lab", "LAB_URL": "http://elsewhere", "OPENAI_BASE_URL": "http://not-read"}
CHAT = {"base_url": "http://up/v1", "api_key_env": ["LAB_KEY"]}
CLAUDE = CHAT | {"wire": "anthropic", "thinking_mode": "adaptive", "max_tokens_default": 100}
RESPONSES = CHAT | {"wire": "openai_responses"}
BEDROCK = CHAT | {"wire": "bedrock"}

HELLO = ModelRequest([UserPromptPart("Hi.")])
TOOL = ToolDefinition("f", {"type": "object", "properties": {}})


def call(**settings: Any) -> ModelCall:
    return ModelCall("m", [HELLO], settings)  # type: ignore[arg-type]


def later(*parts: Any, wire: str = "openai_chat", provider: str = "mine", **settings: Any) -> ModelCall:
    """Return the call after a response with these parts, and after the results of its calls."""
    origin = Origin(provider, wire, "m")
    results = [ToolReturnPart("f", "4", part.tool_call_id) for part in parts if isinstance(part, ToolCallPart)]
    follow_up = ModelRequest([*results] if results else [UserPromptPart("And?")])
    messages = [HELLO, ModelResponse([*parts], origin=origin), follow_up]
    return ModelCall("m", messages, settings, (TOOL,) if results else ())  # type: ignore[arg-type]


THOUGHT, ANSWER = ThinkingPart("Hm."), TextPart("Yes.")
SIGNED = ThinkingPart("Hm.", signature="sig")
CALL = ToolCallPart("f", "{}", "c1")
FORCED = msgspec.structs.replace(call(thinking="low"), tools=(TOOL,), tool_choice=ToolChoice("required"))


def stream(*deltas: dict[str, Any], usage: dict[str, Any] | None = None) -> bytes:
    last = [{"choices": [], "usage": usage}] if usage else []
    return sse(*(chunk(**delta) for delta in deltas), chunk("stop"), *last)


def events(*frames: dict[str, Any]) -> bytes:
    return "".join(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n" for frame in frames).encode()


REASONING_ITEM = {"type": "reasoning", "id": "rs", "summary": []}
LATE_END = events(
    {"type": "response.created", "response": {"id": "r", "model": "m"}},
    {"type": "response.output_item.added", "output_index": 0, "item": REASONING_ITEM},
    {"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "Hm."},
    {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "id": "m", "content": []}},
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "Yes."},
)
SEARCH = {
    "type": "custom_tool_call",
    "id": "i",
    "call_id": "c",
    "name": "x_search",
    "input": "q",
    "status": "completed",
}
SEARCHED = events({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [SEARCH]}})
USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 2}}


class Case(NamedTuple):
    key: str
    row: dict[str, Any]
    value: Any
    place: str
    """The path of what changes, in what `observe` returns."""
    before: Any
    after: Any
    call: ModelCall = ModelCall("m", [HELLO])
    response: bytes = b""


CASES = [
    Case(
        "title", CHAT, "The lab", "warnings.0",
        "anthropic_thinking: it is a setting of Anthropic, and m is called over mine",
        "anthropic_thinking: it is a setting of Anthropic, and m is called over The lab",
        call(anthropic_thinking={"type": "disabled"}),
    ),
    Case("wire", CHAT, "ollama", "body.stream_options", {"include_usage": True}, None),
    # Address and credentials.
    Case("base_url", CHAT, "http://lab/v1", "url", "http://up/v1/chat/completions", "http://lab/v1/chat/completions"),
    Case("path", CHAT, "/answers", "url", "http://up/v1/chat/completions", "http://up/v1/answers"),
    Case(
        "base_url_env", CHAT, ["NO_SUCH", "LAB_URL"], "url",
        "http://up/v1/chat/completions", "http://elsewhere/chat/completions",
    ),
    Case(
        "base_url_env_path", CHAT | {"base_url_env": ["LAB_URL"]}, "/v2", "url",
        "http://elsewhere/chat/completions", "http://elsewhere/v2/chat/completions",
    ),
    Case(
        "api_key_env", {"base_url": "http://up/v1"}, ["LAB_KEY"], "headers.Authorization",
        None, "Bearer key of the lab",
    ),
    Case("default_fields", CHAT, {"options.keep": True}, "body.options", None, {"keep": True}),
    Case("auth", CHAT, "api-key", "headers.api-key", None, "key of the lab"),
    Case(
        "path_whole", CHAT, "/whole", "url", "http://up/v1/chat/completions", "http://up/v1/whole",
        ModelCall("m", [HELLO], stream=False),
    ),
    Case("model_in", CLAUDE, "path", "body.model", "m", None),
    Case("stream_in", CLAUDE, "path", "body.stream", True, None),
    Case("api_version", CLAUDE, "2030-01-01", "headers.anthropic-version", None, "2030-01-01"),
    Case("betas", CLAUDE, ["new"], "headers.anthropic-beta", None, "new"),
    # Decoding of responses.
    Case(
        "reasoning_fields", CHAT, ["my_thoughts"], "parts.0", ["text", "Yes."], ["thinking", "Hm."],
        response=stream({"my_thoughts": "Hm."}, {"content": "Yes."}),
    ),
    Case(
        "merge", CHAT, "cumulative", "parts.0", ["thinking", "HmHm, 4"], ["thinking", "Hm, 4"],
        response=stream({"reasoning": "Hm"}, {"reasoning": "Hm, 4"}),
    ),
    Case(
        "repeats", CHAT, "drop", "parts.0", ["thinking", "Hm.Hm."], ["thinking", "Hm."],
        response=stream({"reasoning": "Hm."}, {"reasoning": "Hm."}),
    ),
    Case(
        "tags", CHAT, ["<hm>", "</hm>"], "parts.0", ["text", "<hm>Hm.</hm>Yes."], ["thinking", "Hm."],
        response=stream({"content": "<hm>Hm.</hm>Yes."}),
    ),
    Case(
        "implicit_start", CHAT | {"tags": "think"}, "always", "parts.0",
        ["text", "Hm.</think>Yes."], ["thinking", "Hm."],
        response=stream({"content": "Hm.</think>Yes."}),
    ),
    Case(
        "reasoning_tokens", CHAT, "outside", "usage.output_tokens", 5, 7,
        response=stream({"content": "Yes."}, usage=USAGE),
    ),
    Case("item_end", RESPONSES, "next", "last_event", "part_delta thinking", "part_delta text", response=LATE_END),
    Case(
        "server_tools", RESPONSES, ["custom_tool_call"], "parts.0.0", "tool-call", "builtin-tool-call",
        response=SEARCHED,
    ),
    Case("form", CHAT, "summary", "forms.0", "raw", "summary", response=stream({"reasoning": "Hm."})),
    # Lists of models, and counts of tokens.
    Case("models_path", CHAT, "/list", "models_url", "http://up/v1/models", "http://up/v1/list"),
    Case("count_path", CLAUDE, "/count", "count_url", None, "http://up/v1/count"),
    # Encoding of requests.
    Case("max_tokens", CHAT, "max_completion_tokens", "body.max_completion_tokens", None, 9, call(max_tokens=9)),
    Case("thinking", CHAT, "effort", "body.reasoning_effort", None, "low", call(thinking="low")),
    Case(
        "effort_field", CHAT | {"thinking": "effort"}, "options.level", "body.options.level", None, "low",
        call(thinking="low"),
    ),
    Case(
        "efforts", CHAT | {"thinking": "effort"}, ["high"], "body.reasoning_effort", "low", "high",
        call(thinking="low"),
    ),
    Case(
        "effort_on", CHAT | {"thinking": "effort"}, "medium", "body.reasoning_effort", None, "medium",
        call(thinking=True),
    ),
    Case(
        "thinking_on", CHAT | {"thinking": "thinking_type"}, "auto", "body.thinking.type", "enabled", "auto",
        call(thinking=True),
    ),
    Case(
        "template_switches", CHAT | {"thinking": "template"}, ["think"], "body.chat_template_kwargs.think", None, True,
        call(thinking=True),
    ),
    Case(
        "budget_field", CHAT | {"thinking": "template"}, "budget", "body.budget", None, 9, call(thinking_budget=9),
    ),
    Case("thinking_mode", CLAUDE, "budget", "body.thinking.type", "adaptive", "enabled", call(thinking="low")),
    Case(
        "thinking_off", CLAUDE, "between_tools", "body.thinking.type", "disabled", "between_tools",
        call(thinking=False),
    ),
    Case(
        "thinking_display", CLAUDE, "summarized", "body.thinking.display", None, "summarized", call(thinking="low"),
    ),
    Case(
        "budgets", CLAUDE | {"thinking_mode": "budget"}, {"low": 3000}, "body.thinking.budget_tokens", 1024, 3000,
        call(thinking="low"),
    ),
    Case("max_tokens_default", CLAUDE, 200, "body.max_tokens", 100, 200),
    Case("sampling", CHAT, "never", "body.temperature", 0.5, None, call(temperature=0.5)),
    Case(
        "forced_calls", CHAT, "without_thinking", "error", None,
        "this model cannot be made to call a tool while it thinks; "
        "tool_choice must be auto or none, or thinking switched off",
        FORCED,
    ),
    Case("knows", CHAT, ["top_k"], "body.top_k", None, 5, call(top_k=5)),
    Case("own", CHAT, {"lab_mode": "options.mode"}, "body.options.mode", None, "x", call(lab_mode="x")),
    Case(
        "media", CHAT, "inline", "error", None, "http://127.0.0.1:1 could not be fetched from (ClientConnectorError)",
        ModelCall("m", [ModelRequest([UserPromptPart([Image(url="http://127.0.0.1:1/a.png")])])]),
    ),
    Case(
        "system_role", CHAT, "developer", "body.messages.0.role", "system", "developer",
        ModelCall("m", [ModelRequest([UserPromptPart("Hi.")], instructions="Be brief.")]),
    ),
    Case("stream_usage", CHAT, False, "body.stream_options", {"include_usage": True}, None),
    Case("store", RESPONSES, False, "body.store", None, False),
    Case("include", RESPONSES, ["reasoning.encrypted_content"], "body.include.0", None, "reasoning.encrypted_content"),
    Case(
        "native_forms", RESPONSES, False, "body.input.0.type", "input_of_its_own", None,
        ModelCall(
            "m",
            [
                ModelRequest(
                    [UserPromptPart([Text("Hi.", wire_fields={"openai_responses": {"type": "input_of_its_own"}})])]
                )
            ],
        ),
    ),
    # History.
    Case(
        "replay", CHAT, "field", "body.messages.1.reasoning_content", None, "Hm.", later(THOUGHT, ANSWER),
    ),
    Case(
        "replay_on", CHAT | {"replay": "field", "thinking": "effort"}, "thinking", "body.messages.1.reasoning_content",
        "Hm.", None, later(THOUGHT, ANSWER, thinking=False),
    ),
    Case(
        "replay_unsigned", CHAT | {"replay": "field"}, False, "body.messages.1.reasoning_content", "Hm.", None,
        later(THOUGHT, ANSWER),
    ),
    Case(
        "replay_field", CHAT | {"replay": "field"}, "thoughts", "body.messages.1.thoughts", None, "Hm.",
        later(THOUGHT, ANSWER),
    ),
    Case(
        "replay_also", CHAT | {"replay": "field"}, ["thoughts"], "body.messages.1.thoughts", None, "Hm.",
        later(THOUGHT, ANSWER),
    ),
    Case(
        "replay_signature", CHAT | {"replay": "field"}, "proof", "body.messages.1.proof", None, "sig",
        later(SIGNED, ANSWER),
    ),
    Case(
        "foreign", CHAT | {"replay": "field"}, "field", "body.messages.1.reasoning_content", None, "Hm.",
        later(THOUGHT, ANSWER, provider="other"),
    ),
    Case("lost", CHAT | {"replay": "field"}, "space", "body.messages.1.reasoning_content", None, " ", later(CALL)),
    Case(
        "sentinel", CHAT | {"replay": "field", "lost": "sentinel"}, "(lost)", "body.messages.1.reasoning_content",
        "", "(lost)", later(CALL),
    ),
    Case(
        "lost_on", CHAT | {"replay": "field", "lost": "space"}, "all", "body.messages.1.reasoning_content", None, " ",
        later(ANSWER),
    ),
    Case(
        "interleaved_calls", RESPONSES, False, "body.input.1.role", None, "assistant",
        later(CALL, ANSWER, ToolCallPart("f", "{}", "c2"), wire="openai_responses"),
    ),
    Case(
        "thinking_fields", CHAT | {"thinking": "reasoning_object"}, {"temperature": 1}, "body.temperature", 0.5, 1,
        call(thinking="low", temperature=0.5),
    ),
    Case(
        "functions_stop_thinking", CHAT | {"thinking": "effort"}, True, "body.reasoning_effort", "low", "none",
        msgspec.structs.replace(call(thinking="low"), tools=(TOOL,)),
    ),
    Case(
        "results_alone", BEDROCK, True, "body.messages.3.role", None, "assistant",
        msgspec.structs.replace(
            later(CALL, wire="bedrock"), messages=[*later(CALL, wire="bedrock").messages, HELLO]
        ),
    ),
    Case(
        "result_status", BEDROCK, False, "body.messages.2.content.0.toolResult.status", "success", None,
        later(CALL, wire="bedrock"),
    ),
    Case(
        "lost_stops_thinking", CLAUDE | {"thinking_mode": "budget"}, True, "body.thinking.type", "enabled", None,
        later(CALL, wire="anthropic", thinking="low"),
    ),
    Case("accepts", CHAT, ["image"], "accepts", None, frozenset({"image"})),
    Case(
        "models", CHAT, [{"match": "M*", "max_tokens": "max_completion_tokens"}], "body.max_completion_tokens", None, 9,
        call(max_tokens=9),
    ),
]  # fmt: skip


class Transport(UpstreamClient):
    """Records requests. None is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, dict[str, str], Any]] = []
        self.lists: list[str] = []

    async def open(self, url: str, headers: Any, body: bytes, *limits: Any) -> Any:
        self.sent.append((url, dict(headers), json.loads(body)))
        raise ModelError(ErrorInfo("model_error", "recorded"))

    async def get(self, url: str, headers: Any) -> Any:
        self.lists.append(url)
        return 200, b"{}"


async def observe(row: dict[str, Any], case: Case) -> dict[str, Any]:
    """Return what an upstream and a client see of a provider with this row: what leaves, and what is decoded."""
    table = {"profiles": {"mine": row}, "providers": {"mine": {}}, "egress": {"allow": ["127.0.0.1"]}}
    config = check_config(table, ENVIRON)
    transport = Transport()
    catalog = Catalog(config, transport)
    _, model = catalog.find("mine:m")
    assert isinstance(model, MediaModel)
    seen: dict[str, Any] = {"warnings": model.warnings(case.call), "accepts": catalog.accepted_media(model)}
    try:
        await model.open(case.call)
    except PellucidError as error:
        seen["error"] = None if error.info.message == "recorded" else error.info.message
    if transport.sent:
        seen["url"], seen["headers"], seen["body"] = transport.sent.pop()
    await catalog.served_names()
    seen["models_url"] = transport.lists.pop() if transport.lists else None
    try:
        await model.count_tokens(case.call)
    except PellucidError:
        seen["count_url"] = transport.sent.pop()[0]
    if case.response:
        seen |= decode(config.all_profiles()["mine"].for_model("m"), case.response)
    return seen


def decode(profile: Profile, data: bytes) -> dict[str, Any]:
    decoder = WIRES[profile.wire].decoder(profile, Origin("mine", profile.wire, "m"))
    before_end = decoder.feed(data)
    response = fold([*before_end, *decoder.end()]).response
    assert response is not None
    last: Any = before_end[-1] if before_end else None
    return {
        "parts": [[part.part_kind, getattr(part, "content", None)] for part in response.parts],
        "forms": [part.form for part in response.parts if isinstance(part, ThinkingPart)],
        "usage": msgspec.to_builtins(response.usage),
        "last_event": f"{last.event_kind} {last.delta.part_delta_kind}" if hasattr(last, "delta") else None,
    }


def at(value: Any, place: str) -> Any:
    for name in place.split("."):
        if isinstance(value, list):
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)


def test_every_key_has_a_case() -> None:
    builtin_only = {"name", "aliases", "model_families", "telemetry_name"}
    keys = [case.key for case in CASES]
    assert sorted(keys) == sorted({field.name for field in fields(Profile)} - builtin_only)
    for case in CASES:
        default = case.row.get(case.key, msgspec.to_builtins(Profile())[case.key])
        assert case.value != default, case.key


@pytest.mark.parametrize("case", CASES, ids=[case.key for case in CASES])
def test_a_key_of_an_operators_row_has_an_effect(case: Case) -> None:
    before = asyncio.run(observe(case.row, case))
    after = asyncio.run(observe(case.row | {case.key: case.value}, case))
    assert (at(before, case.place), at(after, case.place)) == (case.before, case.after)


FOR_MODELS = [case for case in CASES if case.key not in ("title", "wire", "models", "models_path")]


@pytest.mark.parametrize("case", FOR_MODELS, ids=[case.key for case in FOR_MODELS])
def test_a_key_has_the_same_effect_for_some_models_only(case: Case) -> None:
    row = case.row | {"models": [{"match": "m", case.key: case.value}]}
    assert at(asyncio.run(observe(row, case)), case.place) == case.after
    row = case.row | {"models": [{"match": "other", case.key: case.value}]}
    assert at(asyncio.run(observe(row, case)), case.place) == case.before


# --- addresses -----------------------------------------------------------------------------------------------------


def test_a_row_with_an_address_of_its_own_has_no_variables_of_another_one() -> None:
    """Otherwise the key of one provider would go to the address of another."""
    for name, variables in {
        "xai-responses": (),
        "copilot-responses": (),
        "google-vertex": (),
        "anthropic-vertex": (),
        "azure": ("OPENAI_BASE_URL",),
        "openai-responses": ("OPENAI_BASE_URL",),
        "groq": ("GROQ_BASE_URL",),
    }.items():
        assert builtin_profiles()[name].base_url_env == variables, name


@pytest.mark.parametrize("base", ["openai-chat", "openai-responses"])
def test_a_gateway_reads_no_variables_that_only_builtin_rows_name(base: str) -> None:
    case = next(case for case in CASES if case.key == "wire")
    seen = asyncio.run(observe({"extends": base, "api_key_env": ["LAB_KEY"]}, case))
    assert seen["url"].startswith("https://api.openai.com/v1/")
