"""`pellucid check`: checks the stream of any server against the rules of a client protocol.

The stream is a captured file, or the answer of a running server to a request that is sent to it.
"""

from __future__ import annotations

import sys
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from ..errors import ErrorInfo, PellucidError, RequestError
from ..protocols.client_protocols import CLIENT_PROTOCOLS, ClientProtocol
from .gateway_client import open_connection, read_key
from .translate import DIALECTS_HELP, echo_violations, protocol_and_dialect

IDLE_SECONDS = 120.0
"""Seconds in which a server must send something."""
MAX_STREAM_BYTES = 256 * 1024 * 1024
_READ_BYTES = 65_536
_QUOTED_CHARS = 300


def _request_headers(protocol: ClientProtocol, headers: tuple[str, ...], key_env: str | None) -> dict[str, str]:
    """Return the headers of the request. Raises `RequestError` for an option that is not valid."""
    named = {"Content-Type": "application/json", "Accept": "text/event-stream", **protocol.sample_headers}
    if key_env is not None:
        named["Authorization"] = f"Bearer {read_key(key_env)}"
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise RequestError(f"--header: {header!r} is not of the form `Name: value`")
        named[name.strip()] = value.strip()
    return named


def _read_stream(url: str, body: bytes, headers: dict[str, str]) -> bytes:
    """Send a request; return the body of the response.

    Raises:
        PellucidError: The server does not answer, or not with a stream.
    """
    try:
        connection, parts = open_connection(url, IDLE_SECONDS)
    except ValueError as error:
        raise RequestError(f"{url!r} is not a URL: {error}") from None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    data = bytearray()
    try:
        connection.request("POST", target, body, headers)
        response = connection.getresponse()
        while piece := response.read1(_READ_BYTES):
            data += piece
            if len(data) > MAX_STREAM_BYTES:
                raise PellucidError(
                    ErrorInfo("too_large", f"the stream of {url} has more than {MAX_STREAM_BYTES} bytes")
                )
    except (OSError, HTTPException, ValueError) as error:
        reason = str(error) or type(error).__name__
        message = f"{url} does not answer: {reason}" if not data else f"the stream of {url} breaks off: {reason}"
        raise PellucidError(ErrorInfo("unavailable", message, code="unreachable")) from None
    finally:
        connection.close()
    media_type = (response.getheader("content-type") or "").partition(";")[0].strip().lower()
    if response.status != 200 or media_type != "text/event-stream":
        text = bytes(data[:_QUOTED_CHARS]).decode(errors="replace")
        raise PellucidError(
            ErrorInfo(
                "model_error",
                f"{url} answers {response.status}, {media_type or 'without a content type'}, not with a stream: {text}",
            )
        )
    return bytes(data)


@click.command()
@click.option(
    "--protocol", "name", required=True, type=click.Choice(list(CLIENT_PROTOCOLS)), help="The protocol of the stream."
)
@click.option("--dialect", metavar="D", help=f"The protocol's dialect, by default the first ({DIALECTS_HELP}).")
@click.option("--model", metavar="NAME", help="For a URL: the model that the request names.")
@click.option("--prompt", metavar="TEXT", default="What is 7 times 6?", help="For a URL: the user's message.")
@click.option("--request", type=click.File("rb"), metavar="FILE", help="For a URL: the body to send in place of that.")
@click.option("--header", "headers", multiple=True, metavar="H", help="For a URL: a header, `Name: value`; repeatable.")
@click.option("--key-env", metavar="VAR", help="For a URL: the environment variable with the bearer token.")
@click.argument("source", metavar="FILE|URL", default="-")
def check(
    name: str,
    dialect: str | None,
    model: str | None,
    prompt: str,
    request: BinaryIO | None,
    headers: tuple[str, ...],
    key_env: str | None,
    source: str,
) -> None:
    """Check a stream of any server against the rules of a client protocol.

    FILE holds the bytes of a stream (`-`: standard input). To a URL, a request for a stream is sent.
    The exit status is 1 if the stream breaks a rule.
    """
    protocol, chosen = protocol_and_dialect(name, dialect)
    if source.startswith(("http://", "https://")):
        if request is not None:
            body = request.read()
        elif protocol.sample_request is not None:
            body = msgspec.json.encode(protocol.sample_request(model, prompt, chosen))
        else:
            raise RequestError(f"--request: the body of a request is needed for {name}")
        stream = _read_stream(source, body, _request_headers(protocol, headers, key_env))
    elif source == "-":
        stream = sys.stdin.buffer.read()
    else:
        try:
            stream = Path(source).read_bytes()
        except OSError as error:
            raise RequestError(f"{source}: {error.strerror or error}") from None
    violations = protocol.verify(stream, chosen)
    echo_violations(violations, err=False)
    raise SystemExit(1 if violations else 0)
