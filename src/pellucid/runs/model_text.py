"""Short texts that a model writes for the gateway itself: summaries of reasoning, titles of chats.

The model does not think, and its answer is bounded. What was used is part of no run: it is reported to a callback.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

from ..background_tasks import start_task
from ..conversation import turn_lengths
from ..models import ChatModel
from ..models.deployments import DeployedModel
from ..parts import ModelMessage, ModelRequest, ModelResponse, Origin, SystemPromptPart, Usage, UserPromptPart
from ..run import Minter
from ..settings import ModelCall
from ..telemetry import error_location, log
from .live_run import LiveRun
from .source import Batch


class TextUsage(NamedTuple):
    """What a model used to write one text."""

    origin: Origin
    """The model that wrote it, or that was reading when the writing was cancelled."""
    usage: Usage
    """What its provider reported."""
    read_characters: int
    written_characters: int


UsageCallback = Callable[[TextUsage], Coroutine[Any, Any, None]]
"""Called after each text, also one that failed or was cancelled; not if the model refused the call."""


async def write_text(
    model: ChatModel,
    instructions: str,
    text: str,
    *,
    max_tokens: int,
    purpose: str,
    on_usage: UsageCallback | None = None,
) -> str | None:
    """Let a model write a short text. Raises nothing but a cancellation.

    Args:
        model: The model.
        instructions: What it has to do.
        text: What it has to do it with.
        max_tokens: Maximum number of tokens that it writes.
        purpose: What the text is, for the log: "a summary".
        on_usage: Is called, in a task, with what was used.

    Returns:
        The text; None if none was written.
    """
    messages: list[ModelMessage] = [ModelRequest([SystemPromptPart(instructions), UserPromptPart(text)])]
    settings = {"thinking": False, "max_tokens": max_tokens, "temperature": 0.0}
    call = ModelCall(model.name, messages, settings)  # type: ignore[arg-type]
    called = model.for_request() if isinstance(model, DeployedModel) else model
    run = LiveRun(called, call, Minter(b"text"))
    is_reading = True
    try:
        await run.open()
        await run.deliver(_ignore)
    except Exception as error:
        is_reading = False
        log.warning("%s could not be written: %s", purpose, error_location(error))
    finally:
        with suppress(Exception):
            run.cancel()
        run.close()
        response = next((response for response in run.run.messages if isinstance(response, ModelResponse)), None)
        if response is not None:
            is_reading = response.finish_reason != "error" or run.run.characters > 0
        if on_usage is not None and is_reading:
            origin, usage = (called.origin, Usage()) if response is None else (response.origin, response.usage)
            used = TextUsage(origin or called.origin, usage, sum(turn_lengths(messages)), run.run.characters)
            start_task(on_usage(used), f"the tokens of {purpose} were not charged")
    ended = run.ended
    # A truncated text is still useful; that of a failed run is not.
    is_usable = ended is not None and ended.status in ("completed", "incomplete")
    return ((response.text or "").strip() or None) if response is not None and is_usable else None


def _ignore(batch: Batch) -> None:
    """Ignore a batch: only the run's messages are used."""
