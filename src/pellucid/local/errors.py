"""What can go wrong with the embedded engine. Each message says what was wrong, where, and what would be right.

What llama.cpp, pip or a server said about it, in their words, is `said` and no part of the message.
"""

from __future__ import annotations

from ..errors import ErrorInfo, ErrorKind, PellucidError


class LocalError(PellucidError):
    """The base of what this room raises. ``info.code`` is a fixed word for programs."""

    kind: ErrorKind = "unavailable"
    code: str | None = None

    def __init__(self, message: str, code: str | None = None, *, said: str | None = None) -> None:
        super().__init__(ErrorInfo(kind=self.kind, message=message, code=code or self.code, said=said or None))


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
