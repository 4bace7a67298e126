"""Cohere's chat API, version 2: typed events, blocks with an index, reasoning as a block or as a plan for tools."""

from .decode import decoder
from .encode import encode, setting_fields

__all__ = ["decoder", "encode", "setting_fields"]
