"""Settings that only one provider has: each goes to its place in the body as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Body = dict[str, Any]


def with_own(body: Body, settings: Mapping[str, Any], places: Mapping[str, str]) -> Body:
    """`body` and those of the settings that have a place, which win; `a.b` is the field `b` of the object `a`."""
    body = dict(body)
    for name, place in places.items():
        if settings.get(name) is None:
            continue
        *objects, field = place.split(".")
        inside = body
        for part in objects:
            old = inside.get(part)
            inside[part] = inside = dict(old) if isinstance(old, dict) else {}
        inside[field] = settings[name]
    return body
