"""What can go wrong, said once.

An error is a value (`ErrorInfo`) before it is an exception, because most errors here do not unwind a stack:
they travel down a stream as an event and leave in the client protocol's own form. Exceptions exist for the
two places that have no stream yet: a request that cannot be accepted, and a library caller.

`kind` is the closed vocabulary that every protocol maps to its own status and name.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

ErrorKind = Literal[
    "invalid_request",  # the request is wrong; sending it again will not help
    "unauthorized",  # no or unknown credentials
    "forbidden",  # known, but not allowed
    "not_found",
    "too_large",
    "slow_request",  # it did not come in time
    "unsupported",  # understood, but not something this gateway or model can do
    "too_many_requests",
    "model_error",  # the model or its server failed, or said something that is not its protocol
    "unavailable",  # nobody answered, or answered "not now"
    "timeout",
    "server_error",  # our own fault
]

ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)

# Codes that one room gives and another one reads.

NOT_KEPT = "not_kept"
"""The answer came, and could not be kept: a protocol that ends with what is kept has nothing to end with."""

CONVERSATION_BUSY = "conversation_busy"
"""The last question of the chat is still being answered."""

CONVERSATION_MOVED = "conversation_moved"
"""The chat does not end any more where whoever asks saw it end."""


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """One error, in nobody's dialect.

    `message` says what was wrong, where, and what would be right, in a sentence for a person. It is ours: nothing in
    it was written by an upstream.
    `said` is what the upstream said about it, in its own words, which may quote anything.
    `code` is the finest machine-readable name known (the provider's own where there is one).
    `param` is the path of the offending request field (`input[2].content[0].type`).
    `status` is the upstream's HTTP status, `native` its error body.
    What an upstream wrote (`said`, `native`, and `code` and `param` beside them) leaves in no lesser view.
    """

    kind: ErrorKind
    message: str
    code: str | None = None
    param: str | None = None
    status: int | None = None
    retry_after: float | None = None
    """Seconds after which a retry may succeed, where the provider says so."""
    native: Any = None
    upstream_message: str | None = msgspec.field(default=None, name="said")
    """The upstream's own sentence, for viewers of `raw` alone."""

    @property
    def full_message(self) -> str:
        """The sentence with the upstream's own words, for readers who may see them."""
        return f"{self.message}: {self.upstream_message}" if self.upstream_message else self.message


class PellucidError(Exception):
    """The root of every exception this package raises on purpose."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.full_message)
        self.info = info


class RequestError(PellucidError):
    """The caller asked for something that cannot be done as asked."""

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind = "invalid_request",
        code: str | None = None,
        param: str | None = None,
        upstream_message: str | None = None,
    ) -> None:
        super().__init__(
            ErrorInfo(kind=kind, message=message, code=code, param=param, upstream_message=upstream_message)
        )


class ModelError(PellucidError):
    """The model's side failed before it produced anything: refused, unreachable, or not speaking its protocol.

    `request_id`: what the upstream calls the request, where it says so.
    `where`: the address that was asked, where that may be what is wrong. It is for who runs this: it stands in the
    exception's text, and nowhere in `info`, which clients get.
    """

    def __init__(self, info: ErrorInfo, request_id: str | None = None, address: str | None = None) -> None:
        super().__init__(info)
        self.request_id = request_id
        self.address = address

    def __str__(self) -> str:
        return f"{self.info.full_message} (at {self.address})" if self.address else self.info.full_message


class IllegalEvent(PellucidError):
    """A sequence of events broke the legal order (see `pellucid.fold`). Always a bug in the writer.

    `rule` is the name of the rule that was broken.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(ErrorInfo(kind="server_error", code="illegal_event", message=f"{rule}: {message}"))
        self.rule = rule


class FrameTooLarge(PellucidError):
    """One frame of a byte stream grew past the limit before it ended."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(
            ErrorInfo(
                kind="model_error",
                code="frame_too_large",
                message=f"{what} did not end within {limit} bytes",
            )
        )


class ConfigError(PellucidError):
    """The configuration is wrong; every mistake is listed with its key and what would be right."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__(ErrorInfo(kind="invalid_request", code="config", message="\n".join(mistakes)))
        self.mistakes = mistakes
