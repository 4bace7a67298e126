"""The name of a provider is one profile, and one wire, in `Agent`, `serve`, `decode` and the configuration."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models import KnownModelName

from pellucid.cli.decode import profile_of_response
from pellucid.cli.options import read_options
from pellucid.errors import ConfigError
from pellucid.models.infer import infer_model
from pellucid.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pellucid.models.provider import ProviderModel
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles, hidden_row, load_profiles, named_profiles, telemetry_name
from pellucid.server.catalog import Catalog
from pellucid.server.config import Config, check_config
from pellucid.upstream import UpstreamClient
from tests.providers.wire_kit import chunk, sse

NAMES = sorted(named_profiles())
ELSEWHERE = "http://10.0.0.7/v1"

KNOWN_NAMES = {
    "openai": "openai-responses",
    "openai-responses": "openai-responses",
    "openai-chat": "openai",
    "google": "google",
    "google-gla": "google",
    "gemini": "google",
    "google-vertex": "google-vertex",
    "google-cloud": "google-vertex",
    "vertex_ai": "google-vertex",
    "xai": "xai",
    "grok": "xai",
    "moonshot": "kimi",
    "moonshotai": "kimi",
    "zhipu": "zai",
    "zhipuai": "zai",
    "dashscope": "qwen",
    "alibaba": "qwen",
    "litellm": "openai-compat",
    "together_ai": "together",
    "fireworks_ai": "fireworks",
    "github-copilot": "copilot",
    "hosted_vllm": "vllm",
    "lm_studio": "lmstudio",
    "amazon-bedrock": "bedrock",
    "azure": "azure",
    "bedrock": "bedrock",
    "ollama_chat": "ollama-native",
}
"""Names that Pydantic AI, LiteLLM, the AI SDK or models.dev use, and their rows."""


def in_agent(name: str) -> Profile:
    model = infer_model(f"{name}:m")
    assert isinstance(model, ProviderModel)
    assert model.origin.api == model.profile.wire
    return model.profile


def in_config(config: Config, provider: str) -> Profile:
    """Return the profile of a provider, and check that its models have its wire."""
    profile = config.all_profiles()[config.profile_name(provider)]
    _, model = Catalog(config, UpstreamClient()).find(f"{provider}:m")
    assert (model.origin.provider, model.origin.api) == (provider, profile.wire)
    return profile.for_model("m")


def table_of(name: str, **provider: Any) -> dict[str, Any]:
    base_url = named_profiles()[name].base_url or ELSEWHERE
    return {"providers": {"mine": {"profile": name, "base_url": base_url, **provider}}}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_profile_everywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = named_profiles()[name].for_model("m")
    assert in_agent(name) == expected
    for upstream in (None, expected.base_url) if expected.base_url else (ELSEWHERE,):
        options = {"upstream": upstream, "upstream_model": None, "api_key_env": None, "local_model": None}
        assert in_config(read_options(None, name, **options), name) == expected
    assert in_config(check_config(table_of(name), {}), "mine") == expected
    as_name = {"providers": {name: table_of(name)["providers"]["mine"] | {"profile": None}}}
    assert in_config(check_config(as_name, {}), name) == expected
    assert profile_of_response(name, None, b"").for_model("m") == expected


def test_known_names_are_those_of_the_field() -> None:
    assert {name: named_profiles()[name].name for name in KNOWN_NAMES} == KNOWN_NAMES
    assert set(builtin_profiles()) <= set(NAMES)
    aliases = [alias for row in builtin_profiles().values() for alias in row.aliases]
    assert len(aliases) == len(set(aliases)), "an alias has one row"
    assert [name for name in NAMES if hidden_row(name) is not None] == ["openai"], "no other row is hidden by an alias"


def test_pydantic_ais_names_have_its_meaning() -> None:
    """Those for which there is no profile are listed, so that a new one is noticed."""
    known = {name.partition(":")[0] for name in typing.get_args(KnownModelName.__value__)}
    names = {name for name in known if not name.startswith("gateway/")} - {"test"}
    unknown = {"google-decisions", "openai-decisions", "heroku", "meta", "typesafe"}
    assert names - set(NAMES) == unknown


def test_all_names_are_documented() -> None:
    text = Path("docs/configuration.md").read_text("utf-8").partition("## Names of providers")[2].partition("\n## ")[0]
    missing = [name for row in builtin_profiles().values() for name in row.aliases if f"`{name}`" not in text]
    assert missing == []


def test_a_class_of_models_decides_about_the_wire_of_a_name() -> None:
    assert OpenAIChatModel("m", profile="openai").profile.wire == "openai_chat"
    assert OpenAIChatModel("m", profile="openai-chat").profile.wire == "openai_chat"
    assert OpenAIResponsesModel("m", profile="openai").profile.name == "openai-responses"
    assert OpenAIChatModel("m", profile="moonshot").profile.name == "kimi"
    with pytest.raises(ConfigError, match="OpenAIChatModel supports openai_chat"):
        OpenAIChatModel("m", profile="openai-responses")


def test_names_of_telemetry_are_those_of_the_profile() -> None:
    assert [telemetry_name(name) for name in ("openai", "openai-chat", "grok", "house")] == [
        *("openai", "openai", "x_ai", "house"),
    ]


# --- configurations that were written before -------------------------------------------------------------------------


def test_openai_at_another_address_is_still_chat_completions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for provider, row in (("openai", {}), ("mine", {"profile": "openai"})):
        config = check_config({"providers": {provider: {**row, "base_url": ELSEWHERE}}}, {})
        assert in_config(config, provider).name == "openai"
        [warning] = config.warnings
        assert warning == (
            f"providers.{provider}: at this address, 'openai' is 'openai-chat', as before; write which it is: "
            'profile = "openai-chat", or "openai-responses"'
        )
    options = {"upstream": ELSEWHERE, "upstream_model": None, "api_key_env": None, "local_model": None}
    assert in_config(read_options(None, "openai", **options), "openai").wire == "openai_chat"


def test_openai_at_its_own_address_is_responses_with_a_warning() -> None:
    for row in ({}, {"base_url": "https://api.openai.com/v1"}):
        config = check_config({"providers": {"openai": row}}, {})
        assert in_config(config, "openai").name == "openai-responses"
        [warning] = config.warnings
        assert warning.startswith("providers.openai: 'openai' is 'openai-responses' now, and was 'openai-chat' before")


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "openai-compat"])
def test_a_name_that_says_which_api_has_no_warning_and_no_exception(name: str) -> None:
    config = check_config({"providers": {"openai": {"profile": name, "base_url": ELSEWHERE}}}, {})
    assert in_config(config, "openai") == named_profiles()[name].for_model("m")
    assert config.warnings == []


def test_a_row_of_the_file_takes_precedence_over_builtin_names() -> None:
    address = {"base_url": ELSEWHERE}
    rows = {"moonshot": address | {"wire": "anthropic"}, "openai": address | {"tags": "think"}}
    config = check_config({"profiles": rows, "providers": {"moonshot": {}, "openai": {}}}, {})
    assert in_config(config, "moonshot").wire == "anthropic"
    assert (in_config(config, "openai").wire, in_config(config, "openai").tags) == ("openai_chat", "think")
    assert config.warnings == []


def test_a_row_extends_the_row_with_that_name() -> None:
    """The values of a row are for its wire. So a row that extends `openai` keeps Chat Completions."""
    rows = {"a": {"extends": "openai"}, "b": {"extends": "openai-responses"}, "c": {"extends": "moonshot"}}
    config = check_config({"profiles": rows, "providers": {"vllm": {}}}, {})
    profiles = config.all_profiles()
    assert [profiles[name].wire for name in rows] == ["openai_chat", "openai_responses", "openai_chat"]
    assert profiles["c"].forced_calls == "thinking_switched_off"
    assert config.warnings == ["profiles.a.extends: 'openai' is the row 'openai-chat'; write \"openai-chat\""]
    assert load_profiles({"a": {"extends": "openai-chat"}}, named_profiles())["a"].wire == "openai_chat"


@pytest.mark.parametrize("name", ["openai", "openai-chat"])
def test_decode_reads_both_apis_of_openai(name: str) -> None:
    stream = sse(": ping", chunk(content="a"), chunk("stop"))
    whole = json.dumps({"object": "chat.completion", "choices": [{"message": {"content": "a"}}]}, indent=1).encode()
    for data in (stream, whole):
        assert profile_of_response(name, None, data).wire == "openai_chat"
    event = b'event: response.created\ndata: {"type":"response.created","response":{}}\n\n'
    assert profile_of_response("openai", None, event).wire == "openai_responses"
    assert profile_of_response("openai-responses", None, stream).wire == "openai_responses"
