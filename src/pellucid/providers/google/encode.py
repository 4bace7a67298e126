"""A call as the body of a `generateContent` request.

Settings that only Google knows have the names of its settings class: `google_thinking_config`,
`google_safety_settings`, `google_cached_content`, `google_labels`, `google_video_resolution`, `google_service_tier`,
`google_logprobs`, `google_top_logprobs`, `google_model_armor_config`; `google_cloud_service_tier` stands in the
headers (see `address`). The messages are written by `contents`.
"""

from __future__ import annotations

from typing import Any

from ...parts import Origin
from ...settings import ModelCall, ModelSettings, OutputFormat
from ..functions import offered
from ..profiles import Profile
from .contents import contents, system_instruction
from .thinking import thinking_config

Body = dict[str, Any]

# Settings and what they are called there; of two for one name, the later wins.
_GENERATION = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "stop_sequences": "stopSequences",
    "logprobs": "responseLogprobs",
    "top_logprobs": "logprobs",
    "google_logprobs": "responseLogprobs",
    "google_top_logprobs": "logprobs",
    "google_video_resolution": "mediaResolution",
}
_TOP = {
    "google_safety_settings": "safetySettings",
    "google_cached_content": "cachedContent",
    "google_labels": "labels",
    "google_model_armor_config": "modelArmorConfig",
}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def encode(call: ModelCall, row: Profile, target: Origin) -> Body:
    """The request's JSON body. Raises `RequestError` for what this wire cannot carry."""
    settings = call.settings
    body: Body = {"contents": contents(call, row, target)}
    system = system_instruction(call)
    if system:
        body["systemInstruction"] = {"parts": [{"text": text} for text in system]}
    body |= _tools(call)
    generation = _renamed(settings, _GENERATION) | _output(call.output)
    thinking = thinking_config(settings, row)
    if thinking:
        generation["thinkingConfig"] = thinking
    if generation:
        body["generationConfig"] = generation
    body |= _renamed(settings, _TOP)
    tier = settings.get("google_service_tier", _TIERS.get(settings.get("service_tier", "")))
    if tier is not None:
        body["serviceTier"] = tier
    return _merged(body, settings.get("extra_body", {}))


_TIERS = {"default": "standard", "standard": "standard", "flex": "flex", "priority": "priority"}
"""Tiers that Google has; others (`auto`, …) are its own choice."""


def _renamed(settings: ModelSettings, names: dict[str, str]) -> Body:
    return {there: settings[name] for name, there in names.items() if name in settings}  # type: ignore[literal-required]


def _tools(call: ModelCall) -> Body:
    """The functions, and whether to call one. Only a forced choice can be narrowed; else fewer are offered."""
    if not call.tools:
        return {}
    narrowed = offered(call)
    choice = call.tool_choice
    forced = choice.mode == "required" and choice.names
    declarations: list[Body] = []
    for tool in call.tools if forced else narrowed:
        declaration: Body = {"name": tool.name, "description": tool.description or ""}
        if tool.parameters:
            declaration["parametersJsonSchema"] = tool.parameters
        declarations.append(declaration)
    body: Body = {"tools": [{"functionDeclarations": declarations}]}
    if choice.mode != "auto":
        config: Body = {"mode": _MODES[choice.mode]}
        if forced:
            config["allowedFunctionNames"] = [tool.name for tool in narrowed]
        body["toolConfig"] = {"functionCallingConfig": config}
    return body


def _output(output: OutputFormat) -> Body:
    if output.kind == "text":
        return {}
    asked: Body = {"responseMimeType": "application/json"}
    if output.kind == "json_schema" and output.schema:
        asked["responseJsonSchema"] = output.schema
    return asked


def _merged(body: Body, more: Body) -> Body:
    """`more` wins, object by object: most of this wire's settings are not at the top."""
    merged = dict(body)
    for name, value in more.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
