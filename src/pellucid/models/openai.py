"""OpenAI, and everybody who speaks as it does, over Chat Completions and Responses."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ..settings import Effort, ModelSettings
from .provider import ProviderModel


class OpenAIChatModelSettings(ModelSettings, total=False):
    """Settings that only OpenAI has. Each wins over its unified twin."""

    openai_reasoning_effort: Effort
    """How much to think. Which levels there are depends on the model."""
    openai_logprobs: bool
    openai_top_logprobs: int
    openai_store: bool | None
    """Whether OpenAI is to keep the answer."""
    openai_user: str
    openai_moderation: dict[str, Any]
    openai_text_verbosity: Literal["low", "medium", "high"]
    openai_service_tier: str
    openai_prediction: dict[str, Any]
    openai_prompt_cache_key: str
    openai_prompt_cache_retention: Literal["in_memory", "24h"]
    openai_prompt_cache_options: dict[str, Any]


class OpenAIResponsesModelSettings(OpenAIChatModelSettings, total=False):
    """What the Responses API has besides (`openai_prediction` is known to Chat Completions alone)."""

    openai_reasoning_summary: Literal["auto", "concise", "detailed"]
    """How detailed a summary of its reasoning the model is to write. Without it, reasoning is not to be read."""
    openai_reasoning_context: Literal["auto", "current_turn", "all_turns"]
    """Which earlier reasoning the model gets to see."""
    openai_reasoning_mode: Literal["standard", "pro"]
    openai_send_reasoning_ids: bool
    """Whether the ids of earlier reasoning, texts and calls go back; unsaid, they do. To be switched off where the
    history is edited, or an item is refused "without its required following item"."""
    openai_truncation: Literal["disabled", "auto"]
    openai_previous_response_id: Literal["auto"] | str
    """Go on from an answer that OpenAI kept; what came before it is not sent again. `auto`: from the last answer in the
    history that this model gave, whole; for that, OpenAI is asked to keep answers, unless `openai_store` is False: then
    all of the history is sent, as it is without this."""
    openai_conversation_id: str
    openai_native_tools: list[dict[str, Any]]
    """OpenAI's own tools, as it writes them."""
    openai_builtin_tools: list[dict[str, Any]]
    """The older name of `openai_native_tools`."""
    openai_include_code_execution_outputs: bool
    openai_include_web_search_sources: bool
    openai_include_file_search_results: bool
    openai_context_management: list[dict[str, Any]]
    openai_background: bool


class OpenAIChatModel(ProviderModel):
    """A model over Chat Completions: OpenAI's, or that of any server of this dialect (`profile="vllm"`).

    Reasoning is read from the fields that servers put it in, and from between tags (`thinking_tags`).
    """

    profile_names: ClassVar = ("openai",)


class OpenAIResponsesModel(ProviderModel):
    """A model over the Responses API, with native reasoning items: OpenAI's, or any OpenResponses server's."""

    profile_names: ClassVar = ("openai-responses",)
