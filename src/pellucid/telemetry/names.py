"""Names of OpenTelemetry's conventions for HTTP and generative AI (`gen_ai.*`).

They are defined here because the package that has them declares all of `gen_ai` experimental and moves it.
"""

from __future__ import annotations

import re

from ..settings import SETTINGS

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

# Attributes for which the conventions have no name.
REQUEST_ID = "pellucid.request_id"
PROTOCOL = "pellucid.protocol"
RUN_STATUS = "pellucid.run.status"
TOOL_OUTCOME = "pellucid.tool.outcome"
UPSTREAM_REQUEST_ID = "pellucid.upstream.request_id"
DEPLOYMENT = "pellucid.deployment"
FAILED_DEPLOYMENTS = "pellucid.failed_deployments"

CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

USAGE_ATTRIBUTES = {
    "input_tokens": INPUT_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
    "output_reasoning_tokens": REASONING_TOKENS,
    "cache_read_tokens": CACHE_READ_TOKENS,
    "cache_write_tokens": CACHE_WRITE_TOKENS,
}
"""The attribute of each field of `Usage`."""

SETTING_ATTRIBUTES = {name: f"gen_ai.request.{name}" for name, setting in SETTINGS.items() if setting.is_traced}
"""The attribute of each setting that is reported. All of them are numbers."""

UPSTREAM_ID_HEADERS = ("x-request-id", "request-id", "x-amzn-requestid", "cf-ray")
"""Response headers with a provider's id of the request, the most common first."""

_SAFE_ID = re.compile(r"[A-Za-z0-9._:\-]{1,128}")


def safe_id(id: str | None) -> str | None:
    """Return a foreign id if it is safe to log: one short word without line breaks; None otherwise."""
    return id if id is not None and _SAFE_ID.fullmatch(id) else None
