"""`/openapi.json` is what the server does: route by route, and whatever is asked of it."""

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

from pellucid.protocols.openresponses.verify import verify
from pellucid.server import create_app
from pellucid.server.config import check_config
from pellucid.server.openapi import build_document
from pellucid.server.page import Page, built_files
from tests.cases import Cases
from tests.examples import costly
from tests.scripted import Upstream, serve
from tests.scripted.gateway import Served

DOC = build_document()
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
    # What is measured is served only where the operator has it on; the page's files are no API.
    files = {("GET", re.sub(r":\w+}", "}", vars(route)["path"])) for route in Page(built_files()).routes()}
    assert served - files | {("GET", "/metrics")} == described
    assert sockets == {path for path, row in DOC["paths"].items() if any(key.endswith("-websocket") for key in row)}


def test_every_parameter_of_a_path_is_described() -> None:
    for path, row in DOC["paths"].items():
        named = set(re.findall(r"{(\w+)}", path))
        assert named == {p["name"] for p in row.get("parameters", []) if p["in"] == "path"}


# --- whatever is asked ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def api(upstream: Upstream) -> Iterator[Served]:
    config = {
        "server": {"default_model": "any"},
        "limits": {"retries": 0},
        "providers": {"vllm": {"base_url": upstream.url}},
        "models": {"any": {"provider": "vllm"}},
        "telemetry": {"metrics": True},
    }
    with serve(config) as running:
        yield running


def operations() -> dict[str, Any]:
    """What the document describes, by method and path; tests/spaces_server has what a participant's token opens."""
    found = {}
    for result in schemathesis.openapi.from_dict(DOC).get_all_operations():
        assert not isinstance(result, Err), result
        operation = result.ok()
        if not operation.path.startswith(("/spaces/", "/participants")):
            found[operation.label] = operation
    return found


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
"""All but those that ask what only a user of the API knows (whose models there are, what was stored before)."""


POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE

MESSAGE = {"type": "message", "role": "user", "content": "Hi"}
RUN = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/responses": {"input": "Why?"},
    "POST /v1/responses/compact": {"input": "Why?", "model": "any"},
    "POST /v1/conversations": {"items": [MESSAGE]},
    "POST /v1/conversations/{id}": {"metadata": {"a": "b"}},
    "POST /v1/conversations/{id}/items": {"items": [MESSAGE]},
    "POST /v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "POST /ag-ui": RUN,
    "POST /api/chat": {"text": "Hi"},
    "PATCH /api/conversations/{id}": {"title": "One"},
    "POST /api/session": {"key": "k"},
}
"""A body of each operation that takes one, which is accepted."""


@pytest.fixture(scope="module")
def there(api: Served) -> dict[str, dict[str, str]]:
    """What there is, by the beginning of a path."""

    def made(path: str, body: Any) -> Any:
        return api.request("POST", path, json.dumps(body).encode()).json

    conversation = made("/v1/conversations", {"items": [MESSAGE]})["id"]
    [kept] = api.request("GET", f"/v1/conversations/{conversation}/items").json["data"]
    response = made("/v1/responses", {"input": "Why?", "background": True})["id"]
    api.request("POST", "/ag-ui?store=true", json.dumps(RUN).encode())
    asked = api.request("POST", "/api/chat", b'{"text": "Hi"}', {"Content-Type": "application/json"}).body
    started = json.loads(re.findall(rb"data: (.*)", asked)[0])
    return {
        "/api/chat/": {"event_id": started["event_id"]},
        "/api/conversations/": {"id": started["conversation_id"]},
        "/v1/models/": {"id": "any"},
        "/v1/responses/": {"id": response},
        "/v1/conversations/": {"id": conversation, "item_id": kept["id"]},
        "/ag-ui": {"threadId": "t", "runId": "r", "model": "any"},
    }


CHOICES = {"raw", "summary", "sealed", "hidden", "openresponses", "openai"}


def may_be_accepted(case: Any) -> bool:
    """Whether what is not as described may be served all the same.

    A view and the names of events are read in capitals and with spaces, too; `Last-Event-ID` is not read where the
    query has `after`; what is not known is left out of `include` where a response is read again.
    """
    headers, query = dict(case.headers or {}), dict(case.query or {})
    sent = [value for value in (*headers.values(), *query.values()) if isinstance(value, str)]
    is_in_capitals = any(value not in CHOICES and value.strip().lower() in CHOICES for value in sent)
    is_unread = "after" in query and "last-event-id" in map(str.lower, headers)
    return is_in_capitals or is_unread or "include[]" in query


def check(label: str, case: Any, api: Served) -> int:
    """Send this, and hold the answer against the description; its status."""
    response = case.call(base_url=api.url)
    left_out: set[object] = {openapi.negative_data_rejection} if may_be_accepted(case) else set()
    if response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        # The schema is that of the events, as the specification has it; schemathesis would have it of the lines.
        left_out.add(SCHEMA)
        if label == "POST /v1/responses":
            is_openai = b"response.reasoning_text" in response.content
            assert verify(response.content, "openai" if is_openai else "openresponses") == []
    case.validate_response(response, checks=[check for check in CHECKS if check not in left_out])
    return int(response.status_code)


@pytest.mark.parametrize("label", OPERATIONS)
def test_whatever_is_asked(api: Served, there: dict[str, dict[str, str]], label: str) -> None:
    """As it is described, and as it is not. Of what there is, and of what there is not."""
    known = next((ids for start, ids in there.items() if start in label and not label.startswith("DELETE")), {})
    operation = OPERATIONS[label]

    def ask(case: Any, of_what_there_is: bool) -> None:
        if of_what_there_is:
            case.path_parameters = {**case.path_parameters, **{n: known[n] for n in case.path_parameters if n in known}}
            case.query = {**case.query, **{n: known[n] for n in case.query if n in known}}
        check(label, case, api)

    costly(given(operation.as_strategy(generation_mode=POSITIVE), st.booleans())(ask))()
    # What only has a path cannot be asked wrongly: any text is an id.
    if operation.body or operation.query or operation.headers:
        costly(given(operation.as_strategy(generation_mode=NEGATIVE), st.booleans())(ask))()


def test_what_is_right_is_accepted(api: Served, there: dict[str, dict[str, str]]) -> None:
    """One request of each operation that succeeds, and whose answer is as it is described."""
    with Cases() as case:
        for label, operation in OPERATIONS.items():
            if label.startswith(("DELETE", "GET /api/session/oidc")):
                continue  # what is deleted is needed by others; no provider of identities is configured
            with case(label):
                known = next((ids for start, ids in there.items() if start in label), {})
                sent = operation.Case(
                    path_parameters={name: known[name] for name in re.findall(r"{(\w+)}", label)},
                    query={one.name: known[one.name] for one in operation.query if one.name in known},
                    **({"body": BODIES[label], "media_type": "application/json"} if label in BODIES else {}),
                )
                assert check(label, sent, api) in (200, 204)
