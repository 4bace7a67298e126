"""Mistral's own Chat Completions: content is a text or a list of typed chunks; thought is a chunk too.

Older magistral models write thought between tags in the text; which do is in the profile's row.
"""

from .decode import decoder
from .encode import THINKING, encode, setting_fields

__all__ = ["THINKING", "decoder", "encode", "setting_fields"]
