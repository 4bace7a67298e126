"""The OpenAPI document's section for this protocol: valid, complete, and consistent with the other protocols."""

import json
from typing import Any

import jsonschema
import msgspec

from pellucid.protocols.chat_completions import types as t
from pellucid.server.openapi import build_components as schemas
from pellucid.server.openapi import build_path_items
from pellucid.server.openresponses.routes import CONVERSATIONS, RESPONSES
from pellucid.server.stateless import TABLES

TABLE = TABLES["chat_completions"]


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        inner = [ref for entry in value.values() for ref in references(entry)]
        return inner + ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
    return [ref for entry in value for ref in references(entry)] if isinstance(value, list) else []


def test_every_reference_resolves_and_every_schema_is_valid() -> None:
    components = schemas(TABLE)
    for ref in references([build_path_items(TABLE), components]):
        prefix, _, name = ref.rpartition("/")
        assert prefix == "#/components/schemas"
        assert name in components
    for schema in components.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(components)) == components


def test_schemas_with_one_name_are_equal_in_all_protocols() -> None:
    ours, theirs = schemas(TABLE), schemas(RESPONSES) | schemas(CONVERSATIONS)
    assert {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]} == set()
    shared = {"AnsweringDeployment", "DeploymentFailure", "ErrorBody", "ErrorPayload"}
    assert ours.keys() & theirs.keys() == shared
    assert not build_path_items(TABLE).keys() & (build_path_items(RESPONSES) | build_path_items(CONVERSATIONS)).keys()


def test_every_field_of_the_request_is_described() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(t.CreateChatCompletion)}
    schema = schemas(TABLE)["CreateChatCompletion"]
    assert set(schema["properties"]) == fields
    assert schema["required"] == ["messages"]
