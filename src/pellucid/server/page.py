"""The chat's page: the files that were built from `ui/`, read once and served unchanged.

* Files are looked up in a table that is made at the start. No path of the file system comes from a request.
* `/` is the page for clients that prefer HTML, and the JSON index for others (programs); `/c/{conversation}` and
  `/shared/{token}` are the page. `/spaces` and `/spaces/{name}` are negotiated in the same way (`Page.negotiate`). The
  page is served without authentication. A browser that opens any other address gets a notice, and a program JSON.
* Every file has a strong ETag for each of its encodings. Files with a hash in their name never change; others are
  revalidated each time.
* The page may run its own scripts and connect to its own server, and nothing else (`SECURITY`).
* Without a built page everything else works, and a request for the page gets an error that says how to build it.

The functions at the beginning are content negotiation (RFC 9110 §12) and revalidation: a media type, an encoding, or
304.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from ..asgi import http
from ..errors import ErrorInfo, RequestError
from ..protocols import chat
from ..protocols.client_protocols import CLIENT_PROTOCOLS
from ..protocols.errors import status_of
from .access.errors import HTTPHeader
from .exchange import Endpoint, Exchange, Handler
from .routing import route

ENCODINGS = ("br", "gzip", "identity")
"""In the order of size, the smallest first, for clients that accept several equally."""


def prefers_html(accept: str | None) -> bool:
    """Return whether HTML is preferred to JSON. A client that accepts anything is taken for a program."""
    return http.media_quality(accept, "text/html") > http.media_quality(accept, "application/json")


def choose_encoding(accept: str | None, available: Iterable[str]) -> str:
    """Return the content encoding to use, of those that are available (`identity` always is)."""
    qualities = {"identity": 1e-4, **http.parse_qualities(accept)}
    default_quality = qualities.get("*", 0.0)
    best = max((name for name in ENCODINGS if name in available), key=lambda name: qualities.get(name, default_quality))
    return best if qualities.get(best, default_quality) > 0 else "identity"


def etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Return whether the client has this version already."""
    if if_none_match is None:
        return False
    tags = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
    return any(tag in (etag, "*") for tag in tags)


INDEX = "index.html"
NOT_BUILT = ErrorInfo("unavailable", "The page has not been built. Build it with: make page", code="page_not_built")

NO_SUCH_PAGE = ErrorInfo(
    "not_found",
    "There is no page at this address. Models are connected and chosen in the chat; everything else is set in the "
    "configuration file, which `pellucid config check` checks.",
    code="no_such_page",
)

_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_UNUSED = ("accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "microphone", "payment", "usb")

SECURITY: list[HTTPHeader] = [
    (b"content-security-policy", _CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", ", ".join(f"{name}=()" for name in _UNUSED).encode()),
]
"""Security headers of every response that a browser may display."""

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "webmanifest": "application/manifest+json",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
    "woff": "font/woff",
    "ttf": "font/ttf",
}
_COMPRESSED_TYPES = {"png", "woff2", "woff"}
"""File types that are compressed already."""

_HASHED_NAME = re.compile(r"assets/.+-(?=[^.]*[A-Z0-9])[A-Za-z0-9_-]{8}\.\w+")
"""File names with a hash, as the build makes them. A word of eight letters is not a hash."""
_MAX_COMPRESSED_RATIO = 0.95


class File(NamedTuple):
    """A file that is ready to be sent."""

    content_type: str
    etag: str
    """ETag of the unencoded file, without quotes; the name of an encoding is appended to it."""
    cache_control: bytes
    bodies: dict[str, bytes]
    """Bytes by encoding; `identity` is the unencoded file."""


Files = dict[str, File]


def read_files(root: Traversable) -> Files:
    """Read all files that are served, by their path under `/`. Empty if there is no page."""
    data_by_name = dict(_walk(root)) if root.is_dir() else {}
    return {
        name: _load_file(
            name,
            data,
            {
                encoding: data_by_name[name + suffix]
                for encoding, suffix in _COMPRESSED_SUFFIXES.items()
                if name + suffix in data_by_name
            },
        )
        for name, data in data_by_name.items()
        if not name.endswith(tuple(_COMPRESSED_SUFFIXES.values()))
    }


@cache
def built_files() -> Files:
    """Return the files of the page that was packaged with Pellucid."""
    return read_files(files("pellucid") / "web")


class Page:
    """Handlers of the page's routes."""

    def __init__(self, files: Files) -> None:
        self._files = files

    async def index(self, exchange: Exchange) -> None:
        """Serve the page. Its script decides what it displays."""
        if INDEX in self._files:
            await self._send(exchange, self._files[INDEX])
        else:
            await send_notice(exchange, NOT_BUILT)

    async def shared(self, exchange: Exchange) -> None:
        """Serve the page at a link that shares a chat. Search engines do not list it."""
        exchange.response_headers.append((b"x-robots-tag", b"noindex"))
        await self.index(exchange)

    async def file(self, exchange: Exchange) -> None:
        """Serve any other file of the table. Raises `RequestError` (not_found)."""
        file = self._files.get(exchange.scope["path"][1:])
        if file is None:
            path = exchange.scope["path"]
            raise RequestError(f"the page has no file {path}", kind="not_found", code="no_such_file")
        await self._send(exchange, file)

    def negotiate(self, endpoint: ASGIApp) -> ASGIApp:
        """Return an application that serves the page to clients that prefer HTML, and `endpoint` to others."""
        page_endpoint = _page_endpoint(self.index)

        async def serve(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
            async def send_with_vary(message: http.Message) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message["headers"], (b"vary", b"accept")]}
                await send(message)

            if prefers_html(http.header(scope, "accept")):
                await page_endpoint(scope, receive, send)
            else:
                await endpoint(scope, receive, send_with_vary)

        return serve

    def routes(self) -> list[BaseRoute]:
        """Return all routes but `/`, which also serves the JSON index."""
        root_files = (name for name in self._files if name != INDEX and not name.startswith("assets/"))
        return [
            route("/c/{conversation_id}", {"GET": _page_endpoint(self.index)}),
            route("/shared/{token}", {"GET": _page_endpoint(self.shared)}),
            route("/assets/{name:path}", {"GET": _page_endpoint(self.file)}),
            *(route(f"/{name}", {"GET": _page_endpoint(self.file)}) for name in root_files),
        ]

    async def _send(self, exchange: Exchange, file: File) -> None:
        encoding = choose_encoding(exchange.request_header("accept-encoding"), file.bodies)
        etag = f'"{file.etag}"' if encoding == "identity" else f'"{file.etag}-{encoding}"'
        headers = [
            (b"etag", etag.encode()),
            (b"cache-control", file.cache_control),
            *SECURITY,
            *exchange.response_headers,
        ]
        # Only the response at `/` depends on the Accept header.
        is_html = file.content_type.startswith("text/html")
        headers.append((b"vary", b"accept, accept-encoding" if is_html else b"accept-encoding"))
        exchange.response_started = True
        if etag_matches(exchange.request_header("if-none-match"), etag):
            exchange.telemetry.status = 304
            await exchange.send({"type": "http.response.start", "status": 304, "headers": headers})
            await exchange.send({"type": "http.response.body"})
            return
        if encoding != "identity":
            headers.append((b"content-encoding", encoding.encode()))
        exchange.telemetry.status = 200
        await http.send_body(exchange.send, 200, file.bodies[encoding], file.content_type, headers)


async def send_notice(exchange: Exchange, error: ErrorInfo, extra_headers: list[HTTPHeader] | None = None) -> None:
    """Send an error: as a page to people, and as JSON to programs."""
    headers = [
        *SECURITY,
        (b"cache-control", b"no-store"),
        (b"vary", b"accept"),
        *exchange.response_headers,
        *(extra_headers or []),
    ]
    status = exchange.telemetry.status = status_of(error)
    exchange.response_started = True
    if not prefers_html(exchange.request_header("accept")):
        await http.send_json(exchange.send, status, chat.error_body(error), headers)
        return
    message = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(error.message))
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        '<meta name="viewport" content="width=device-width"><title>Pellucid</title>'
        f'<main><h1>Pellucid</h1><p>{message}</p><p><a href="/">To the chat</a></p></main></html>'
    )
    await http.send_body(exchange.send, status, text.encode(), "text/html; charset=utf-8", headers)


def _page_endpoint(handler: Handler) -> Endpoint:
    return Endpoint(handler, CLIENT_PROTOCOLS[chat.PROTOCOL].error_format, "page")


# --- reading -------------------------------------------------------------------------------------------------------

_COMPRESSED_SUFFIXES = {"br": ".br", "gzip": ".gz"}
"""The suffix of the compressed copy of a file, by encoding."""


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.startswith((".", "__")):
            continue
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry.read_bytes()


def _load_file(name: str, data: bytes, compressed: dict[str, bytes]) -> File:
    extension = name.rpartition(".")[2]
    if "gzip" not in compressed and extension not in _COMPRESSED_TYPES:
        compressor = zlib.compressobj(9, wbits=31)
        compressed["gzip"] = compressor.compress(data) + compressor.flush()
    smaller = {encoding: body for encoding, body in compressed.items() if len(body) < len(data) * _MAX_COMPRESSED_RATIO}
    is_immutable = _HASHED_NAME.fullmatch(name) is not None
    return File(
        content_type=_TYPES.get(extension, "application/octet-stream"),
        etag=sha256(data).hexdigest()[:32],
        cache_control=b"public, max-age=31536000, immutable" if is_immutable else b"no-cache",
        bodies={**smaller, "identity": data},
    )
