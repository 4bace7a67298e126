"""What a tool is to whoever calls it, be it a function here or one behind an MCP server."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from ..settings import ToolDefinition
from .context import RunContext


class ToolFailed(Exception):
    """Raised by a tool: the call failed, and the model is told so with `content` (text, or what JSON can hold)."""

    def __init__(self, content: Any) -> None:
        super().__init__(content if isinstance(content, str) else "the call failed")
        self.content = content


@runtime_checkable
class AnyTool(Protocol):
    """A tool of any kind. `Tool` is one made of a function, `MCPTool` one of an MCP server."""

    @property
    def name(self) -> str:
        """As the model knows it."""
        ...

    @property
    def definition(self) -> ToolDefinition:
        """What the model is told."""
        ...

    @property
    def max_retries(self) -> int | None:
        """How often in a row it may fail; None: as its caller has it."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds; None: as its caller has it."""
        ...

    @property
    def sequential(self) -> bool:
        """Whether it must run alone."""
        ...

    def validate(self, arguments: dict[str, Any]) -> Any:
        """The arguments, checked. Raises `ValueError` saying what is wrong."""
        ...

    async def call(self, context: RunContext[Any], arguments: Any) -> Any:
        """Call it with what `read` gave. Raises `ModelRetry`, `ToolFailed`, or whatever it breaks on."""
        ...
