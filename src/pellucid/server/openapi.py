"""`/openapi.json`: the gateway's routes as OpenAPI 3.1, made from the tables from which the router is made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ..version import __version__
from .endpoints import TABLES
from .routing import STRING, Operation, Schema, Socket, Table
from .spaces.routes import SECURITY as SPACE_SECURITY

_KEY = "A key that `pellucid keys create` made, or a token of the issuer that the operator configured."
_SECURITY: Schema = {
    "bearer": {"type": "http", "scheme": "bearer", "description": _KEY},
    **{
        name: {
            "type": "apiKey",
            "in": "header",
            "name": name,
            "description": f"The same, in the header that {whose} clients send.",
        }
        for name, whose in (("x-api-key", "Anthropic's"), ("api-key", "Azure's"))
    },
}


def build_document(tables: Sequence[Table] = TABLES) -> dict[str, Any]:
    """Return the whole document.

    Args:
        tables: The tables of the routes.
    """
    path_items: dict[str, Schema] = {}
    schemas: dict[str, Schema] = {}
    for table in tables:
        for path, row in build_path_items(table).items():
            path_items.setdefault(path, {}).update(row)
        for name, schema in build_components(table).items():
            if schemas.setdefault(name, schema) != schema:
                raise ValueError(f"two types are described as {name}: give one table a component_prefix")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pellucid",
            "version": __version__,
            "description": "The reasoning of any language model as one ordered stream of parts.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # Clients on the same machine need no credentials until the first key is created.
        "security": [*({name: []} for name in _SECURITY), {}],
        "paths": path_items,
        "components": {"securitySchemes": {**_SECURITY, **SPACE_SECURITY}, "schemas": schemas},
    }


# --- paths -----------------------------------------------------------------------------------------------------------


def build_path_items(table: Table) -> dict[str, Schema]:
    """Return the path items of a table."""
    path_items: dict[str, Schema] = {}
    rows: list[Operation | Socket] = [*table.operations, *table.sockets]
    for one in rows:
        path = re.sub(r":\w+}", "}", one.path)
        parameters = [table.path_parameters[name] for name in re.findall(r"{(\w+)}", path)]
        row = path_items.setdefault(path, {"parameters": parameters} if parameters else {})
        if isinstance(one, Operation):
            row[one.method.lower()] = _operation(table, one)
        else:
            row[one.extension_name] = one.extension
    return path_items


def _operation(table: Table, row: Operation) -> Schema:
    operation: Schema = {"operationId": row.operation_id, "summary": row.summary}
    security = table.security_of(row)
    if security is not None:
        operation["security"] = list(security)
    if row.parameters:
        operation["parameters"] = list(row.parameters)
    if row.request_body is not None:
        operation["requestBody"] = {"required": not row.is_body_optional, "content": _content(table, row.request_body)}
    refuses = table.error_statuses if row.error_statuses is None else row.error_statuses
    responses: dict[int, Schema] = {
        row.status: {"description": row.description, "content": _content(table, row.response_body)}
    }
    responses |= {
        status: {"description": "An error", "content": _content(table, table.error_body)} for status in refuses
    }
    responses.update(row.extra_responses)
    for status in row.page_statuses:
        content = {**responses[status].get("content", {}), "text/html": {"schema": STRING}}
        responses[status] = {**responses[status], "content": content}
    if row.response_body is None:
        del responses[row.status]["content"]
    operation["responses"] = {str(status): response for status, response in responses.items()}
    return operation


def _content(table: Table, answers: Any) -> Schema:
    by_media = answers if isinstance(answers, dict) else {"application/json": answers}
    return {media: one if isinstance(one, dict) else {"schema": _schema(table, one)} for media, one in by_media.items()}


def _schema(table: Table, component: Any) -> Schema:
    """Return the schema of a type, a reference to the component with this name, or a union of several."""
    if isinstance(component, tuple):
        return {"anyOf": [_schema(table, one) for one in component]}
    if isinstance(component, str):
        return {"$ref": f"#/components/schemas/{component}"}
    [schema], _ = msgspec.json.schema_components([component], ref_template=_REF)
    renamed_schema: Schema = _rename_references(table, schema)
    return renamed_schema


_REF = "#/components/schemas/{name}"


def _rename_references(table: Table, schema: Any) -> Any:
    """Return the schema with references to the names that components have in the document."""

    def replace_name(match: re.Match[str]) -> str:
        return f'"#/components/schemas/{_component_name(table, match[1])}"'

    text = msgspec.json.encode(schema).decode()
    return msgspec.json.decode(re.sub(r'"#/components/schemas/(\w+)"', replace_name, text))


def _component_name(table: Table, name: str) -> str:
    """Return the name of the component for the type with this name."""
    return table.component_names.get(name) or (
        name if name.startswith(table.component_prefix) else table.component_prefix + name
    )


# --- components ------------------------------------------------------------------------------------------------------


def build_components(table: Table) -> dict[str, Schema]:
    """Return the types that the operations read and write, with all types that they refer to.

    Written types always have the fields that have a default, so these fields are required in types that are only
    written.
    """
    read_types, written_types = [one for one in table.components.values() if not isinstance(one, dict)], list[Any]()
    for row in table.operations:
        answers = row.response_body.values() if isinstance(row.response_body, dict) else [row.response_body]
        read_types.append(row.request_body)
        written_types += answers
    read_types, written_types = _flatten_types(read_types), _flatten_types([*written_types, table.error_body])
    _, schemas = msgspec.json.schema_components([*read_types, *written_types], ref_template=_REF)
    _, request_schemas = msgspec.json.schema_components(read_types)
    for name in schemas.keys() - request_schemas.keys():
        properties, required = schemas[name].get("properties", {}), schemas[name].get("required", ())
        schemas[name]["required"] = [name for name, one in properties.items() if name in required or "default" in one]
    result = {_component_name(table, name): _rename_references(table, schema) for name, schema in schemas.items()}
    for name, one in table.components.items():
        if isinstance(one, dict) or name not in schemas:
            result[_component_name(table, name)] = one if isinstance(one, dict) else _schema(table, one)
    if table.amend_components is not None:
        table.amend_components(result)
    return result


def _flatten_types(types: list[Any]) -> list[Any]:
    flat = [one for item in types for one in (item if isinstance(item, tuple) else [item])]
    return [one for one in flat if one is not None and not isinstance(one, str | dict)]
