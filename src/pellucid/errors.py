"""Errors as values, and the exceptions that carry them.

An error is a value (`ErrorInfo`) before it is an exception, because most errors here do not unwind a stack. They travel
down a stream as an event, and each client protocol encodes them in its own form. Exceptions exist for the two places
that have no stream yet: a request that cannot be accepted, and a library caller.

`kind` is a closed set. Every protocol maps it to its own status and name.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

ErrorKind = Literal[
    "invalid_request",  # the request is wrong; sending it again will not help
    "unauthorized",  # no or unknown credentials
    "forbidden",  # known, but not allowed
    "not_found",
    "conflict",  # valid, but the present state does not permit it
    "too_large",
    "slow_request",  # the request did not arrive in time
    "unsupported",  # understood, but this gateway or model cannot do it
    "too_many_requests",
    "model_error",  # the model or its server failed, or broke its own protocol
    "unavailable",  # no response, or a response that says "not now"
    "timeout",
    "server_error",  # a fault of the gateway
]

ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)

NOT_KEPT = "not_kept"
"""The answer arrived but could not be stored. A protocol that ends with the stored answer has nothing to end with."""


BUDGET_EXCEEDED = "budget_exceeded"
"""The code of a request whose key has spent its budget. It is not to be sent again before the budget renews."""


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """One error, independent of any protocol.

    Text from an upstream (`upstream_message`, `native`, and the `code` and `param` that come with them) is shown in the
    `raw` view only.

    Attributes:
        kind: What went wrong; see `ErrorKind`.
        message: A sentence for a person: what is wrong, where, and what would be right. It is the gateway's own text;
            no part of it comes from an upstream.
        code: The most specific machine-readable name that is known; the provider's own where there is one.
        param: The path of the request field that is wrong (`input[2].content[0].type`).
        status: The upstream's HTTP status.
        retry_after: Seconds after which a retry may succeed, where the provider reports it.
        native: The upstream's error body.
        upstream_message: The upstream's own message, which may quote anything.
    """

    kind: ErrorKind
    message: str
    code: str | None = None
    param: str | None = None
    status: int | None = None
    retry_after: float | None = None
    """In seconds."""
    native: Any = None
    upstream_message: str | None = msgspec.field(default=None, name="said")
    """The upstream's own sentence, for viewers of `raw` alone."""

    @property
    def full_message(self) -> str:
        """The message followed by the upstream's message, for viewers who may see it."""
        return f"{self.message}: {self.upstream_message}" if self.upstream_message else self.message

    @property
    def is_own(self) -> bool:
        """Whether it is the gateway's own: nothing in it comes from an upstream."""
        return self.upstream_message is None and self.native is None and self.status is None


UNKNOWN_FAILURE = ErrorInfo("server_error", "the run failed without saying why")
"""The error of a run that failed and has none."""


class PellucidError(Exception):
    """Base class of every exception that this package raises on purpose.

    Attributes:
        info: The error as a value.
        messages: The messages (`ModelMessage`) of the agent's run that the error ended, as a history that can be sent
            again; empty if it ended no run. If a run of one agent is part of another's, they are the outer run's.
    """

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.full_message)
        self.info = info
        self.messages: list[Any] = []


class RequestError(PellucidError):
    """A request that cannot be carried out as it stands."""

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
    """The upstream failed before it produced anything: it refused, was unreachable, or did not follow its protocol.

    Attributes:
        request_id: The upstream's id of the request, where it sends one.
        address: The address that was called, where the address may be the fault. It is for the operator: it appears in
            the exception's text and never in `info`, which clients receive.
    """

    def __init__(self, info: ErrorInfo, request_id: str | None = None, address: str | None = None) -> None:
        super().__init__(info)
        self.request_id = request_id
        self.address = address

    def __str__(self) -> str:
        return f"{self.info.full_message} (at {self.address})" if self.address else self.info.full_message


class IllegalEvent(PellucidError):
    """A sequence of events that breaks the legal order (see `pellucid.fold`). Always a bug in its writer.

    Attributes:
        rule: The name of the broken rule.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(ErrorInfo(kind="server_error", code="illegal_event", message=f"{rule}: {message}"))
        self.rule = rule


class FrameTooLarge(PellucidError):
    """One frame of a byte stream exceeded its size limit before it ended."""

    def __init__(self, what: str, limit: int, unit: str = "bytes") -> None:
        super().__init__(
            ErrorInfo(
                kind="model_error",
                code="frame_too_large",
                message=f"{what} did not end within {limit} {unit}",
            )
        )


class ConfigError(PellucidError):
    """An invalid configuration. Each mistake is listed with its key and what would be right."""

    heading = "The configuration is wrong:"
    """What commands print above the mistakes."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__(ErrorInfo(kind="invalid_request", code="config", message="\n".join(mistakes)))
        self.mistakes = mistakes
