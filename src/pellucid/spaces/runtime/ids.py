"""Ids of what the gateway says, and of what came without one. They can name a context."""

from __future__ import annotations

import os
import random

_random = random.Random(os.urandom(32))
"""Asking the system for each would cost more than all else that is done with an envelope. Nothing is kept safe by an
id's being unknown."""

# A child of a fork would go on with its parent's.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


def new_id() -> str:
    return f"env-{_random.getrandbits(128):032x}"
