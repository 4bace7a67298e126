"""The settings group of the golden comparison covers every profile and every protocol."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase
from typing import get_type_hints

import msgspec

from pellucid.models import anthropic, bedrock, cohere, google, groq, mistral, ollama, openai
from pellucid.protocols.chat_completions.types import CreateChatCompletion
from pellucid.protocols.openresponses.types import CreateResponse
from pellucid.providers.profiles import builtin_profiles
from pellucid.settings import ModelSettings
from tests.cases import Cases
from tools.golden_kit.contents import PROTOCOLS
from tools.golden_kit.own_settings import COMMON, MODELS
from tools.golden_kit.parameters import ANSWERS, CALLS, IN_SHORT, ROWS


def _settings(protocol: str) -> dict[str, dict[str, object]]:
    number = itertools.count()
    protocol_cases = next(one for one in PROTOCOLS if one.name == protocol)
    return protocol_cases.settings(lambda kind: f"http://127.0.0.1/{next(number)}.{kind}") | protocol_cases.wrong()


def test_every_profile_is_a_row_with_its_wire() -> None:
    assert {name: row.wire for name, row in ROWS.items()} == {
        name: profile.wire for name, profile in builtin_profiles().items()
    }


def test_every_wire_has_responses_and_a_row_in_the_short_form() -> None:
    wires = {row.wire for row in ROWS.values()}
    assert wires == set(ANSWERS) == set(CALLS) == {ROWS[name].wire for name in IN_SHORT}


def test_every_model_pattern_has_a_matching_model() -> None:
    first: dict[tuple[str, ...], str] = {}
    with Cases() as case:
        for name, profile in builtin_profiles().items():
            patterns = tuple(row["match"] for row in profile.models)
            if not patterns or first.setdefault(patterns, name) != name:
                continue  # a row with the models of another row
            models = [ROWS[name].model, *ROWS[name].others]
            fitting = {next((p for p in patterns if fnmatchcase(model, p.lower())), "") for model in models}
            for pattern in patterns:
                with case(f"{name}: {pattern}"):
                    assert pattern in fitting


def test_every_field_of_a_request_is_in_some_setting() -> None:
    with Cases() as case:
        for protocol, kind in (("chat_completions", CreateChatCompletion), ("openresponses", CreateResponse)):
            sent = {name for fields in _settings(protocol).values() for name in fields}
            for field in msgspec.structs.fields(kind):
                with case(f"{protocol}: {field.encode_name}"):
                    assert field.encode_name in sent


def test_every_setting_of_one_provider_is_in_some_case() -> None:
    provided = [
        openai.OpenAIResponsesModelSettings,
        anthropic.AnthropicModelSettings,
        bedrock.BedrockModelSettings,
        cohere.CohereModelSettings,
        google.GoogleModelSettings,
        groq.GroqModelSettings,
        mistral.MistralModelSettings,
        ollama.OllamaModelSettings,
    ]
    sent = {name for model in MODELS.values() for name in model.settings} | COMMON.keys()
    common = set(get_type_hints(ModelSettings))
    own = {name for kind in provided for name in get_type_hints(kind)} - common
    assert own | {place for profile in builtin_profiles().values() for place in profile.own} <= sent
