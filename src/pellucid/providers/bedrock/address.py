"""Where a request goes: the model stands in the path, and whether to stream, too."""

from __future__ import annotations

from urllib.parse import quote

from ...settings import ModelCall
from ..profiles import Profile


def path(call: ModelCall, row: Profile) -> str:
    """The URL's path. A model may be an ARN: its slashes are quoted, or the request reaches another operation."""
    return (row.path if call.stream else row.path_whole).replace("{model}", quoted_model(call))


def quoted_model(call: ModelCall) -> str:
    """The model, or the inference profile that stands for it."""
    model: str = call.settings.get("bedrock_inference_profile") or call.model  # type: ignore[assignment]
    return quote(model, safe="")
