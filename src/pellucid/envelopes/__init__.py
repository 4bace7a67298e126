"""The pure core of spaces: what is said in one, in which words, where it stands, and who may.

No input or output here, and no clock or randomness that is not handed in.

* `Envelope` is one message in the canonical form; `kinds` has a row for each kind, `payloads` what they
  hold, `mcp` what is looked at of a call, `context` the paths.
* `read` and `write` translate between it and the dialects that participants speak; `said` is what the gateway says.
"""

from __future__ import annotations

from .envelope import ERASED, GATEWAY, DialectName, Envelope, EnvelopeError, Flag
from .frames import Join, decode_frame, is_heartbeat, parse_join
from .kinds import decode_payload, searched_text, text_of
from .mcp import tool_of
from .payloads import Present
from .translate import (
    DEFAULT_DIALECT,
    DIALECTS,
    Defaults,
    Dialect,
    detect_dialect,
    encode,
    parse_dialect,
    read,
    time_text,
    write,
)

__all__ = [
    "DEFAULT_DIALECT",
    "DIALECTS",
    "ERASED",
    "GATEWAY",
    "Defaults",
    "Dialect",
    "DialectName",
    "Envelope",
    "EnvelopeError",
    "Flag",
    "Join",
    "Present",
    "decode_frame",
    "decode_payload",
    "detect_dialect",
    "encode",
    "is_heartbeat",
    "parse_dialect",
    "parse_join",
    "read",
    "searched_text",
    "text_of",
    "time_text",
    "tool_of",
    "write",
]
