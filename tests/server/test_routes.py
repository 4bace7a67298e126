"""The small endpoints, and the errors of unknown paths and methods."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any

import pytest

from tests.scripted import Upstream, say
from tests.scripted.gateway import Served

NO_ROUTE = "there is no route"
NO_ROUTE_OBJECT = {"message": NO_ROUTE, "type": "not_found", "param": None, "code": "not_found"}


def test_the_models_are_listed(gateway: Served) -> None:
    reply = gateway.request("GET", "/v1/models")
    assert reply.status == 200
    assert reply.json["object"] == "list"
    first = reply.json["data"][0]
    assert {**first, "created": 0} == {"id": "unused", "object": "model", "created": 0, "owned_by": "silent"}


def test_health_and_readiness(gateway: Served) -> None:
    assert gateway.request("GET", "/health").json == {"status": "ok"}
    assert gateway.request("GET", "/ready").json == {"status": "ready"}


def test_the_openapi_document_is_served(gateway: Served) -> None:
    document = gateway.request("GET", "/openapi.json").json
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) >= {"/v1/responses", "/v1/models", "/health", "/ready", "/openapi.json"}
    assert "post" in document["paths"]["/v1/responses"]


def test_the_root_and_404_errors_list_the_endpoints(gateway: Served) -> None:
    listed = gateway.request("GET", "/").json["speaks"]
    not_found_message = gateway.request("GET", "/v1/completions").error["message"]
    for endpoint in ("POST /v1/responses", "GET /v1/responses (WebSocket)", "POST /v1/chat/completions"):
        assert endpoint in listed
        assert endpoint in not_found_message
    assert {"POST /v1/responses/compact", "POST /v1/conversations"} < set(listed)


@pytest.mark.parametrize("path", ["/v1", "/v1/response", "/v1/responses/resp_1", "/%00", "/..%2f..%2fetc/passwd"])
def test_an_unknown_path_is_not_found(gateway: Served, path: str) -> None:
    reply = gateway.request("GET", path)
    assert reply.status == 404
    assert reply.error["type"] == "not_found"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_an_unsupported_method_is_not_allowed(gateway: Served, method: str) -> None:
    reply = gateway.request(method, "/v1/responses")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    expected = f"{method} is not allowed on /v1/responses; allowed: POST, and GET as a WebSocket (Upgrade: websocket)"
    assert reply.error["message"] == expected
    assert gateway.request("POST", "/v1/models").status == 405


@pytest.mark.parametrize(
    ("method", "path", "status", "type"),
    [
        ("GET", "/v1/messages/batches", 404, "not_found_error"),
        ("GET", "/v1/messages", 405, "invalid_request_error"),
        ("POST", "/v1/messages", 400, "invalid_request_error"),
        ("GET", "/v1/models/none", 404, "not_found_error"),
        ("POST", "/v1/models", 405, "invalid_request_error"),
    ],
)
def test_errors_for_clients_of_anthropic_have_its_form(
    gateway: Served, method: str, path: str, status: int, type: str
) -> None:
    reply = gateway.request(method, path, headers={"anthropic-version": "2023-06-01"})
    error = {"type": type, "message": reply.json["error"]["message"]}
    assert reply.status == status
    assert reply.json == {"type": "error", "error": error, "request_id": reply.headers["request-id"]}
    assert reply.headers["request-id"] == reply.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/ag-ui/none", {"type": "RUN_ERROR", "message": NO_ROUTE, "code": "not_found"}),
        ("/api/chat/evt_1/none", {"error": {"message": NO_ROUTE, "code": "not_found"}}),
        ("/api/chat/evt_1/none?protocol=ai-sdk", NO_ROUTE),
        ("/v1/chat/completions/none", {"error": NO_ROUTE_OBJECT | {"type": "invalid_request_error"}}),
        ("/v1/chat/completions2", {"error": NO_ROUTE_OBJECT}),
    ],
)
def test_an_unknown_path_is_an_error_in_the_form_of_the_protocol_above_it(
    gateway: Served, path: str, body: dict[str, Any] | str
) -> None:
    reply = gateway.request("GET", path)
    assert reply.status == 404
    text = re.sub(r"there is no route [^;]*; this gateway serves [^\"]*", NO_ROUTE, reply.body.decode())
    assert (text if isinstance(body, str) else json.loads(text)) == body


def test_head_is_get_without_a_body(gateway: Served) -> None:
    reply = gateway.request("HEAD", "/v1/models")
    assert (reply.status, reply.body) == (200, b"")
    reply = gateway.request("HEAD", "/v1/responses")
    assert (reply.status, reply.body) == (405, b"")


def test_several_requests_on_one_connection(gateway: Served, upstream: Upstream) -> None:
    """A connection is reused after streams and errors, too."""
    model = upstream.plays(say())
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5)
    for body, status in (("stream", 200), ("wrong", 400), ("whole", 200), ("stream", 200)):
        sent = {
            "stream": f'{{"input": "x", "stream": true, "model": "{model}"}}',
            "whole": f'{{"input": "x", "model": "{model}"}}',
            "wrong": "{",
        }[body]
        connection.request("POST", "/v1/responses", sent)
        response = connection.getresponse()
        assert response.status == status
        assert response.read()
        assert connection.sock is not None
    connection.close()


def test_there_is_no_server_header(gateway: Served) -> None:
    assert "server" not in gateway.request("GET", "/health").headers
