"""Errors of providers, and the `ErrorInfo` that represents each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ERROR_KINDS
from pellucid.providers.errors import error_from_response, error_from_value, kind_of_status

OPENAI = {
    "error": {
        "message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    }
}

BODIES: list[tuple[str, int, Any, str, str | None, str | None]] = [
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
    ("nothing", 500, b"", "model_error", None, None),
    ("an empty object", 500, {}, "model_error", None, None),
    ("an empty error", 500, {"error": None}, "model_error", None, None),
    ("an error without words", 429, {"error": {"code": 429}}, "too_many_requests", None, "429"),
    ("not UTF-8", 400, b'{"error": {"message": "a\xffb"}}', "invalid_request", "a\ufffdb", None),
]  # fmt: skip


MESSAGES = {
    "invalid_request": "the provider refused the request",
    "not_found": "the provider did not find what it was asked for",
    "too_many_requests": "the provider takes no more requests for now",
    "unavailable": "the provider is not available for now",
    "model_error": "the provider failed",
}


@pytest.mark.parametrize(
    ("name", "status", "body", "kind", "upstream_message", "code"), BODIES, ids=[row[0] for row in BODIES]
)
def test_an_error_body(
    name: str, status: int, body: Any, kind: str, upstream_message: str | None, code: str | None
) -> None:
    info = error_from_response(status, body if isinstance(body, bytes) else json.dumps(body).encode())
    assert (info.kind, info.upstream_message, info.code, info.status) == (kind, upstream_message, code, status)
    assert info.message == f"{MESSAGES[kind]} (status {status})"
    assert info.full_message == (f"{info.message}: {upstream_message}" if upstream_message else info.message)


def test_a_code_that_is_a_sentence_becomes_part_of_the_message() -> None:
    info = error_from_value({"error": {"code": "You asked for it", "type": "bad_thing", "message": "No."}})
    assert (info.code, info.upstream_message) == ("bad_thing", "No.: You asked for it")
    info = error_from_value({"error": {"code": "x" * 101, "param": "the second of them", "message": "No."}})
    assert (info.code, info.param, info.upstream_message) == (None, None, f"No.: {'x' * 101}: the second of them")
    info = error_from_value({"error": {"code": "No.", "message": "No."}})
    assert info.upstream_message == "No."


MESSAGES_BY_CODE = {
    "context_length_exceeded": "the conversation is too long for the provider's model",
    "insufficient_quota": "the gateway's account at the provider has no quota left",
}


@pytest.mark.parametrize("code", MESSAGES_BY_CODE)
def test_some_codes_have_a_message_of_their_own(code: str) -> None:
    fault = {"error": {"code": code, "message": "m"}}
    assert error_from_value(fault).full_message == f"{MESSAGES_BY_CODE[code]}: m"
    assert error_from_value(fault, 400).full_message == f"{MESSAGES_BY_CODE[code]} (status 400): m"


UNKNOWN_MODEL = [
    {"error": {"message": "The model `gpt-99` does not exist", "code": "model_not_found"}},
    {"type": "error", "error": {"type": "not_found_error", "message": "model: gpt-99"}},
    {"error": {"code": 404, "message": "models/gpt-99 is not found for API version v1beta", "status": "NOT_FOUND"}},
    {"error": 'model "gpt-99" not found, try pulling it first'},
    b"no such model: gpt-99",
]


@pytest.mark.parametrize("body", UNKNOWN_MODEL)
def test_a_model_that_the_upstream_does_not_know_is_named(body: Any) -> None:
    info = error_from_response(404, body if isinstance(body, bytes) else json.dumps(body).encode(), "gpt-99")
    assert (info.kind, info.message) == ("not_found", "the provider knows no model 'gpt-99' (status 404)")
    assert info.code
    assert info.upstream_message


def test_an_unknown_model_is_recognised_by_its_code_alone() -> None:
    info = error_from_response(400, json.dumps(UNKNOWN_MODEL[0]).encode(), "gpt-99")
    assert (info.kind, info.code) == ("not_found", "model_not_found")
    assert info.message == "the provider knows no model 'gpt-99' (status 400)"


def test_status_404_without_a_known_cause() -> None:
    info = error_from_response(404, b'{"error": {"message": "No such file"}}', "gpt-99")
    assert info.full_message == (
        "the provider did not find something that was asked for, perhaps the model 'gpt-99' (status 404): No such file"
    )
    info = error_from_response(404, b"<title>404</title>", "gpt-99")
    assert info.full_message == (
        "the provider has nothing at the address where the model 'gpt-99' was asked for; see its base_url (status 404)"
        ": 404"
    )


def test_an_error_has_the_parameter_and_the_body_of_the_provider() -> None:
    info = error_from_response(400, json.dumps(OPENAI).encode())
    assert (info.param, info.native) == ("max_tokens", OPENAI)


@pytest.mark.parametrize(("status", "words"), [(401, "credentials"), (402, "payment"), (403, "forbids")])
def test_an_error_of_the_gateways_account_is_a_model_error(status: int, words: str) -> None:
    info = error_from_response(status, b'{"error": {"message": "Incorrect API key"}}')
    assert info.kind == "model_error"
    assert words in info.message
    assert info.full_message == f"{info.message}: Incorrect API key"
    assert info.message.endswith(f" (status {status})")


KIND_BY_TYPE = {
    "overloaded_error": "unavailable",
    "rate_limit_exceeded": "too_many_requests",
    "insufficient_quota": "too_many_requests",
    "context_length_exceeded": "invalid_request",
    "invalid_request_error": "invalid_request",
    "something_new": "model_error",
}


@pytest.mark.parametrize("error_type", KIND_BY_TYPE)
def test_without_a_status_type_or_code_decide_the_kind(error_type: str) -> None:
    for field in ("type", "code"):
        assert error_from_value({"error": {"message": "m", field: error_type}}).kind == KIND_BY_TYPE[error_type]


def test_a_numeric_code_is_the_status() -> None:
    for code in (429, "429"):
        info = error_from_value({"error": {"message": "m", "code": code}})
        assert (info.kind, info.status) == ("too_many_requests", 429)
    assert error_from_value({"error": {"message": "m", "code": 42}}).status is None


@given(st.integers(100, 999))
def test_every_status_has_an_error_kind(status: int) -> None:
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
def test_any_value_gives_an_error(value: Any) -> None:
    info = error_from_value(value)
    assert info.kind in ERROR_KINDS
    assert info.message


@given(st.integers(400, 599), st.binary(max_size=50) | values.map(lambda value: json.dumps(value).encode()))
def test_any_body_gives_an_error(status: int, body: bytes) -> None:
    info = error_from_response(status, body)
    assert info.kind in ERROR_KINDS
    assert info.message


TOO_LONG = [
    ("OpenAI", 400, {"error": {"message": "Your input exceeds the context window of this model. Please adjust your "
                               "input and try again.", "code": "context_length_exceeded"}}),
    ("OpenAI, before", 400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, your "
                                       "messages resulted in 8545 tokens."}}),
    ("vLLM", 400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you "
                   "requested 5000 tokens", "type": "BadRequestError", "code": 400}),
    ("Anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error",
                        "message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
    ("Anthropic, with max_tokens", 400, {"type": "error", "error": {"type": "invalid_request_error", "message":
        "input length and `max_tokens` exceed context limit: 198000 + 21333 > 200000"}}),
    ("Google", 400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count (1200000) "
                     "exceeds the maximum number of tokens allowed (1048576)."}}),
    ("Bedrock", 400, {"message": "Input is too long for requested model."}),
    ("xAI", 400, {"error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}),
    ("Groq", 400, {"error": {"message": "Please reduce the length of the messages or completion.",
                             "type": "invalid_request_error", "code": "context_length_exceeded"}}),
    ("llama.cpp", 400, {"error": {"code": 400, "message": "the request exceeds the available context size, try "
                                  "increasing it", "type": "exceed_context_size_error"}}),
    ("llama.cpp, before", 500, {"error": {"code": 500, "message": "context size exceeded", "type": "server_error"}}),
    ("Mistral", 400, {"message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 "
                      "maximum context length", "type": "invalid_request_prompt"}),
    ("Cohere", 400, {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081"}),
    ("LM Studio", 400, {"error": "The number of tokens to keep from the initial prompt is greater than the context "
                        "length."}),
    ("Moonshot", 400, {"error": {"message": "Invalid request: Your request exceeded model token limit: 8192",
                                 "type": "invalid_request_error"}}),
    ("Ollama", 400, {"error": "prompt too long; exceeded max context length by 12 tokens"}),
    ("in a stream", None, {"error": {"message": "prompt is too long: 3 tokens > 2 maximum"}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "status", "body"), TOO_LONG, ids=[row[0] for row in TOO_LONG])
def test_every_context_length_error_has_one_code(name: str, status: int | None, body: Any) -> None:
    info = error_from_value(body, status)
    assert (info.kind, info.code) == ("invalid_request", "context_length_exceeded")
    assert info.message.startswith("the conversation is too long for the provider's model")


OTHER_ERRORS = [
    (429, {"error": {"message": "Request too large for gpt-4 on tokens per min (TPM): Limit 10000", "code": "rate"}}),
    (400, {"error": {"message": "Invalid value for max_tokens: must be at most 4096"}}),
    (400, {"error": {"message": "The image is too large.", "type": "invalid_request_error"}}),
    (401, {"error": {"message": "the input is too long to be a key"}}),
    (503, {"error": {"message": "queue exceeds context"}}),
]


@pytest.mark.parametrize(("status", "body"), OTHER_ERRORS)
def test_other_errors_are_not_context_length_errors(status: int, body: Any) -> None:
    assert error_from_value(body, status).code != "context_length_exceeded"
