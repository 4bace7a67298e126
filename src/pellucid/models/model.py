"""One model at one upstream: asked with a `ModelCall`, it answers with a `Turn` of event batches.

What is sent is made by a pure function of the call (`Model.request`); `Model.warnings` names the settings that the
request does not honour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ..errors import ErrorInfo, ModelError, RequestError
from ..events import ErrorEvent, ModelEvent
from ..parts import Origin
from ..providers.faults import fault_of_response
from ..providers.profiles import Profile
from ..providers.setting_warnings import setting_warnings
from ..providers.wires import WIRES, Decoder
from ..settings import ModelCall, ModelSettings, merge_settings
from ..telemetry.names import UPSTREAM_ID_HEADERS
from ..transport import Answer, Limits, Transport
from .door import door
from .sigv4 import sign

MAX_ERROR_BODY = 64 * 1024


class Turn(Protocol):
    """What is read from a model: batches of events, one for each read of the upstream.

    An agent, a replay and a remote model look the same to whoever drives a run. To wait and to take are two steps so
    that however many hands a batch goes through, only one coroutine wakes for it.
    """

    @property
    def waiting(self) -> bool:
        """Whether the model has not begun because others are before this turn."""
        ...

    def wait(self) -> Awaitable[None]:
        """Wait until there is something to take. Never raises for the model's faults."""
        ...

    def take(self) -> list[ModelEvent] | None:
        """What has come, once `wait` is over: the next batch (it may be empty), or None when the turn is over."""
        ...

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        """Stop now, give the connection up, and close what is open: as cancelled, or as failed with `error`.

        Idempotent, and to be called also when the turn is over: what it holds is given back then.
        """
        ...


class Asked(Protocol):
    """Whatever can be asked for a turn: a model, the embedded one with the line before it, an agent."""

    name: str
    origin: Origin

    async def open(self, call: ModelCall) -> Turn:
        """Ask. Raises `ModelError` (nobody answered, or an error status) and `RequestError` (cannot be asked)."""
        ...

    def warnings(self, call: ModelCall) -> list[str]:
        """One sentence for each setting that it cannot honour as given."""
        ...


class Request(NamedTuple):
    """What is sent for a call, before it is signed."""

    url: str
    headers: dict[str, str]
    body: dict[str, Any]
    timeout: float | None


class Model:
    """A model that is reached over HTTP."""

    def __init__(
        self,
        name: str,
        profile: Profile,
        transport: Transport | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        account: str | None = None,
        settings: ModelSettings | None = None,
        limits: Limits | None = None,
        headers: dict[str, str] | None = None,
        provider: str | None = None,
    ) -> None:
        """`transport`: by default the pool of the running loop (see `door`)."""
        self.name = name
        """What the upstream calls it."""
        self.profile = profile.for_model(name)
        self.origin = Origin(provider or profile.name, profile.wire, name, account)
        self.settings: ModelSettings = settings or {}
        self._wire = WIRES[profile.wire]
        self._transport = transport
        self._limits = limits
        self._base_url = (base_url or profile.base_url).rstrip("/")
        self._api_key = api_key
        self._headers = headers or {}

    async def open(self, call: ModelCall) -> Turn:
        """Ask. Raises `ModelError` (nobody answered, or an error status) and `RequestError` (cannot be asked)."""
        api_key = self.api_key()
        call = replace(call, model=self.name, settings=merge_settings(self.settings, call.settings))
        url, headers, body, timeout = self.request(call, api_key)
        data = msgspec.json.encode(body)
        if self.profile.auth == "aws" and api_key is None:
            # In a thread: where the credentials come from, a request may be needed for them.
            headers = await asyncio.to_thread(sign, "POST", url, headers, data)
        transport = self._transport or await door()
        answer = await transport.open(url, headers, data, self._limits, timeout)
        if not 200 <= answer.status < 300 or answer.status in _WITHOUT_CONTENT:
            raise ModelError(await _fault(answer, self.name), _request_id(answer))
        return HTTPTurn(answer, self._wire.decoder(self.profile, self.origin, answer.content_type))

    @property
    def address(self) -> tuple[str | None, int | None]:
        """The upstream's host and port."""
        parts = urlsplit(self._base_url)
        return parts.hostname, parts.port

    def api_key(self) -> str | None:
        """The key to send, or None for none. Raises `RequestError` where one is needed and there is none."""
        return self._api_key

    def request(self, call: ModelCall, api_key: str | None = None) -> Request:
        """What is sent for this call, whose settings are all there are. Raises `RequestError` for what cannot be."""
        if not self._base_url:
            raise RequestError(
                f"{self.profile.title or self.profile.name} has no address of its own: give a base_url",
                code="missing_base_url",
            )
        return Request(
            self._base_url + self._wire.path(call, self.profile),
            {
                "Content-Type": "application/json",
                **self._wire.headers(self.profile, api_key, call),
                **self._headers,
                **call.settings.get("extra_headers", {}),
            },
            self._wire.encode(call, self.profile, self.origin),
            call.settings.get("timeout"),
        )

    def warnings(self, call: ModelCall) -> list[str]:
        """One sentence for each setting, of the call or the model's own, that this model cannot honour as given."""
        settings = merge_settings(self.settings, call.settings)
        if not self._base_url:
            return []  # It is refused as a whole, and that is said when it is sent.
        try:
            fields = self._wire.setting_fields(settings, self.profile)
        except RequestError:
            return []
        fields.claim_request_settings()
        return setting_warnings(fields, self.profile, self.origin.model or self.profile.title)


class HTTPTurn:
    """A turn that is read from a socket."""

    waiting = False

    def __init__(self, answer: Answer, decoder: Decoder) -> None:
        self.wait = answer.wait
        self.request_id = _request_id(answer)
        """What the upstream calls it, where it says so."""
        self._answer = answer
        self._decoder = decoder
        self._over = False

    def take(self) -> list[ModelEvent] | None:
        if self._over:
            return None
        try:
            data = self._answer.take()
        except ModelError as error:
            self._over = True
            # What came is kept; the turn ends as its protocol's own kind of error.
            return self._decoder.end("error", error.info)
        if not data:
            self._over = True
            self._answer.close()
            return self._decoder.end()
        events = self._decoder.feed(data)
        if events and type(events[-1]) is ErrorEvent:
            # Nothing that could follow an error would be shown.
            return events + self.cancel()
        if self._decoder.done:
            self._over = True
            self._answer.finish()
            return events + self._decoder.end()
        return events

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if not self._over:
            self._over = True
            self._answer.close()
        return self._decoder.end("cancelled" if error is None else "error", error)


def _request_id(answer: Answer) -> str | None:
    return next((answer.headers[name] for name in UPSTREAM_ID_HEADERS if name in answer.headers), None)


_WITHOUT_CONTENT = (204, 205)
"""Success, and that was all."""


async def _fault(answer: Answer, model: str) -> ErrorInfo:
    status = answer.status
    if status < 400:
        answer.close()
        where = answer.headers.get("Location") if status >= 300 else None
        if where is not None:
            message = f"the upstream answered {status}, a redirect; its base_url must be where that leads"
            return ErrorInfo("model_error", message, code="redirect", status=status, said=where)
        why = "which says that there is no content" if status in _WITHOUT_CONTENT else "which is no answer to this"
        message = f"the upstream answered {status}, {why}; its base_url must be that of an API for models"
        return ErrorInfo("model_error", message, code="not_an_answer", status=status)
    headers = {name.lower(): value for name, value in answer.headers.items()}
    fault = fault_of_response(status, headers, await answer.read_all(MAX_ERROR_BODY), model)
    return replace(fault, retry_after=answer.retry_after)
