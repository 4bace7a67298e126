"""Amazon Bedrock: Converse and ConverseStream, one form for everybody's models.

Blocks have an index and an end, but only tool calls have a beginning; a piece of a block (a delta) is flatter than
the block itself; what is opaque comes as bytes. What the models behind it want differently is in the row.
"""

from .decode import decoder
from .encode import encode, path, setting_fields
from .thinking import THINKING

__all__ = ["THINKING", "decoder", "encode", "path", "setting_fields"]
