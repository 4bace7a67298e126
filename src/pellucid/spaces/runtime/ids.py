"""Ids of the gateway's envelopes and of envelopes without one, which can name a context; and tokens of participants.

A token is created here and shown once. Only its digest is stored.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import secrets

_random = random.Random(os.urandom(32))
"""Not the system's generator: a call of it for each id would cost more than everything else that is done with an
envelope. No secret depends on an id.
"""

# Otherwise the child of a fork would generate the same ids as its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


def new_id() -> str:
    """Return a new envelope id."""
    return f"env-{_random.getrandbits(128):032x}"


NEW_ID = re.compile(r"env-[0-9a-f]{32}")
"""The form of new ids."""


TOKEN_PREFIX = "pst_"


def new_token() -> str:
    """Return a new token of a participant."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> bytes:
    """Return the digest under which a token is stored.

    Tokens are random and long, so a plain hash cannot be reversed by guessing.
    """
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
