"""Pydantic AI: lossless conversion of messages, our models in its agents, and its agents behind the gateway.

    to_pydantic(messages), from_pydantic(messages)      convert a history, without loss
    Agent(PellucidModel(model))                         use a model of Pellucid in a Pydantic AI agent
    create_app(config, more=[PydanticAgent(agent)])     serve a Pydantic AI agent by the gateway

It needs the extra `pydantic-ai` (`pip install "pellucid[pydantic-ai]"`).
"""

try:
    import pydantic_ai as _pydantic_ai
except ImportError as error:  # pragma: no cover
    raise ImportError('Pydantic AI is not installed; pip install "pellucid[pydantic-ai]" brings it') from error

from .agent import PydanticAgent
from .messages import from_pydantic, to_pydantic
from .model import PellucidModel

del _pydantic_ai

__all__ = ["PellucidModel", "PydanticAgent", "from_pydantic", "to_pydantic"]
