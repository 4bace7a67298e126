"""AG-UI's official clients, on Node: installed once from `package-lock.json`, and driven in few processes."""

from __future__ import annotations

import json
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from tests.node_packages import installed

HERE = Path(__file__).parent / "node"
SECONDS = 110

Client = Literal["1.0.0", "0.0.58", "0.0.45", "0.0.39"]


def play(client: Client, sequences: Sequence[Any], messages: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """Feed each sequence of events, or of raw bytes with their type, to the client and return its results.

    Each result has `accepted`, `error`, `failed` (the message of RUN_ERROR), `events` (the types that the client
    received), `warnings`, the final `messages`, and `interrupts`.
    """
    bodies = [
        {"body": b64encode(one[0]).decode(), "type": one[1]} if isinstance(one, tuple) else list(one)
        for one in sequences
    ]
    return _run("play", {"client": client, "sequences": bodies, "messages": list(messages)})


def talk(client: Client, url: str, turns: Sequence[Mapping[str, Any]], **more: Any) -> list[dict[str, Any]]:
    """Run one conversation against a gateway; return a result as of `play` for each turn."""
    return _run("talk", {"client": client, "url": url, "turns": list(turns), **more})


def converse(conversations: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Run many conversations in one process; return the results of the turns of each."""
    result: Any = _run("converse", {"conversations": list(conversations)})
    return list(result)


def decode(messages: Sequence[bytes]) -> list[dict[str, Any]]:
    """Decode the messages with `@ag-ui/proto`; each result has `event` or `error`."""
    return _run("decode", {"messages": [b64encode(message).decode() for message in messages]})


def _run(function: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["node", "agui.mjs", function],
        cwd=_directory(),
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: list[dict[str, Any]] = json.loads(done.stdout.rstrip("\n").rpartition("\n")[2])  # text may hold U+2028
    return result


@cache
def _directory() -> str:
    """Create a directory with the script and its packages."""
    directory = TemporaryDirectory(prefix="pellucid-agui-")
    _directories.append(directory)
    shutil.copy(HERE / "agui.mjs", directory.name)
    (Path(directory.name) / "node_modules").symlink_to(installed(HERE) / "node_modules")
    return directory.name


_directories: list[TemporaryDirectory[str]] = []
