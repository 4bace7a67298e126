"""The clients that run on Node: installed once from `package-lock.json`, and run one function at a time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
MODULES = ("run.mjs", "openai_sdk.mjs", "ai_sdk.mjs")
SECONDS = 60


class Node:
    """Runs functions of the modules here, in a directory where they find what they import."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in MODULES:
            shutil.copy(HERE / name, directory)
        (directory / "node_modules").symlink_to(installed() / "node_modules")

    def run(
        self, module: str, function: str, given: Mapping[str, Any], told: Callable[[str], None] = lambda what: None
    ) -> Any:
        """What the function gives; what it tells meanwhile goes to `told`."""
        command = ["node", "run.mjs", module, function, json.dumps(given)]
        with subprocess.Popen(
            command, cwd=self._directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for line in process.stdout:
                said = json.loads(line)
                if "told" in said:
                    told(said["told"])
                else:
                    process.wait(SECONDS)
                    return said["gave"]
            raise AssertionError(f"{module}.{function}: {process.stderr.read()}")


def installed() -> Path:
    """The directory with the locked versions in `node_modules`, filled if it is not there."""
    lock = (HERE / "package-lock.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid"
    wanted = cache / f"node-{sha256(lock).hexdigest()[:16]}"
    if not wanted.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".node-", dir=cache) as made:
            fresh = Path(made) / "clients"
            fresh.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / name, fresh)
            command = ["npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=fresh, capture_output=True, text=True, timeout=110, check=False)
            assert done.returncode == 0, f"npm could not install the clients: {done.stderr}"
            try:
                fresh.rename(wanted)
            except OSError:
                assert wanted.is_dir()  # somebody else was first
    return wanted
