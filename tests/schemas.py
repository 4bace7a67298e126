"""OpenAPI documents: ours, and the published one of OpenResponses, which is not part of the repository."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any


@cache
def openapi_document() -> dict[str, Any]:
    """Return the gateway's own document, which is made once for all tests. They do not change it."""
    from pellucid.server.openapi import build_document  # imported here, because most tests do not need the server

    return build_document()


def published_schema() -> Path | None:
    """Return the document: `PELLUCID_OPENRESPONSES_SCHEMA`, or the one next to the checkout, or None."""
    default_path = Path(__file__).parents[2] / "shared" / "reference" / "schemas" / "openresponses-openapi.json"
    path = Path(os.environ.get("PELLUCID_OPENRESPONSES_SCHEMA") or default_path)
    return path if path.is_file() else None
