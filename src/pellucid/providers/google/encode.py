"""Encode a call as the body, headers and path of a `generateContent` request.

Settings that only Google has are those of `GoogleModelSettings`. All are fields of the body, except
`google_cloud_service_tier`, which is sent in the headers. `contents` encodes the messages. The path holds the model,
and whether to stream.

Thinking has two fields: how much to think, and whether to show it. Gemini 2.5 takes a number of tokens, Gemini 3 a
level; a request with both is rejected. Reasoning is shown only on request (`includeThoughts`); a request to think is
also a request to show it. If thinking cannot be disabled, the lowest level is sent (the first of the profile's
`efforts`), because the default is high.
"""

from __future__ import annotations

from urllib.parse import quote

from ...parts import Origin
from ...settings import EFFORTS, ModelCall, OutputFormat, nearest_effort
from ..effort import is_thinking_off
from ..profile import Profile
from ..setting_fields import HEADER, Body, SettingFields, Settings
from ..tool_schema import offered_tools, with_possible_choice
from .chunk import to_camel_case
from .contents import encode_contents, system_texts

# Settings and their names on the wire. If two settings write one name, the later one takes precedence.
_GENERATION_PATHS = {
    setting: f"generationConfig.{name}"
    for setting, name in {
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
    }.items()
}
_TOP_LEVEL_PATHS = {
    "google_safety_settings": "safetySettings",
    "google_cached_content": "cachedContent",
    "google_labels": "labels",
    "google_model_armor_config": "modelArmorConfig",
}
_CALLING_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def encode(call: ModelCall, profile: Profile, target: Origin) -> Body:
    """Encode the JSON body of a request. Raises `RequestError` if this wire cannot carry a part of it."""
    call = with_possible_choice(call, profile)
    body: Body = {"contents": encode_contents(call, profile, target)}
    system = system_texts(call)
    if system:
        body["systemInstruction"] = {"parts": [{"text": text} for text in system]}
    body |= _tools(call)
    _write_settings(SettingFields(call.settings, body), profile, _output(call.output))
    return body


def setting_fields(settings: Settings, profile: Profile) -> SettingFields:
    """Return the fields of the body that settings write, for warnings about unsupported settings."""
    fields = SettingFields(settings)
    for header in _cloud_tier_headers(settings, profile):
        fields.claim("google_cloud_service_tier", HEADER + header)
    _write_settings(fields, profile, {})
    return fields


def _write_settings(fields: SettingFields, profile: Profile, output: Body) -> None:
    """Write the fields of settings. `output`: fields of `generationConfig` for the output format."""
    settings, body = fields.settings, fields.body
    fields.put_defaults(profile)
    fields.put_all(_GENERATION_PATHS)
    if output:
        body["generationConfig"] = body.get("generationConfig", {}) | output
    _write_thinking(fields, profile)
    fields.put_all(_TOP_LEVEL_PATHS)
    if "service_tier" in settings and settings["service_tier"] in _SERVICE_TIERS:
        fields.put("service_tier", "serviceTier", _SERVICE_TIERS[settings["service_tier"]])
    fields.put_all({"google_service_tier": "serviceTier"})
    if body.get("serviceTier", "") is None:
        del body["serviceTier"]
    # Most settings of this wire are not at the top level of the body.
    fields.put_extra_body(merge=True)


_SERVICE_TIERS = {"default": "standard", "standard": "standard", "flex": "flex", "priority": "priority"}
"""Tiers that Google has. For others (`auto`, …) no tier is sent, and Google chooses."""


def _tools(call: ModelCall) -> Body:
    """Return the functions and the calling mode.

    The wire can limit only a required call to some functions. In other modes only these functions are offered.
    """
    if not call.tools:
        return {}
    allowed_tools = offered_tools(call)
    choice = call.tool_choice
    is_narrowed = choice.mode == "required" and choice.names
    declarations: list[Body] = []
    for tool in call.tools if is_narrowed else allowed_tools:
        declaration: Body = {"name": tool.name, "description": tool.description or ""}
        if tool.parameters_json_schema:
            declaration["parametersJsonSchema"] = tool.parameters_json_schema
        declarations.append(declaration)
    body: Body = {"tools": [{"functionDeclarations": declarations}]}
    if choice.mode != "auto":
        config: Body = {"mode": _CALLING_MODES[choice.mode]}
        if is_narrowed:
            config["allowedFunctionNames"] = [tool.name for tool in allowed_tools]
        body["toolConfig"] = {"functionCallingConfig": config}
    return body


def _output(output: OutputFormat) -> Body:
    if output.kind == "text":
        return {}
    format_fields: Body = {"responseMimeType": "application/json"}
    if output.kind == "json_schema" and output.schema:
        format_fields["responseJsonSchema"] = output.schema
    return format_fields


# --- thinking -------------------------------------------------------------------------------------------------------

AUTOMATIC_BUDGET = -1
"""The budget with which the model chooses the amount itself."""

_CONFIG = "generationConfig.thinkingConfig"
_INCLUDE_THOUGHTS = f"{_CONFIG}.includeThoughts"
_THINKING_SETTINGS = ("thinking", "thinking_budget", "thinking_summary")


def _write_thinking(fields: SettingFields, profile: Profile) -> None:
    """Write the thinking fields. Google's own setting takes precedence, and is sent unchanged."""
    settings = fields.settings
    native_config = settings.get("google_thinking_config")
    if profile.thinking != "none" and not settings.keys().isdisjoint(_THINKING_SETTINGS):
        _write_unified(fields, profile)
    if native_config is not None:
        fields.put("google_thinking_config", _CONFIG, to_camel_case(native_config))
        if not native_config:
            fields.remove(_CONFIG)


def _write_unified(fields: SettingFields, profile: Profile) -> None:
    settings = fields.settings
    level, is_off = settings.get("thinking"), is_thinking_off(settings)
    field = f"{_CONFIG}.thinkingBudget" if profile.budgets else f"{_CONFIG}.thinkingLevel"
    fields.set_thinking_paths(_INCLUDE_THOUGHTS, field)
    has_budget = "thinking_budget" in settings and bool(profile.budget_field)
    amount_settings = [
        name for name, is_set in (("thinking", level is not None), ("thinking_budget", has_budget)) if is_set
    ]
    if "thinking_summary" in settings:
        if amount_settings:
            fields.withhold("thinking_summary", _INCLUDE_THOUGHTS, by=amount_settings)
        else:
            fields.put("thinking_summary", _INCLUDE_THOUGHTS, True)
    if has_budget and not is_off:
        if level is not None:
            fields.withhold("thinking", _INCLUDE_THOUGHTS, by=["thinking_budget"])
            if profile.budgets and _budget_tokens(level, profile) == settings["thinking_budget"]:
                fields.add_suppressors("thinking_budget", ["thinking"])
        fields.put("thinking_budget", f"{_CONFIG}.{profile.budget_field}", settings["thinking_budget"])
        if settings["thinking_budget"]:
            fields.put("thinking_budget", _INCLUDE_THOUGHTS, True)
        return
    if has_budget:
        fields.withhold("thinking_budget", f"{_CONFIG}.{profile.budget_field}", by=["thinking"])
    if level is None:
        return
    if profile.budgets:
        fields.put("thinking", field, _budget_tokens("none" if is_off else level, profile))
    if is_off:
        if profile.efforts and not profile.budgets:
            fields.put("thinking", field, profile.efforts[0])
        return
    fields.put("thinking", _INCLUDE_THOUGHTS, True)
    effort = None if level is True or profile.budgets else nearest_effort(str(level), profile.efforts)
    if effort is not None:
        fields.put("thinking", field, effort)


def _budget_tokens(level: bool | str, profile: Profile) -> int:
    if level is True:
        return AUTOMATIC_BUDGET
    if level in profile.budgets:
        return profile.budgets[str(level)]
    if level not in EFFORTS or level == "none":
        return min(profile.budgets.values())
    effort = nearest_effort(str(level), tuple(profile.budgets))
    return profile.budgets[effort] if effort is not None else AUTOMATIC_BUDGET


# --- path and headers ----------------------------------------------------------------------------------------------


def path(call: ModelCall, profile: Profile) -> str:
    """Return the path below `base_url`. The model may be written as Google lists it (`models/gemini-3-pro`)."""
    return profile.path_of(quote(call.model.removeprefix("models/"), safe=""), stream=call.stream)


_REQUEST_TYPE_HEADER, _SHARED_TYPE_HEADER = "X-Vertex-AI-LLM-Request-Type", "X-Vertex-AI-LLM-Shared-Request-Type"
_CLOUD_TIERS = {
    "pt_only": {_REQUEST_TYPE_HEADER: "dedicated"},
    "on_demand": {_REQUEST_TYPE_HEADER: "shared"},
    "pt_then_flex": {_SHARED_TYPE_HEADER: "flex"},
    "pt_then_priority": {_SHARED_TYPE_HEADER: "priority"},
    "flex_only": {_REQUEST_TYPE_HEADER: "shared", _SHARED_TYPE_HEADER: "flex"},
    "priority_only": {_REQUEST_TYPE_HEADER: "shared", _SHARED_TYPE_HEADER: "priority"},
}
"""Headers of Vertex's tiers. `pt_then_on_demand` is its default, and needs none."""


def _cloud_tier_headers(settings: Settings, profile: Profile) -> dict[str, str]:
    """Return the headers that select Vertex's tier."""
    tier = settings.get("google_cloud_service_tier")
    return _CLOUD_TIERS.get(tier, {}) if tier is not None and profile.auth == "bearer" else {}


def headers(profile: Profile, api_key: str | None, call: ModelCall) -> dict[str, str]:
    """Return the headers of a request: credentials, and Vertex's tier.

    Args:
        profile: The profile of the server. The Gemini API has a header for its key; Vertex takes an access token.
        api_key: The key or access token to send; None to send none.
        call: The call whose settings may select a tier.
    """
    return _cloud_tier_headers(call.settings, profile) | profile.credentials(api_key)
