"""Anthropic's Messages, and the servers that speak it.

A message is a list of typed blocks; reasoning is blocks among them, signed. What is not signed never goes to Anthropic,
but does go back to a compatible server that wrote it. What models and servers differ in is in the profile's row.
"""

from .decode import decoder
from .encode import betas, encode, headers, path, setting_fields

__all__ = ["betas", "decoder", "encode", "headers", "path", "setting_fields"]
