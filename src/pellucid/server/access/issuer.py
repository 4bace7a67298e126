"""HTTP client for a token issuer: its OpenID configuration, its keys, and its token endpoint.

* It requests only addresses that the operator configured or that the issuer's configuration names, over https (or on
  this machine). It follows no redirect, stores no cookie, and reads no response over `MAX_BYTES`.
* Its errors quote nothing of a response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from .config import fetch_url_mistakes
from .errors import TIMEOUT_SECONDS

if TYPE_CHECKING:
    import aiohttp

MAX_BYTES = 1 << 20

REQUEST_ERRORS = (OSError, TimeoutError)
"""Exceptions of a request, in addition to `InvalidIssuerResponse`."""


class InvalidIssuerResponse(Exception):
    """A response or a file is not what it should be. The message quotes nothing of it."""


def describe_issuer_error(error: Exception) -> str:
    """Return a text for the operator's log. Other errors may quote addresses, so only their type is named."""
    return str(error) if isinstance(error, InvalidIssuerResponse | IssuerUnreachable) else type(error).__name__


class IssuerUnreachable(OSError):
    """The issuer did not answer, or not with HTTP. The message names the error."""


class Issuer:
    """HTTP client for one issuer. All methods raise `InvalidIssuerResponse` or one of `REQUEST_ERRORS`.

    `aclose` it with the server.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._session: aiohttp.ClientSession | None = None

    async def fetch_configuration(self) -> dict[str, Any]:
        """Fetch the issuer's openid-configuration."""
        configuration = await self.get_json(f"{self.name.rstrip('/')}/.well-known/openid-configuration")
        if not isinstance(configuration, dict) or configuration.get("issuer") != self.name:
            raise InvalidIssuerResponse("its openid-configuration is of another issuer")
        return configuration

    async def get_json(self, url: str) -> Any:
        """Fetch the JSON at an address."""
        status, body = await self._request("GET", url, {})
        if status != 200:
            raise InvalidIssuerResponse(f"it answered {status}")
        return decode_json(body)

    async def post_form(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, Any]:
        """Send a form, and return the status and the JSON of the response."""
        status, body = await self._request("POST", url, headers, form)
        return status, decode_json(body)

    async def aclose(self) -> None:
        """Close the client's session, if there is one."""
        if self._session is not None:
            await self._session.close()

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> tuple[int, bytearray]:
        import aiohttp  # a large package that only a gateway with an issuer needs

        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        headers, body = {"accept": "application/json", **headers}, bytearray()
        try:
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),
                self._session.request(method, url, data=form, allow_redirects=False, headers=headers) as reply,
            ):
                async for piece in reply.content.iter_chunked(65536):
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise InvalidIssuerResponse(f"it answered with more than {MAX_BYTES} bytes")
                return reply.status, body
        except aiohttp.ClientError as error:
            raise IssuerUnreachable(type(error).__name__) from error


def url_from_configuration(configuration: Mapping[str, Any], name: str, purpose: str) -> str:
    """Return an address that the issuer's openid-configuration names.

    Args:
        configuration: The openid-configuration.
        name: The field with the address.
        purpose: What the address is for, in the error.

    Raises:
        InvalidIssuerResponse: There is no address, or it cannot be trusted.
    """
    url = configuration.get(name)
    if not isinstance(url, str) or fetch_url_mistakes(url):
        raise InvalidIssuerResponse(f"its openid-configuration names no https:// address of {purpose}")
    return url


def decode_json(data: bytes | bytearray) -> Any:
    """Decode JSON. Raises `InvalidIssuerResponse`."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidIssuerResponse("it is not JSON") from None
