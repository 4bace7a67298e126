"""Prepares the embedded model for commands: creates its engine, and fetches its weights with a progress bar."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..local import fetch, model_index
from ..local.supervisor import Engine, FetchWeights
from ..models.embedded import EmbeddedModel
from ..server.config import Config, LocalConfig
from ..upstream import UpstreamClient


async def fetch_with_bar(model: model_index.Model, path: Path | None = None) -> Path:
    """Return the path of the weights. If they must be fetched, a progress bar is shown on stderr.

    Raises:
        FetchError: They could not be fetched.
    """
    # Imported here, because a gateway with other models fetches nothing.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    if path is None and fetch.cached_path(model) is None:
        console.print(
            f"Fetching [bold]{model.title}[/] ({model.bytes / 1e6:,.0f} MB, {model.licence}), once; "
            "it is kept in the cache."
        )
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task: TaskID | None = None

    def report(progress: fetch.Progress) -> None:
        nonlocal task
        if task is None:
            task = bar.add_task(progress.step, total=progress.total or None)
        if progress.step == "failed":
            bar.console.print(f"  {progress.source}: {progress.note}; trying the next source", style="dim")
        elif progress.step == "fetching":
            bar.update(task, description=f"from {progress.source}", completed=progress.done)
        else:
            bar.update(task, description=progress.step)

    with bar:
        return await fetch.fetch(model, path=path, progress=report)


async def embedded_model(config: LocalConfig, transport: UpstreamClient) -> EmbeddedModel:
    """Create the model of the configuration. Its engine is not started."""
    return EmbeddedModel(await local_engine(config), transport)


async def engine_to_serve(config: Config) -> Engine | None:
    """Create the engine of the configuration, without starting it.

    Returns:
        The engine; None if the configuration has no embedded model, or says nothing about it and the engine is not
        installed: then the gateway starts without a model.

    Raises:
        EngineError: The configuration has a section for it, and the engine is not installed.
    """
    if not config.uses_local_model or (config.local == LocalConfig() and not model_index.is_engine_installed()):
        return None
    return await local_engine(config.local)


async def local_engine(config: LocalConfig) -> Engine:
    """Create the engine of the configuration, without starting it. Weights to download are fetched when it starts.

    Raises:
        EngineError: The engine is not installed, so nothing is fetched.
        FetchError: The file of the configuration cannot be used.
    """
    model, user_file = local_model(config), _user_file(config)
    weights: Path | FetchWeights
    if user_file is None:
        model_index.require_engine()
    if user_file is None and fetch.cached_path(model) is None:
        weights = partial(fetch_with_bar, model)
    else:
        weights = await fetch_with_bar(model, user_file)
    return Engine(model, weights, threads=config.threads, context=config.context)


def unfetched_engine(config: LocalConfig) -> Engine:
    """Create an engine that must not be started, to check a configuration without fetching the model."""
    model = local_model(config)
    return Engine(model, Path(model.file), threads=config.threads, context=config.context)


def local_model(config: LocalConfig) -> model_index.Model:
    """Return the description of the model of the configuration."""
    user_file = _user_file(config)
    return (
        model_index.Model.from_path(user_file)
        if user_file is not None
        else model_index.find_model(config.model or model_index.DEFAULT_MODEL)
    )


def _user_file(config: LocalConfig) -> Path | None:
    return Path(config.path).expanduser() if config.path is not None else None
