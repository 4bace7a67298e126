"""Convert providers' errors to `ErrorInfo`.

A provider reports an error by an HTTP status, by an error object in a body or a stream, or by both. The error's kind
follows from the status if there is one, otherwise from the object's type and code.

* `message` consists of the gateway's sentences, the status, and the requested model's name only. An upstream may quote
  the prompt or the reasoning, and the message reaches viewers who may see neither.
* The provider's message is kept whole in `upstream_message`, because it helps most. The two are shown together, with a
  colon between them, so the gateway's sentences have no final period.
* A code is one word, and a param is a path. Longer values are sentences, and are added to `upstream_message`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..errors import ErrorInfo, ErrorKind
from .lenient_json import decode_lenient_json

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

# Types and codes of error objects in a stream, where there is no status.
_KIND_OF_TYPE: dict[str, ErrorKind] = {
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

_MODEL_NOT_FOUND = "model_not_found"

# --- the gateway's messages --------------------------------------------------------------------------------------

_MESSAGE_OF_KIND: dict[ErrorKind, str] = {
    "invalid_request": "the provider refused the request",
    "not_found": "the provider did not find what it was asked for",
    "too_large": "the request is too large for the provider",
    "too_many_requests": "the provider takes no more requests for now",
    "unavailable": "the provider is not available for now",
    "timeout": "the provider did not finish in time",
    "unsupported": "the provider's model cannot do what it was asked for",
}

_MESSAGE_OF_STATUS = {
    401: "the provider refused the credentials",
    402: "the provider wants payment from the gateway's account",
    403: "the provider forbids this to the gateway's account",
    408: "the provider did not get the request in time",
}

_MESSAGE_OF_CODE = {
    "context_length_exceeded": "the conversation is too long for the provider's model",
    "insufficient_quota": "the gateway's account at the provider has no quota left",
}

TURN_FAILED = "the provider's model ended its turn with an error"


def describe_error(kind: ErrorKind, status: int | None = None, code: str | None = None) -> str:
    """Return the gateway's message for an upstream error, with the status and without text of the upstream."""
    known = _MESSAGE_OF_CODE.get(code or "") or _MESSAGE_OF_STATUS.get(status or 0) or _MESSAGE_OF_KIND.get(kind)
    if status is None:
        return known or "the provider reported an error"
    return f"{known or 'the provider failed'} (status {status})"


def turn_failed_error(reason: str | None) -> ErrorInfo:
    """Return the error for a turn with a finish reason that means failure, without an error object."""
    return ErrorInfo("model_error", TURN_FAILED, code=as_code(reason), upstream_message=reason)


def quote_start(data: bytes) -> str:
    """Quote the beginning of bytes that were not understood."""
    return repr(data[:80].decode("utf-8", "replace"))


_is_word = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/#@+-]{0,99}").fullmatch
_is_path = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_$.:/\[\]'\"@+-]{0,199}").fullmatch


def as_code(text: str | None) -> str | None:
    """Return a provider's code if it is one word; None if it is a sentence."""
    return text if text is not None and _is_word(text) else None


def kind_of_status(status: int) -> ErrorKind:
    """Return the kind of error for an HTTP status."""
    known = _KIND_OF_STATUS.get(status)
    if known is not None:
        return known
    return "invalid_request" if 400 <= status < 500 else "model_error"


# --- upstream responses ------------------------------------------------------------------------------------------


def error_from_response(status: int, body: bytes, model: str | None = None) -> ErrorInfo:
    """Convert an HTTP error response.

    Args:
        status: The HTTP status.
        body: The body: JSON in any of the known forms, or not JSON.
        model: The requested model, named in the message if the upstream does not find it.
    """
    try:
        value = decode_lenient_json(body)
    except ValueError:
        value = _text_of_body(body.decode("utf-8", "replace"))
    info = error_from_value(value, status)
    if info.kind == "not_found" and model is not None:
        info = _with_model_not_found(info, status, model)
    return info


def _with_model_not_found(info: ErrorInfo, status: int, model: str) -> ErrorInfo:
    if info.code == _MODEL_NOT_FOUND or re.search(rf"(?<!\w){re.escape(model)}(?!\w)", info.upstream_message or ""):
        message = f"the provider knows no model {model!r} (status {status})"
        return msgspec.structs.replace(info, message=message, code=info.code or _MODEL_NOT_FOUND)
    if isinstance(info.native, dict | list):
        message = f"the provider did not find something that was asked for, perhaps the model {model!r}"
    else:
        message = f"the provider has nothing at the address where the model {model!r} was asked for; see its base_url"
    return msgspec.structs.replace(info, message=f"{message} (status {status})")


def error_from_value(value: Any, status: int | None = None) -> ErrorInfo:
    """Convert an error value.

    Args:
        value: `{"error": {…}}`, `{"error": "…"}`, `{"message": …}`, `[{"error": …}]`, or text.
        status: The HTTP status, if there is one.
    """
    error_object = _unwrap_error(value)
    code = param = None
    type_words: list[str] = []
    if isinstance(error_object, dict):
        upstream_message = (
            _first_text(error_object, "message", "Message", "status_msg", "msg", "detail", "error", "type") or ""
        )
        codes = [text for name in _CODE_FIELDS if (text := _first_text(error_object, name)) is not None]
        code = next(filter(as_code, codes), None)
        type_words = [str(error_object.get(name)) for name in ("code", "type", "status")]
        if status is None and len(type_words[0]) == 3 and type_words[0].isdecimal() and 400 <= int(type_words[0]) < 600:
            status = int(type_words[0])
        param = _first_text(error_object, "param")
        # OpenRouter reports that a provider failed, and puts the provider's message here.
        metadata = error_object.get("metadata")
        inner_message = _first_text(metadata, "raw") if isinstance(metadata, dict) else None
        sentences = [text for text in codes[:1] if not as_code(text)]
        if param is not None and not _is_path(param):
            sentences, param = [*sentences, param], None
        upstream_message = ": ".join(
            dict.fromkeys(text for text in (upstream_message, *sentences, inner_message) if text)
        )
    else:
        upstream_message = str(error_object or "")
    known = [_KIND_OF_TYPE[word] for word in type_words if word in _KIND_OF_TYPE]
    kind: ErrorKind = kind_of_status(status) if status is not None else known[0] if known else "model_error"
    if kind in _KIND_IF_TOO_LONG and status not in _MESSAGE_OF_STATUS and _find_too_long(upstream_message):
        kind, code = _KIND_IF_TOO_LONG[kind], CONTEXT_LENGTH_EXCEEDED
    if code == _MODEL_NOT_FOUND and kind == "invalid_request":
        kind = "not_found"
    return ErrorInfo(
        kind=kind,
        message=describe_error(kind, status, code),
        code=code,
        param=param,
        status=status,
        native=value,
        upstream_message=upstream_message or None,
    )


_CODE_FIELDS = ("code", "status", "type", "status_code")

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
"""The code of an error for a conversation that does not fit into the model's context, whatever the provider's code is.
Most providers have no code for it, only a message."""

_KIND_IF_TOO_LONG: dict[ErrorKind, ErrorKind] = {
    "invalid_request": "invalid_request",
    "too_large": "too_large",
    "model_error": "invalid_request",  # for servers that answer 500, or report it in a stream
}
_find_too_long = re.compile(
    r"(?:prompt|input|request|message|conversation)s? (?:\([^)]*\) )?(?:is |are |was |were )?too (?:long|large)\b"
    r"|(?:exceed|larger|longer|greater|too large|too small|maximum|only|full|overflow)[^.]{0,60}\bcontext"
    r"|\bcontext[ _](?:length|size|window|limit)[^.]{0,60}(?:exceed|full|overflow|too small)"
    r"|input (?:length|tokens?)(?: count)?\b[^.]{0,40}exceed"
    r"|(?:maximum|exceeds?(?: the)?(?: max(?:imum)?)?) (?:prompt|model|input) length|exceeds max length"
    r"|too many (?:input|prompt) tokens|too many tokens(?: in| for|:)|exceeded model token limit"
    r"|reduce the length of the (?:messages|prompt)"
    r"|`inputs` (?:tokens|must have less than)|range of input length should be",
    re.IGNORECASE,
).search


def _unwrap_error(value: Any) -> Any:
    """Return the error object or text without its wrappers."""
    for _ in range(4):
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, dict):
            inner = next(
                (value[name] for name in _WRAPPERS if value.get(name) and isinstance(value[name], _CONTAINERS)), None
            )
            if inner is None:
                break
            value = inner
    return value


_WRAPPERS = ("error", "errors", "detail", "base_resp")
_CONTAINERS = (dict, list)


_TITLE = re.compile(r"<title[^>]*>(.*?)</title>|<h1[^>]*>(.*?)</h1>", re.DOTALL | re.IGNORECASE)


def _text_of_body(text: str) -> str:
    """Return the text of a body that is not JSON; of an HTML page, its title."""
    text = text.strip()
    title = _TITLE.search(text) if text.startswith("<") else None
    return ((title[1] or title[2] or "").strip() if title else "") or text[:1000]


def _first_text(error_object: dict[str, Any], *names: str) -> str | None:
    for name in names:
        value = error_object.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value)
    return None
