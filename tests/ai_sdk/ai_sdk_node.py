"""The AI SDK's packages on Node: installed once from `package-lock.json`, and driven in few processes."""

from __future__ import annotations

import json
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.node_packages import installed

HERE = Path(__file__).parent / "node"
SECONDS = 60


def reads(streams: Sequence[bytes]) -> dict[str, list[dict[str, Any]]]:
    """What each version of the package makes of each stream: `kinds` of its chunks, `errors`, and the `message`."""
    gave: dict[str, list[dict[str, Any]]] = _run("reads", {"streams": [b64encode(one).decode() for one in streams]})
    return gave


def chats(url: str, turns: Sequence[Any], told: Callable[[Any], None] = print, **more: Any) -> dict[str, Any]:
    """A `Chat` of `@ai-sdk/react`: what it holds after these turns, and what it sent."""
    gave: dict[str, Any] = _run("chats", {"url": url, "turns": list(turns), **more}, told)
    return gave


def page(url: str, turns: Sequence[str], **more: Any) -> dict[str, Any]:
    """A page with `useChat` in it: what it shows after these turns."""
    gave: dict[str, Any] = _run("page", {"url": url, "turns": list(turns), **more})
    return gave


def _run(function: str, given: Mapping[str, Any], told: Callable[[Any], None] = print) -> Any:
    with subprocess.Popen(
        ["node", "chats.mjs", function],
        cwd=_directory(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(given))
        process.stdin.close()
        for line in process.stdout:
            said = json.loads(line)
            if "gave" in said:
                process.wait(SECONDS)
                return said["gave"]
            told(said["told"])
        raise AssertionError(f"{function}: {process.stderr.read()}")


@cache
def _directory() -> str:
    """Where the script finds what it imports."""
    directory = TemporaryDirectory(prefix="pellucid-ai-sdk-")
    _kept.append(directory)
    shutil.copy(HERE / "chats.mjs", directory.name)
    (Path(directory.name) / "node_modules").symlink_to(installed(HERE) / "node_modules")
    return directory.name


_kept: list[TemporaryDirectory[str]] = []
