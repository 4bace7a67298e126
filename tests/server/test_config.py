"""The configuration: all mistakes are reported at once, each with its key and what is expected."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ConfigError
from pellucid.server.config import Config, check_config, find_api_key, read_config
from tests.examples import many

VLLM = {"base_url": "http://127.0.0.1:8000/v1"}


def mistakes(table: dict[str, Any], environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check_config(table, environ or {})
    return caught.value.mistakes


@pytest.mark.parametrize(
    ("table", "mistake"),
    [
        ({"sever": {}}, "sever: no such key; did you mean 'server'?"),
        ({"server": {"prot": 1}}, "server.prot: no such key; did you mean 'port'?"),
        ({"server": {"port": "80"}}, "server.port: expected `int`, got `str`"),
        ({"server": {"port": 70000}}, "server.port: expected `int` <= 65535"),
        ({"server": 3}, "server: must be a table, not 3"),
        ({"server": {"max_body_bytes": 0}}, "server.max_body_bytes: expected `int` >= 1"),
        ({"server": {"shutdown_seconds": float("nan")}}, "server.shutdown_seconds: expected `float` >= 0.0"),
        ({"server": {"workers": 2}}, "relay.url: for server.workers = 2, live responses must be where all"),
        (
            {"server": {"reasoning_events": "mine"}},
            "server.reasoning_events: 'mine' is none of 'openresponses', 'openai'",
        ),
        ({"limits": {"idle": 0}}, "limits.idle: expected `float` > 0.0"),
        ({"limits": {"idle": float("inf")}}, "limits.idle: expected `float` <= 1000000.0"),
        ({"limits": {"retries": -1}}, "limits.retries: expected `int` >= 0"),
        (
            {"providers": {"openai-compat": {}}},
            "has no default address",
        ),
        ({"providers": {"mine": VLLM}}, "providers.mine.profile: no profile 'mine'; did you mean 'gemini'?"),
        ({"providers": {"mine": {**VLLM, "profile": "vlm"}}}, "did you mean 'vllm'?"),
        ({"providers": {"vllm": {"base_url": "localhost:8000"}}}, "is not an http:// or https:// address"),
        ({"providers": {"vllm": {"base_url": "http://"}}}, "is not an http:// or https:// address"),
        ({"providers": {"vllm": {"base_url": "http://h:99999"}}}, "is not an http:// or https:// address"),
        ({"providers": {"vllm": {"base_url": "http://[::"}}}, "is not an http:// or https:// address"),
        ({"providers": {"vllm": {"base_url": "http://h/?a=b"}}}, "must end with its path"),
        ({"providers": {"vllm": {"base_url": "http://u:pw@h/v1"}}}, "secrets come from the environment (api_key_env)"),
        ({"providers": {"vllm": {**VLLM, "limits": {"idel": 1}}}}, "limits.idel: no such key; did you mean 'idle'?"),
        ({"providers": {"vllm": {**VLLM, "headers": {"a b": "c"}}}}, "'a b' is not a valid header name"),
        ({"providers": {"vllm": {**VLLM, "headers": {"a": "b\nc: d"}}}}, "vllm.headers.a: contains a line break"),
        (
            {"providers": {"vllm": {**VLLM, "headers": {"Content-Length": "1"}}}},
            "vllm.headers.Content-Length: frames the message",
        ),
        (
            {
                "providers": {"vllm": VLLM},
                "models": {"m": {"provider": "vllm", "settings": {"extra_headers": {"x": "a\nb"}}}},
            },
            "models.m.settings.extra_headers.x: contains a line break",
        ),
        ({"providers": {"vllm": {**VLLM, "headers": {"a": 1}}}}, "providers.vllm.headers: expected `str`, got `int`"),
        ({"providers": {"vllm": {**VLLM, "models": ["a", 1]}}}, "providers.vllm.models[1]: expected `str`, got `int`"),
        ({"providers": {"local": {**VLLM, "profile": "vllm"}}}, "providers.local: this name is reserved"),
        ({"providers": {"a:b": {**VLLM, "profile": "vllm"}}}, "providers.a:b: a provider's name cannot"),
        (
            {"providers": {"vllm": {**VLLM, "api_key_env": "MY_KEY"}}},
            "providers.vllm.api_key_env: the environment has no MY_KEY",
        ),
        ({"providers": {"vllm": VLLM}, "models": {"m": {}}}, "models.m: needs a provider or deployments"),
        ({"providers": {"vllm": VLLM}, "models": {"m": {"provider": "vlm"}}}, "did you mean 'vllm'?"),
        ({"providers": {"vllm": VLLM}, "models": {"m": {"provider": "local"}}}, "set local.enabled = true"),
        (
            {"models": {"m": {"provider": "local", "settings": {"temprature": 1}}}},
            "models.m.settings.temprature: no such key; did you mean 'temperature'?",
        ),
        (
            {"models": {"m": {"provider": "local", "settings": {"temperature": "hot"}}}},
            "models.m.settings.temperature: expected `float`, got `str`",
        ),
        (
            {"server": {"default_model": "qwen"}, "providers": {"vllm": {**VLLM, "models": ["qwen3"]}}},
            "server.default_model: no model 'qwen'; did you mean 'qwen3'?",
        ),
        ({"local": {"enabled": False}}, "providers: there is no model to serve"),
        ({"local": {"model": "qwen"}}, "local.model: no model 'qwen'; "),
        ({"local": {"path": "/nowhere.gguf"}}, "local.path: there is no file '/nowhere.gguf'"),
        ({"profiles": {"mine": {"extends": "vlm"}}}, "profiles.mine.extends: there is no profile 'vlm'"),
        ({"profiles": {"mine": {"tags": "no"}}}, "profiles.mine.tags: "),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_key(table: dict[str, Any], mistake: str) -> None:
    [message] = mistakes(table)
    assert mistake in message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.2", "example.org", "fe80::1"])
def test_a_public_host_requires_explicit_permission(host: str) -> None:
    [message] = mistakes({"server": {"host": host}})
    assert message.startswith(f"server.host: {host!r} can be reached from other machines")
    assert check_config({"server": {"host": host, "allow_unauthenticated": True}}, {}).server.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_host_is_allowed(host: str) -> None:
    assert check_config({"server": {"host": host}}, {}).server.host == host


def test_all_mistakes_are_reported_at_once() -> None:
    messages = mistakes(
        {
            "server": {"port": "x", "workers": "y", "hots": "z"},
            "limits": {"idle": -1, "connect": -1},
            "providers": {"openai-compat": {}, "unknown": {"base_url": "ftp://x"}},
            "models": {"m": {"provider": "who", "settings": {"top_p": "x"}}},
        }
    )
    keys = [mistake.partition(":")[0] for mistake in messages]
    assert keys == [
        "server.port",
        "server.workers",
        "server.hots",
        "limits.idle",
        "limits.connect",
        "models.m.settings.top_p",
        "providers.openai-compat.base_url",
        "providers.unknown.profile",
        "providers.unknown.base_url",
        "models.m.provider",
    ]


def test_an_empty_configuration_is_valid() -> None:
    assert check_config({}, {}) == Config()
    assert Config().uses_local_model


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pellucid.toml"
    path.write_text(
        """
        [server]
        port = 9000
        [limits]
        idle = 5
        [providers.ours]
        profile = "vllm"
        base_url = "http://10.0.0.1/v1"
        models = ["a"]
        [providers.ours.limits]
        connect = 1
        [models.b]
        provider = "ours"
        settings = { temperature = 1, thinking = "low" }
        """
    )
    config = read_config(path)
    assert (config.server.port, config.limits.idle) == (9000, 5.0)
    ours = config.providers["ours"]
    assert ours.limits is not None
    assert (ours.limits.connect, ours.limits.idle) == (1.0, 300.0)
    assert config.models["b"].settings == {"temperature": 1.0, "thinking": "low"}
    assert not config.uses_local_model


def test_the_documented_examples_are_valid() -> None:
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    examples = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert examples
    for example in examples:
        assert check_config(tomllib.loads(example), {})


@pytest.mark.parametrize(("text", "says"), [(b"[", "not TOML"), (b"a = 1\na = 2", "not TOML"), (b"\xff", "not UTF-8")])
def test_an_unreadable_file_is_an_error(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=says):
        read_config(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_config(tmp_path / "other.toml")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_config(tmp_path)


def test_api_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"OPENAI_API_KEY": "usual", "MINE": "of one's own\n", "EMPTY": ""}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    config = check_config({"providers": {"openai": {}}}, environ)
    profile = config.all_profiles()["openai"]
    assert find_api_key(config.providers["openai"], profile) == "usual"
    config = check_config({"providers": {"openai": {"api_key_env": "MINE"}}}, environ)
    assert find_api_key(config.providers["openai"], profile) == "of one's own"
    assert mistakes({"providers": {"openai": {"api_key_env": "EMPTY"}}}, environ)


KEYS = st.sampled_from(
    [
        *("server", "limits", "providers", "models", "local", "profiles", "host", "port", "workers", "max_body_bytes"),
        *("reasoning_events", "default_model", "shutdown_seconds", "idle", "connect", "retries", "vllm", "openai"),
        *("profile", "base_url", "api_key_env", "headers", "settings", "provider", "model", "enabled", "path"),
        *("extends", "tags", "match", "wire", "temperature", "extra_body", "x"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.dates() | st.datetimes()
    | st.sampled_from(["http://x/v1", "vllm", "openai", "local", "MY_KEY"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def is_valid_or_lists_its_mistakes(table: dict[str, Any]) -> bool:
    try:
        config = check_config(table, {})
    except ConfigError as error:
        return bool(error.mistakes) and all(": " in mistake for mistake in error.mistakes)
    return bool(config.all_profiles())


@many
@given(st.dictionaries(KEYS | st.text(max_size=4), VALUES, max_size=5))
def test_any_table_is_valid_or_its_mistakes_are_listed(table: dict[str, Any]) -> None:
    assert is_valid_or_lists_its_mistakes(table)


SECTIONS = {
    "server": ["host", "port", "workers", "max_body_bytes", "reasoning_events", "default_model", "shutdown_seconds"],
    "limits": ["connect", "first_byte", "idle", "retries", "retry_wait"],
    "local": ["enabled", "model", "path", "threads", "context"],
}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{name: st.dictionaries(st.sampled_from(keys), VALUES, max_size=3) for name, keys in SECTIONS.items()},
            "providers": st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=2),
            "models": st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=2),
            "profiles": st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=2),
        },
    )
)
def test_an_almost_valid_table_is_valid_or_its_mistakes_are_listed(table: dict[str, Any]) -> None:
    assert is_valid_or_lists_its_mistakes(table)
