"""Exceptions of agents and their tools, as in `pydantic_ai.exceptions`. They are in `pellucid`, too."""

from .agent import UnexpectedModelBehavior as UnexpectedModelBehavior
from .agent import UsageLimitExceeded as UsageLimitExceeded
from .errors import ModelError as ModelError
from .errors import PellucidError as PellucidError
from .errors import RequestError as RequestError
from .tools import ApprovalRequired as ApprovalRequired
from .tools import CallDeferred as CallDeferred
from .tools import ModelRetry as ModelRetry
from .tools import ToolFailed as ToolFailed
