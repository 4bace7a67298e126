"""Ids of what the gateway says, and of what came without one. They can name a context.

Tokens of participants: made here, told once, kept as a digest.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets

_random = random.Random(os.urandom(32))
"""Asking the system for each would cost more than all else that is done with an envelope. Nothing is kept safe by an
id's being unknown."""

# A child of a fork would go on with its parent's.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


def new_id() -> str:
    return f"env-{_random.getrandbits(128):032x}"


TOKEN_PREFIX = "pst_"


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> bytes:
    """What is kept of a token. It is random and long: a plain digest cannot be guessed back."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
