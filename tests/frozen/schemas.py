"""The names in OpenAPI schemas and in msgspec structs. No name depends on a class or a module.

A location is written as a path: `.output[].content`, with `[]` for the entries of a list and `*` for a name that users
choose; ` = "x"` is an allowed value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

Json = dict[str, Any]
Struct = type[msgspec.Struct]


# --- OpenAPI -------------------------------------------------------------------------------------------------------


def openapi_names(document: Json) -> Iterator[str]:
    """Yield the operations with their parameters, bodies and responses, and the document's named schemas."""
    for path, methods in document["paths"].items():
        shared = methods.get("parameters", [])
        for method, operation in methods.items():
            if method == "parameters":
                continue
            at = f"{method.upper()} {path}"
            yield f"path {at}"
            if "operationId" in operation:
                yield f"operation {at} {operation['operationId']}"
            for one in (*shared, *operation.get("parameters", [])):
                parameter = _resolved(document, one)
                yield f"parameter {at} {parameter['in']} {parameter['name']}"
                for place in _places(parameter.get("schema", {}), ""):
                    yield f"parameter {at} {parameter['in']} {parameter['name']}{place}"
            yield from _contents(_resolved(document, operation.get("requestBody", {})), f"request {at}")
            for status, response in operation.get("responses", {}).items():
                answer = _resolved(document, response)
                yield from (f"answer {at} {status} header {name}" for name in answer.get("headers", {}))
                yield from (
                    _contents(answer, f"answer {at} {status}") if "content" in answer else [f"answer {at} {status}"]
                )
    for name, schema in document["components"]["schemas"].items():
        yield f"schema {name}"
        yield from (f"schema {name} {place.strip()}" for place in _places(schema, ""))
    for name, scheme in document["components"].get("securitySchemes", {}).items():
        way = (scheme["type"], scheme.get("in", scheme.get("scheme", "")), scheme.get("name", ""))
        yield f"security {name} {' '.join(way)}".strip()


def _contents(body: Json, at: str) -> Iterator[str]:
    """Yield the media types of a body, each with the fields of its schema."""
    for media, content in body.get("content", {}).items():
        places = list(_places(content.get("schema", {}), ""))
        yield from (f"{at} {media}{place}" if place[0] == ":" else f"{at} {media} {place}" for place in places)
        if not places:
            yield f"{at} {media}"


def _resolved(document: Json, node: Json) -> Json:
    while "$ref" in node:
        target: Any = document
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        node = target
    return node


def _places(schema: Any, at: str) -> Iterator[str]:
    """Yield the contents of a schema: its properties, the required ones, its constants, and its references."""
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield f"{at}: {schema['$ref'].rpartition('/')[2]}"
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    yield from (f"{at} = {_json(value)}" for value in values if value is not None)
    if schema.get("default") is not None:
        yield f"{at} default {_json(schema['default'])}"
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        yield f"{at}.{name}{'' if name in required else '?'}"
        yield from _places(inner, f"{at}.{name}")
    yield from _places(schema.get("items"), f"{at}[]")
    for inner in schema.get("prefixItems", ()):
        yield from _places(inner, f"{at}[]")
    yield from _places(schema.get("additionalProperties"), f"{at}.*")
    for way in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(way, ()):
            yield from _places(inner, at)


# --- structs -------------------------------------------------------------------------------------------------------


def struct_names(roots: Mapping[str, Struct]) -> Iterator[str]:
    """Yield the fields of the objects that are read or written as a whole, by a name for each.

    Every object has the name of its role: that of a root, or the value of its tag field (`type`, `object`, `role`). The
    fields of an object without a tag, or with the tag of another one, are listed in the objects that contain it.
    """
    reached = _reached(roots.values())
    tags = Counter(_tag(one) for one in reached)
    roles = {one: tag for one in reached if (tag := _tag(one)) is not None and tags[tag] == 1}
    roles |= {struct: name for name, struct in roots.items()}

    def fields(struct: Struct, above: Sequence[Struct]) -> Iterator[str]:
        for field in msgspec.structs.fields(struct):
            at = f".{field.encode_name}"
            yield at
            yield from (f"{at} = {_json(value)}" for value in _literals(field.type))
            for inner in _structs_of(field.type):
                if inner in roles:
                    yield f"{at}: {roles[inner]}"
                elif inner not in above:
                    tag = f"<{_tag(inner)}>" if _tag(inner) else ""
                    yield from (f"{at}{tag}{place}" for place in fields(inner, (*above, inner)))

    for struct, role in roles.items():
        yield role
        yield from (f"{role} {place}" for place in fields(struct, (struct,)))


def tagged(structs: Iterable[Struct], besides: Mapping[str, Struct]) -> dict[str, Struct]:
    """Return the structs with a tag that are reachable neither from `besides` nor from one another, by their tag."""
    known = set(_reached(besides.values()))
    own = [one for one in structs if one.__struct_config__.tag is not None and one not in known]
    held = {inner for one in own for inner in _reached([one]) if inner is not one}
    return {str(_tag(one)): one for one in own if one not in held}


def unreached(structs: Iterable[Struct], roots: Iterable[Struct]) -> set[Struct]:
    """Return the structs that no root reaches, without untagged base classes."""
    candidates = set(structs) - set(_reached(roots))
    return {one for one in candidates if one.__struct_config__.tag is not None or not one.__subclasses__()}


def _reached(roots: Iterable[Struct]) -> list[Struct]:
    reached: dict[Struct, None] = {}
    waiting = list(roots)
    while waiting:
        one = waiting.pop(0)
        if one not in reached:
            reached[one] = None
            waiting += [inner for field in msgspec.structs.fields(one) for inner in _structs_of(field.type)]
    return list(reached)


def _structs_of(type_: Any) -> Iterator[Struct]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        yield type_
    else:
        for argument in get_args(type_):
            yield from _structs_of(argument)


def _tag(struct: Struct) -> str | None:
    """Return the value of the object's tag field."""
    tag = struct.__struct_config__.tag
    if tag is not None:
        return str(tag)
    for field in msgspec.structs.fields(struct):
        if field.encode_name in ("type", "object", "role") and get_origin(field.type) is Literal:
            values = get_args(field.type)
            if len(values) == 1:
                return str(values[0])
    return None


def _literals(type_: Any) -> Iterator[Any]:
    if get_origin(type_) is Literal:
        yield from get_args(type_)
    elif not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        for argument in get_args(type_):
            yield from _literals(argument)


# --- configuration -------------------------------------------------------------------------------------------------


def setting_names(type_: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys below a type with their defaults and choices; `*` for names that the operator chooses."""
    if is_typeddict(type_):
        for name, value in get_type_hints(type_).items():
            yield f"{prefix}{name}"
            yield from (f"{prefix}{name} = {_json(choice)}" for choice in _literals(value))
            yield from setting_names(value, f"{prefix}{name}.")
    elif isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        for field in msgspec.structs.fields(type_):
            at = f"{prefix}{field.encode_name}"
            yield at
            yield from (f"{at} = {_json(choice)}" for choice in _literals(field.type))
            default = field.default
            if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            if default is msgspec.NODEFAULT:
                yield f"{at} required"
            elif default is not None and not list(_structs_of(field.type)):
                yield f"{at} default {_json(default)}"
            yield from setting_names(field.type, f"{at}.")
    elif type_ is not Any:
        is_table = get_origin(type_) is not None and issubclass(_class(get_origin(type_)), Mapping)
        for argument in get_args(type_)[1:] if is_table else get_args(type_):
            yield from setting_names(argument, f"{prefix}*." if is_table else prefix)


def _class(origin: Any) -> type:
    return origin if isinstance(origin, type) else object


def _json(value: Any) -> str:
    if isinstance(value, frozenset | set):
        value = sorted(value)
    return "inf" if value == float("inf") else msgspec.json.encode(value, enc_hook=str).decode()
