"""Upstreams that refuse what the real ones refuse (see `core`): a class for each provider's rules, and a server."""

from . import chat, claude, google, limits, responses, typed
from .core import (
    ANSWER,
    CALL,
    CUT_CALL,
    CUT_SECOND_CALL,
    CUT_TEXT,
    CUT_THOUGHT,
    INTERLEAVED,
    TYPED_ANSWER,
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
    "TYPED_ANSWER",
    "Act",
    "Block",
    "CanaryMatch",
    "Refusal",
    "StrictServer",
    "Upstream",
    "chat",
    "claude",
    "find_canaries",
    "google",
    "limits",
    "responses",
    "typed",
]
