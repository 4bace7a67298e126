"""Models of OpenAI, and of servers with its APIs Chat Completions and Responses."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ..settings import Effort, ModelSettings, SummaryDetail, Verbosity
from .provider import ProviderModel


class OpenAIChatModelSettings(ModelSettings, total=False):
    """Settings that only OpenAI has. Each takes precedence over its unified setting."""

    openai_reasoning_effort: Effort
    """How much to think. The available levels depend on the model."""
    openai_logprobs: bool
    openai_top_logprobs: int
    openai_store: bool | None
    """Whether OpenAI stores the answer."""
    openai_user: str
    openai_moderation: dict[str, Any]
    openai_text_verbosity: Verbosity
    openai_service_tier: str
    openai_prediction: dict[str, Any]
    openai_prompt_cache_key: str
    openai_prompt_cache_retention: Literal["in_memory", "24h"]
    openai_prompt_cache_options: dict[str, Any]


class OpenAIResponsesModelSettings(OpenAIChatModelSettings, total=False):
    """Additional settings of the Responses API. (Only Chat Completions has `openai_prediction`.)"""

    openai_reasoning_summary: SummaryDetail
    """How detailed the model's summary of its reasoning is. Without this setting, no reasoning can be read."""
    openai_reasoning_context: Literal["auto", "current_turn", "all_turns"]
    """Which earlier reasoning the model gets."""
    openai_reasoning_mode: Literal["standard", "pro"]
    openai_send_reasoning_ids: bool
    """Whether the ids of earlier reasoning, texts and calls are sent; the default is True. Set it to False if the
    history was edited, or if an item is rejected "without its required following item"."""
    openai_truncation: Literal["disabled", "auto"]
    openai_previous_response_id: Literal["auto"] | str
    """Continue from an answer that OpenAI stored; the history before it is not sent again. `auto`: from this model's
    last complete answer in the history. `auto` also asks OpenAI to store answers, unless `openai_store` is False; then
    the whole history is sent, as without this setting."""
    openai_conversation_id: str
    openai_native_tools: list[dict[str, Any]]
    """OpenAI's own tools, in OpenAI's form."""
    openai_builtin_tools: list[dict[str, Any]]
    """The older name of `openai_native_tools`."""
    openai_include_code_execution_outputs: bool
    openai_include_web_search_sources: bool
    openai_include_file_search_results: bool
    openai_context_management: list[dict[str, Any]]
    openai_background: bool


class OpenAIChatModel(ProviderModel):
    """A model over Chat Completions: OpenAI's, or that of any server with this API (`profile="vllm"`).

    Reasoning is decoded from the fields that servers use for it, and from between tags (`thinking_tags`).
    """

    profile_names: ClassVar = ("openai",)


class OpenAIResponsesModel(ProviderModel):
    """A model over the Responses API, with native reasoning items: OpenAI's, or that of any OpenResponses server."""

    profile_names: ClassVar = ("openai-responses",)
