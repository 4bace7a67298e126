"""The chat's page: the files that `ui/` was built into, read once and served as they are.

* What can be asked for is what stands in a table, made when the server starts: no path of the file system comes out of
  a request.
* `/` is the page for who prefers HTML, and the JSON index for who does not (programs); `/c/{conversation}` is the page.
  So are `/spaces` and `/spaces/{name}` (`Page.beside`): nobody is asked who they are before they see it.
* Every file has a strong ETag for each of its encodings. Files with a hash in their name never change; the rest is
  asked after each time.
* The page may run its own scripts and speak to its own server, and that is all (`SECURITY`).
* Without a built page, everything else works, and who asks for it is told how to build it.

What a client would rather have (RFC 9110 §12): a type, an encoding, or nothing new.
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
from .access.errors import Header
from .exchange import Door, Endpoint, Exchange
from .routing import route

ENCODINGS = ("br", "gzip", "identity")
"""The smallest first, for clients that do not mind."""


def prefers_html(accept: str | None) -> bool:
    """Whether HTML is wanted more than JSON. Who takes anything is a program."""
    wanted = dict(_weights(accept or ""))

    def quality(media: str) -> float:
        ranges = (media, f"{media.partition('/')[0]}/*", "*/*")
        return next((wanted[one] for one in ranges if one in wanted), 0.0)

    return quality("text/html") > quality("application/json")


def encoding_of(accept: str | None, there: Iterable[str]) -> str:
    """The encoding to answer in, of those that are there (`identity` always is)."""
    wanted = {"identity": 1e-4, **dict(_weights(accept or ""))}
    rest = wanted.get("*", 0.0)
    best = max((name for name in ENCODINGS if name in there), key=lambda name: wanted.get(name, rest))
    return best if wanted.get(best, rest) > 0 else "identity"


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether the client has it already."""
    if if_none_match is None:
        return False
    tags = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
    return any(tag in (etag, "*") for tag in tags)


def _weights(header: str) -> Iterator[tuple[str, float]]:
    for entry in header.lower().split(","):
        name, *parameters = (piece.strip() for piece in entry.split(";"))
        quality = next((value[2:] for value in parameters if value.startswith("q=")), "1")
        try:
            weight = float(quality)
        except ValueError:
            weight = 0.0
        yield name, weight if 0 <= weight <= 1 else 0.0


INDEX = "index.html"
NOT_BUILT = ErrorInfo("unavailable", "The page has not been built. Build it with: make page", code="page_not_built")

_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_UNUSED = ("accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "microphone", "payment", "usb")

SECURITY: list[Header] = [
    (b"content-security-policy", _CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", ", ".join(f"{name}=()" for name in _UNUSED).encode()),
]
"""On every answer that a browser may show."""

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
_PACKED = {"png", "woff2", "woff"}
"""What holds nothing that could be made smaller."""

_HASHED = re.compile(r"assets/.+-(?=[^.]*[A-Z0-9])[A-Za-z0-9_-]{8}\.\w+")
"""As the build names files; a word of eight letters is no hash."""
_MIN_GAIN = 0.95


class File(NamedTuple):
    """One that is served, ready to be sent."""

    content_type: str
    etag: str
    """Of the file as it is, without quotes; an encoding is added to it."""
    cache: bytes
    bodies: dict[str, bytes]
    """By encoding; `identity` is the file as it is."""


Files = dict[str, File]


def read_files(root: Traversable) -> Files:
    """All that is served, by its path under `/`. Empty where there is no page."""
    found = dict(_walk(root)) if root.is_dir() else {}
    return {
        name: _file(name, data, {code: found[name + end] for code, end in _BESIDE.items() if name + end in found})
        for name, data in found.items()
        if not name.endswith(tuple(_BESIDE.values()))
    }


@cache
def built() -> Files:
    """The page that this package was shipped with."""
    return read_files(files("pellucid") / "web")


class Page:
    """The endpoints. `files` are looked at once."""

    def __init__(self, files: Files) -> None:
        self._files = files

    async def index(self, exchange: Exchange) -> None:
        """The page, whatever it will show."""
        if INDEX in self._files:
            await self._send(exchange, self._files[INDEX])
        else:
            await notice(exchange, NOT_BUILT)

    async def file(self, exchange: Exchange) -> None:
        """Whatever else stands in the table. Raises `RequestError` (not_found)."""
        found = self._files.get(exchange.scope["path"][1:])
        if found is None:
            path = exchange.scope["path"]
            raise RequestError(f"the page has no file {path}", kind="not_found", code="no_such_file")
        await self._send(exchange, found)

    def beside(self, door: ASGIApp) -> ASGIApp:
        """What a path answers at which a program finds `door`, and whoever prefers HTML the page."""
        shell = _door(self.index)

        async def either(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
            async def negotiated(message: http.Message) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message["headers"], (b"vary", b"accept")]}
                await send(message)

            if prefers_html(http.header(scope, "accept")):
                await shell(scope, receive, send)
            else:
                await door(scope, receive, negotiated)

        return either

    def routes(self) -> list[BaseRoute]:
        """All but `/`, which is also the JSON index's."""
        beside = (name for name in self._files if name != INDEX and not name.startswith("assets/"))
        return [
            route("/c/{conversation_id}", {"GET": _door(self.index)}),
            route("/assets/{name:path}", {"GET": _door(self.file)}),
            *(route(f"/{name}", {"GET": _door(self.file)}) for name in beside),
        ]

    async def _send(self, exchange: Exchange, found: File) -> None:
        code = encoding_of(exchange.header("accept-encoding"), found.bodies)
        etag = f'"{found.etag}"' if code == "identity" else f'"{found.etag}-{code}"'
        headers = [(b"etag", etag.encode()), (b"cache-control", found.cache), *SECURITY, *exchange.headers]
        # Only what `/` is depends on the types that are taken.
        html = found.content_type.startswith("text/html")
        headers.append((b"vary", b"accept, accept-encoding" if html else b"accept-encoding"))
        exchange.started = True
        if matches(exchange.header("if-none-match"), etag):
            exchange.watch.status = 304
            await exchange.send({"type": "http.response.start", "status": 304, "headers": headers})
            await exchange.send({"type": "http.response.body"})
            return
        if code != "identity":
            headers.append((b"content-encoding", code.encode()))
        exchange.watch.status = 200
        await http.send_body(exchange.send, 200, found.bodies[code], found.content_type, headers)


async def notice(exchange: Exchange, error: ErrorInfo, more: list[Header] | None = None) -> None:
    """What was wrong: as a page for people, and as an error for programs."""
    headers = [*SECURITY, (b"cache-control", b"no-store"), (b"vary", b"accept"), *exchange.headers, *(more or [])]
    status = exchange.watch.status = chat.status_of(error)
    exchange.started = True
    if not prefers_html(exchange.header("accept")):
        await http.send_json(exchange.send, status, chat.error_body(error), headers)
        return
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        '<meta name="viewport" content="width=device-width"><title>Pellucid</title>'
        f'<main><h1>Pellucid</h1><p>{escape(error.message)}</p><p><a href="/">To the chat</a></p></main></html>'
    )
    await http.send_body(exchange.send, status, text.encode(), "text/html; charset=utf-8", headers)


def _door(endpoint: Endpoint) -> Door:
    return Door(endpoint, chat, protocol="page")


# --- reading -------------------------------------------------------------------------------------------------------

_BESIDE = {"br": ".br", "gzip": ".gz"}
"""How the file is called that holds another one, packed."""


def _walk(folder: Traversable, at: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.startswith((".", "__")):
            continue
        if entry.is_dir():
            yield from _walk(entry, f"{at}{entry.name}/")
        else:
            yield at + entry.name, entry.read_bytes()


def _file(name: str, data: bytes, packed: dict[str, bytes]) -> File:
    ending = name.rpartition(".")[2]
    if "gzip" not in packed and ending not in _PACKED:
        packer = zlib.compressobj(9, wbits=31)
        packed["gzip"] = packer.compress(data) + packer.flush()
    smaller = {code: body for code, body in packed.items() if len(body) < len(data) * _MIN_GAIN}
    forever = _HASHED.fullmatch(name) is not None
    return File(
        content_type=_TYPES.get(ending, "application/octet-stream"),
        etag=sha256(data).hexdigest()[:32],
        cache=b"public, max-age=31536000, immutable" if forever else b"no-cache",
        bodies={**smaller, "identity": data},
    )
