"""Pydantic AI: its messages are ours and ours are its, without loss; its agents ask our models; our gateway serves
its agents.

    to_pydantic(messages), from_pydantic(messages)      the history, both ways
    Agent(PellucidModel(model))                         any of our models under a Pydantic AI agent
    create_app(config, more=[PydanticAgent(agent)])   any Pydantic AI agent behind the gateway

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
