"""The embedded model by its name. First use fetches it and starts its engine; the end of the loop stops the engine."""

from __future__ import annotations

from pathlib import Path

from .. import models
from ..errors import ConfigError, ModelError
from ..local import fetch, model_index
from ..local.model_index import LocalError
from ..local.supervisor import Engine
from ..settings import ModelCall, ModelSettings
from ..upstream import UpstreamClient
from .connection_pool import PerLoop, shared_pool
from .embedded import EmbeddedModel, embedded_origin, embedded_warnings
from .model import ModelStream


class LocalModel:
    """A model of the catalogue, or a GGUF file, that runs in this process's own engine.

    Args:
        name: A name in the catalogue, `default`, or the path of a `.gguf` file.
        settings: Settings of each call; those of the call take precedence.
        transport: The client for requests to the engine; by default the running loop's connection pool.

    Raises:
        ConfigError: The catalogue has no such model, or the file cannot be used.
    """

    def __init__(
        self, name: str = "default", *, settings: ModelSettings | None = None, transport: UpstreamClient | None = None
    ) -> None:
        self._path = Path(name).expanduser() if name.endswith(".gguf") else None
        try:
            model_name = model_index.DEFAULT_MODEL if name == "default" else name
            self._model = model_index.Model.from_path(self._path) if self._path else model_index.find_model(model_name)
        except LocalError as error:
            raise ConfigError([f"model: {error}"]) from error
        self.name = self._model.name
        self.origin = embedded_origin(self.name)
        self.settings = settings
        self._transport = transport
        self._embedded = PerLoop(self._start, self._stop)

    async def open(self, call: ModelCall) -> ModelStream:
        """Start a turn when the model is available.

        Raises:
            ModelError: The model cannot be fetched or started.
            RuntimeError: Requests are not allowed (`pellucid.models.ALLOW_MODEL_REQUESTS`).
        """
        models.check_allow_model_requests()
        try:
            embedded = await self._embedded.get()
        except LocalError as error:
            raise ModelError(error.info) from error
        return await embedded.open(call)

    def warnings(self, call: ModelCall) -> list[str]:
        """Return one sentence for each setting, of the call or of the model, that it does not support as it is."""
        return embedded_warnings(call, self.settings, self.origin, self._model)

    async def aclose(self) -> None:
        """Stop the engine now."""
        await self._embedded.aclose()

    async def _start(self) -> EmbeddedModel:
        model_index.require_engine()
        weights = await fetch.fetch(self._model, path=self._path)
        model = EmbeddedModel(Engine(self._model, weights), self._transport or await shared_pool(), self.settings)
        await model.start()
        return model

    async def _stop(self, model: EmbeddedModel) -> None:
        await model.stop()
