"""Providers' errors, in our own words.

A provider says that something is wrong by an HTTP status, by an error object in a body or a stream, or both. What
the kind of an error is follows from the status where there is one, else from the object's own type and code. The
provider's sentence is kept: it is the one that helps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Any

import msgspec

from ..errors import ErrorInfo, ErrorKind
from .loose import loose_json

_KIND_OF_STATUS: dict[int, ErrorKind] = {
    400: "invalid_request",
    # The gateway's own credentials or rights at the provider: not the caller's fault.
    401: "model_error",
    402: "model_error",
    403: "model_error",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    415: "invalid_request",
    422: "invalid_request",
    429: "too_many_requests",
    500: "model_error",
    502: "unavailable",
    503: "unavailable",
    504: "timeout",
    529: "unavailable",
}

# Words that providers use for the type or code of an error object in a stream, where no status tells.
_KIND_OF_WORD: dict[str, ErrorKind] = {
    "invalid_request_error": "invalid_request",
    "invalid_request": "invalid_request",
    "BadRequestError": "invalid_request",
    "context_length_exceeded": "invalid_request",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
    "rate_limit_exceeded": "too_many_requests",
    "rate_limit_error": "too_many_requests",
    "insufficient_quota": "too_many_requests",
    "overloaded_error": "unavailable",
    "request_too_large": "too_large",
    "timeout_error": "timeout",
    "service_unavailable": "unavailable",
    "timeout": "timeout",
}

_PREFIX = {
    401: "the upstream refused the credentials",
    402: "the upstream wants payment from the gateway's account",
    403: "the upstream forbids this to the gateway's account",
}


def kind_of_status(status: int) -> ErrorKind:
    """The kind of error an HTTP status stands for."""
    known = _KIND_OF_STATUS.get(status)
    if known is not None:
        return known
    return "invalid_request" if 400 <= status < 500 else "model_error"


def fault_of_response(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """What an HTTP response that is not a success means. Bodies may be JSON in any of the known forms, or not JSON."""
    try:
        value = loose_json(body)
    except ValueError:
        value = _words(body.decode("utf-8", "replace"))
    info = fault_of_value(value, status)
    prefix = _PREFIX.get(status)
    message = f"{prefix}: {info.message}" if prefix else info.message
    return msgspec.structs.replace(info, message=message, retry_after=_retry_after(headers))


def fault_of_value(value: Any, status: int | None = None) -> ErrorInfo:
    """What an error object means: `{"error": {…}}`, `{"error": "…"}`, `{"message": …}`, `[{"error": …}]`, or text."""
    fault = _innermost(value)
    if isinstance(fault, dict):
        message = _first_text(fault, "message", "Message", "status_msg", "msg", "detail", "error", "type") or ""
        code = _first_text(fault, "code", "status", "type", "status_code")
        words = [str(fault.get(name)) for name in ("code", "type", "status")]
        if status is None and len(words[0]) == 3 and words[0].isdecimal() and 400 <= int(words[0]) < 600:
            status = int(words[0])
        param = fault.get("param")
        # OpenRouter says that somebody failed, and hides away what they said.
        metadata = fault.get("metadata")
        behind = _first_text(metadata, "raw") if isinstance(metadata, dict) else None
        if behind:
            message = f"{message}: {behind[:1000]}"
    else:
        message, code, words, param = str(fault or ""), None, [], None
    known = [_KIND_OF_WORD[word] for word in words if word in _KIND_OF_WORD]
    kind: ErrorKind = kind_of_status(status) if status is not None else known[0] if known else "model_error"
    if not message:
        message = f"the upstream answered {status} without a message" if status else "the upstream reported an error"
    return ErrorInfo(
        kind=kind,
        message=message,
        code=code,
        param=param if isinstance(param, str) else None,
        status=status,
        native=value,
    )


def _innermost(value: Any) -> Any:
    """The object or the text that says it, out of what it is wrapped in."""
    for _ in range(4):
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, dict):
            inner = next(
                (value[name] for name in _WRAPPERS if value.get(name) and isinstance(value[name], _NESTS)), None
            )
            if inner is None:
                break
            value = inner
    return value


_WRAPPERS = ("error", "errors", "detail", "base_resp")
_NESTS = (dict, list)


_TITLE = re.compile(r"<title[^>]*>(.*?)</title>|<h1[^>]*>(.*?)</h1>", re.DOTALL | re.IGNORECASE)


def _words(text: str) -> str:
    """What a body that is not JSON says; of a page, its title."""
    text = text.strip()
    title = _TITLE.search(text) if text.startswith("<") else None
    return ((title[1] or title[2] or "").strip() if title else "") or text[:1000]


def _first_text(fault: dict[str, Any], *names: str) -> str | None:
    for name in names:
        value = fault.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value)
    return None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, if they are said as a number; a date would need a clock."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < inf else None
