"""What was refused before a run began: an HTTP status, and the event that would have said it in a stream.

Clients make an error of the status, and show the body as it is.
"""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo
from ..statuses import STATUSES


def status_of(error: ErrorInfo) -> int:
    """The HTTP status for an error that comes before anything was streamed."""
    return STATUSES[error.kind]


def error_body(error: ErrorInfo) -> dict[str, Any]:
    """RUN_ERROR; `metadata.pellucid.param` says where in the input it stands."""
    body: dict[str, Any] = {"type": "RUN_ERROR", "message": error.told, "code": error.code or error.kind}
    return body if error.param is None else {**body, "metadata": {"pellucid": {"param": error.param}}}
