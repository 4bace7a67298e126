"""The published OpenAPI document of OpenResponses, which is not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path


def published_schema() -> Path | None:
    """Return the document: `PELLUCID_OPENRESPONSES_SCHEMA`, or the one next to the checkout, or None."""
    default_path = Path(__file__).parents[2] / "shared" / "reference" / "schemas" / "openresponses-openapi.json"
    path = Path(os.environ.get("PELLUCID_OPENRESPONSES_SCHEMA") or default_path)
    return path if path.is_file() else None
