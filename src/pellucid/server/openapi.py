"""`/openapi.json`: what this server speaks, as OpenAPI 3.1, made from the tables that the router is made from."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from .. import __version__
from . import agui, chat, plain, sessions, stateless
from .openresponses.routes import CONVERSATIONS, RESPONSES
from .routing import STRING, Operation, Schema, Socket, Table
from .spaces import routes as spaces

TABLES = (
    *(RESPONSES, CONVERSATIONS, *stateless.TABLES.values(), agui.TABLE, chat.TABLE),
    *(spaces.TABLE, spaces.MEW, sessions.TABLE, plain.TABLE),
)

_KEY = "A key that `pellucid keys create` made, or a token of the issuer that the operator trusts."
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


def document() -> dict[str, Any]:
    """The whole document."""
    found: dict[str, Schema] = {}
    schemas: dict[str, Schema] = {}
    for table in TABLES:
        for path, row in paths(table).items():
            found.setdefault(path, {}).update(row)
        schemas |= components(table)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pellucid",
            "version": __version__,
            "description": "The reasoning of any language model as one ordered stream of parts.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # Whoever asks from the same machine needs none, as long as no key has been made.
        "security": [*({name: []} for name in _SECURITY), {}],
        "paths": found,
        "components": {"securitySchemes": {**_SECURITY, **spaces.SECURITY}, "schemas": schemas},
    }


# --- paths -----------------------------------------------------------------------------------------------------------


def paths(table: Table) -> dict[str, Schema]:
    """What is at each path, by method."""
    found: dict[str, Schema] = {}
    rows: list[Operation | Socket] = [*table.operations, *table.sockets]
    for one in rows:
        path = re.sub(r":\w+}", "}", one.path)
        named = [table.names[name] for name in re.findall(r"{(\w+)}", path)]
        row = found.setdefault(path, {"parameters": named} if named else {})
        if isinstance(one, Operation):
            row[one.method.lower()] = _operation(table, one)
        else:
            row[one.key] = one.about
    return found


def _operation(table: Table, row: Operation) -> Schema:
    made: Schema = {"operationId": row.id, "summary": row.summary}
    security = table.security if row.security is None else row.security
    if security is not None:
        made["security"] = list(security)
    if row.parameters:
        made["parameters"] = list(row.parameters)
    if row.takes is not None:
        made["requestBody"] = {"required": not row.takes_nothing, "content": _content(table, row.takes)}
    refuses = table.refuses if row.refuses is None else row.refuses
    responses: dict[int, Schema] = {
        row.status: {"description": row.description, "content": _content(table, row.answers)}
    }
    responses |= {status: {"description": "An error", "content": _content(table, table.error)} for status in refuses}
    responses.update(row.more)
    for status in row.pages:
        content = {**responses[status].get("content", {}), "text/html": {"schema": STRING}}
        responses[status] = {**responses[status], "content": content}
    if row.answers is None:
        del responses[row.status]["content"]
    made["responses"] = {str(status): response for status, response in responses.items()}
    return made


def _content(table: Table, answers: Any) -> Schema:
    by_media = answers if isinstance(answers, dict) else {"application/json": answers}
    return {media: one if isinstance(one, dict) else {"schema": _schema(table, one)} for media, one in by_media.items()}


def _schema(table: Table, what: Any) -> Schema:
    """Of a type, of the component of this name, or of one of several."""
    if isinstance(what, tuple):
        return {"anyOf": [_schema(table, one) for one in what]}
    if isinstance(what, str):
        return {"$ref": f"#/components/schemas/{what}"}
    [schema], _ = msgspec.json.schema_components([what], ref_template=_REF)
    made: Schema = _renamed(table, schema)
    return made


_REF = "#/components/schemas/{name}"


def _renamed(table: Table, schema: Any) -> Any:
    """With references to the names that components have in the document."""

    def named(found: re.Match[str]) -> str:
        return f'"#/components/schemas/{_name(table, found[1])}"'

    text = msgspec.json.encode(schema).decode()
    return msgspec.json.decode(re.sub(r'"#/components/schemas/(\w+)"', named, text))


def _name(table: Table, name: str) -> str:
    """Of the component that is made of the type of this name."""
    return table.renamed.get(name) or (name if name.startswith(table.prefix) else table.prefix + name)


# --- components ------------------------------------------------------------------------------------------------------


def components(table: Table) -> dict[str, Schema]:
    """What its operations read and write, each type with all that is in it.

    What is written has those fields, too, that have a default; so they are required where it is only written.
    """
    read, written = [one for one in table.components.values() if not isinstance(one, dict)], list[Any]()
    for row in table.operations:
        answers = row.answers.values() if isinstance(row.answers, dict) else [row.answers]
        read.append(row.takes)
        written += answers
    read, written = _types(read), _types([*written, table.error])
    _, found = msgspec.json.schema_components([*read, *written], ref_template=_REF)
    _, of_requests = msgspec.json.schema_components(read)
    for name in found.keys() - of_requests.keys():
        properties, required = found[name].get("properties", {}), found[name].get("required", ())
        found[name]["required"] = [name for name, one in properties.items() if name in required or "default" in one]
    made = {_name(table, name): _renamed(table, schema) for name, schema in found.items()}
    for name, one in table.components.items():
        if isinstance(one, dict) or name not in found:
            made[_name(table, name)] = one if isinstance(one, dict) else _schema(table, one)
    if table.amend is not None:
        table.amend(made)
    return made


def _types(given: list[Any]) -> list[Any]:
    each = [one for several in given for one in (several if isinstance(several, tuple) else [several])]
    return [one for one in each if one is not None and not isinstance(one, str | dict)]
