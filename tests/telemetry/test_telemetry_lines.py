"""A log record is one line, for any values in it, and has the id of its request."""

from __future__ import annotations

import json
import logging
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pellucid.telemetry.lines import LogFormat, LogLine, formatter, request_id
from pellucid.telemetry.names import safe_id

names = st.sampled_from(["path", "model", "owner"])
values: st.SearchStrategy[Any] = st.one_of(
    st.text(st.characters()), st.integers(), st.booleans(), st.floats(0, 1e6), st.none()
)


def written(form: LogFormat, message: str, *args: Any, error: BaseException | None = None) -> str:
    info = (type(error), error, error.__traceback__) if error is not None else None
    record = logging.LogRecord("pellucid", logging.INFO, "here", 1, message, args, info)
    return formatter(form).format(record)


@given(st.dictionaries(names, values))
def test_no_value_can_begin_a_line_or_imitate_a_field(fields: dict[str, Any]) -> None:
    text = written("text", "%s", LogLine("request", fields))
    assert len(text.splitlines()) == 1
    present = {name: value for name, value in fields.items() if value is not None}
    # Each field once: a value that looks like one is in quotes.
    outside = [piece.split("=")[0] for piece in _unquoted(text).split(" ")[3:]]
    assert outside == list(present)
    entry = json.loads(written("json", "%s", LogLine("request", fields)))
    assert {name: entry[name] for name in present} == {name: _as_json(value) for name, value in present.items()}


def _unquoted(text: str) -> str:
    out, inside, escaped = "", False, False
    for c in text:
        if c == '"' and not escaped:
            inside = not inside
        elif not inside:
            out += c
        escaped = c == "\\" and not escaped
    return out


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@given(st.text())
def test_a_record_of_another_library_is_one_line(text: str) -> None:
    assert len(written("text", "%s", text).splitlines()) == 1
    assert json.loads(written("json", "%s", text))["message"] == text


def test_a_failure_is_logged_with_its_location_without_its_message() -> None:
    try:
        raise ValueError("t0psecret")
    except ValueError as error:
        for form in ("text", "json"):
            line = written(form, "it broke", error=error)
            assert "t0psecret" not in line
            assert "ValueError at" in line


def test_every_line_has_the_request_id() -> None:
    token = request_id.set("req_1")
    try:
        assert written("text", "something").endswith("something request_id=req_1")
        assert json.loads(written("json", "something"))["request_id"] == "req_1"
        assert written("text", "%s", LogLine("run", {"request_id": "req_2"})).endswith(" run request_id=req_2")
    finally:
        request_id.reset(token)


@given(st.text())
def test_a_client_s_request_id_is_logged_only_if_it_is_valid(text: str) -> None:
    request_id = safe_id(text)
    assert request_id is None or (
        request_id == text and len(text) <= 128 and text.isascii() and " " not in text and text.isprintable()
    )
    assert safe_id("req-A.b:c_1") == "req-A.b:c_1"
