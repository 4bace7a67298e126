"""Names that others gave to things: OpenTelemetry's conventions for HTTP and for generative AI (`gen_ai.*`).

They are written out here because the package that holds them calls all of `gen_ai` experimental and moves it about.
"""

from __future__ import annotations

import re

HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"

# What the conventions have no word for.
REQUEST_ID = "pellucid.request_id"
PROTOCOL = "pellucid.protocol"
RUN_STATUS = "pellucid.run.status"
TOOL_OUTCOME = "pellucid.tool.outcome"
UPSTREAM_REQUEST_ID = "pellucid.upstream.request_id"

CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

USAGE = {
    "input_tokens": INPUT_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
    "output_reasoning_tokens": REASONING_TOKENS,
    "cache_read_tokens": CACHE_READ_TOKENS,
    "cache_write_tokens": CACHE_WRITE_TOKENS,
}
"""A usage's fields."""

SETTINGS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}
"""A call's settings that are told, all of them numbers."""

PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "google": "gcp.gemini",
    "groq": "groq",
    "mistral": "mistral_ai",
    "openai": "openai",
    "openai-responses": "openai",
    "perplexity": "perplexity",
    "xai": "x_ai",
}
"""Providers that the conventions have a name for; others go by their own."""

UPSTREAM_ID_HEADERS = ("x-request-id", "request-id", "x-amzn-requestid", "cf-ray")
"""Where a provider says what it calls a request, the likeliest first."""

_TAME = re.compile(r"[A-Za-z0-9._:\-]{1,128}")


def tame(id: str | None) -> str | None:
    """An id that somebody else chose, if it looks like one: short, of one word, and nothing that ends a line."""
    return id if id is not None and _TAME.fullmatch(id) else None
