"""Ollama's own `/api/chat`: lines of JSON, with reasoning in a field of its own and arguments as objects."""

from .decode import decoder
from .encode import encode, setting_fields

__all__ = ["decoder", "encode", "setting_fields"]
