"""`/openapi.json` describes every route, and the responses to generated requests match it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis.core.result import Err
from schemathesis.specs.openapi import checks as openapi
from starlette.routing import Route, WebSocketRoute

from pellucid.protocols.messages.verify import verify as verify_messages
from pellucid.protocols.openresponses.verify import verify
from pellucid.server import create_app
from pellucid.server.config import check_config
from pellucid.server.page import Page, built_files
from tests.cases import Cases
from tests.examples import costly
from tests.schemas import openapi_document
from tests.scripted import Upstream, serve
from tests.scripted.gateway import Served

DOC = openapi_document()
METHODS = {"get", "post", "put", "patch", "delete"}


def test_every_route_is_described_and_nothing_else_is() -> None:
    app = create_app(check_config({"providers": {"vllm": {"base_url": "http://127.0.0.1:9/v1"}}}, {}))
    served, sockets = set(), set()
    for route in app._router.routes:
        assert isinstance(route, Route | WebSocketRoute)
        path = re.sub(r":\w+}", "}", route.path)
        if isinstance(route, Route):
            served |= {(method, path) for method in vars(route.endpoint)["_endpoints"] if method != "HEAD"}
        else:
            sockets.add(path)
    described = {(method.upper(), path) for path, row in DOC["paths"].items() for method in METHODS & row.keys()}
    # Metrics are served only if the operator enables them; the files of the page are not part of the API.
    files = {("GET", re.sub(r":\w+}", "}", vars(route)["path"])) for route in Page(built_files()).routes()}
    assert served - files | {("GET", "/metrics")} == described
    assert sockets == {path for path, row in DOC["paths"].items() if any(key.endswith("-websocket") for key in row)}


def test_every_parameter_of_a_path_is_described() -> None:
    for path, row in DOC["paths"].items():
        named = set(re.findall(r"{(\w+)}", path))
        assert named == {p["name"] for p in row.get("parameters", []) if p["in"] == "path"}


# --- generated requests -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def api(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = {
        "server": {"default_model": "any"},
        "limits": {"retries": 0},
        "providers": {"vllm": {"base_url": upstream.url}},
        "models": {"any": {"provider": "vllm"}},
        "telemetry": {"metrics": True},
    }
    with pytest.MonkeyPatch.context() as patch:
        # Requests connect models, which other gateways of the tests must not have.
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        # Generated requests guess the tokens of links, which is limited together with signing in.
        patch.setattr("pellucid.server.access.limits._SIGN_IN_LIMITS", {"attempts": 1e6})
        with serve(config) as running:
            yield running


def operations() -> dict[str, Any]:
    """Return the documented operations by method and path.

    Those for participants are in tests/spaces_server, and the feed, which has no end, in tests/chat_server.
    """
    by_label = {}
    for result in schemathesis.openapi.from_dict(DOC).get_all_operations():
        assert not isinstance(result, Err), result
        operation = result.ok()
        if not operation.path.startswith(("/spaces/", "/participants", "/api/events")):
            by_label[operation.label] = operation
    return by_label


OPERATIONS = operations()

SCHEMA = openapi.response_schema_conformance
CHECKS = [
    schemathesis.checks.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_headers_conformance,
    SCHEMA,
    openapi.negative_data_rejection,
    openapi.unsupported_method,
    openapi.allow_header_conformance,
]
"""All checks but those that need to know which models and stored objects exist."""


POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE

MESSAGE = {"type": "message", "role": "user", "content": "Hi"}
RUN = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/responses": {"input": "Why?"},
    "POST /v1/responses/input_tokens": {"input": "Why?", "model": "any"},
    "POST /v1/responses/compact": {"input": "Why?", "model": "any"},
    "POST /v1/conversations": {"items": [MESSAGE]},
    "POST /v1/conversations/{id}": {"metadata": {"a": "b"}},
    "POST /v1/conversations/{id}/items": {"items": [MESSAGE]},
    "POST /v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "POST /v1/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
    "POST /v1/messages/count_tokens": {"messages": [{"role": "user", "content": "Hi"}]},
    "POST /ag-ui": RUN,
    "POST /api/chat": {"text": "Hi"},
    "PATCH /api/conversations/{id}": {"title": "One"},
    "POST /api/conversations/{id}/shares": {"view": "raw"},
    "PUT /api/chat/{event_id}/feedback": {"rating": "up"},
    "POST /api/session": {"key": "k"},
    "POST /api/providers/test": {"profile": "vllm", "base_url": "http://127.0.0.1:9/v1"},
    "PUT /api/models/default": {"model": None},
    "PUT /api/connections/{name}": {"profile": "vllm", "models": ["m"]},
    "POST /api/spaces": {"name": "made", "participant": "lena"},
    "POST /api/spaces/{name}/participants": {"participant": "mara"},
}
"""A valid body for each operation that has one."""


@pytest.fixture(scope="module")
def existing_ids(api: Served) -> dict[str, dict[str, str]]:
    """Create one object of each kind, and return their ids by the start of a path."""

    def post(path: str, body: Any) -> Any:
        return api.request("POST", path, json.dumps(body).encode()).json

    conversation = post("/v1/conversations", {"items": [MESSAGE]})["id"]
    [item] = api.request("GET", f"/v1/conversations/{conversation}/items").json["data"]
    response = post("/v1/responses", {"input": "Why?", "background": True})["id"]
    api.request("POST", "/ag-ui?store=true", json.dumps(RUN).encode())
    question = {"text": "Hi", "attachments": [{"name": "a.txt", "data": "QQ=="}]}
    stream = api.request("POST", "/api/chat", json.dumps(question).encode(), {"Content-Type": "application/json"}).body
    started = json.loads(re.findall(rb"data: (.*)", stream)[0])
    path, json_type = f"/api/conversations/{started['conversation_id']}/shares", {"Content-Type": "application/json"}
    share = api.request("POST", path, b"{}", json_type).json
    space = b'{"name": "existing", "participant": "lena"}'
    api.request("POST", "/api/spaces", space, {"Content-Type": "application/json"})
    attachment = {"attachment_id": started["event_id"].replace("evt_", "att_") + "_0"}
    return {
        "/api/spaces/": {"name": "existing"},
        "/api/shared/": {"token": share["url"].rpartition("/")[2], **attachment},
        "/api/chat/": {"event_id": started["event_id"]},
        "/api/attachments/": attachment,
        "/api/conversations/": {"id": started["conversation_id"]},
        "/api/connections/": {"name": "mine"},
        "/v1/models/": {"id": "any"},
        "/v1/responses/": {"id": response},
        "/v1/conversations/": {"id": conversation, "item_id": item["id"]},
        "/ag-ui": {"threadId": "t", "runId": "r", "model": "any"},
    }


CHOICES = {"raw", "summary", "sealed", "hidden", "openresponses", "openai"}


def may_be_accepted(case: Any) -> bool:
    """Return whether a request that does not match the document may be accepted.

    Views and names of events are also accepted in capitals and with spaces; `Last-Event-ID` is ignored if the query
    has `after`; unknown values of `include` are ignored when a response is read.
    """
    headers, query = dict(case.headers or {}), dict(case.query or {})
    sent = [value for value in (*headers.values(), *query.values()) if isinstance(value, str)]
    is_in_capitals = any(value not in CHOICES and value.strip().lower() in CHOICES for value in sent)
    is_unread = "after" in query and "last-event-id" in map(str.lower, headers)
    return is_in_capitals or is_unread or "include[]" in query


def check(label: str, case: Any, api: Served) -> int:
    """Send a request, check the response against the document, and return its status."""
    response = case.call(base_url=api.url)
    left_out: set[object] = {openapi.negative_data_rejection} if may_be_accepted(case) else set()
    if response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        # The schema describes the events, as in the specification; schemathesis would apply it to the lines.
        left_out.add(SCHEMA)
        if label == "POST /v1/responses":
            is_openai = b"response.reasoning_text" in response.content
            assert verify(response.content, "openai" if is_openai else "openresponses") == []
        elif label == "POST /v1/messages":
            assert verify_messages(response.content) == []
    case.validate_response(response, checks=[check for check in CHECKS if check not in left_out])
    return int(response.status_code)


@pytest.mark.parametrize("label", OPERATIONS)
def test_responses_match_the_document(api: Served, existing_ids: dict[str, dict[str, str]], label: str) -> None:
    """Send valid and invalid requests, with ids that exist and ids that do not."""
    known = next((ids for start, ids in existing_ids.items() if start in label and not label.startswith("DELETE")), {})
    operation = OPERATIONS[label]

    def ask(case: Any, with_existing_ids: bool) -> None:
        if with_existing_ids:
            case.path_parameters = {**case.path_parameters, **{n: known[n] for n in case.path_parameters if n in known}}
            case.query = {**case.query, **{n: known[n] for n in case.query if n in known}}
        check(label, case, api)

    costly(given(operation.as_strategy(generation_mode=POSITIVE), st.booleans())(ask))()
    # A request that has only a path cannot be invalid: any text is an id, and any text may name a window.
    if operation.body or operation.query or any(one.name != "Pellucid-Window" for one in operation.headers):
        costly(given(operation.as_strategy(generation_mode=NEGATIVE), st.booleans())(ask))()


def test_a_valid_request_of_each_operation_succeeds(api: Served, existing_ids: dict[str, dict[str, str]]) -> None:
    """The response to one valid request of each operation matches the document."""
    with Cases() as case:
        for label, operation in OPERATIONS.items():
            if label.startswith(("DELETE", "GET /api/session/oidc")):
                continue  # other operations need what DELETE removes; no identity provider is configured
            if label == "POST /api/status/runs/{id}/cancel":
                continue  # it needs a run that does not end (test_status.py)
            with case(label):
                known = next((ids for start, ids in existing_ids.items() if start in label), {})
                sent = operation.Case(
                    path_parameters={name: known[name] for name in re.findall(r"{(\w+)}", label)},
                    query={one.name: known[one.name] for one in operation.query if one.name in known},
                    **({"body": BODIES[label], "media_type": "application/json"} if label in BODIES else {}),
                )
                assert check(label, sent, api) in (200, 204)
