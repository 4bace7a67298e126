"""The pure core of spaces: what is said in one, in which words, where it stands, and who may.

No input or output here, and no clock or randomness that is not handed in.

* `Envelope` is one message in the canonical form; `kinds` has a row for each kind, `payloads` what they
  hold, `mcp` what is looked at of a call, `context` the paths.
* `read` and `write` translate between it and the dialects that participants speak; `said` is what the gateway says.
"""

from __future__ import annotations

from .envelope import ERASED, GATEWAY, DialectName, Envelope, EnvelopeError, Flag
from .frames import Join, is_heartbeat, join_in, load
from .kinds import searched_text, text_of, typed
from .mcp import tool_of
from .payloads import Present
from .translate import DIALECTS, USUAL, Defaults, Dialect, dialect_named, dialect_of, encode, read, time_text, write

__all__ = [
    "DIALECTS",
    "ERASED",
    "GATEWAY",
    "USUAL",
    "Defaults",
    "Dialect",
    "DialectName",
    "Envelope",
    "EnvelopeError",
    "Flag",
    "Join",
    "Present",
    "dialect_named",
    "dialect_of",
    "encode",
    "is_heartbeat",
    "join_in",
    "load",
    "read",
    "searched_text",
    "text_of",
    "time_text",
    "tool_of",
    "typed",
    "write",
]
