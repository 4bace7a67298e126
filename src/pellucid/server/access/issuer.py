"""An issuer over HTTP: its description, and whatever it is asked.

* Only addresses that the operator wrote, or that the issuer's own description names, and those over https (or on this
  machine). No redirect is followed, no cookie kept, no answer read that is larger than `MAX_FILE_BYTES`.
* What is wrong with an answer is said without quoting anything of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from .backend import TIMEOUT_SECONDS
from .config import fetch_url_mistakes

if TYPE_CHECKING:
    import aiohttp

MAX_BYTES = 1 << 20

REQUEST_ERRORS = (OSError, TimeoutError)
"""What asking raises besides `InvalidIssuerResponse`."""


class InvalidIssuerResponse(Exception):
    """What was fetched is not what it should be. Says which, and quotes nothing of it."""


def describe_issuer_error(error: Exception) -> str:
    """What to tell the operator of an `InvalidIssuerResponse`, or of one of `REQUEST_ERRORS`: those may quote addresses."""
    return str(error) if isinstance(error, InvalidIssuerResponse | IssuerUnreachable) else type(error).__name__


class IssuerUnreachable(OSError):
    """The issuer did not answer, or not in HTTP. Says with which error."""


class Issuer:
    """`aclose` when the server ends. Everything raises `InvalidIssuerResponse`, or one of `REQUEST_ERRORS`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._session: aiohttp.ClientSession | None = None

    async def fetch_configuration(self) -> dict[str, Any]:
        """Its openid-configuration."""
        configuration = await self.get_json(f"{self.name.rstrip('/')}/.well-known/openid-configuration")
        if not isinstance(configuration, dict) or configuration.get("issuer") != self.name:
            raise InvalidIssuerResponse("its openid-configuration is of another issuer")
        return configuration

    async def get_json(self, url: str) -> Any:
        """The JSON at an address."""
        status, body = await self._request("GET", url, {})
        if status != 200:
            raise InvalidIssuerResponse(f"it answered {status}")
        return decode_json(body)

    async def post_form(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, Any]:
        """The status and the JSON with which it answers a form."""
        status, body = await self._request("POST", url, headers, form)
        return status, decode_json(body)

    async def aclose(self) -> None:
        """Once, with the server; also if it was never asked."""
        if self._session is not None:
            await self._session.close()

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> tuple[int, bytearray]:
        import aiohttp  # a large package, which only a gateway with an issuer needs

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
    """An address that the description names. Raises `InvalidIssuerResponse` if it cannot be trusted."""
    url = configuration.get(name)
    if not isinstance(url, str) or fetch_url_mistakes(url):
        raise InvalidIssuerResponse(f"its openid-configuration names no https:// address of {purpose}")
    return url


def decode_json(data: bytes | bytearray) -> Any:
    """Raises `InvalidIssuerResponse`."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidIssuerResponse("it is not JSON") from None
