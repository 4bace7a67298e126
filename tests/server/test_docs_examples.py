"""The examples of the documentation work as they are."""

from __future__ import annotations

import asyncio
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pellucid.server.config import check_config
from pellucid.tools import RunContext
from pellucid.tools.mcp import MCPServer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


CONFIGURATIONS = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, text in enumerate(examples(page, "toml"))
    if "[project." not in text
]


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_each_documented_configuration_is_valid(text: str) -> None:
    tokens = dict.fromkeys(re.findall(r'token_env = "(\w+)"', text), "a token")
    tokens |= dict.fromkeys(re.findall(r'secret_env = "(\w+)"', text), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert check_config(tomllib.loads(text), tokens)


def test_the_documented_mcp_server_can_be_called(tmp_path: Path) -> None:
    [source] = [text for text in examples(ROOT / "docs" / "tools.md", "python") if text.startswith("# clock.py")]
    (tmp_path / "clock.py").write_text(source)

    async def call() -> str:
        async with MCPServer("clock", command=sys.executable, args=[str(tmp_path / "clock.py")]) as server:
            [tool] = await server.tools()
            assert tool.definition.description == "The time of day in a zone, such as Europe/Paris."
            result = await tool.call(RunContext("me", None), tool.validate({"zone": "Europe/Paris"}))
            return str(result["result"])

    assert re.fullmatch(r"\d\d:\d\d", asyncio.run(call()))


def test_the_documented_redaction_runs() -> None:
    [source] = examples(ROOT / "docs" / "views.md", "python")
    exec(compile(source, "views.md", "exec"), {})


def test_the_documented_pydantic_ai_agent_is_served() -> None:
    [source] = [text for text in examples(ROOT / "docs" / "agents.md", "python") if "PydanticAgent" in text]
    namespace: dict[str, Any] = {}
    exec(compile(source, "agents.md", "exec"), namespace)
    assert "helper" in namespace["app"].services.catalog
