"""Where a request goes, and who it says we are: the model and whether to stream stand in the path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ...settings import ModelCall
from ..profile import Profile


def path(call: ModelCall, row: Profile) -> str:
    """The URL's path below `base_url`. A model may be given as Google lists it (`models/gemini-3-pro`)."""
    pattern = row.path if call.stream else row.path_whole
    return pattern.replace("{model}", quote(call.model.removeprefix("models/"), safe=""))


_REQUEST, _SHARED = "X-Vertex-AI-LLM-Request-Type", "X-Vertex-AI-LLM-Shared-Request-Type"
_CLOUD_TIERS = {
    "pt_only": {_REQUEST: "dedicated"},
    "on_demand": {_REQUEST: "shared"},
    "pt_then_flex": {_SHARED: "flex"},
    "pt_then_priority": {_SHARED: "priority"},
    "flex_only": {_REQUEST: "shared", _SHARED: "flex"},
    "priority_only": {_REQUEST: "shared", _SHARED: "priority"},
}
"""Vertex's tiers; `pt_then_on_demand` is what it does untold."""


def cloud_tier(settings: Mapping[str, Any], row: Profile) -> dict[str, str]:
    """The headers that name Vertex's tier."""
    tier = settings.get("google_cloud_service_tier")
    return _CLOUD_TIERS.get(tier, {}) if tier is not None and row.auth == "bearer" else {}


def headers(row: Profile, api_key: str | None, call: ModelCall | None = None) -> dict[str, str]:
    """The credentials: the Gemini API has a header of its own, Vertex takes an access token; and Vertex's tier."""
    found = cloud_tier(call.settings, row) if call is not None else {}
    if api_key is None or row.auth == "none":
        return dict(found)
    return found | ({row.auth: api_key} if row.auth.endswith("-key") else {"Authorization": f"Bearer {api_key}"})
