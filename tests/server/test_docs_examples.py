"""What the documentation shows to be copied works as it stands."""

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
def test_a_piece_of_configuration_is_right_by_itself(text: str) -> None:
    tokens = dict.fromkeys(re.findall(r'token_env = "(\w+)"', text), "a token")
    assert check_config(tomllib.loads(text), tokens)


def test_the_server_of_tools_that_is_shown_can_be_called(tmp_path: Path) -> None:
    [source] = [text for text in examples(ROOT / "docs" / "tools.md", "python") if text.startswith("# clock.py")]
    (tmp_path / "clock.py").write_text(source)

    async def call() -> str:
        async with MCPServer("clock", command=sys.executable, args=[str(tmp_path / "clock.py")]) as server:
            [tool] = await server.tools()
            assert tool.definition.description == "The time of day in a zone, such as Europe/Paris."
            said = await tool.call(RunContext("me", None), tool.validate({"zone": "Europe/Paris"}))
            return str(said["result"])

    assert re.fullmatch(r"\d\d:\d\d", asyncio.run(call()))


def test_the_redaction_that_is_shown_runs() -> None:
    [source] = examples(ROOT / "docs" / "views.md", "python")
    exec(compile(source, "views.md", "exec"), {})


def test_the_agent_of_pydantic_ai_that_is_shown_is_served() -> None:
    [source] = [text for text in examples(ROOT / "docs" / "agents.md", "python") if "PydanticAgent" in text]
    made: dict[str, Any] = {}
    exec(compile(source, "agents.md", "exec"), made)
    assert "helper" in made["app"].services.catalog
