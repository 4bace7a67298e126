"""An issuer over HTTP: its description, and whatever it is asked.

* Only addresses that the operator wrote, or that the issuer's own description names, and those over https (or on this
  machine). No redirect is followed, no cookie kept, no answer read that is larger than `MAX_BYTES`.
* What is wrong with an answer is said without quoting anything of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from .backing import PATIENCE
from .config import fetchable

if TYPE_CHECKING:
    import aiohttp

MAX_BYTES = 1 << 20

FAILURES = (OSError, TimeoutError)
"""What asking raises besides `Unfit`."""


class Unfit(Exception):
    """What was fetched is not what it should be. Says which, and quotes nothing of it."""


def why(error: Exception) -> str:
    """What to tell the operator of an `Unfit`, or of one of `FAILURES`: those may quote addresses."""
    return str(error) if isinstance(error, Unfit | Unreachable) else type(error).__name__


class Unreachable(OSError):
    """The issuer did not answer, or not in HTTP. Says with which error."""


class Issuer:
    """`aclose` when the server ends. Everything raises `Unfit`, or one of `FAILURES`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._session: aiohttp.ClientSession | None = None

    async def about(self) -> dict[str, Any]:
        """Its openid-configuration."""
        about = await self.get(f"{self.name.rstrip('/')}/.well-known/openid-configuration")
        if not isinstance(about, dict) or about.get("issuer") != self.name:
            raise Unfit("its openid-configuration is of another issuer")
        return about

    async def get(self, url: str) -> Any:
        """The JSON at an address."""
        status, body = await self._ask("GET", url, {})
        if status != 200:
            raise Unfit(f"it answered {status}")
        return read_json(body)

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, Any]:
        """The status and the JSON with which it answers a form."""
        status, body = await self._ask("POST", url, headers, form)
        return status, read_json(body)

    async def aclose(self) -> None:
        """Once, with the server; also if it was never asked."""
        if self._session is not None:
            await self._session.close()

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> tuple[int, bytearray]:
        import aiohttp  # a large package, which only a gateway with an issuer needs

        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        headers, body = {"accept": "application/json", **headers}, bytearray()
        try:
            async with (
                asyncio.timeout(PATIENCE),
                self._session.request(method, url, data=form, allow_redirects=False, headers=headers) as reply,
            ):
                async for piece in reply.content.iter_chunked(65536):
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise Unfit(f"it answered with more than {MAX_BYTES} bytes")
                return reply.status, body
        except aiohttp.ClientError as error:
            raise Unreachable(type(error).__name__) from error


def address(about: Mapping[str, Any], name: str, what: str) -> str:
    """An address that the description names. Raises `Unfit` if it cannot be trusted."""
    url = about.get(name)
    if not isinstance(url, str) or fetchable(url):
        raise Unfit(f"its openid-configuration names no https:// address of {what}")
    return url


def read_json(data: bytes | bytearray) -> Any:
    """Raises `Unfit`."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unfit("it is not JSON") from None
