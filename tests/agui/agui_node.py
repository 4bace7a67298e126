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
    """What the client makes of each sequence of events, or of raw bytes with their type.

    `accepted`, `error`, `failed` (what RUN_ERROR said), `events` (the types that reached it), `warnings`, `messages` in
    the end, `interrupts`.
    """
    bodies = [
        {"body": b64encode(one[0]).decode(), "type": one[1]} if isinstance(one, tuple) else list(one)
        for one in sequences
    ]
    return _run("play", {"client": client, "sequences": bodies, "messages": list(messages)})


def talk(client: Client, url: str, turns: Sequence[Mapping[str, Any]], **more: Any) -> list[dict[str, Any]]:
    """What the client makes of the answers to a conversation: the same for each turn."""
    return _run("talk", {"client": client, "url": url, "turns": list(turns), **more})


def converse(conversations: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """What came of many conversations, in one process: of each, what the client makes of every turn."""
    gave: Any = _run("converse", {"conversations": list(conversations)})
    return list(gave)


def decode(messages: Sequence[bytes]) -> list[dict[str, Any]]:
    """What `@ag-ui/proto` decodes: `event`, or `error`."""
    return _run("decode", {"messages": [b64encode(message).decode() for message in messages]})


def _run(function: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["node", "agui.mjs", function],
        cwd=_directory(),
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    gave: list[dict[str, Any]] = json.loads(done.stdout.rstrip("\n").rpartition("\n")[2])  # text may hold U+2028
    return gave


@cache
def _directory() -> str:
    """Where the script finds what it imports."""
    directory = TemporaryDirectory(prefix="pellucid-agui-")
    _kept.append(directory)
    shutil.copy(HERE / "agui.mjs", directory.name)
    (Path(directory.name) / "node_modules").symlink_to(installed(HERE) / "node_modules")
    return directory.name


_kept: list[TemporaryDirectory[str]] = []
