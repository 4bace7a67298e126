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
    """Read each stream with each version of the package: `kinds` of its chunks, `errors`, and the `message`."""
    result: dict[str, list[dict[str, Any]]] = _run("reads", {"streams": [b64encode(one).decode() for one in streams]})
    return result


def chats(url: str, turns: Sequence[Any], on_progress: Callable[[Any], None] = print, **more: Any) -> dict[str, Any]:
    """Run a `Chat` of `@ai-sdk/react`; return its messages after these turns, and its requests."""
    result: dict[str, Any] = _run("chats", {"url": url, "turns": list(turns), **more}, on_progress)
    return result


def page(url: str, turns: Sequence[str], **more: Any) -> dict[str, Any]:
    """Run a page with `useChat`; return the content that it shows after these turns."""
    result: dict[str, Any] = _run("page", {"url": url, "turns": list(turns), **more})
    return result


def _run(function: str, arguments: Mapping[str, Any], on_progress: Callable[[Any], None] = print) -> Any:
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
        process.stdin.write(json.dumps(arguments))
        process.stdin.close()
        for line in process.stdout:
            message = json.loads(line)
            if "result" in message:
                process.wait(SECONDS)
                return message["result"]
            on_progress(message["progress"])
        raise AssertionError(f"{function}: {process.stderr.read()}")


@cache
def _directory() -> str:
    """Create a directory with the script and its packages."""
    directory = TemporaryDirectory(prefix="pellucid-ai-sdk-")
    _directories.append(directory)
    shutil.copy(HERE / "chats.mjs", directory.name)
    (Path(directory.name) / "node_modules").symlink_to(installed(HERE) / "node_modules")
    return directory.name


_directories: list[TemporaryDirectory[str]] = []
