"""The OpenAPI document: valid, complete, and consistent with the code."""

import json
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.protocols.openresponses import openapi, parse_request
from pellucid.protocols.openresponses import types as t
from tests.openresponses.openresponses_kit import ALIASES, Schema, published_document, schemas
from tests.schemas import openapi_document

DOC = openapi_document()
OURS = schemas()[0]

spec = pytest.mark.needs("schema")


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        inner = [ref for entry in value.values() for ref in references(entry)]
        return inner + ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
    return [ref for entry in value for ref in references(entry)] if isinstance(value, list) else []


def test_the_document_has_what_openapi_31_requires() -> None:
    assert DOC["openapi"].startswith("3.1.")
    assert {"title", "version"} <= set(DOC["info"])
    assert all(path.startswith("/") for path in DOC["paths"])
    methods = {"get", "post", "delete"}
    operations = [path[method] for path in DOC["paths"].values() for method in methods & path.keys()]
    for operation in operations:
        assert operation["responses"]
        assert all("description" in response for response in operation["responses"].values())
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))
    assert json.loads(json.dumps(DOC)) == DOC


def test_every_reference_resolves_and_every_schema_is_valid() -> None:
    components = DOC["components"]["schemas"]
    mapped = [
        ref
        for schema in [DOC["paths"]["/v1/responses"], components]
        for discriminator in values_of(schema, "discriminator")
        for ref in discriminator.get("mapping", {}).values()
    ]
    for ref in [*references(DOC), *mapped]:
        prefix, _, name = ref.rpartition("/")
        assert prefix == "#/components/schemas"
        assert name in components
    for schema in components.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def values_of(value: Any, key: str) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    here = [value[key]] if isinstance(value, dict) and key in value else []
    return here + [one for entry in inner for one in values_of(entry, key)]


def test_the_stream_schema_has_every_event() -> None:
    stream = DOC["paths"]["/v1/responses"]["post"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
    assert set(stream["discriminator"]["mapping"]) == {*openapi.EVENTS, *openapi.EXTENSIONS, *ALIASES}
    assert set(stream["discriminator"]["mapping"]) == set(OURS.events)
    assert len(stream["oneOf"]) == 24 + len(openapi.EXTENSIONS) + len(ALIASES)


@spec
def test_the_events_are_the_specification_s_with_exactly_its_required_fields() -> None:
    theirs = Schema(published_document() or {})
    assert set(openapi.EVENTS) == set(theirs.events)
    for name in openapi.EVENTS:
        assert set(OURS.events[name]["required"]) == set(theirs.events[name]["required"]), name
        assert set(OURS.events[name]["properties"]) <= set(theirs.events[name]["properties"]), name


@spec
def test_the_response_requires_what_the_specification_requires() -> None:
    theirs = Schema(published_document() or {}).components
    assert set(OURS.components["Response"]["required"]) == set(theirs["ResponseResource"]["required"])
    assert set(OURS.components["CreateResponse"]["properties"]) >= set(theirs["CreateResponseBody"]["properties"])


@pytest.mark.parametrize(
    ("type_", "value", "is_valid"),
    [
        (t.CreateResponse, {"input": "a", "temperature": 1}, True),
        (t.CreateResponse, {"input": "a", "temperature": 3}, False),
        (t.CreateResponse, {"input": [{"type": "message", "role": "user", "content": "a"}]}, True),
        (t.CreateResponse, {"input": [{"type": "message", "role": "critic", "content": "a"}]}, False),
        (t.CreateResponse, {"input": [{"type": "function_call_output", "call_id": 5, "output": "a"}]}, False),
        (t.CreateResponse, {"input": "a", "metadata": {"k": 1}}, False),
        (t.CreateResponse, {"input": "a", "tools": [{"type": "function", "name": "a b"}]}, False),
        (t.CreateResponse, {"input": "a", "tools": [{"type": "function", "name": "ab", "parameters": {}}]}, True),
        (t.ReasoningItem, {"type": "reasoning", "id": "rs_1", "summary": [], "status": "completed"}, True),
        (t.ReasoningItem, {"type": "reasoning", "id": "rs_1", "status": "completed"}, False),
        (t.MessageItem, {"type": "message", "id": "m", "role": "user", "status": "completed", "content": []}, False),
        (t.UrlCitation, {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": "1"}, False),
    ],
)
def test_the_types_and_the_document_agree(type_: Any, value: dict[str, Any], is_valid: bool) -> None:
    assert (OURS.errors(type_.__name__, value) == []) is is_valid
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        assert not is_valid
    else:
        assert is_valid


SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(-1, 3) | st.integers(-1, 3) | st.booleans(),
    "top_logprobs": st.integers(-2, 22) | st.text(max_size=2),
    "max_output_tokens": st.integers(0, 40) | st.none(),
    "service_tier": st.sampled_from(["auto", "flex", "gold"]) | st.none(),
    "reasoning": st.fixed_dictionaries({"effort": st.sampled_from(["low", "some", None, 1])}),
    "metadata": st.dictionaries(st.sampled_from(["a", "b" * 65]), st.text(max_size=3) | st.integers(), max_size=2),
    "stream": st.booleans() | st.integers(0, 1),
    "truncation": st.sampled_from(["auto", "none", None]),
}


@given(st.fixed_dictionaries({}, optional=SIMPLE))
def test_exactly_the_bodies_that_the_document_allows_are_accepted(body: dict[str, Any]) -> None:
    body = {"input": "Hi", **body}
    allowed = OURS.errors("CreateResponse", body) == []
    try:
        parse_request(json.dumps(body).encode())
    except RequestError:
        assert not allowed
    else:
        assert allowed
