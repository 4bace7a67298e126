"""Ids for what a request makes.

They begin with the time, so what is stored under them stands next to what was stored just before: a database then
changes the few pages at the end of an index, and not one anywhere for each id.
"""

from __future__ import annotations

import secrets
import time

from ..run import Minter


def new_minter() -> Minter:
    """A minter whose ids nobody can guess, and that sort by the time of this call."""
    return Minter(secrets.token_bytes(16), time.time_ns() // 1_000_000)
