"""Google's Gemini: `generateContent` and `streamGenerateContent`, and reading of the Interactions API.

An answer is a list of parts, without ids or ends; signatures stand on whatever part the thought led to.
"""

from .decode import decoder
from .encode import encode, headers, path, setting_fields

__all__ = ["decoder", "encode", "headers", "path", "setting_fields"]
