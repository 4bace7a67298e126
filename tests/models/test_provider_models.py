"""Models by name: the profile, key and URL that they use by default, and the errors if these are missing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pellucid.errors import ConfigError, RequestError
from pellucid.fold import fold
from pellucid.models import Model, infer_model
from pellucid.models.anthropic import AnthropicModel
from pellucid.models.bedrock import BedrockConverseModel, BedrockModel
from pellucid.models.cohere import CohereModel
from pellucid.models.google import GoogleModel
from pellucid.models.groq import GroqModel
from pellucid.models.huggingface import HuggingFaceModel
from pellucid.models.local import LocalModel
from pellucid.models.mistral import MistralModel
from pellucid.models.ollama import OllamaModel
from pellucid.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pellucid.models.provider import ProviderModel
from pellucid.parts import ModelRequest, ModelResponse, UserPromptPart
from pellucid.providers.profiles import builtin_profiles, load_profiles
from pellucid.settings import ModelCall
from pellucid.upstream import UpstreamClient
from tests.scripted import Upstream
from tests.scripted.upstream import Call, delta
from tests.scripted_runs import turn_of

ROWS = builtin_profiles()
QUESTION = ModelCall("", [ModelRequest([UserPromptPart("q")])])
CLASSES: list[tuple[type[ProviderModel], str, str]] = [
    (OpenAIChatModel, "openai", "https://api.openai.com/v1/chat/completions"),
    (OpenAIResponsesModel, "openai-responses", "https://api.openai.com/v1/responses"),
    (AnthropicModel, "anthropic", "https://api.anthropic.com/v1/messages"),
    (
        GoogleModel,
        "google",
        "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse",
    ),
    (GroqModel, "groq", "https://api.groq.com/openai/v1/chat/completions"),
    (MistralModel, "mistral", "https://api.mistral.ai/v1/chat/completions"),
    (CohereModel, "cohere", "https://api.cohere.com/v2/chat"),
    (HuggingFaceModel, "huggingface", "https://router.huggingface.co/v1/chat/completions"),
    (BedrockConverseModel, "bedrock", "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse-stream"),
    (OllamaModel, "ollama", "http://127.0.0.1:11434/v1/chat/completions"),
]


@pytest.fixture(autouse=True)
def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove keys and regions from the environment of the test process."""
    names = {name for row in ROWS.values() for name in (*row.api_key_env, *row.base_url_env)}
    for name in [*names, "AWS_REGION", "AWS_DEFAULT_REGION"]:
        monkeypatch.delenv(name, raising=False)


async def answer_of(model: Model, call: ModelCall = QUESTION) -> ModelResponse:
    response = fold([*await turn_of(await model.open(call))]).response
    assert response is not None
    return response


# --- defaults ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "row", "url"), CLASSES)
def test_every_class_has_its_profile_and_url(cls: type[ProviderModel], row: str, url: str) -> None:
    model = cls("m", account="team")
    assert (model.profile.name, model.origin.provider, model.origin.account) == (row, row, "team")
    assert model.model_name == model.name == model.origin.model == "m"
    assert model.request(QUESTION.__class__("m", QUESTION.messages)).url == url
    assert cls.__doc__


@pytest.mark.parametrize(("cls", "row", "url"), CLASSES)
def test_a_missing_key_is_an_error_of_the_call_not_of_the_constructor(
    cls: type[ProviderModel], row: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = cls("m")
    names = ROWS[row].api_key_env
    if ROWS[row].auth in ("optional", "aws"):
        assert model.api_key() is None
    else:
        with pytest.raises(RequestError) as refused:
            asyncio.run(model.open(QUESTION))
        assert refused.value.info.kind == "unauthorized"
        assert all(name in refused.value.info.message for name in names)
    monkeypatch.setenv(names[-1], "found\n")
    assert model.api_key() == "found"
    assert cls("m", api_key="given").api_key() == "given"


def test_another_base_url_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OpenAIChatModel("m", base_url="http://127.0.0.1:1/v1").api_key() is None
    monkeypatch.setenv("OPENAI_BASE_URL", "http://10.0.0.1/v1/")
    model = OpenAIResponsesModel("m")
    assert model.api_key() is None
    assert model.request(QUESTION).url == "http://10.0.0.1/v1/responses"


def test_a_profile_without_a_base_url_requires_one() -> None:
    with pytest.raises(RequestError, match="base_url"):
        GoogleModel("m", profile="google-vertex", api_key="k").request(QUESTION)


def test_the_region_of_bedrock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BedrockModel is BedrockConverseModel
    assert "//bedrock-runtime.eu-west-1." in BedrockConverseModel("m", region="eu-west-1").request(QUESTION).url
    monkeypatch.setenv("AWS_REGION", "cn-north-1")
    assert (
        BedrockConverseModel("m")
        .request(QUESTION)
        .url.startswith("https://bedrock-runtime.cn-north-1.amazonaws.com.cn/")
    )
    assert BedrockConverseModel("m", base_url="http://host").request(QUESTION).url.startswith("http://host/")


# --- profiles and tags -------------------------------------------------------------------------------------------


def test_a_profile_is_a_name_or_a_row() -> None:
    assert OpenAIChatModel("m", profile="deepseek").origin.provider == "deepseek"
    assert OpenAIChatModel("m", profile=ROWS["vllm"]).profile.thinking == "template"
    assert OllamaModel("m", profile="ollama-native").request(QUESTION).url.endswith("/api/chat")
    with pytest.raises(ConfigError, match="did you mean 'deepseek'"):
        OpenAIChatModel("m", profile="deepsek")
    with pytest.raises(ConfigError, match="has the wire anthropic, and OpenAIChatModel supports openai_chat"):
        OpenAIChatModel("m", profile="anthropic")


def test_tags_may_be_a_pair_of_markers_in_toml() -> None:
    rows = load_profiles({"mine": {"extends": "vllm", "tags": ["<reflect>", "</reflect>"]}}, ROWS)
    assert rows["mine"].for_model("m").tags == ("<reflect>", "</reflect>")
    for wrong in (["<a>", " "], ["<a>"], ["<a>", "</a>", "x"], 3, "nosuch"):
        with pytest.raises(ConfigError, match=r"profiles\.mine\.tags"):
            load_profiles({"mine": {"tags": wrong}}, ROWS)


@pytest.mark.parametrize("cls", [OpenAIChatModel, HuggingFaceModel])
def test_thinking_tags(cls: type[ProviderModel], upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        for piece in ("<ref", "lect>why", " so</ref", "lect>\n\nbe", "cause"):
            await call.event(delta(content=piece))
        await call.event(delta("stop"))
        await call.end()

    def model(tags: Any) -> ProviderModel:
        name = upstream.plays(script)
        return cls(name, base_url=f"{upstream.url}", api_key="k", thinking_tags=tags)

    for tags in (("<reflect>", "</reflect>"), (" <reflect>", "</reflect>\n")):
        answer = asyncio.run(answer_of(model(tags)))
        assert (answer.thinking, answer.text) == ("why so", "because")
    answer = asyncio.run(answer_of(model(None)))
    assert answer.thinking is None
    assert "<reflect>why so</reflect>" in (answer.text or "")
    for wrong in (("", "</x>"), "nosuch"):
        with pytest.raises(ConfigError, match="thinking_tags"):
            cls("m", thinking_tags=wrong)
    # `thinking_tags` takes precedence over the profile.
    assert HuggingFaceModel("m", thinking_tags="mistral").profile.for_model("m").tags == "mistral"


def test_a_model_works_in_several_loops_and_settings_are_merged_by_key(upstream: Upstream) -> None:
    seen: list[dict[str, Any]] = []

    async def script(call: Call) -> None:
        seen.append(call.body)
        await call.head()
        await call.event(delta("stop", content="hi"))
        await call.end()

    name = upstream.plays(script)
    own = {"temperature": 0.1, "max_tokens": 5, "logit_bias": {"1": 1}}
    model = OpenAIChatModel(name, profile="vllm", base_url=upstream.url, settings=own)  # type: ignore[arg-type]
    call = ModelCall("", QUESTION.messages, {"temperature": 0.9, "logit_bias": {"2": 2}})
    for _ in range(2):
        assert asyncio.run(answer_of(model, call)).text == "hi"
    for body in seen:
        assert {name: body[name] for name in own} == {"temperature": 0.9, "max_tokens": 5, "logit_bias": {"2": 2}}
    assert len(seen) == 2


def test_a_transport_passed_in_is_used_and_left_open(upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta("stop", content="hi"))
        await call.end()

    async def main() -> None:
        transport = UpstreamClient()
        model = OpenAIChatModel(upstream.plays(script), base_url=upstream.url, api_key="k", transport=transport)
        assert (await answer_of(model)).text == "hi"
        assert not transport.is_closed
        await transport.aclose()

    asyncio.run(main())


# --- model specs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "cls", "row"),
    [
        ("openai:gpt-5", OpenAIResponsesModel, "openai-responses"),
        ("openai-chat:gpt-5", OpenAIChatModel, "openai"),
        ("openai-responses:gpt-5", OpenAIResponsesModel, "openai-responses"),
        ("anthropic:claude-sonnet-4-0", AnthropicModel, "anthropic"),
        ("google-gla:gemini-2.5-pro", GoogleModel, "google"),
        ("google:gemini-2.5-pro", GoogleModel, "google"),
        ("groq:qwen-qwq-32b", GroqModel, "groq"),
        ("mistral:magistral-medium", MistralModel, "mistral"),
        ("cohere:command-a-reasoning-08-2025", CohereModel, "cohere"),
        ("huggingface:Qwen/Qwen3-32B:groq", HuggingFaceModel, "huggingface"),
        ("bedrock:us.anthropic.claude-sonnet-4-20250514-v1:0", BedrockConverseModel, "bedrock"),
        ("ollama:qwen3:8b", OllamaModel, "ollama"),
        ("deepseek:deepseek-v4-pro", OpenAIChatModel, "deepseek"),
        ("openrouter:anthropic/claude-sonnet-4", OpenAIChatModel, "openrouter"),
        ("moonshotai:kimi-k2", OpenAIChatModel, "kimi"),
        ("deepseek-anthropic:x", AnthropicModel, "deepseek-anthropic"),
    ],
)
def test_a_model_spec_names_class_and_profile(spec: str, cls: type[ProviderModel], row: str) -> None:
    model = infer_model(spec)
    assert type(model) is cls
    assert (model.profile.name, model.name) == (row, spec.partition(":")[2])


def test_every_profile_can_be_named() -> None:
    for row in ROWS:
        model = infer_model(f"{row}:m", account="a")
        assert isinstance(model, ProviderModel)
        assert model.profile.name == ("openai-responses" if row == "openai" else row)


def test_a_model_instance_is_returned_unchanged() -> None:
    model = OpenAIChatModel("m")
    assert infer_model(model) is model


def test_the_embedded_model_can_be_named() -> None:
    model = infer_model("local:default")
    assert isinstance(model, LocalModel)
    assert infer_model(f"local:{model.name}").name == model.name
    with pytest.raises(ConfigError, match="there are: "):
        infer_model("local:nosuch")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("gpt-5", "openai:gpt-5"),
        ("claude-sonnet-4-0", "anthropic:claude-sonnet-4-0"),
        ("", "PROVIDER:MODEL"),
        ("openai:", "PROVIDER:MODEL"),
        ("antropic:claude-sonnet-4-0", "did you mean anthropic"),
        ("qqqqq:x", "there are: "),
    ],
)
def test_an_invalid_model_spec_is_an_error_with_a_suggestion(spec: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        infer_model(spec)
    assert expected in str(caught.value)
