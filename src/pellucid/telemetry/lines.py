"""Log lines: one line for each event, with the event's name and its fields.

    log.info("%s", Line("request", {"method": "POST", "status": 200}))

As text: `request method=POST status=200`. As JSON, each field is a key. A field that is None is left out. Values are
quoted where necessary, so that no value from a client can begin a line or look like a field.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Literal

from . import error_location

LogFormat = Literal["text", "json"]

request_id: ContextVar[str | None] = ContextVar("pellucid_request_id", default=None)
"""The id of the current request, which is added to every line."""

_PLAIN = re.compile(r"[A-Za-z0-9._:/@+*{}\-]+")

_BREAK = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class LogLine:
    """The argument of a log record that has fields: `log.info("%s", LogLine(event, fields))`."""

    def __init__(self, event: str, fields: Mapping[str, Any]) -> None:
        self.event = event
        self.fields = {name: value for name, value in fields.items() if value is not None}

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={_format_value(value)}" for name, value in self.fields.items())])


def formatter(form: LogFormat) -> logging.Formatter:
    """Return the formatter of log records for a format."""
    return _JsonFormatter() if form == "json" else _TextFormatter()


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = _log_line(record)
        message = str(line) if line is not None else _escape_line_breaks(record.getMessage())
        id = request_id.get()
        if id is not None and (line is None or "request_id" not in line.fields):
            message += f" request_id={_format_value(id)}"
        return f"{_timestamp(record)} {record.levelname.lower()} {message}{_error_suffix(record)}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = _log_line(record)
        entry: dict[str, Any] = {"time": _timestamp(record), "level": record.levelname.lower()}
        id = request_id.get()
        if id is not None:
            entry["request_id"] = id
        if line is not None:
            entry["message"] = line.event
            entry |= line.fields
        else:
            entry["message"] = record.getMessage() + _error_suffix(record)
        return json.dumps(entry, default=str)


def _log_line(record: logging.LogRecord) -> LogLine | None:
    args = record.args
    return args[0] if isinstance(args, tuple) and len(args) == 1 and isinstance(args[0], LogLine) else None


def _error_suffix(record: logging.LogRecord) -> str:
    """Return where the record's error was raised. A traceback would end with its message, which may quote anything."""
    error = record.exc_info[1] if record.exc_info else None
    return f": {error_location(error)}" if error is not None else ""


def _timestamp(record: logging.LogRecord) -> str:
    return f"{_format_second(int(record.created))}.{int(record.msecs):03d}Z"


@lru_cache(maxsize=2)
def _format_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    # As ASCII: Unicode has many characters that end a line.
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _escape_line_breaks(text: str) -> str:
    return _BREAK.sub(lambda match: json.dumps(match[0])[1:-1], text)
