"""Recorded responses of providers: those of this repository, and a larger set of real ones where there is one.

`tests/recorded/PROVIDER/CASE.toml` are written by hand, after the documentation that each of them names: its bytes, and
what they must decode to. `test_recorded.py` has the table of the cases that each wire must have.

The larger set (`PROVIDER/NAME/response.body`, with what Pydantic AI decodes from it) is not part of the repository.
`PELLUCID_RECORDINGS` names its directory; the default is a directory next to the checkout. A test that needs it is
marked `@pytest.mark.needs("recordings")`; all others loop over both sets.
"""

from __future__ import annotations

import json
import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from tests.event_stream_messages import eventstream_message

OWN = Path(__file__).parent / "recorded"
EVENT_STREAM = "application/vnd.amazon.eventstream"


class Recording(NamedTuple):
    """A response of a provider."""

    provider: str
    """A row of the profiles."""
    case: str
    model: str
    content_type: str
    body: bytes
    expected: dict[str, Any]
    """What it decodes to, in the form that `test_recorded.py` compares; in the larger set, in Pydantic AI's."""
    meta: dict[str, Any]
    """The rest of the file."""
    own: bool

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.case}"

    @property
    def row(self) -> Profile:
        """The profile of the model."""
        return builtin_profiles()[self.provider].for_model(self.model)


def recordings_root() -> Path | None:
    """Return the directory of the larger set, or None if there is none."""
    named = os.environ.get("PELLUCID_RECORDINGS")
    path = Path(named) if named else Path(__file__).parents[2] / "shared" / "recordings"
    return path if path.is_dir() else None


def recordings(*providers: str) -> list[Recording]:
    """Return the recordings of these providers (of all, if none is named) of both sets, in order."""
    return [*own_recordings(*providers), *larger_set(*providers)]


def own_recordings(*providers: str) -> list[Recording]:
    return [one for one in _all_own() if not providers or one.provider in providers]


def larger_set(*providers: str) -> list[Recording]:
    root = recordings_root()
    return [one for one in _all_larger(root) if not providers or one.provider in providers] if root else []


@cache
def _all_own() -> list[Recording]:
    return [_own(path) for path in sorted(OWN.glob("*/*.toml"))]


def _own(path: Path) -> Recording:
    meta = tomllib.loads(path.read_text(encoding="utf-8"))
    content_type = meta.get("content_type", "text/event-stream")
    body, expected = meta.pop("body"), meta.pop("expected")
    data = _event_stream(body) if content_type == EVENT_STREAM else body.encode()
    return Recording(path.parts[-2], path.stem, meta["model"], content_type, data, expected, meta, own=True)


def _event_stream(text: str) -> bytes:
    """Return the messages of Amazon's event stream that these lines describe: the name of an event or an exception, and
    its payload."""
    messages = []
    for line in text.splitlines():
        name, _, payload = line.partition(" ")
        kind = "exception" if name.endswith("Exception") else "event"
        headers = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
        messages.append(eventstream_message(payload.encode(), headers))
    return b"".join(messages)


@cache
def _all_larger(root: Path) -> list[Recording]:
    return [_larger(path.parent) for path in sorted(root.glob("*/*/response.body"))]


def _larger(folder: Path) -> Recording:
    expected, meta = (json.loads((folder / f"{name}.json").read_bytes()) for name in ("expected", "meta"))
    body, model = (folder / "response.body").read_bytes(), expected.get("model_name") or ""
    return Recording(folder.parent.name, folder.name, model, meta["content_type"], body, expected, meta, own=False)
