"""OpenAI's Chat Completions, and the many dialects of it.

Reasoning may stand in a field beside the content (three names), in structured details, in tags inside the content,
or in several of these at once; requests and history differ as much. What differs is in the profile's row.
"""

from .decode import decoder
from .encode import encode, setting_fields

__all__ = ["decoder", "encode", "setting_fields"]
