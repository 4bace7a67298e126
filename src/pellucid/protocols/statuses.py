"""The HTTP status of each kind of error, the same in every protocol: for what comes before anything was streamed."""

from __future__ import annotations

from ..errors import ErrorKind

STATUSES: dict[ErrorKind, int] = {
    "invalid_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "too_large": 413,
    "slow_request": 408,
    "unsupported": 400,
    "too_many_requests": 429,
    "model_error": 502,
    "unavailable": 503,
    "timeout": 504,
    "server_error": 500,
}
