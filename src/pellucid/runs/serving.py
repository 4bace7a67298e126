"""Whose run it is that a server drives: nobody's but its tools'.

A turn may call the server's functions and the caller's own: ours are called here, the caller's end the run and wait for
the caller (see `run`).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ..parts import ModelResponse, RetryPromptPart, ToolCallPart
from ..settings import ModelCall
from ..tools import RunContext, ServerTools
from .attached import Answered


class ServerOwner:
    """The functions that a server calls in one run: `tools`, of which `names` may be used."""

    checks = False

    def __init__(self, tools: ServerTools, names: Container[str], context: RunContext[Any]) -> None:
        self.tools = names
        self._tools = tools
        self._context = context

    async def prepare(self, call: ModelCall) -> ModelCall:
        return call

    async def answer(self, calls: tuple[ToolCallPart, ...]) -> Answered:
        return Answered(await self._tools.call(calls, self._context))

    async def check(self, response: ModelResponse) -> RetryPromptPart | None:
        return None


__all__ = ["ServerOwner"]
