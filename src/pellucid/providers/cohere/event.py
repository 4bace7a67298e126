"""What is read of an event, or of a whole response, which has no `type`.

What is inside a message stays plain values: the same field holds an object in an event and a list in a response, and
unknown blocks ride through whole.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..fitting import struct_reader


class Message(msgspec.Struct, gc=False):
    content: Any = None
    tool_plan: str | None = None
    tool_calls: Any = None
    citations: Any = None


class Delta(msgspec.Struct, gc=False):
    message: Message | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class Event(msgspec.Struct, gc=False):
    type: str | None = None
    id: str | None = None
    index: int | None = None
    delta: Delta | None = None
    logprobs: Any = None
    # A whole response, or an error (then `message` is a text).
    message: Any = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


read_event = struct_reader(Event)
