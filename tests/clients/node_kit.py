"""The clients that run on Node: installed once from `package-lock.json`, and run one function at a time."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.node_packages import installed

HERE = Path(__file__).parent
MODULES = ("run.mjs", "openai_sdk.mjs", "ai_sdk.mjs", "anthropic_sdk.mjs")
SECONDS = 110
NODE_CLIENTS = ("node", "node_clients.mjs")
"""The command that runs the clients of the matrix."""


def with_node_clients(directory: Path, packages: Path) -> Path:
    """Add the script of `NODE_CLIENTS` to a directory, with the packages listed in `packages`; return the directory."""
    (directory / "node_modules").symlink_to(installed(packages) / "node_modules")
    shutil.copy(HERE / "node_clients.mjs", directory)
    return directory


class Node:
    """Runner of functions of the modules here, in a directory with their packages."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in MODULES:
            shutil.copy(HERE / name, directory)
        (directory / "node_modules").symlink_to(installed(HERE) / "node_modules")

    def run(
        self,
        module: str,
        function: str,
        arguments: Mapping[str, Any],
        on_progress: Callable[[str], None] = lambda what: None,
    ) -> Any:
        """Run the function and return its result; pass its progress messages to `on_progress`."""
        command = ["node", "run.mjs", module, function, json.dumps(arguments)]
        with subprocess.Popen(
            command, cwd=self._directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for line in process.stdout:
                message = json.loads(line)
                if "progress" in message:
                    on_progress(message["progress"])
                else:
                    process.wait(SECONDS)
                    return message["result"]
            raise AssertionError(f"{module}.{function}: {process.stderr.read()}")
