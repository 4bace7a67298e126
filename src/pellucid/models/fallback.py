"""Models that answer one after the other: the next one, where the one before fails.

    model = FallbackModel("anthropic:claude-sonnet-4-5", "openai:gpt-5")

It is a `DeployedModel` whose only deployment is the first model, with the others as its fallbacks: the same rules about
causes, cooldowns, and what of a history another model may see (see `deployments`). The names are Pydantic AI's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, get_args, get_type_hints

from ..errors import ConfigError, PellucidError
from ..parts import ModelResponse
from .deployments import Cause, Cooldowns, DeployedModel, Deployment, cause_of
from .infer import infer_model
from .model import ChatModel

ExceptionHandler: TypeAlias = Callable[[Exception], bool]
FallbackOn: TypeAlias = type[Exception] | ExceptionHandler | Sequence[type[Exception] | ExceptionHandler]
"""Types of errors, and functions that decide about an error."""


class FallbackModel(DeployedModel):
    """A model that tries several models in order. A `ChatModel`.

    A model that fails is not tried first again for some seconds, so that the next request does not wait for it.
    """

    def __init__(
        self,
        default_model: ChatModel | str,
        *fallback_models: ChatModel | str,
        fallback_on: FallbackOn | None = None,
    ) -> None:
        """Create a model.

        Args:
            default_model: The first model, or its name. A `FallbackModel` stands for its models.
            fallback_models: The others, in order. The error of one of them never ends the search.
            fallback_on: The errors of the first model for which the others are tried. None: those for which another
                model may help: limits, outages, credentials, a conversation that is too long, refused content.

        Raises:
            ConfigError: A model does not exist, or `fallback_on` has functions that decide about responses.
        """
        models: list[ChatModel] = []
        self.models = models
        for model in map(infer_model, (default_model, *fallback_models)):
            models += model.models if isinstance(model, FallbackModel) else [model]
        names = [f"{number}: {model.name}" for number, model in enumerate(models)]
        super().__init__(
            "fallback:" + ",".join(model.name for model in models),
            [Deployment(models[0].origin.deployment, models[0])],
            Cooldowns(),
            retries=0,
            fallbacks=dict.fromkeys(get_args(Cause), names[1:]),
            find=dict(zip(names, models, strict=True)).__getitem__,
            cause_of=cause_of if fallback_on is None else _decider(fallback_on),
        )


def _decider(fallback_on: FallbackOn) -> Callable[[PellucidError], Cause | None]:
    """Return the function that decides about errors, for `fallback_on`."""
    conditions = list(fallback_on) if isinstance(fallback_on, Sequence) else [fallback_on]
    types = tuple(condition for condition in conditions if isinstance(condition, type))
    handlers = [condition for condition in conditions if not isinstance(condition, type)]
    for handler in handlers:
        if _first_hint(handler) is ModelResponse:
            raise ConfigError(
                ["fallback_on: every turn is a stream, which cannot be rejected when it is whole; decide about errors"]
            )

    def decide(error: PellucidError) -> Cause | None:
        if isinstance(error, types) or any(handler(error) for handler in handlers):
            # An error that is not known begins no cooldown.
            return cause_of(error) or "refused"
        return None

    return decide


def _first_hint(handler: Callable[..., Any]) -> Any:
    try:
        hints = get_type_hints(handler)
    except (NameError, TypeError):
        return None
    return next((hint for name, hint in hints.items() if name != "return"), None)
