"""Tokens of participants: made here, told once, kept as a digest."""

from __future__ import annotations

import hashlib
import secrets

PREFIX = "pst_"


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> bytes:
    """What is kept of a token. It is random and long: a plain digest cannot be guessed back."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
