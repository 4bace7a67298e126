"""The names of `pydantic_ai.messages`: messages, their parts, and the events of a run. They are in `pellucid`, too."""

from .events import *  # noqa: F403
from .parts import *  # noqa: F403
