"""Groups of commands: their tables, and the modules that listing them imports."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from pellucid.cli import main as pellucid
from pellucid.cli.group import LazyGroup
from pellucid.cli.space import space

SERVER_MODULES = {
    "aiohttp",
    "sqlalchemy",
    "starlette",
    "uvicorn",
    "joserfc",
    "rich",
    "pellucid.server",
    "pellucid.spaces",
}


@pytest.mark.parametrize("group", [pellucid, space])
def test_each_row_of_a_group_describes_its_command(group: click.Group) -> None:
    assert isinstance(group, LazyGroup)
    context = click.Context(group)
    for name, row in group.rows.items():
        command = group.get_command(context, name)
        assert command is not None
        assert command.help is not None
        paragraph = " ".join(command.help.partition("\n\n")[0].split())
        assert (command.name, row.help) == (name, None if command.hidden else paragraph)


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["space", "--help"], ["decode", "--help"]])
def test_help_imports_no_server(arguments: list[str]) -> None:
    code = (
        "import sys; from pellucid.cli import main\n"
        f"try: main({arguments})\n"
        f"finally: print('IMPORTED', sorted({SERVER_MODULES} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == "IMPORTED []"
