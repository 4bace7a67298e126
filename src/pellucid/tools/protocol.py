"""The interface of a tool, of a function as well as of an MCP server."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from ..settings import ToolDefinition
from .context import RunContext


class ToolFailed(Exception):
    """Raised by a tool: the call failed.

    Args:
        content: What the model gets as the result: text, or a value that JSON can hold.
    """

    def __init__(self, content: Any) -> None:
        super().__init__(content if isinstance(content, str) else "the call failed")
        self.content = content


@runtime_checkable
class AnyTool(Protocol):
    """A tool of any kind. `Tool` is made of a function, `MCPTool` belongs to an MCP server."""

    @property
    def name(self) -> str:
        """The name that the model knows."""
        ...

    @property
    def definition(self) -> ToolDefinition:
        """The description for the model."""
        ...

    @property
    def max_retries(self) -> int | None:
        """How often in a row it may fail; None: as its caller's default."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds for each call; None: as its caller's default."""
        ...

    @property
    def sequential(self) -> bool:
        """Whether it must run alone."""
        ...

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate the arguments; return them by parameter. Raises `ValueError` that says what is wrong."""
        ...

    async def call(self, context: RunContext[Any], arguments: dict[str, Any]) -> Any:
        """Call it with the result of `validate`. Raises `ModelRetry`, `ToolFailed`, or any other exception."""
        ...
