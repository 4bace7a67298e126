"""OpenAI's Responses, and the servers that speak it too.

What a model makes are *items*: a stretch of reasoning (with summaries, raw text and an encrypted blob, in any
combination), a message, a call. They are read into parts and go back as the items they came in.
"""

from .decode import decoder
from .encode import encode, setting_fields

__all__ = ["decoder", "encode", "setting_fields"]
