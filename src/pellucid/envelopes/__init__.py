"""The pure core of spaces: envelopes, their kinds and dialects, and the rules of contexts, capabilities and proposals.

No module here does I/O. A clock and a source of randomness are always passed in.

* `Envelope` is one message in the canonical form. `kinds` has a row for each kind, `payloads` the types of payloads,
  `mcp` the accessors for MCP messages, `context` the context paths.
* `read` and `write` translate between the canonical form and the dialects of participants.
* `gateway_messages` builds the envelopes that the gateway sends.
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
