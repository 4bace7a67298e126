"""Usage of a turn and of a run, and its limits, as in `pydantic_ai.usage`. The names are in `pellucid`, too."""

from .agent import UsageLimits as UsageLimits
from .parts import RequestUsage as RequestUsage
from .parts import Usage as Usage
from .tools import RunUsage as RunUsage
