"""Why something was not fetched.

No message quotes more of a URL than its scheme, host and port: paths and queries carry keys.
"""

from __future__ import annotations

from ..errors import ErrorKind, RequestError


class EgressError(RequestError):
    """What a request asked this server to fetch was not, or could not be, fetched.

    Codes: `egress_refused` (kind forbidden), `bad_url`, `egress_failed`, `bad_media_type` (invalid_request),
    `egress_too_large` (too_large), `egress_timeout` (timeout).
    """

    def __init__(self, message: str, *, kind: ErrorKind, code: str, param: str | None = None) -> None:
        super().__init__(message, kind=kind, code=code, param=param)


def refused(what: str) -> EgressError:
    return EgressError(
        f"{what}; this server fetches from public addresses, and others only where its operator allows it",
        kind="forbidden",
        code="egress_refused",
    )


def bad_url(what: str) -> EgressError:
    return EgressError(
        f"{what}; it must be an absolute http or https URL, without credentials", kind="invalid_request", code="bad_url"
    )


def failed(what: str) -> EgressError:
    return EgressError(what, kind="invalid_request", code="egress_failed")
