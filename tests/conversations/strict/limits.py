"""What models refuse in a request besides its history: levels of thinking, forced calls, settings, unknown fields.

One table for all providers. A row applies to the models of some rows of the provider table; of several rows with one
name, the first that applies to a model counts. Each has the provider's own words, and where they were read: a section
of `providers.md`, a provider's documentation, an issue, or Pydantic AI 2.68, which is tested against the real APIs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

Body = dict[str, Any]
Refuses = Callable[[Body, bool], str | None]
"""Returns what a model refuses in a request, from its body and whether it thinks; None if nothing."""


class Limit(NamedTuple):
    """A rule of some models."""

    name: str
    rows: str
    """Names of rows of the provider table, as patterns."""
    models: str
    """Names of models, as patterns."""
    refuses: Refuses
    message: str
    """The error message of the provider."""
    source: str

    def offence(self, body: Body, *, thinks: bool) -> str | None:
        """Return what the models refuse in a request; None if nothing."""
        return self.refuses(body, thinks)


def limits_of(row: str, model: str) -> tuple[Limit, ...]:
    """Return the rules of a model."""
    by_name: dict[str, Limit] = {}
    for limit in LIMITS:
        if matches(row, limit.rows) and matches(model, limit.models):
            by_name.setdefault(limit.name, limit)
    return tuple(by_name.values())


def matches(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in patterns.split())


# --- where the wires have it -------------------------------------------------------------------------------------

LEVELS = (
    "reasoning_effort",
    "reasoning.effort",
    "output_config.effort",
    "think",
    "generationConfig.thinkingConfig.thinkingLevel",
    "additionalModelRequestFields.reasoning_effort",
    "additionalModelRequestFields.reasoning_config",
    "additionalModelRequestFields.reasoning.effort",
    "additionalModelRequestFields.output_config.effort",
    "additionalModelRequestFields.reasoningConfig.maxReasoningEffort",
)
CHOICES = ("tool_choice", "toolConfig.toolChoice", "toolConfig.functionCallingConfig.mode")
SAMPLING = (
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "top_k"),
    *("inferenceConfig.temperature", "inferenceConfig.topP", "additionalModelRequestFields.top_k"),
)


def value_at(body: Body, path: str) -> Any:
    """The value at a path; None if there is none."""
    value: Any = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def levels_of(body: Body) -> Iterator[tuple[str, Any]]:
    """The levels in a request, each with its path. A switch is no level."""
    for path in LEVELS:
        value = value_at(body, path)
        if value is not None and not isinstance(value, bool):
            yield path, value


def is_forced(body: Body) -> bool:
    """Whether the request makes the model call a tool."""
    for path in CHOICES:
        choice = value_at(body, path)
        if isinstance(choice, dict):
            choice = choice.get("type") or next(iter(choice), None)
        if choice is not None and choice.lower() not in ("auto", "none"):
            return True
    return False


# --- kinds of rules ----------------------------------------------------------------------------------------------


def levels(*accepted: str) -> Refuses:
    """Other levels; without arguments, any level."""

    def refuses(body: Body, thinks: bool) -> str | None:
        return next((f"{path}: {value!r}" for path, value in levels_of(body) if value not in accepted), None)

    return refuses


def fields(*paths: str) -> Refuses:
    """Any of these fields."""
    return lambda body, thinks: next((path for path in paths if value_at(body, path) is not None), None)


def value(path: str, *refused: Any) -> Refuses:
    """Any of these values of a field."""
    return lambda body, thinks: f"{path}: {value_at(body, path)!r}" if value_at(body, path) in refused else None


def sampling(*, only_thinking: bool = False) -> Refuses:
    """Settings of sampling: always, or while the model thinks."""

    def refuses(body: Body, thinks: bool) -> str | None:
        setting = next((path for path in SAMPLING if value_at(body, path) is not None), None)
        return setting if thinks or not only_thinking else None

    return refuses


def forced(*, only_thinking: bool = False) -> Refuses:
    """A forced call: always, or while the model thinks."""
    return lambda body, thinks: "a forced call" if is_forced(body) and (thinks or not only_thinking) else None


def unknown_fields(known: str) -> Refuses:
    """Fields that are not among these names."""
    names = known.split()
    return lambda body, thinks: next((name for name in body if name not in names), None)


def unknown_in_assistant(known: str) -> Refuses:
    """Fields of an assistant's message that are not among these names."""
    names = known.split()

    def refuses(body: Body, thinks: bool) -> str | None:
        answers = [message for message in body["messages"] if message["role"] == "assistant"]
        return next((name for message in answers for name in message if name not in names), None)

    return refuses


def tools_while_thinking(body: Body, thinks: bool) -> str | None:
    """Functions, unless the request switches thinking off."""
    return "functions" if body.get("tools") and body.get("reasoning_effort") != "none" else None


def tools_with_level(body: Body, thinks: bool) -> str | None:
    """Functions together with a level; without one the model does not think."""
    return "functions" if body.get("tools") and body.get("reasoning_effort", "none") != "none" else None


def items_between_calls(body: Body, thinks: bool) -> str | None:
    """Items between the calls of a turn, or between a call and its result."""
    pending: list[str] = []
    has_output = False
    for item in body["input"]:
        if item.get("type") == "function_call" and not has_output:
            pending.append(item["call_id"])
        elif item.get("type") == "function_call_output" and item["call_id"] in pending:
            pending.remove(item["call_id"])
            has_output = bool(pending)
        elif pending:
            return f"{item} comes before the result of {pending[0]}"
    return None


def results_with_others(body: Body, thinks: bool) -> str | None:
    """Results of functions next to other content."""
    for message in body["messages"]:
        kinds = {"toolResult" in block for block in message["content"]}
        if len(kinds) > 1:
            return f"{message}"
    return None


def other_than_one_with_thinking(body: Body, thinks: bool) -> str | None:
    """A temperature other than 1 together with reasoning; the server's own default is not 1."""
    is_on = "reasoning" in body and body["reasoning"].get("enabled") is not False
    return "temperature" if is_on and body.get("temperature") != 1 else None


# --- the rules ---------------------------------------------------------------------------------------------------

_OPENAI_CHAT = "openai azure"
_OPENAI_RESPONSES = "openai-responses azure-responses copilot-responses"
_OPENAI = f"{_OPENAI_CHAT} {_OPENAI_RESPONSES}"
_LEVEL = "Unsupported value: 'reasoning_effort' does not support '…' with this model"
_OPENAI_SOURCE = "1, 2.1; Pydantic AI profiles/openai.py (live 2026-07 to 2026-10)"
_FORCED_CLAUDE = "Thinking may not be enabled when tool_choice forces tool use."
_MANUAL = (
    "*claude-*-4-5* *claude-opus-4-[01]* *claude-opus-4 *claude-opus-4-2* *claude-sonnet-4-0* *claude-sonnet-4 "
    "*claude-sonnet-4-2* *claude-4-* *claude-3-7*"
)
_NEVER_FORCED = "*claude-fable-5-[12]* *claude-mythos-5-[12]* *claude-opus-5-5* *claude-sonnet-5-5*"
_ALWAYS = "*claude-fable-5* *claude-mythos-* *claude-opus-5-5*"
_CLAUDE_ROWS = "anthropic anthropic-vertex bedrock"
_ANTHROPIC_SOURCE = "3.1; Pydantic AI profiles/anthropic.py"

LIMITS = (
    # OpenAI, and the same models elsewhere.
    Limit("level", _OPENAI, "o[134]*", levels("low", "medium", "high"), _LEVEL, _OPENAI_SOURCE),
    Limit("level", _OPENAI, "gpt-5-pro*", levels("high"), _LEVEL, _OPENAI_SOURCE),
    Limit("level", _OPENAI, "gpt-5.[245]-pro*", levels("medium", "high", "xhigh"), _LEVEL, _OPENAI_SOURCE),
    Limit("level", _OPENAI, "gpt-5.[123]-chat*", levels("medium"), _LEVEL, _OPENAI_SOURCE),
    Limit("level", _OPENAI, "gpt-5 gpt-5-mini*", levels("minimal", "low", "medium", "high"), _LEVEL, _OPENAI_SOURCE),
    Limit("level", _OPENAI, "gpt-5.1", levels("none", "low", "medium", "high"), _LEVEL, _OPENAI_SOURCE),
    Limit("level", _OPENAI, "gpt-5.[2345]", levels("none", "low", "medium", "high", "xhigh"), _LEVEL, _OPENAI_SOURCE),
    Limit(
        *("level", _OPENAI_RESPONSES, "gpt-6-astra* gpt-6.1-sol*", levels("low", "medium", "high", "xhigh", "max")),
        *(_LEVEL, _OPENAI_SOURCE),
    ),
    Limit(
        *("level", _OPENAI_RESPONSES, "gpt-5.6* gpt-[67]*", levels("none", "low", "medium", "high", "xhigh", "max")),
        *(_LEVEL, _OPENAI_SOURCE),
    ),
    # The error message offers `none` to these, too, where they are given functions.
    Limit(
        *("level", _OPENAI_CHAT, "gpt-5.6* gpt-[67]*", levels("none", "low", "medium", "high", "xhigh")),
        *(_LEVEL, "Pydantic AI: Chat Completions rejects 'max' on every model"),
    ),
    Limit(
        *("level", _OPENAI, "gpt-3.5* gpt-4* chatgpt-4o* gpt-5-chat*", levels()),
        *("Unrecognized request argument supplied: reasoning_effort", "1"),
    ),
    Limit(
        *("tools_with_level", _OPENAI_CHAT, "gpt-5.4", tools_with_level),
        "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. Please use "
        "/v1/responses instead.",
        "openai/openai-openapi#541, pipecat-ai/pipecat#4043",
    ),
    Limit(
        *("tools_with_level", _OPENAI_CHAT, "gpt-5.5 gpt-5.6* gpt-[67]*", tools_while_thinking),
        "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function "
        "tools, use /v1/responses or set reasoning_effort to 'none'.",
        "BerriAI/litellm#34569 (refused without a level, too), can1357/oh-my-pi#11052 (Azure, GPT-6 Astra)",
    ),
    Limit(
        *("max_tokens", f"{_OPENAI_CHAT} copilot", "*", fields("max_tokens")),
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "1; Copilot: Pydantic AI providers/github_copilot.py (a bare 400)",
    ),
    Limit(
        *("sampling", _OPENAI, "o[134]* gpt-5-pro* gpt-5.[245]-pro* gpt-5.[123]-chat* gpt-5 gpt-5-mini*", sampling()),
        *("Unsupported value: 'temperature' does not support 0.5 with this model.", _OPENAI_SOURCE),
    ),
    Limit(
        *("include", _OPENAI_RESPONSES, "gpt-3.5* gpt-4* chatgpt-4o* gpt-5-chat*", fields("include")),
        *("Encrypted content is not supported with this model.", "2.1"),
    ),
    # DeepSeek.
    Limit(
        *("forced", "deepseek deepseek-responses deepseek-anthropic", "*", forced(only_thinking=True)),
        *("Thinking mode does not support this tool_choice", "Pydantic AI providers/deepseek.py"),
    ),
    Limit(
        *("between_calls", "deepseek-responses", "*", items_between_calls),
        *("No tool output found for tool call call-a", "src/pellucid/providers/profiles.toml (a recorded refusal)"),
    ),
    # Groq.
    Limit(
        *("level", "groq", "*gpt-oss*", levels("low", "medium", "high")),
        *("`reasoning_effort` must be one of `low`, `medium`, or `high`", "5; theopenco/llmgateway#3422"),
    ),
    Limit(
        *("level", "groq", "*qwen3.8*", levels("none", "default", "low", "medium", "high")),
        *("`reasoning_effort` must be one of …", "5"),
    ),
    Limit(
        *("level", "groq", "*qwen*", levels("none", "default")),
        *("`reasoning_effort` must be one of `none` or `default`", "5; iamsrikanthnani/pluely#219"),
    ),
    Limit(
        *("level", "groq", "*llama* *kimi* *compound* *gemma*", levels()),
        *(
            "reasoning_effort is not supported with this model",
            "diegosouzapw/OmniRoute#3277, iamsrikanthnani/pluely#219",
        ),
    ),
    Limit(
        "unknown",
        "groq",
        "*",
        unknown_fields(
            "messages model stream stream_options temperature top_p max_completion_tokens stop seed tools tool_choice "
            "parallel_tool_calls response_format reasoning_effort reasoning_format include_reasoning service_tier user "
            "frequency_penalty presence_penalty logit_bias logprobs top_logprobs"
        ),
        *("property '…' is unsupported", "musistudio/llms#64, fanenr/chatbot#21"),
    ),
    Limit(
        *("unknown_in_assistant", "groq", "*", unknown_in_assistant("role content name tool_calls reasoning")),
        "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property "
        "'reasoning_content' is unsupported)]",
        "janhq/jan#8136, tashfeenahmed/freellmapi#1070",
    ),
    # Cerebras.
    Limit(
        *("level", "cerebras", "*gpt-oss*", levels("low", "medium", "high")),
        *("reasoning_effort 'none' is not supported", "19; Pydantic AI providers/cerebras.py"),
    ),
    Limit(
        *("level", "cerebras", "*kimi-k3* *glm-5.3*", levels("low", "high", "max")),
        *("reasoning_effort must be one of low, high, max", "Pydantic AI providers/cerebras.py"),
    ),
    Limit(
        *("level", "cerebras", "*", levels("none", "low", "medium", "high")),
        *("reasoning_effort must be one of none, low, medium, high", "19"),
    ),
    Limit(
        *("forced", "cerebras vllm sglang ollama crusoe together bedrock-mantle bedrock", "*gpt-oss*", forced()),
        *('Supported options: ["auto"]', "Pydantic AI profiles/harmony.py, providers/bedrock_mantle.py"),
    ),
    Limit(
        *("clear_thinking", "cerebras", "*gpt-oss*", fields("clear_thinking")),
        *("clear_thinking is not supported by this model", "19: a field for GLM and Qwen"),
    ),
    Limit(
        "unknown",
        "cerebras",
        "*",
        unknown_fields(
            "messages model stream stream_options temperature top_p max_completion_tokens stop seed tools tool_choice "
            "parallel_tool_calls response_format reasoning_effort reasoning_format disable_reasoning clear_thinking "
            "user service_tier logprobs top_logprobs logit_bias frequency_penalty presence_penalty prediction"
        ),
        *("property 'enable_thinking' is unsupported (code wrong_api_format)", "19; proxysoul/Empryo#209"),
    ),
    Limit(
        *("unknown_in_assistant", "cerebras", "*", unknown_in_assistant("role content name tool_calls reasoning")),
        "messages.2.assistant.reasoning_content: property 'messages.2.assistant.reasoning_content' is unsupported",
        "NousResearch/hermes-agent#34716, QwenLM/qwen-code#11045",
    ),
    # Qwen, Kimi, GLM, Grok and others on Chat Completions.
    Limit(
        *("forced", "qwen", "*instruct* *coder*", lambda body, thinks: None),
        *("", "these do not think"),
    ),
    Limit(
        *("forced", "qwen", "*", forced(only_thinking=True)),
        "The tool_choice parameter does not support being set to required or object in thinking mode",
        "src/pellucid/providers/profiles.toml",
    ),
    Limit(
        *("forced", "kimi kimi-anthropic", "*", forced(only_thinking=True)),
        *("tool_choice 'required' is incompatible with thinking enabled", "Pydantic AI providers/moonshotai.py"),
    ),
    Limit(
        *("level", "kimi", "*-k3*", levels("low", "high", "max")),
        *("invalid reasoning_effort", "Pydantic AI providers/moonshotai.py"),
    ),
    Limit(
        *("level", "kimi", "*", levels("minimal", "low", "medium", "high", "max")),
        *("Unsupported value: 'reasoning_effort' does not support 'none' with this model.", "Kilo-Org/cloud#3807"),
    ),
    Limit(
        *("off", "kimi", "*-k3* *-k2.7-code* *thinking*", value("thinking.type", "disabled")),
        *("invalid thinking: only type=enabled is allowed for this model", "21; Pydantic AI providers/moonshotai.py"),
    ),
    Limit(
        *("level", "zai", "*glm-5.3*", levels("low", "high", "max")),
        *("please use low, high, or max", "Pydantic AI profiles/zai.py"),
    ),
    Limit(
        *("off", "zai", "*glm-5.3*", value("thinking.type", "disabled")),
        *("please use low, high, or max", "Pydantic AI profiles/zai.py"),
    ),
    Limit(
        *("forced", "together", "*deepseek-v4*", forced()),
        *("Thinking mode does not support this tool_choice", "Pydantic AI providers/together.py"),
    ),
    Limit(
        *("level", "xai xai-responses", "*grok-3-mini*", levels("none", "low", "high")),
        *("Invalid reasoning effort", "16; Pydantic AI profiles/grok.py (live 2026-10)"),
    ),
    Limit(
        *("level", "xai xai-responses", "*grok-4.[56]* *grok-build-latest*", levels("low", "medium", "high")),
        *("reasoning_effort none is not supported", "Pydantic AI profiles/grok.py"),
    ),
    Limit(
        *("level", "xai xai-responses", "*grok-4.7*", levels("low", "medium", "high", "xhigh")),
        *("reasoning_effort none is not supported", "Pydantic AI profiles/grok.py"),
    ),
    Limit(
        *("level", "xai xai-responses", "*grok-4.20-multi-agent*", levels("low", "medium", "high", "xhigh")),
        *("reasoning_effort none is not supported", "enricoros/big-AGI#1104 (documentation of xAI)"),
    ),
    Limit(
        *("level", "xai xai-responses", "*grok-4.20* *grok-code* *grok-build*"),
        *(levels(), "Model grok-4.20-0309-reasoning does not support parameter reasoningEffort."),
        "chenyme/grok2api#814, NousResearch/hermes-agent#23435 (both wires)",
    ),
    Limit(
        *("level", "xai xai-responses", "*grok-4.3* *grok-latest* *grok-4 *grok-4-* *grok-3*"),
        *(levels("none", "low", "medium", "high"), "Invalid reasoning effort", "Pydantic AI profiles/grok.py"),
    ),
    Limit(
        *("null", "xai-responses", "*", lambda body, thinks: _null_content(body)),
        *("content: null is refused", "src/pellucid/providers/openai_responses/history_items.py"),
    ),
    Limit(
        *("level", "perplexity", "*", levels("minimal", "low", "medium", "high")),
        *("reasoning_effort must be one of minimal, low, medium, high", "24"),
    ),
    Limit(
        *("temperature", "snowflake", "*claude*", other_than_one_with_thinking),
        *("temperature must be 1 when reasoning is enabled", "Pydantic AI providers/snowflake.py"),
    ),
    Limit("forced", "snowflake", "*claude*", forced(only_thinking=True), _FORCED_CLAUDE, "3.1: a budget of thinking"),
    Limit(
        *("level", "snowflake", "*claude*", levels("low", "medium", "high")),
        *("reasoning.effort: one of high, medium, low", "Pydantic AI models/snowflake.py"),
    ),
    Limit(
        *("forced", "openrouter", "*claude*", forced(only_thinking=True)),
        "No refusal: it drops the reasoning field, and the response has no reasoning",
        "pydantic/pydantic-ai#6957",
    ),
    Limit(
        *("off", "openrouter", "*claude-sonnet-5?5* *gemini-[34]* *-thinking* *gpt-oss-* *glm-5.3*"),
        lambda body, thinks: (
            levels("minimal", "low", "medium", "high", "xhigh", "max")(body, thinks)
            or value("reasoning.enabled", False)(body, thinks)
        ),
        "Reasoning is mandatory for this endpoint and cannot be disabled.",
        "tests/providers/test_refusals.py",
    ),
    Limit(
        *("level", "ollama", "*", levels("none", "minimal", "low", "medium", "high", "max")),
        *('invalid reasoning value: "x" (must be "minimal", …, or "none")', "13"),
    ),
    Limit(
        *("level", "ollama-native", "*gpt-oss*", levels("low", "medium", "high")),
        *("invalid think value", "13"),
    ),
    Limit(
        *("level", "ollama-native", "*deepseek-v4* *glm-* *kimi-k3*", levels("low", "medium", "high", "max")),
        *("invalid think value", "13; the levels of its cloud"),
    ),
    Limit(*("level", "ollama-native", "*", levels()), *("invalid think value", "13")),
    # Claude.
    Limit(
        *("forced", _CLAUDE_ROWS, _NEVER_FORCED, forced()),
        *("tool_choice: any and tool are not supported by this model", _ANTHROPIC_SOURCE),
    ),
    Limit("forced", _CLAUDE_ROWS, _MANUAL, forced(only_thinking=True), _FORCED_CLAUDE, "can1357/oh-my-pi#341"),
    Limit(
        *("off", _CLAUDE_ROWS, _ALWAYS),
        lambda body, thinks: _claude_type(body, "disabled", "between_tools"),
        *("thinking.type: disabled is not supported by this model", _ANTHROPIC_SOURCE),
    ),
    Limit(
        *("off", _CLAUDE_ROWS, "*claude-sonnet-5-5*", lambda body, thinks: _claude_type(body, "disabled")),
        *("thinking.type: disabled is not supported by this model", _ANTHROPIC_SOURCE),
    ),
    Limit(
        *("adaptive", _CLAUDE_ROWS, _MANUAL, lambda body, thinks: _claude_type(body, "adaptive")),
        *("adaptive thinking is not supported on this model", "3.1; 400 of models before 4.6"),
    ),
    Limit(
        *("adaptive", _CLAUDE_ROWS, "*claude-[23]* *claude-v* *claude-instant*"),
        lambda body, thinks: _claude_type(body, "adaptive", "enabled", "disabled"),
        *("thinking: extra inputs are not permitted", "3.1"),
    ),
    Limit(
        *("adaptive", _CLAUDE_ROWS, "*claude-opus-4-6* *claude-sonnet-4-6*", lambda body, thinks: None),
        *("", "3.1: these accept both"),
    ),
    Limit(
        *("adaptive", _CLAUDE_ROWS, "*claude*", lambda body, thinks: _claude_type(body, "enabled")),
        *('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive"', "3.1"),
    ),
    Limit(
        *("sampling", _CLAUDE_ROWS, f"{_MANUAL} *claude-opus-4-6* *claude-sonnet-4-6*", sampling(only_thinking=True)),
        *("`temperature` may only be set to 1 when thinking is enabled", "3.1"),
    ),
    Limit("sampling", _CLAUDE_ROWS, "*claude-[23]* *claude-v* *claude-instant*", lambda body, thinks: None, "", "3.1"),
    Limit(
        *("sampling", _CLAUDE_ROWS, "*claude*", sampling()),
        *("temperature is not supported by this model", _ANTHROPIC_SOURCE),
    ),
    Limit(
        *("level", _CLAUDE_ROWS, "*claude-*-4-6*", levels("low", "medium", "high", "max")),
        *("output_config.effort: xhigh is not supported by this model", _ANTHROPIC_SOURCE),
    ),
    Limit("level", _CLAUDE_ROWS, f"{_MANUAL} *claude-[23]*", levels(), "output_config.effort", _ANTHROPIC_SOURCE),
    Limit(
        *("level", _CLAUDE_ROWS, "*claude*", levels("low", "medium", "high", "xhigh", "max")),
        *("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'", "3.1"),
    ),
    Limit(
        "unknown",
        "anthropic",
        "*",
        unknown_fields(
            "model max_tokens messages system stream thinking output_config tools tool_choice temperature top_p top_k "
            "stop_sequences metadata service_tier container context_management mcp_servers speed cache_control"
        ),
        *("…: Extra inputs are not permitted", "3.1"),
    ),
    Limit(
        "unknown",
        "anthropic-vertex",
        "*",
        unknown_fields(
            "anthropic_version anthropic_beta max_tokens messages system stream thinking output_config tools "
            "tool_choice temperature top_p top_k stop_sequences metadata"
        ),
        *("model: Extra inputs are not permitted", "25"),
    ),
    # Gemini.
    Limit(
        *("level", "google google-vertex", "*gemini-2* *gemini-1* *gemma*", levels()),
        *("Thinking level is not supported for this model.", "4.1; Pydantic AI profiles/google.py"),
    ),
    Limit(
        *("level", "google google-vertex", "*gemini-3-pro*", levels("low", "high")),
        *("Thinking level MEDIUM is not supported for this model", "Pydantic AI profiles/google.py"),
    ),
    Limit(
        *("level", "google google-vertex", "*gemini-3.1-flash-lite-image*", levels("minimal", "high")),
        *("Thinking level LOW is not supported for this model", "Pydantic AI profiles/google.py"),
    ),
    Limit(
        *("level", "google google-vertex", "*gemini-4*", levels("minimal", "low", "medium", "high", "xhigh")),
        *("Thinking level MAX is not supported for this model", "4.1"),
    ),
    Limit(
        *("level", "google google-vertex", "*flash*", levels("minimal", "low", "medium", "high")),
        *("Thinking level XHIGH is not supported for this model", "4.1"),
    ),
    Limit(
        *("level", "google google-vertex", "*", levels("low", "medium", "high")),
        *("Thinking level MINIMAL is not supported for this model", "Pydantic AI profiles/google.py"),
    ),
    Limit(
        *("off", "google google-vertex", "*gemini-2.5-pro* gemini-2.5"),
        value("generationConfig.thinkingConfig.thinkingBudget", 0),
        *("Budget 0 is invalid. This model only works in thinking mode.", "4.1"),
    ),
    Limit(
        *("off", "google google-vertex", "*gemini-2.0* *gemini-2 *gemini-1* *gemma* *flash-image*"),
        fields("generationConfig.thinkingConfig"),
        *("Thinking is not enabled for this model", "4.1"),
    ),
    # Mistral and Cohere.
    Limit(
        *("level", "mistral", "*glm-5-2*", levels("none", "high", "max")),
        *("Input should be 'none', 'high' or 'max'", "vercel/ai#20587 (Mistral hosts it)"),
    ),
    Limit(
        *("level", "mistral", "*glm-*", levels("low", "high", "max")),
        *("please use low, high, or max", "Pydantic AI profiles/zai.py; profiles/mistral.py (Mistral hosts it)"),
    ),
    Limit(
        *("level", "mistral", "magistral-*-latest", levels("none", "high")),
        *("Input should be 'none' or 'high'", "anomalyco/models.dev#1986 (live 2026-06)"),
    ),
    Limit(
        *("level", "mistral", "magistral-*", levels()),
        *("extra_forbidden: reasoning_effort", "NousResearch/hermes-agent#11243 (422)"),
    ),
    Limit(
        *("level", "mistral", "codestral* ministral* devstral* pixtral* open-* mistral-large-2*", levels()),
        *("reasoning_effort is not supported by this model", "NousResearch/hermes-agent#11243 (documentation; 422)"),
    ),
    Limit(
        *("level", "mistral", "mistral-large-4*", levels("high")),
        *("reasoning_effort none is not supported", "src/pellucid/providers/profiles.toml"),
    ),
    Limit(
        *("level", "mistral", "*", levels("none", "high")),
        *("Input should be 'none' or 'high'", "6; Pydantic AI models/mistral.py"),
    ),
    Limit(
        "unknown",
        "mistral",
        "*",
        unknown_fields(
            "model messages stream temperature top_p max_tokens stop random_seed metadata response_format tools "
            "tool_choice presence_penalty frequency_penalty n prediction parallel_tool_calls prompt_mode "
            "reasoning_effort guardrails safe_prompt prompt_cache_key"
        ),
        *("extra_forbidden: Extra inputs are not permitted", "OpenHands/OpenHands-CLI#83, BerriAI/litellm#30882"),
    ),
    Limit(
        *("unknown_in_assistant", "mistral", "*", unknown_in_assistant("role content tool_calls prefix")),
        "extra_forbidden at body.messages.2.assistant.reasoning_content: Extra inputs are not permitted",
        "charmbracelet/crush#1590, BerriAI/litellm#30835",
    ),
    # Bedrock: models of other makers.
    Limit(
        *("level", "bedrock", "*gpt-oss*", levels("low", "medium", "high")),
        *("reasoning_effort none is not supported", "9.1; Pydantic AI providers/bedrock.py"),
    ),
    Limit(
        *("level", "bedrock", "*openai.gpt-6-astra* *openai.gpt-6.1-sol*"),
        *(levels("low", "medium", "high", "xhigh", "max"), "reasoning.effort none is not supported"),
        "Pydantic AI providers/bedrock.py (live)",
    ),
    Limit(
        *("level", "bedrock", "*openai.gpt*", levels("none", "low", "medium", "high", "xhigh", "max")),
        *("invalid reasoning.effort", "Pydantic AI providers/bedrock.py"),
    ),
    Limit(
        *("level", "bedrock", "*grok*", levels("low", "medium", "high", "xhigh")),
        *("reasoning.effort none is not supported", "9.1; model card of Grok 4.6"),
    ),
    Limit(
        *("level", "bedrock", "*qwen3-coder* *nova-pro* *llama* *mistral* *minimax* *palmyra* *deepseek.r1*", levels()),
        *("extraneous key is not permitted", "9.1"),
    ),
    Limit(
        *("level", "bedrock", "*qwen*", levels("none", "low", "medium", "high")),
        *("invalid reasoning_config", "Pydantic AI providers/bedrock.py"),
    ),
    Limit(
        *("level", "bedrock", "*glm-5.3*", levels("low", "medium", "high", "xhigh", "max")),
        *("reasoning_effort none is not supported", "Pydantic AI providers/bedrock.py"),
    ),
    Limit(
        *("level", "bedrock", "*deepseek* *glm*", levels("high", "none")),
        *("invalid reasoning_effort", "Pydantic AI providers/bedrock.py"),
    ),
    Limit(
        *("sampling", "bedrock", "*openai.gpt-?.* *openai.gpt-?-* *openai.gpt *grok*", sampling()),
        "temperature, topP and top_k are not supported by this model",
        "Pydantic AI providers/bedrock.py",
    ),
    Limit(
        *("forced", "bedrock", "*meta.llama* *cohere.*", forced()),
        "This model doesn't support the toolConfig.toolChoice.any field. Remove toolConfig.toolChoice.any and try "
        "again.",
        "pydantic/pydantic-ai#2091, run-llama/llama_index#19886, strands-agents/harness-sdk#2075",
    ),
    Limit(
        *("forced", "bedrock", "*glm-5.3*", forced()),
        *("tool choice is not supported while the model thinks", "tests/providers/test_refusals.py"),
    ),
    Limit(
        *("forced", "bedrock", "*qwen* *deepseek* *glm*", lambda body, thinks: _forced_with_level(body)),
        *("tool choice is not supported while the model thinks", "tests/providers/test_refusals.py"),
    ),
    Limit(
        *("results_alone", "bedrock", "*meta.llama* *mistral.* *writer.*", results_with_others),
        "messages.4.content: Conversation blocks and tool result blocks cannot be provided in the same turn",
        "strands-agents/harness-sdk#1223, pybae/browser-use#56, pydantic/pydantic-ai#6081",
    ),
    Limit(
        *("status", "bedrock", "*writer.*", lambda body, thinks: _result_status(body)),
        *(
            "This model doesn't support the status field. Remove status and try again.",
            "Pydantic AI providers/bedrock.py",
        ),
    ),
)


def _claude_type(body: Body, *refused: str) -> str | None:
    thinking = body.get("thinking") or value_at(body, "additionalModelRequestFields.thinking") or {}
    return f"{thinking}" if thinking.get("type") in refused else None


def _null_content(body: Body) -> str | None:
    return next((f"{item}" for item in body["input"] if item.get("content", "") is None), None)


def _forced_with_level(body: Body) -> str | None:
    has_level = any(value != "none" for _, value in levels_of(body))
    return "a forced call" if has_level and is_forced(body) else None


def _result_status(body: Body) -> str | None:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return next((f"{block}" for block in blocks if "status" in block.get("toolResult", ())), None)
