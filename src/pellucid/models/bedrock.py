"""Models on Amazon Bedrock, over Converse."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ..settings import ModelSettings
from .provider import ProviderModel
from .sigv4 import default_region, endpoint_url


class BedrockModelSettings(ModelSettings, total=False):
    """Settings that only Bedrock has. Each takes precedence over its unified setting."""

    bedrock_additional_model_requests_fields: dict[str, Any]
    """Fields of the model's maker, in its form: `{"thinking": {"type": "enabled", "budget_tokens": 1024}}`."""
    bedrock_additional_model_response_fields_paths: list[str]
    bedrock_guardrail_config: dict[str, Any]
    bedrock_performance_configuration: dict[str, Any]
    bedrock_request_metadata: dict[str, str]
    bedrock_prompt_variables: dict[str, Any]
    bedrock_service_tier: dict[str, Any]
    bedrock_inference_profile: str
    """ARN of an inference profile to use in place of the model."""
    bedrock_cache_instructions: bool | Literal["5m", "1h"]
    bedrock_cache_tool_definitions: bool | Literal["5m", "1h"]
    bedrock_cache_messages: bool | Literal["5m", "1h"]


class BedrockConverseModel(ProviderModel):
    """A model on Bedrock.

    If there is an API key (`AWS_BEARER_TOKEN_BEDROCK`), it is sent. Otherwise the request is signed with AWS
    credentials from the usual places of AWS tools, which needs the extra `bedrock`. The region is `region`, else that
    in `base_url`, else `AWS_REGION`.
    """

    profile_names: ClassVar = ("bedrock",)

    def __init__(self, model_name: str, *, region: str | None = None, base_url: str | None = None, **more: Any) -> None:
        region = region or default_region()
        super().__init__(model_name, base_url=base_url or (endpoint_url(region) if region else None), **more)


BedrockModel = BedrockConverseModel
