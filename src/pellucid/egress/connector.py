"""Connections and GET requests that keep to an egress policy.

The policy checks the URL of each request, and only addresses that it has checked are connected to. A host name is
resolved once for each connection, and the checked addresses are passed to the socket. There is no second lookup, which
could give other addresses (DNS rebinding). Proxies and DNS caches are not used.

`fetch` sends one GET request, with limits for redirects, time, bytes and media types:

* Each redirect is a request of its own and is checked like the first. The only headers sent are `Accept`,
  `Accept-Encoding` and `User-Agent`. Where it leads is in the log alone: errors name the server of the first URL.
* The head of the response is checked before its body is read. The bytes of the body are counted while they arrive.
* Compressed responses are refused, because a small body may decompress to a large one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from ..telemetry import log
from .policy import EgressError, EgressPolicy, bad_url_error, fetch_failed_error

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


MAX_REDIRECTS = 5
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})


class _Resolver(AbstractResolver):
    """Resolves host names with the policy, so that only allowed addresses are returned."""

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in await self._policy.allowed_addresses(host)
        ]

    async def close(self) -> None:
        return None


class EgressConnector(aiohttp.TCPConnector):
    """aiohttp connector that raises `EgressError` for each URL or address that the policy refuses."""

    def __init__(self, policy: EgressPolicy, **options: Any) -> None:
        super().__init__(**{**options, "resolver": _Resolver(policy), "use_dns_cache": False})
        self._policy = policy

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> Connection:
        # The URL is checked here because IP addresses in it are never resolved, and because redirects pass here too.
        self._policy.check_url(req.url)
        return await super().connect(req, traces, timeout)


class FetchResult(msgspec.Struct, frozen=True):
    """The result of a GET request."""

    data: bytes
    media_type: str
    """Without parameters, in lower case; `application/octet-stream` if the server did not state it."""


async def fetch(
    policy: EgressPolicy,
    url: str,
    *,
    max_bytes: int,
    timeout_seconds: float,
    accept: Sequence[str],
    param: str,
) -> FetchResult:
    """Fetch a URL with GET, following redirects.

    Args:
        policy: Checks the URL, its addresses and each redirect.
        url: The URL.
        max_bytes: Limit for the size of the body.
        timeout_seconds: Limit for the whole exchange.
        accept: Allowed media types (`application/pdf`, `image/*`, `*/*`).
        param: The request parameter that an error refers to.

    Raises:
        EgressError: The policy refuses the URL, the fetch failed, or a limit is exceeded.
    """
    try:
        return await _fetch(policy, url, max_bytes, timeout_seconds, accept)
    except EgressError as error:
        info = error.info
        raise EgressError(info.message, kind=info.kind, code=info.code or "egress_failed", param=param) from error


async def _fetch(
    policy: EgressPolicy, url: str, max_bytes: int, timeout_seconds: float, accept: Sequence[str]
) -> FetchResult:
    first_url = current_url = policy.check_url(url)
    origin = origin_of(first_url)
    headers = {"Accept": ", ".join(accept), "Accept-Encoding": "identity", "User-Agent": "pellucid"}
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            aiohttp.ClientSession(
                connector=EgressConnector(policy, force_close=True),
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                max_line_size=32_768,
            ) as session,
        ):
            for _ in range(MAX_REDIRECTS + 1):
                async with session.get(current_url, allow_redirects=False) as response:
                    if response.status not in _REDIRECT_STATUSES:
                        return await _read_body(response, origin, max_bytes, accept)
                    current_url = _redirect_target(current_url, response.headers.get("Location", ""), origin)
                    current_url = policy.check_url(str(current_url))
    except EgressError as error:
        if current_url is first_url or error.info.code not in ("egress_refused", "bad_url"):
            raise
        log.warning("a redirect of %s was not followed: %s", origin, error.info.message)
        raise EgressError(
            f"{origin} redirects to a URL that this server does not fetch", kind=error.info.kind, code=error.info.code
        ) from None
    except TimeoutError:
        raise EgressError(
            f"{origin} did not respond completely within {timeout_seconds:g} s",
            kind="timeout",
            code="egress_timeout",
        ) from None
    except aiohttp.InvalidURL:
        raise bad_url_error(f"the URL at {origin} cannot be requested") from None
    except (aiohttp.ClientError, OSError) as error:
        raise fetch_failed_error(f"{origin} could not be fetched from ({type(error).__name__})") from error
    raise fetch_failed_error(f"{origin} redirects more than {MAX_REDIRECTS} times")


async def _read_body(
    response: aiohttp.ClientResponse, origin: str, max_bytes: int, accept: Sequence[str]
) -> FetchResult:
    if response.status != 200:
        raise fetch_failed_error(f"{origin} answered {response.status}, not 200")
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise fetch_failed_error(f"{origin} sent a compressed body, although `identity` was requested")
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not any(_matches_media_type(media_type, pattern) for pattern in accept):
        raise EgressError(
            f"{origin} sent {_printable(media_type) or 'no media type'}; allowed: {', '.join(accept)}",
            kind="invalid_request",
            code="bad_media_type",
        )
    too_large = EgressError(f"{origin} sent more than {max_bytes} bytes", kind="too_large", code="egress_too_large")
    if (response.content_length or 0) > max_bytes:
        raise too_large
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > max_bytes:
            raise too_large
        pieces.append(piece)
    return FetchResult(b"".join(pieces), media_type or "application/octet-stream")


def _matches_media_type(media_type: str, pattern: str) -> bool:
    return pattern == "*/*" or media_type == pattern or (pattern.endswith("/*") and media_type.startswith(pattern[:-1]))


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isascii() and c.isprintable())[:80]


def _redirect_target(url: URL, location: str, origin: str) -> URL:
    if not location:
        raise fetch_failed_error(f"{origin} redirects without a `Location`")
    try:
        return url.join(URL(location, encoded=location.isascii()))
    except ValueError:
        raise bad_url_error(f"{origin} redirects to an invalid URL") from None


def origin_of(url: URL) -> str:
    """Return scheme, host and port of a URL. Its path and query may hold secrets, so messages do not quote them."""
    return str(url.origin()) if url.is_absolute() and url.raw_host else "the URL"
