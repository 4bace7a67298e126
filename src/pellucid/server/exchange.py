"""One request and its answer, and the door that every request comes through.

A door knows who is asking before its endpoint does anything, says whatever is refused in the form of the protocol that
was asked in, and answers for faults of ours. It stands around the request, not around the stream: `send` is the
server's own.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from ..asgi import http
from ..asgi.streaming import FAULT, STOPPING, ASGIWriter, BodyWriter, is_client_error
from ..errors import ErrorInfo, PellucidError, RequestError
from ..protocols.errors import ErrorForm
from ..run import Minter
from ..telemetry import log, place_of
from ..text import shown
from ..view import Reader, View, redact_error, view_of
from .access.errors import AccessError, Header
from .access.guard import Guard
from .access.policy import Principal
from .config import ServerConfig
from .observe import RequestWatch
from .uvicorn_adapter import direct_writer, on_disconnect

VIEW_HEADER = "pellucid-view"


class Exchange:
    """`params` are those of the path. `headers` go with whatever is answered."""

    def __init__(self, scope: http.Scope, receive: http.Receive, send: http.Send, form: ErrorForm) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.form = form
        self.watch: RequestWatch = scope["watch"]
        self.principal = Principal("")
        self.headers: list[Header] = [self.watch.header]
        self.params: dict[str, str] = scope.get("path_params", {})
        self.reader = Reader("hidden")
        """What whoever asks may see, until an endpoint knows that they ask for less."""
        self.started = False

    def header(self, name: str) -> str | None:
        return http.header(self.scope, name)

    @cached_property
    def query(self) -> list[tuple[str, str]]:
        text = self.scope["query_string"].decode("latin-1")
        return parse_qsl(text, keep_blank_values=True) if text else []

    def asked(self, name: str) -> str | None:
        """A parameter of the query."""
        return next((value for key, value in self.query if key == name), None)

    def number(self, name: str, default: int, least: int, most: int = 2**53) -> int:
        """A whole number of the query. Raises `RequestError`."""
        text = self.asked(name)
        return default if text is None else whole_number(text, name, least, most)

    def reads(self, most: View = "raw", unasked: View = "raw", *, summaries: bool = False) -> Reader:
        """Whoever asks, as a reader: the least of what their key lets them see, of `most` (what anybody may see of what
        they read) and of what they ask for; of `unasked`, where they ask for no view. Raises `RequestError`."""
        may = self.principal.policy.reader.lesser(most)
        asked = self.header(VIEW_HEADER)
        asked = asked if asked is not None else self.asked("view")
        view = view_of(asked.lower(), "view") if asked is not None else may.lesser(unasked).view
        return may.asking(view, summaries=summaries)

    async def body(self, limits: ServerConfig) -> bytes:
        """All of the request's body. Raises `RequestError` for one that is too large or too slow."""
        limit = self.principal.policy.body_bytes(limits.max_body_bytes)
        return await http.read_body(self.scope, self.receive, limit, limits.request_seconds)

    async def answer(self, value: Any, status: int = 200) -> None:
        """With JSON."""
        self.started = True
        self.watch.status = status
        await http.send_json(self.send, status, value, self.headers)

    async def answer_with(self, text: bytes, content_type: str, status: int = 200) -> None:
        """With text of some other type."""
        self.started = True
        self.watch.status = status
        await http.send_body(self.send, status, text, content_type, self.headers)

    async def answer_nothing(self) -> None:
        """With a status that says so."""
        self.started = True
        self.watch.status = 204
        await self.send({"type": "http.response.start", "status": 204, "headers": self.headers})
        await self.send({"type": "http.response.body"})

    async def refuse(self, error: ErrorInfo, more: list[Header] | None = None) -> None:
        """With an error, in the protocol's form."""
        error = redact_error(error, self.reader)
        self.watch.error = error.kind
        headers = [*http.retry_after(error), *(more or [])]
        self.headers += [header for header in headers if header not in self.headers]
        body, status = self.form.error_body(error), self.form.status_of(error)
        if isinstance(body, str):
            await self.answer_with(shown(body).encode(), http.PLAIN, status)
        else:
            await self.answer(body, status)

    def on_disconnect(self, callback: Callable[[], None] | None) -> bool:
        """See `http.Connected`."""
        return on_disconnect(self.scope, self.send, callback)

    async def stream(self, content_type: str = http.EVENT_STREAM) -> BodyWriter:
        """With a stream, whose body follows."""
        self.started = True
        self.watch.streaming()
        await http.start_stream(self.send, self.headers, content_type)
        return direct_writer(self.scope, self.send) or ASGIWriter(self.send)


Endpoint = Callable[[Exchange], Awaitable[None]]


def protocol_name(form: ErrorForm) -> str:
    """What metrics and log lines call the protocol whose package this is."""
    name: str = getattr(form, "__name__", "")
    return name.rpartition(".")[2]


def new_minter() -> Minter:
    """A minter whose ids cannot be guessed.

    They begin with the time of this call, so what is stored under them stands next to what was stored just before: a
    database then changes the few pages at the end of an index, and not one anywhere for each id.
    """
    return Minter(secrets.token_bytes(16), time.time_ns() // 1_000_000)


def whole_number(text: str, name: str, least: int, most: int = 2**53) -> int:
    """What stands at `name` of a request. Raises `RequestError`."""
    if not text.isascii() or not text.isdecimal() or len(text) > 16 or not least <= int(text) <= most:
        upper = f" to {most}" if most < 2**53 else ""
        raise RequestError(
            f"{name}: must be a whole number from {least}{upper}, not {shown(text[:40])!r}",
            code="invalid_value",
            param=name,
        )
    return int(text)


class Door:
    """An ASGI application for one route."""

    def __init__(
        self,
        endpoint: Endpoint,
        form: ErrorForm,
        guard: Callable[[], Guard] | None = None,
        protocol: str | None = None,
        forms: Mapping[str, ErrorForm] | None = None,
    ) -> None:
        """`guard`: who asks whom; None where nothing is asked. `protocol`: what is told of it, by default the form.
        `forms`: those of other protocols at the same place, by what `?protocol=` says."""
        self._endpoint = endpoint
        self._form = form
        self._guard = guard
        self._forms = forms or {}
        self._protocol = protocol or protocol_name(form)

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        exchange = Exchange(scope, receive, send, self._form)
        exchange.watch.protocol = self._protocol
        if self._forms:
            exchange.form = self._forms.get(exchange.asked("protocol") or "", self._form)
        try:
            if self._guard is not None:
                if scope["closing"]:
                    exchange.headers.append(http.CLOSE)
                    raise PellucidError(STOPPING)
                guard = self._guard()
                exchange.headers += guard.cors.headers(scope)
                exchange.principal = exchange.watch.principal = await guard.admit(scope)
                exchange.reader = exchange.principal.policy.reader
            await self._endpoint(exchange)
        except http.ClientGone:
            pass
        except Exception as error:
            await self._refuse(exchange, error)

    async def _refuse(self, exchange: Exchange, error: Exception) -> None:
        if isinstance(error, PellucidError) and is_client_error(error):
            info, more = error.info, error.headers if isinstance(error, AccessError) else []
            if info.kind in ("slow_request", "too_large"):
                more = [*more, http.CLOSE]  # the body will not be read
        else:
            log.error("a fault while serving %s: %s", exchange.scope["path"], place_of(error))
            info, more = FAULT, []
        if not exchange.started:
            await exchange.refuse(info, more)
