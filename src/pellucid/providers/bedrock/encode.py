"""Encode a call as the body of a Converse request. The path holds the model, and whether to stream.

Requirements of this wire that other wires do not have:

* the roles user and assistant alternate, so neighbours of one role are merged; results come first in the message that
  follows the calls;
* no text is blank;
* a request whose history holds calls or results must define tools;
* call ids are limited in their characters and length.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from ...errors import RequestError
from ...parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    FilePart,
    Image,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    json_text,
)
from ...settings import ModelCall, OutputFormat, ToolDefinition
from .. import history
from ..claude import is_redacted
from ..effort import switches_thinking_off
from ..profile import Profile
from ..setting_fields import Body, SettingFields, Settings
from ..tagged_text import with_markers
from ..tool_schema import arguments_object, offered_tools, with_possible_choice
from .media import ContentEncoder, redacted_content
from .thinking import THINKING_FIELDS, claim_thinking, enables_thinking, thinking_fields

_INFERENCE_PATHS = {
    "max_tokens": "inferenceConfig.maxTokens",
    "temperature": "inferenceConfig.temperature",
    "top_p": "inferenceConfig.topP",
    "stop_sequences": "inferenceConfig.stopSequences",
}
_MODEL_FIELDS = "additionalModelRequestFields"
_MODEL_FIELDS_SETTING = "bedrock_additional_model_requests_fields"
_SHARED_PATHS = {
    "bedrock_inference_profile": "path",
    "bedrock_cache_instructions": "system.cachePoint",
    "bedrock_cache_messages": "messages.cachePoint",
    "bedrock_cache_tool_definitions": "toolConfig.cachePoint",
}
"""Settings that change fields which hold other values, too."""

# The provider's own settings that are one field of the body each.
_PROVIDER_PATHS = {
    "bedrock_guardrail_config": "guardrailConfig",
    "bedrock_performance_configuration": "performanceConfig",
    "bedrock_request_metadata": "requestMetadata",
    "bedrock_additional_model_response_fields_paths": "additionalModelResponseFieldPaths",
    "bedrock_prompt_variables": "promptVariables",
    "bedrock_service_tier": "serviceTier",
}
_SERVICE_TIERS = ("default", "flex", "priority", "reserved")


def path(call: ModelCall, profile: Profile) -> str:
    """Return the path of the request below the base URL.

    The model may be an ARN. Its slashes are quoted; otherwise the request would reach another operation.
    """
    model: str = call.settings.get("bedrock_inference_profile") or call.model  # type: ignore[assignment]
    return profile.path_of(quote(model, safe=""), stream=call.stream)


def encode(call: ModelCall, profile: Profile, target: Origin) -> Body:
    """Encode the JSON body of a request. Raises `RequestError` if this wire cannot carry a part of it."""
    settings: Settings = call.settings
    conversation = _ConversationEncoder(profile, target, thinking_off=switches_thinking_off(settings, profile))
    for message in history.repair_calls(call.messages):
        conversation.add(message)
    conversation.flush()
    model_fields = _model_fields(settings, profile, reasoning_lost=conversation.is_reasoning_lost())
    body: Body = {"messages": conversation.messages}
    if conversation.system:
        body["system"] = conversation.system + _cache_point(settings.get("bedrock_cache_instructions"))
    if conversation.messages and conversation.messages[-1]["role"] == "user":
        conversation.messages[-1]["content"] += _cache_point(settings.get("bedrock_cache_messages"))
    call_fields = _tools(call, profile, model_fields, conversation.used_tools) | _output(call.output)
    _write_settings(SettingFields(settings, body), profile, model_fields, call_fields)
    return body


def setting_fields(settings: Settings, profile: Profile) -> SettingFields:
    """Return the fields of the body that settings write, for warnings about unsupported settings."""
    fields = SettingFields(settings)
    for name, path in _SHARED_PATHS.items():
        if settings.get(name) or type(settings.get(name)) is bool:
            fields.claim(name, path)
    model_fields = _model_fields(settings, profile, reasoning_lost=False)
    _claim_model_fields(fields, profile, model_fields)
    if switches_thinking_off(settings, profile):
        fields.claim_history(profile)
    _write_settings(fields, profile, model_fields, {})
    return fields


# --- settings ------------------------------------------------------------------------------------------------------


def _write_settings(fields: SettingFields, profile: Profile, model_fields: Body, call_fields: Body) -> None:
    """Write the fields of settings. `call_fields`: fields that do not come from settings."""
    settings, body = fields.settings, fields.body
    fields.put_defaults(profile)
    dropped_names, always_dropped = _dropped_settings(profile, model_fields), _dropped_settings(profile, {})
    for name, path in _INFERENCE_PATHS.items():
        if name in settings and name not in dropped_names:
            fields.put(name, path, settings[name])
        elif name in settings and name not in always_dropped:
            fields.withhold(name, path, by=_settings_that_drop(settings, profile, name))
    body |= call_fields
    if model_fields:
        body[_MODEL_FIELDS] = model_fields
    if settings.get("service_tier") in _SERVICE_TIERS and "service_tier" in profile.knows:
        fields.put_all({"service_tier": "serviceTier.type"})
    if "metadata" in profile.knows:
        fields.put_all({"metadata": "requestMetadata"})
    fields.put_all(_PROVIDER_PATHS)
    fields.put_extra_body()


def _caller_model_fields(settings: Settings) -> Body:
    fields = settings.get(_MODEL_FIELDS_SETTING)
    return fields if isinstance(fields, dict) else {}


def _model_fields(settings: Settings, profile: Profile, *, reasoning_lost: bool = False) -> Body:
    """Return the fields for the model's maker. The caller's fields take precedence, and replace all thinking fields."""
    caller_fields = _caller_model_fields(settings)
    model_fields = (
        {}
        if THINKING_FIELDS & caller_fields.keys()
        else thinking_fields(settings, profile, reasoning_lost=reasoning_lost)
    )
    if profile.betas and enables_thinking(model_fields):
        # Interleaved thinking: models without it reject the name.
        model_fields["anthropic_beta"] = list(profile.betas)
    if "top_k" in settings and "top_k" not in _dropped_settings(profile, model_fields | caller_fields):
        model_fields["top_k"] = settings["top_k"]
    return model_fields | caller_fields


def _claim_model_fields(fields: SettingFields, profile: Profile, model_fields: Body) -> None:
    """Record which settings these fields come from."""
    settings, caller_fields = fields.settings, _caller_model_fields(fields.settings)
    sets_thinking = bool(THINKING_FIELDS & caller_fields.keys())
    claim_thinking(fields, profile, _MODEL_FIELDS, is_overridden=sets_thinking)
    if "top_k" in settings and "top_k" not in _dropped_settings(profile, {}):
        if "top_k" in _dropped_settings(profile, model_fields):
            fields.withhold("top_k", f"{_MODEL_FIELDS}.top_k", by=_settings_that_drop(settings, profile, "top_k"))
        else:
            fields.claim("top_k", f"{_MODEL_FIELDS}.top_k")
    if sets_thinking:
        fields.bar(_MODEL_FIELDS_SETTING, *(f"{_MODEL_FIELDS}.{name}" for name in THINKING_FIELDS))
    for name, value in caller_fields.items():
        fields.claim(_MODEL_FIELDS_SETTING, f"{_MODEL_FIELDS}.{name}", value)


def _dropped_settings(profile: Profile, model_fields: Body) -> tuple[str, ...]:
    """Return the settings that the model rejects together with these fields."""
    nova = model_fields.get("reasoningConfig")
    if isinstance(nova, dict) and nova.get("maxReasoningEffort") == "high":
        # Nova rejects a token limit and sampling settings with its highest effort.
        names: tuple[str, ...] = ("max_tokens", "temperature", "top_p")
    else:
        names = ()
    if profile.sampling != "free" and (profile.sampling != "without_thinking" or enables_thinking(model_fields)):
        names += ("temperature", "top_p", "top_k")
    return names if "top_k" in profile.knows else (*names, "top_k")


def _settings_that_drop(settings: Settings, profile: Profile, setting: str) -> list[str]:
    """Return the settings that each produce fields with which the model rejects `setting`."""
    return [
        name
        for name in ("thinking", "thinking_budget", _MODEL_FIELDS_SETTING)
        if name in settings and setting in _dropped_settings(profile, _model_fields({name: settings[name]}, profile))
    ]


def _cache_point(cache: Any) -> list[Body]:
    """Return the cache point for `True` or a lifetime (`5m`, `1h`)."""
    if not cache:
        return []
    return [{"cachePoint": {"type": "default"} | ({"ttl": cache} if isinstance(cache, str) else {})}]


def _output(output: OutputFormat) -> Body:
    if output.kind == "text":
        return {}
    if output.kind == "json_object":
        raise RequestError(
            "Bedrock's Converse has no JSON mode without a schema; ask for json_schema",
            kind="unsupported",
            code="unsupported_output",
            param="text.format",
        )
    schema: Body = {"schema": json_text(output.schema or {}), "name": output.name or "output"}
    if output.description:
        schema["description"] = output.description
    return {"outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}}


# --- tools ---------------------------------------------------------------------------------------------------------


def _tools(call: ModelCall, profile: Profile, fields: Body, used_tools: dict[str, None]) -> Body:
    """Return the tools. This wire has no tool choice `none`: the model can only be offered no tools."""
    has_level = fields.get(profile.effort_field, "none") != "none"
    call = with_possible_choice(call, profile, thinks=enables_thinking(fields) or has_level)
    tools = offered_tools(call)
    if call.tool_choice.mode == "none" and not used_tools:
        tools = ()
    specs = [_tool_spec(tool) for tool in tools]
    if not specs:
        # The history holds calls or results: without a definition, the request is rejected.
        specs = [_tool_spec(ToolDefinition(name)) for name in used_tools]
    if not specs:
        return {}
    config: Body = {"tools": specs + _cache_point(call.settings.get("bedrock_cache_tool_definitions"))}
    if call.tool_choice.mode == "required" and tools:
        is_single = call.tool_choice.names and len(tools) == 1
        config["toolChoice"] = {"tool": {"name": tools[0].name}} if is_single else {"any": {}}
    return {"toolConfig": config}


def _tool_spec(tool: ToolDefinition) -> Body:
    schema = tool.parameters_json_schema or {"type": "object", "properties": {}}
    spec: Body = {"name": tool.name, "inputSchema": {"json": schema}}
    if tool.description:
        spec["description"] = tool.description
    if tool.strict is not None:
        spec["strict"] = tool.strict
    return {"toolSpec": spec}


_VALID_CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")


def _safe_call_id(id: str) -> str:
    """Return an id that Bedrock accepts. Other providers' ids may be longer or have other characters."""
    return id if _VALID_CALL_ID.fullmatch(id) else history.made_call_id(id)


# --- messages ------------------------------------------------------------------------------------------------------


class _ConversationEncoder:
    """Encodes the messages of a request, one after the other."""

    def __init__(self, profile: Profile, target: Origin, *, thinking_off: bool) -> None:
        self.system: list[Body] = []
        self.messages: list[Body] = []
        self.used_tools: dict[str, None] = {}
        """Names of the tools in calls and results, in order."""
        self._profile = profile
        self._target = target
        self._thinking_off = thinking_off
        self._media = ContentEncoder()
        self._role = ""
        self._content: list[Body] = []

    def add(self, message: ModelRequest | ModelResponse) -> None:
        if isinstance(message, ModelResponse):
            parts = history.parts_to_send(message, self._target, self._profile, thinking_off=self._thinking_off)
            self._append("assistant", self._assistant_blocks(parts))
        else:
            self._add_request(message)

    def flush(self) -> None:
        """End the current message."""
        if self._content:
            if self._role == "user":
                self._content.sort(key=lambda block: "toolResult" not in block)
            self.messages.append({"role": self._role, "content": self._content})
        self._content = []

    def is_reasoning_lost(self) -> bool:
        """Whether the last answer made calls that now get their results, and its reasoning is missing."""
        if len(self.messages) < 2 or self.messages[-1]["role"] == "assistant":
            return False
        blocks: list[Body] = self.messages[-2]["content"]
        return "reasoningContent" not in blocks[0] and any("toolUse" in block for block in blocks)

    def _append(self, role: str, blocks: list[Body]) -> None:
        if blocks and role == self._role == "user" and self._profile.results_alone:
            self._separate_results(blocks)
        if blocks and role != self._role:
            while self._role == "assistant" and self._content and "reasoningContent" in self._content[-1]:
                self._content.pop()  # the wire rejects reasoning at the end of a message
            self.flush()
            self._role = role
            if self.messages and self.messages[-1]["role"] == role:
                # No content between these two messages is sent.
                self._content = self.messages.pop()["content"]
        self._content += blocks

    def _separate_results(self, blocks: list[Body]) -> None:
        """End the user's message with a message of the model, if it has results and `blocks` are others."""
        if "toolResult" in self._content[-1] and "toolResult" not in blocks[0]:
            self.flush()
            self.messages.append({"role": "assistant", "content": [{"text": "OK"}]})

    # --- user messages -------------------------------------------------------------------------------------------

    def _add_request(self, message: ModelRequest) -> None:
        if message.instructions and message.instructions.strip():
            self.system.append({"text": message.instructions})
        for part in message.parts:
            match part:
                case SystemPromptPart():
                    self.system += self._media.encode([Text(part.content)])
                case UserPromptPart():
                    content = [Text(part.content)] if isinstance(part.content, str) else part.content
                    self._append("user", self._media.encode(content))
                case ToolReturnPart():
                    self._add_tool_result(part)

    def _result_content(self, content: Any) -> list[Body]:
        if isinstance(content, dict):
            return [{"json": content}]
        if isinstance(content, list) and content and all(isinstance(entry, UserContent) for entry in content):
            return self._media.encode(content)
        return [{"text": content if isinstance(content, str) else "" if content is None else json_text(content)}]

    def _add_tool_result(self, part: ToolReturnPart) -> None:
        failed = part.outcome != "success"
        content = self._result_content(part.content)
        if failed and not any(block.get("text", "x").strip() for block in content):
            content = [{"text": part.outcome}]  # the wire rejects a failed result without text
        self.used_tools[part.tool_name] = None
        result: Body = {"toolUseId": _safe_call_id(part.tool_call_id), "content": content}
        if self._profile.result_status:
            result["status"] = "error" if failed else "success"
        self._append("user", [{"toolResult": result}])

    # --- assistant messages --------------------------------------------------------------------------------------

    def _assistant_blocks(self, parts: list[ModelResponsePart]) -> list[Body]:
        blocks: list[Body] = []
        tagged_text = ""
        for part in parts:
            marked_text = with_markers(part) if isinstance(part, ThinkingPart) else None
            if marked_text is not None:
                # It came between tags in a text, and is returned in that text.
                tagged_text += marked_text
                continue
            if tagged_text and not isinstance(part, TextPart):
                blocks += _text_blocks(tagged_text)
                tagged_text = ""
            match part:
                case ThinkingPart():
                    blocks += self._reasoning_blocks(part)
                case TextPart():
                    blocks += _text_blocks(tagged_text + part.content, part)
                    tagged_text = ""
                case RefusalPart():
                    blocks += _text_blocks(part.content)
                case ToolCallPart():
                    self.used_tools[part.tool_name] = None
                    blocks.append({"toolUse": _tool_use(part)})
                case BuiltinToolCallPart() if part.provider_name is not None:
                    blocks.append({"toolUse": {**_tool_use(part), "type": "server_tool_use"}})
                case BuiltinToolReturnPart() if part.provider_name is not None:
                    blocks.append({"toolResult": self._builtin_result(part)})
                case CompactionPart():
                    blocks += _text_blocks(part.content or "")
                case FilePart() if part.provider_name is not None:
                    blocks += self._media.encode([Image(data=part.data, media_type=part.media_type)])
                case OpaquePart() if _is_whole_block(part):
                    blocks.append(part.native)
        return blocks + _text_blocks(tagged_text)

    def _builtin_result(self, part: BuiltinToolReturnPart) -> Body:
        content = part.content
        if not isinstance(content, list):
            content = self._result_content(content)
        return {"toolUseId": part.tool_call_id, "content": content, **(part.provider_details or {})}

    def _reasoning_blocks(self, part: ThinkingPart) -> list[Body]:
        """Encode reasoning. Without a signature the field is left out, because an empty one is rejected."""
        if is_redacted(part):
            blob = redacted_content(part.signature or "", part.provider_details)
            return [{"reasoningContent": {"redactedContent": blob}}] if blob else []
        if not part.signature and not part.content.strip():
            return []
        signature = {"signature": part.signature} if part.signature else {}
        return [{"reasoningContent": {"reasoningText": {"text": part.content, **signature}}}]


def _text_blocks(text: str, part: TextPart | None = None) -> list[Body]:
    """Encode a text with its citations. A blank text gives no block."""
    if not text.strip():
        return []
    citations = (part.provider_details or {}).get("citations") if part is not None else None
    if citations:
        return [{"citationsContent": {"content": [{"text": text}], "citations": citations}}]
    return [{"text": text}]


def _tool_use(part: ToolCallPart | BuiltinToolCallPart) -> Body:
    return {
        "toolUseId": _safe_call_id(part.tool_call_id),
        "name": part.tool_name,
        "input": arguments_object(part.args, invalid="arguments"),
    }


def _is_whole_block(part: OpaquePart) -> bool:
    """Whether the part can be returned. For an unknown block that was streamed, its whole form is not known."""
    return isinstance(part.native, dict) and list(part.native) == [part.type]
