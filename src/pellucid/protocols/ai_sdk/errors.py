"""What was refused before a stream began: an HTTP status, and the sentence itself as the body.

The AI SDK makes an error of the status whose message is the body as it is, and pages show that message: so it is plain
text, for a person.
"""

from __future__ import annotations

from ...errors import ErrorInfo
from ..statuses import STATUSES


def status_of(error: ErrorInfo) -> int:
    """The HTTP status for an error that comes before anything was streamed."""
    return STATUSES[error.kind]


def error_body(error: ErrorInfo) -> str:
    """The sentence."""
    return error.told
