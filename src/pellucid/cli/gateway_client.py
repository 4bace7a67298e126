"""Requests of a command to a running gateway: the options that name it, and the call."""

from __future__ import annotations

import os
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit

import click
import msgspec

from ..errors import ErrorInfo, ErrorKind, PellucidError, RequestError
from .options import option_group

URL, KEY = "PELLUCID_URL", "PELLUCID_KEY"
DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_SECONDS = 30.0

_KIND_OF_STATUS: dict[int, ErrorKind] = {401: "unauthorized", 403: "forbidden", 404: "not_found"}

T = TypeVar("T")


gateway_options = option_group(
    click.option(
        "--key-env",
        metavar="VAR",
        help=f"The environment variable that holds your key, where keys are required (by default {KEY}).",
    ),
    click.option(
        "--url",
        envvar=URL,
        metavar="URL",
        default=DEFAULT_URL,
        show_default=True,
        help=f"The address of the gateway (or set {URL}).",
    ),
)
"""The options `url` and `key_env`, from which `GatewayClient.from_options` makes a client."""


def read_key(key_env: str | None) -> str:
    """Return the key in the environment variable that `--key-env` names, by default `KEY`; empty if there is none.

    Raises:
        RequestError: The option names a variable that is not set, or the variable does not hold a key.
    """
    if key_env is not None and not os.environ.get(key_env):
        raise RequestError(f"--key-env: the environment variable {key_env} is not set")
    key = os.environ.get(key_env or KEY, "").strip()
    if not key.isascii() or not (key.isprintable() and " " not in key):
        raise RequestError(f"the environment variable {key_env or KEY} does not hold a key")
    return key


def open_connection(url: str, timeout_seconds: float) -> tuple[HTTPConnection, SplitResult]:
    """Return a connection to the server of a URL, which connects with its first request, and the parts of the URL.

    Raises:
        ValueError: It is not a URL.
    """
    parts = urlsplit(url)
    connection_class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connection_class(parts.hostname or "", parts.port, timeout=timeout_seconds)
    return connection, parts


class GatewayClient(NamedTuple):
    """A running gateway, as one caller reaches it."""

    url: str
    key: str | None

    @staticmethod
    def from_options(url: str, key_env: str | None) -> GatewayClient:
        """Return the client for the values of `gateway_options`.

        Raises:
            RequestError: The URL is none, or the variable is not set.
        """
        if not _is_address(url):
            raise RequestError(f"--url: {url!r} is not the address of a gateway, like {DEFAULT_URL}")
        return GatewayClient(url.rstrip("/"), read_key(key_env) or None)

    def request(self, method: str, path: str) -> bytes:
        """Send a request; return the body of the response.

        Raises:
            PellucidError: The gateway does not answer, or answers with an error.
        """
        connection, parts = open_connection(self.url, TIMEOUT_SECONDS)
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        try:
            connection.request(method, parts.path + path, headers=headers)
            response = connection.getresponse()
            status, body = response.status, response.read()
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise PellucidError(
                ErrorInfo("unavailable", f"the gateway at {self.url} does not answer: {reason}", code="unreachable")
            ) from None
        finally:
            connection.close()
        if status != 200:
            kind = _KIND_OF_STATUS.get(status, "unavailable" if status >= 500 else "invalid_request")
            advice = "" if status not in (401, 403) else f" (the key of an operator is needed: set {KEY}, or --key-env)"
            message = f"the gateway at {self.url} answers {status}: {_message_of(body)}{advice}"
            raise PellucidError(ErrorInfo(kind, message))
        return body

    def read(self, path: str, decoder: msgspec.json.Decoder[T]) -> tuple[bytes, T]:
        """Get a document; return the body of the response, and what it holds.

        Raises:
            PellucidError: The gateway does not answer, answers with an error, or with something else.
        """
        body = self.request("GET", path)
        try:
            return body, decoder.decode(body)
        except msgspec.DecodeError:
            raise PellucidError(
                ErrorInfo("unavailable", f"what answers at {self.url} is not a gateway, or one of another version")
            ) from None


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class _Error(msgspec.Struct):
    message: str


class _ErrorBody(msgspec.Struct):
    error: _Error


def _message_of(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_ErrorBody).error.message
    except msgspec.DecodeError:
        return "it is not a gateway, or something before it refused the request"
