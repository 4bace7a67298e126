"""What providers say when something is wrong, and what it is called here."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ERROR_KINDS
from pellucid.providers.faults import fault_of_response, fault_of_value, kind_of_status

OPENAI = {
    "error": {
        "message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    }
}

BODIES: list[tuple[str, int, Any, str, str, str | None]] = [
    ("OpenAI", 400, OPENAI, "invalid_request", OPENAI["error"]["message"], "unsupported_parameter"),
    ("an error as text", 400, {"error": "no such model"}, "invalid_request", "no such model", None),
    ("vLLM", 400, {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400},
     "invalid_request", "too long", "400"),
    ("FastAPI", 422, {"detail": [{"loc": ["body", "n"], "msg": "Field required", "type": "missing"}]},
     "invalid_request", "Field required", "missing"),
    ("FastAPI, a text", 404, {"detail": "Not Found"}, "not_found", "Not Found", None),
    ("Google, in a list", 429, [{"error": {"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED"}}],
     "too_many_requests", "Quota.", "429"),
    ("OpenRouter", 502,
     {"error": {"code": 502, "message": "Provider returned error", "metadata": {"raw": "overloaded"}}}, "unavailable",
      "Provider returned error: overloaded", "502"),
    ("DashScope", 400, {"code": "InvalidParameter", "message": "parameter.enable_thinking must be set to false"},
     "invalid_request", "parameter.enable_thinking must be set to false", "InvalidParameter"),
    ("MiniMax", 500, {"base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
     "model_error", "rate limit", "1002"),
    ("Groq", 400, {"error": {"message": "Failed to call a function.", "type": "invalid_request_error",
                             "code": "tool_use_failed", "failed_generation": "<think>…"}},
     "invalid_request", "Failed to call a function.", "tool_use_failed"),
    ("several errors", 400, {"errors": [{"message": "one"}, {"message": "two"}]}, "invalid_request", "one", None),
    ("text", 503, b"upstream connect error", "unavailable", "upstream connect error", None),
    ("a page", 502, b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\xff</body></html>",
     "unavailable", "502 Bad Gateway", None),
    ("a page without a title", 502, b"<p>Bad</p>", "unavailable", "<p>Bad</p>", None),
    ("nothing", 500, b"", "model_error", "the upstream answered 500 without a message", None),
    ("an empty object", 500, {}, "model_error", "the upstream answered 500 without a message", None),
    ("an empty error", 500, {"error": None}, "model_error", "the upstream answered 500 without a message", None),
    ("an error without words", 429, {"error": {"code": 429}}, "too_many_requests",
     "the upstream answered 429 without a message", "429"),
    ("not UTF-8", 400, b'{"error": {"message": "a\xffb"}}', "invalid_request", "a\ufffdb", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "status", "body", "kind", "message", "code"), BODIES, ids=[row[0] for row in BODIES])
def test_a_body(name: str, status: int, body: Any, kind: str, message: str, code: str | None) -> None:
    info = fault_of_response(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())
    assert (info.kind, info.message, info.code, info.status) == (kind, message, code, status)


def test_the_parameter_and_the_providers_own_body_are_kept() -> None:
    info = fault_of_response(400, {}, json.dumps(OPENAI).encode())
    assert (info.param, info.native) == ("max_tokens", OPENAI)


@pytest.mark.parametrize(("status", "words"), [(401, "credentials"), (402, "payment"), (403, "forbids")])
def test_what_is_wrong_with_our_own_account_is_not_the_callers_fault(status: int, words: str) -> None:
    info = fault_of_response(status, {}, b'{"error": {"message": "Incorrect API key"}}')
    assert info.kind == "model_error"
    assert words in info.message
    assert info.message.endswith(": Incorrect API key")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3), ("1.5", 1.5), ("0", 0), ("", None), ("-1", None), ("nan", None), ("inf", None),
     ("Wed, 21 Oct 2026 07:28:00 GMT", None)],
)  # fmt: skip
def test_when_to_try_again(header: str, seconds: float | None) -> None:
    assert fault_of_response(429, {"retry-after": header}, b"").retry_after == seconds
    assert fault_of_response(429, {}, b"").retry_after is None


WORDS = {
    "overloaded_error": "unavailable",
    "rate_limit_exceeded": "too_many_requests",
    "insufficient_quota": "too_many_requests",
    "context_length_exceeded": "invalid_request",
    "invalid_request_error": "invalid_request",
    "something_new": "model_error",
}


@pytest.mark.parametrize("word", WORDS)
def test_where_no_status_tells_the_type_or_the_code_does(word: str) -> None:
    for field in ("type", "code"):
        assert fault_of_value({"error": {"message": "m", field: word}}).kind == WORDS[word]


def test_a_code_that_is_a_status_is_one() -> None:
    for code in (429, "429"):
        info = fault_of_value({"error": {"message": "m", "code": code}})
        assert (info.kind, info.status) == ("too_many_requests", 429)
    assert fault_of_value({"error": {"message": "m", "code": 42}}).status is None


@given(st.integers(100, 999))
def test_every_status_is_some_kind_of_error(status: int) -> None:
    assert kind_of_status(status) in ERROR_KINDS


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "errors", "detail", "message", "code", "type", "metadata", "raw"]), inner
        )
    ),
    max_leaves=8,
)


@given(values)
def test_any_value_means_something(value: Any) -> None:
    info = fault_of_value(value)
    assert info.kind in ERROR_KINDS
    assert info.message


@given(st.integers(400, 599), st.binary(max_size=50) | values.map(lambda value: json.dumps(value).encode()))
def test_any_body_means_something(status: int, body: bytes) -> None:
    info = fault_of_response(status, {}, body)
    assert info.kind in ERROR_KINDS
    assert info.message
