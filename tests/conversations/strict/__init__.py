"""Upstreams that refuse what the real ones refuse (see `core`), one class a contract, and a server for them."""

from . import chat, claude, google, responses, typed
from .core import (
    ANSWER,
    CALL,
    CUT_CALL,
    CUT_SECOND_CALL,
    CUT_TEXT,
    CUT_THOUGHT,
    INTERLEAVED,
    Act,
    Block,
    CanaryMatch,
    Refusal,
    Upstream,
    find_canaries,
)
from .server import SIDES, StrictServer

__all__ = [
    "ANSWER",
    "CALL",
    "CUT_CALL",
    "CUT_SECOND_CALL",
    "CUT_TEXT",
    "CUT_THOUGHT",
    "INTERLEAVED",
    "SIDES",
    "Act",
    "Block",
    "CanaryMatch",
    "Refusal",
    "StrictServer",
    "Upstream",
    "find_canaries",
    "chat",
    "claude",
    "google",
    "responses",
    "typed",
]
