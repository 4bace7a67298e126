"""Where a request goes, and who it says we are: the model and whether to stream stand in the path."""

from __future__ import annotations

from urllib.parse import quote

from ...settings import ModelCall
from ..profiles import Profile


def path(call: ModelCall, row: Profile) -> str:
    """The URL's path below `base_url`. A model may be given as Google lists it (`models/gemini-3-pro`)."""
    pattern = row.path if call.stream else row.path_whole
    return pattern.replace("{model}", quote(call.model.removeprefix("models/"), safe=""))


def headers(row: Profile, api_key: str | None) -> dict[str, str]:
    """The credentials: the Gemini API has a header of its own, Vertex takes an access token."""
    if api_key is None or row.auth == "none":
        return {}
    return {row.auth: api_key} if row.auth.endswith("-key") else {"Authorization": f"Bearer {api_key}"}
