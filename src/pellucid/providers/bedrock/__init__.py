"""Amazon Bedrock: Converse and ConverseStream, one form for everybody's models; and the frame around InvokeModel.

Blocks have an index and an end, but only tool calls have a beginning; a piece of a block (a delta) is flatter than
the block itself; what is opaque comes as bytes. What the models behind it want differently is in the row.
"""

from .decode import decoder
from .encode import encode, setting_fields
from .invoke import InvokedDecoder, invoke_body, invoke_path, path

__all__ = [
    "InvokedDecoder",
    "decoder",
    "encode",
    "invoke_body",
    "invoke_path",
    "path",
    "setting_fields",
]
