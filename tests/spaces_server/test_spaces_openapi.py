"""`/openapi.json` describes the routes of spaces: every response matches it, for valid and invalid requests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks as openapi

from tests.examples import costly, many
from tests.schemas import openapi_document
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import joined, served, token

ENDLESS = "GET /spaces/{name}/mcp"
"""The event stream of an MCP session (see test_spaces_mcp)."""
OPERATIONS = {
    operation.ok().label: operation.ok()
    for operation in schemathesis.openapi.from_dict(openapi_document()).get_all_operations()
    if isinstance(operation, Ok)
    and operation.ok().path.startswith(("/spaces/", "/participants"))
    and operation.ok().label != ENDLESS
}
CHECKS = [
    schemathesis.checks.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_schema_conformance,
    openapi.unsupported_method,
    openapi.allow_header_conformance,
]
POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
REQUEST_CASES = [
    *((label, POSITIVE) for label in OPERATIONS),
    *((label, NEGATIVE) for label, one in OPERATIONS.items() if one.query and "Mew" not in label),
]
KNOWN = {"name": "api", "space": "api", "id": "a", "seq": "3", "path": "r-1"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    fast = {"per_second": 1e6, "burst": 1e6}
    rooms = {"api": {"participants": {"a": ["*"]}, "limits": dict.fromkeys(("chat", "mcp", "other", "bytes"), fast)}}
    with pytest.MonkeyPatch.context() as patch, served(tmp_path_factory.mktemp("tokens"), rooms) as running:
        patch.setattr("pellucid.server.access.limits._SIGN_IN_LIMITS", {"attempts": 1e6})
        with joined(running, "api", "a") as a:
            a.say(kind="chat", id="q-1", payload={"text": "Why?"})
            a.say(kind="reasoning/start", id="r-1", correlation_id=["q-1"], payload={"message": "Hm"})
            a.say(kind="reasoning/conclusion", context="r-1", payload={"message": "So", "confidence": 1})
        yield running


@pytest.mark.parametrize(
    ("label", "mode"), REQUEST_CASES, ids=[f"{label} {mode.value}" for label, mode in REQUEST_CASES]
)
def test_every_response_matches_the_openapi_document(
    api: Served, label: str, mode: schemathesis.GenerationMode
) -> None:
    accepted = 0

    def ask(case: schemathesis.Case[Any], with_existing_seq: bool) -> None:
        nonlocal accepted
        for parameters in (case.path_parameters, case.query):
            parameters.update({name: value for name, value in KNOWN.items() if name in parameters})
        if not with_existing_seq and "seq" in case.path_parameters:
            case.path_parameters["seq"] = "99999"
        if mode is POSITIVE and case.query:
            case.query.pop("replay", None)
        if "speed" in case.query:
            case.query["longest_pause"] = "0.001"  # otherwise a slow replay takes too long
        headers = {"Authorization": f"Bearer {token('api', 'a')}"}
        if label.endswith(("/join", "/invitation")) and isinstance(case.body, dict) and "link" in case.body:
            # A link is nothing that can be generated.
            guest = {"participant": f"guest-{time.monotonic_ns()}"}
            made = api.request("POST", "/spaces/api/links", json.dumps(guest).encode(), headers)
            case.body["link"] = made.json["link"]
        if label == "POST /spaces/{name}/mcp" and isinstance(case.body, dict) and with_existing_seq:
            case.body |= {"id": 1, "method": "tools/list", "params": {}}  # few generated methods exist
        response = case.call(base_url=api.url, headers=headers)
        accepted += response.status_code in (200, 204)
        checks = list(CHECKS)
        if not response.headers.get("content-type", [""])[0].startswith("application/json"):
            checks.remove(openapi.response_schema_conformance)  # lines and pages
        case.validate_response(response, checks=checks, headers=headers)

    examples = given(OPERATIONS[label].as_strategy(generation_mode=mode), st.booleans())
    costly(examples(ask))()
    if mode is POSITIVE and not accepted:
        many(examples(ask))()  # few examples of some operations are valid
        assert accepted
