"""A model whose conversations are truncated to fit its context (`truncation: "auto"`): the oldest turns are dropped.

* Turns are dropped only if needed. Only the model can count the tokens of a conversation. The whole conversation is
  sent; if the model reports that it is too long, before any other content, a shorter one is sent. If the operator has
  configured the context length, a conversation that is certainly too long is shortened before it is sent.
* A dropped turn stays dropped for the rest of the run. There are at most `MAX_ATTEMPTS` requests for a turn. The last
  one has only the turns that cannot be dropped, and its result is final.

`pellucid.conversation` decides which turns can be dropped, and which of their parts remain.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from ..conversation import count_droppable_turns, drop_oldest_turns, turn_lengths
from ..errors import ErrorInfo, ModelError
from ..parts import Origin
from ..providers.errors import CONTEXT_LENGTH_EXCEEDED
from ..settings import ModelCall
from .model import ChatModel, ModelStream
from .retrying import RetryingStream

MAX_ATTEMPTS = 8
DROP_SHARE = 1 / 3
"""Share of the droppable turns, by length, that each further attempt drops."""

CHARACTERS_PER_TOKEN = 4
"""More characters than a token has in most text, so that a conversation that is estimated as too long is too long."""


class TruncatingModel:
    """Wrapper of a model for one run.

    Args:
        inner: The model.
        context_tokens: Length of the model's context in tokens; None if it is not known.
    """

    def __init__(self, inner: ChatModel, context_tokens: int | None = None) -> None:
        self.name = inner.name
        self.warnings = inner.warnings
        self.dropped_turns = 0
        """Number of turns that are dropped."""
        self._inner = inner
        self._context_tokens = context_tokens
        self._attempts_left = MAX_ATTEMPTS

    @property
    def origin(self) -> Origin:
        """The origin of `inner`, which changes if that has several deployments."""
        return self._inner.origin

    async def open(self, call: ModelCall) -> ModelStream:
        """Start a turn. Raises what `inner` raises when no more turns can be dropped."""
        self._attempts_left = MAX_ATTEMPTS
        if self._context_tokens is not None:
            self._fit_context(call, self._context_tokens)
        return RetryingStream(
            await self._open(call),
            lambda error: partial(self._open, call) if self._drop_more(call, error) else None,
        )

    async def _open(self, call: ModelCall) -> ModelStream:
        while True:
            self._attempts_left -= 1
            try:
                return await self._inner.open(
                    replace(call, messages=drop_oldest_turns(call.messages, self.dropped_turns))
                )
            except ModelError as error:
                if not self._drop_more(call, error.info):
                    raise

    def _drop_more(self, call: ModelCall, error: ErrorInfo) -> bool:
        """Drop more turns, if the error is that the conversation is too long. Returns whether turns were dropped."""
        droppable_turns = count_droppable_turns(call.messages)
        if error.code != CONTEXT_LENGTH_EXCEEDED or self.dropped_turns >= droppable_turns or self._attempts_left <= 0:
            return False
        if self._attempts_left == 1:
            self.dropped_turns = droppable_turns
            return True
        turn_weights = turn_lengths(call.messages)[self.dropped_turns : droppable_turns]
        dropped_weight, target_weight = 0, sum(turn_weights) * DROP_SHARE
        while dropped_weight < target_weight or not dropped_weight:
            dropped_weight += turn_weights.pop(0) or 1
            self.dropped_turns += 1
        return True

    def _fit_context(self, call: ModelCall, context_tokens: int) -> None:
        max_characters = (context_tokens - call.settings.get("max_tokens", 0)) * CHARACTERS_PER_TOKEN
        turn_weights, droppable_turns = turn_lengths(call.messages), count_droppable_turns(call.messages)
        while self.dropped_turns < droppable_turns and sum(turn_weights[self.dropped_turns :]) > max_characters:
            self.dropped_turns += 1
