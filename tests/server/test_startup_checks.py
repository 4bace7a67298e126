"""Startup errors are found without starting, all at once, and the check creates nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pellucid.errors import ConfigError
from pellucid.server import create_app
from pellucid.server.config import check_config
from pellucid.server.factories import check_startup
from pellucid.upstream import UpstreamClient

VLLM = {"vllm": {"base_url": "http://127.0.0.1:9/v1"}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "open.json").write_text("{}")
    (tmp_path / "open.json").chmod(0o644)
    monkeypatch.chdir(tmp_path)
    return tmp_path


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tools": {"functions": ["shop"]}}, "tools.functions[0]: 'shop': write `package.module:function`"),
    ({"tools": {"functions": ["nowhere:f"]}}, "tools.functions[0]: 'nowhere:f': there is no module"),
    ({"tools": {"mcp": {"x": {"url": "http://h/ /mcp"}}}}, "tools.mcp.x: the URL contains white space"),
    ({"tools": {"mcp": {"x": {"url": "http://h/mcp", "headers": {"TE": "x"}}}}}, "tools.mcp.x: "),
    ({"summaries": {"model": "unknown"}, "providers": {"vllm": {**VLLM["vllm"], "models": ["m"]}}}, "summaries.model"),
    ({"sealing": {"keys_file": "open.json"}}, "others than its owner may open this file"),
    (
        {"access": {"keys": True, "pepper_file": "open.json"}},
        "access.pepper_file: open.json: others than its owner",
    ),
    ({"relay": {"url": "redis://h:port"}}, "the relay's address is not one that redis-py can read"),
    ({"storage": {"url": "sqlite:/nowhere"}}, "a store is sqlite:///PATH"),
]


@pytest.mark.parametrize(("table", "mistake"), WRONG)
def test_a_startup_error_is_reported_without_starting(table: dict[str, Any], mistake: str) -> None:
    config = check_config({"providers": VLLM, "storage": {"url": "sqlite://"}, **table}, {})
    [message] = check_startup(config, UpstreamClient(), None)
    assert mistake in message

    async def start() -> None:
        async with create_app(config).lifespan_context:
            pass

    with pytest.raises(ConfigError) as refused:
        asyncio.run(start())
    assert mistake in refused.value.mistakes[0]


def test_a_key_file_without_keys_is_an_error(home: Path) -> None:
    jwt = {"issuer": "https://login.example.com", "audience": "x", "jwks_file": "open.json"}
    config = check_config({"providers": VLLM, "access": {"jwt": jwt}}, {})
    assert check_startup(config, UpstreamClient(), None) == [
        "access.jwt.jwks_file: open.json: it is not a set of at most 100 keys",
    ]
