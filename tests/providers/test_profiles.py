"""Builtin profiles, and profiles of operators."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from msgspec.structs import fields

from pellucid import tags
from pellucid.errors import ConfigError, RequestError
from pellucid.parts import ModelMessage, ModelRequest, Origin, UserPromptPart
from pellucid.providers.openai_chat.encode import _REPLAY, _THINKING
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles, load_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall, ModelSettings
from tests.providers.wire_kit import ROWS


def load(**row: Any) -> Profile:
    return load_profiles({"mine": row}, ROWS)["mine"]


def mistakes(**row: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(**row)
    return caught.value.mistakes


# --- builtin profiles --------------------------------------------------------------------------------------------


def test_builtin_profiles_are_valid() -> None:
    assert len(builtin_profiles()) >= 24
    for name, row in ROWS.items():
        assert row.name == name
        assert row.title
        assert not row.base_url.endswith("/")
        assert row.tags is None or row.tags in tags.FAMILIES
        assert row.base_url.startswith("https://") or row.auth == "optional" or row.base_url == ""


def test_strategies_in_profiles_are_those_that_exist() -> None:
    types = {field.name: field.type for field in fields(Profile)}
    assert set(typing.get_args(types["thinking"])) == set(_THINKING)
    assert set(typing.get_args(types["replay"])) == set(_REPLAY)


def test_a_profile_that_requires_reasoning_has_a_field_for_it() -> None:
    for row in ROWS.values():
        assert row.lost == "omit" or row.replay == "field"


# --- profiles of operators ---------------------------------------------------------------------------------------


def test_an_operators_profile() -> None:
    row = load(base_url="http://host/v1", tags="think", efforts=["low"], auth="none")
    assert (row.name, row.title, row.efforts, row.replay) == ("mine", "mine", ("low",), Profile().replay)


@pytest.mark.parametrize("wire", WIRES)
def test_default_fields_are_in_every_request_unless_a_setting_has_them(wire: str) -> None:
    row = load_profiles({"mine": {"wire": wire, "default_fields": {"extra.deep": True, "effort": 3}}}, {})["mine"]
    messages: list[ModelMessage] = [ModelRequest([UserPromptPart("hello")])]
    body = WIRES[wire].encode(ModelCall("m", messages), row, Origin("mine", wire, "m"))
    assert (body["extra"], body["effort"]) == ({"deep": True}, 3)
    settings: ModelSettings = {"extra_body": {"effort": 4}}
    assert WIRES[wire].encode(ModelCall("m", messages, settings), row, Origin("mine", wire, "m"))["effort"] == 4


def test_default_fields_are_values() -> None:
    assert mistakes(default_fields={"a": []}) == [
        "profiles.mine.default_fields: {'a': []} is not right; it must be a table of values"
    ]


def test_a_profile_may_extend_another() -> None:
    row = load(extends="deepseek", base_url="http://host/v1")
    assert row.base_url == "http://host/v1"
    assert (row.name, row.lost, row.thinking) == ("mine", "empty", "thinking_type")
    rows = load_profiles({"a": {"extends": "vllm", "lost": "space"}, "b": {"extends": "a", "auth": "none"}}, ROWS)
    assert (rows["b"].lost, rows["b"].auth, rows["b"].thinking) == ("space", "none", "template")


def test_previous_names_of_values_are_accepted() -> None:
    row = load(item_end="told", sampling="told_off", models=[{"match": "m", "sampling": "told_off"}])
    for profile in (row, row.for_model("m")):
        assert (profile.item_end, profile.sampling) == ("reported", "thinking_switched_off")


def test_a_profile_may_have_exceptions_for_models() -> None:
    row = load(
        tags="think",
        models=[{"match": "*R1*", "tags": "think-forced", "lost": "empty"}, {"match": "*", "efforts": ["low"]}],
    )
    assert row.for_model("deepseek-r1-0528").tags == "think-forced", "patterns ignore case"
    assert row.for_model("deepseek-r1-0528").efforts == row.efforts, "the first pattern that matches applies"
    assert row.for_model("other").efforts == ("low",)
    assert row.for_model("other").name == "mine"
    assert load(tags="think").for_model("x").tags == "think"


@pytest.mark.parametrize(
    ("row", "mistake"),
    [
        ({"extends": "deepsek"}, "profiles.mine.extends: there is no profile 'deepsek'; did you mean 'deepseek'?"),
        ({"extends": ["vllm"]}, "profiles.mine.extends: there is no profile ['vllm']; did you mean 'vllm'?"),
        ({"base_ulr": "x"}, "profiles.mine.base_ulr: there is no such key; did you mean 'base_url'?"),
        ({"name": "x"}, "profiles.mine.name: there is no such key; there are: accepts, api_key_env, "),
        (
            {"merge": "sum"},
            "profiles.mine.merge: 'sum' is not right; it must be one of 'incremental', 'cumulative', 'detect'",
        ),
        ({"stream_usage": "yes"}, "profiles.mine.stream_usage: 'yes' is not right; it must be true or false"),
        ({"efforts": "low"}, "profiles.mine.efforts: 'low' is not right; it must be a list of texts"),
        (
            {"knows": ["top_k", "min_pp"]},
            "profiles.mine.knows: ['top_k', 'min_pp'] is not right; it must be a list of 'top_k', 'verbosity', ",
        ),
        ({"base_url": 5}, "profiles.mine.base_url: 5 is not right; it must be a text"),
        ({"implicit_start": "maybe"}, "profiles.mine.implicit_start: 'maybe' is not right; it must be one of 'never'"),
        ({"tags": "thinking"}, "profiles.mine.tags: there is no marker family 'thinking'; "),
        ({"models": {"match": "x"}}, "profiles.mine.models: {'match': 'x'} is not right; it must be a list of tables"),
        ({"models": [{"tags": "think"}]}, "profiles.mine.models[0].match: it is missing; it must be a text"),
        (
            {"models": [{"match": "*"}, {"match": "*", "lots": "empty"}]},
            "profiles.mine.models[1].lots: there is no such key; did you mean 'lost",
        ),
        (
            {"models": [{"match": "*", "lost": "no"}]},
            "profiles.mine.models[0].lost: 'no' is not right; it must be one of",
        ),
    ],
)
def test_a_mistake_names_its_key_and_the_valid_values(row: dict[str, Any], mistake: str) -> None:
    (message,) = mistakes(**row)
    assert message.startswith(mistake)


def test_a_profile_must_be_a_table() -> None:
    with pytest.raises(ConfigError, match=r"profiles\.mine: 5 is not right; it must be a table"):
        load_profiles({"mine": 5}, {})


def test_one_error_names_all_mistakes() -> None:
    with pytest.raises(ConfigError) as caught:
        load_profiles({"a": {"lost": 1, "replay": "x"}, "b": {"extends": "c"}, "d": {}}, {})
    assert [line.partition(":")[0] for line in caught.value.mistakes] == [
        "profiles.a.lost", "profiles.a.replay", "profiles.b.extends",
    ]  # fmt: skip


# --- strategies that a wire supports -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "value", "right"),
    [
        ("mistral", "template", "'effort', 'none'"),
        ("bedrock", "enable_thinking", "'effort', 'none', 'reasoning_object', 'reasoning_switch'"),
    ],
)
def test_a_thinking_strategy_must_be_supported_by_the_wire(base: str, value: str, right: str) -> None:
    expected = f"the wire {base!r} cannot send {value!r}; it must be one of {right}"
    assert mistakes(wire=base, thinking=value) == [f"profiles.mine.thinking: {expected}"]
    [mistake] = mistakes(wire=base, models=[{"match": "*", "thinking": value}])
    assert mistake == f"profiles.mine.models[0].thinking: {expected}"


@pytest.mark.parametrize("wire", WIRES)
def test_all_kinds_of_credentials_and_a_model_in_the_path_work_on_every_wire(wire: str) -> None:
    call = ModelCall("a model", [], stream=False)
    for auth in ("api-key", "x-api-key", "x-goog-api-key"):
        row = load(wire=wire, auth=auth, path="/x", path_whole="/y/{model}")
        assert WIRES[wire].headers(row, "secret", call)[auth] == "secret"
        assert "Authorization" not in WIRES[wire].headers(row, "secret", call)
        assert WIRES[wire].path(call, row) == "/y/a%20model"
        for name in ("..", "../../x", "a/../../x", "./x", "a/.."):
            with pytest.raises(RequestError, match=r"no segment \. or \.\."):
                WIRES[wire].path(ModelCall(name, [], stream=False), row)
        assert WIRES[wire].path(ModelCall("a..b", [], stream=False), row) == "/y/a..b"
    assert WIRES[wire].headers(load(wire=wire), "secret", call)["Authorization"] == "Bearer secret"
