"""Webhooks: what happens in a space, sent to an address of the operator's, signed and in order.

    delivery = WebhookDelivery(webhook, store, relay, policy, holder=replica, lease_seconds=15, observer=observer)
    await delivery.run()

The rules:

* **Order.** An envelope is sent when the receiver has accepted (2xx) the one before it. Until then it is sent again,
  with growing pauses. So one webhook never overtakes itself, and a receiver that is down gets everything when it is
  back.
* **At least once.** The position is stored after a delivery, at least once a second while there are any. After a crash
  some are sent again, with the same `webhook-id`.
* **One replica** sends: it has the lease of the webhook at the relay, and renews it. Another one continues at the
  stored position when the lease has lapsed.
* **Readers.** A webhook is no participant: it gets what is for everyone, never what is addressed or has an audience.
  Its view is `main` unless the operator chose another: nothing that is in a context.
* **Backlog.** What waits is the log itself. If a webhook is more than `max_behind` envelopes behind, the oldest are
  skipped: the log says so, and the receiver gets a `system/gap`.

The signature is that of standardwebhooks.com: `v1,` and the Base64 of HMAC-SHA256 over `id.timestamp.body`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import random
import time
import uuid
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from ...egress import EgressPolicy
from ...envelopes import DEFAULT_DIALECT, Envelope, gateway_messages
from ...envelopes.translate import time_text, write
from ...envelopes.visibility import SpaceView, SpaceViewer, is_shown
from ...errors import PellucidError
from ...relay import Relay, RelayError
from ...storage import Spaces, StoredEnvelope
from ...telemetry import error_location, log

if TYPE_CHECKING:
    import aiohttp

SECRET_PREFIX = "whsec_"
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
"""Sizes of a secret, from the specification."""

PAGE_SIZE = 100
SAVE_SECONDS = 1.0
RENEWALS_PER_LEASE = 3
POLL_SECONDS = 5.0
"""Time after which the log is read without a signal, because signals may be lost."""

_IDS = uuid.UUID("5a5b9f5e-6f0e-4a53-9d1e-0c1f4c1a7a11")
"""Namespace of the ids of messages."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of a space, as the operator configured it."""

    owner: str
    space: str
    name: str
    url: str
    key: bytes
    kinds: tuple[str, ...] = ("*",)
    """Patterns of kinds, such as `mcp/*`."""
    view: SpaceView = "main"
    max_behind: int = 10_000
    timeout_seconds: float = 15.0


class WebhookObserver(Protocol):
    """Is notified of deliveries, for metrics."""

    def on_deliveries(self, webhook: Webhook, outcome: str, count: int) -> None:
        """Count deliveries with an outcome: `delivered`, `failed` or `skipped`."""
        ...

    def on_backlog(self, webhook: Webhook, behind: int) -> None:
        """Record how many envelopes of the log the webhook has not processed."""
        ...


def read_secret(text: str) -> bytes:
    """Return the key of a secret: `whsec_` and 24 to 64 bytes in Base64.

    Raises:
        ValueError: If it is not one.
    """
    try:
        key = base64.b64decode(text.strip().removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not (text.strip().startswith(SECRET_PREFIX) and MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES):
        raise ValueError(
            f"a webhook's secret is {SECRET_PREFIX!r} and {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes in Base64"
        )
    return key


def signed_headers(key: bytes, id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message of Standard Webhooks.

    Args:
        key: The key.
        id: Id of the message, the same in each attempt.
        timestamp: Time of the attempt, in seconds since 1970.
        body: The body.
    """
    digest = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def message_of(webhook: Webhook, envelope: Envelope, accepted_ms: int) -> tuple[str, bytes]:
    """Return the id and the body of the message about an envelope."""
    body = {
        "type": envelope.kind.replace("/", "."),
        "timestamp": time_text(accepted_ms),
        "data": {"space": webhook.space, "envelope": write(envelope, DEFAULT_DIALECT)},
    }
    id = uuid.uuid5(_IDS, "\n".join((webhook.owner, webhook.space, str(envelope.seq), envelope.id)))
    return f"msg_{id.hex}", msgspec.json.encode(body)


class _Overtaken(Exception):
    """The position that is stored is not ours any more: the space was removed, or another replica delivers."""


class WebhookDelivery:
    """Delivers one webhook, while this replica has its lease.

    Args:
        webhook: The webhook.
        spaces: The store's spaces.
        relay: The relay between replicas.
        policy: Which addresses may be reached.
        holder: The name of this replica.
        lease_seconds: Time after which another replica continues.
        observer: Is notified of deliveries.
        pauses: The shortest and the longest pause after a failure, in seconds.
        clock: Returns seconds since 1970.
    """

    def __init__(
        self,
        webhook: Webhook,
        spaces: Spaces,
        relay: Relay,
        policy: EgressPolicy,
        *,
        holder: str,
        lease_seconds: float,
        observer: WebhookObserver,
        pauses: tuple[float, float] = (1.0, 300.0),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._webhook = webhook
        self._spaces = spaces
        self._relay = relay
        self._policy = policy
        self._holder = holder
        self._lease_name = f"space-webhook:{webhook.space}/{webhook.name}"
        self._lease_seconds = lease_seconds
        self._observer = observer
        self._pauses = pauses
        self._clock = clock
        self._viewer = SpaceViewer(
            participant=f"system:webhook:{webhook.name}", view=webhook.view, reasoning=webhook.view != "main"
        )
        self._label = f"the webhook {webhook.name} of the space {webhook.space}"
        self._position = self._saved_position = 0
        self._saved_at = 0.0
        self._wakeup = asyncio.Event()

    async def run(self) -> None:
        """Deliver until cancelled, whenever this replica has the lease."""
        outage: str | None = None  # why the store or the relay could not be used the last time
        while True:
            try:
                token = await self._relay.claim(self._lease_name, self._holder, self._lease_seconds)
                if token is not None:
                    await self._run_with_lease(token)
                outage = None
            except PellucidError as error:
                code = error.info.code or error.info.kind
                if code != outage:
                    log.warning("%s waits: %s", self._label, code)
                outage = code
            except Exception as error:
                log.error("%s failed: %s", self._label, error_location(error))
            await asyncio.sleep(self._lease_seconds / RENEWALS_PER_LEASE)

    async def _run_with_lease(self, token: int) -> None:
        """Deliver until the lease is lost."""
        tasks = [asyncio.create_task(work) for work in (self._renew(token), self._deliver(), self._listen())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._observer.on_backlog(self._webhook, 0)
            with contextlib.suppress(PellucidError, _Overtaken):
                await self._save()
            with contextlib.suppress(RelayError):
                await self._relay.release(self._lease_name, token)

    async def _renew(self, token: int) -> None:
        """Renew the lease; return when it is lost."""
        renewed_at = monotonic()
        while monotonic() - renewed_at < self._lease_seconds:
            await asyncio.sleep(self._lease_seconds / RENEWALS_PER_LEASE)
            with contextlib.suppress(RelayError):
                if not await self._relay.renew(self._lease_name, token, self._lease_seconds):
                    return
                renewed_at = monotonic()

    async def _listen(self) -> None:
        """Wake the delivery when a replica has written to the space."""
        with contextlib.closing(self._relay.subscribe(f"space:{self._webhook.space}")) as listener:
            while await listener.read() is not None:
                self._wakeup.set()

    # --- reading the log

    async def _deliver(self) -> None:
        import aiohttp

        from ...egress.connector import EgressConnector

        async with aiohttp.ClientSession(
            connector=EgressConnector(self._policy),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._webhook.timeout_seconds),
            auto_decompress=False,
        ) as session:
            while True:
                with contextlib.suppress(_Overtaken):
                    await self._deliver_log(session)

    async def _deliver_log(self, session: aiohttp.ClientSession) -> None:
        webhook = self._webhook
        position = await self._spaces.begin_webhook(webhook.owner, webhook.space, webhook.name)
        if position is None:  # the space was removed
            await asyncio.sleep(POLL_SECONDS)
            return
        self._position = self._saved_position = position
        while True:
            self._wakeup.clear()
            await self._skip_oldest(session)
            page = await self._spaces.page(webhook.owner, webhook.space, after=self._position, limit=PAGE_SIZE)
            for stored in page:
                if self._is_sent(stored):
                    message = message_of(webhook, stored.with_flags, stored.at)
                    if not await self._send(session, *message):
                        break
                self._position = stored.envelope.seq
                if monotonic() - self._saved_at >= SAVE_SECONDS:
                    await self._save()
            if not page:
                await self._save()
                self._observer.on_backlog(webhook, 0)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wakeup.wait(), POLL_SECONDS)

    def _is_sent(self, stored: StoredEnvelope) -> bool:
        envelope, webhook = stored.envelope, self._webhook
        if envelope.is_erased or (webhook.view == "main" and stored.place.path is not None):
            return False
        return any(fnmatchcase(envelope.kind, pattern) for pattern in webhook.kinds) and is_shown(
            envelope, stored.place, self._viewer
        )

    async def _behind(self) -> int:
        """Return how many envelopes of the log are not processed."""
        head = await self._spaces.head(self._webhook.owner, self._webhook.space)
        if head is None or head.head < self._position:
            raise _Overtaken
        behind = head.head - self._position
        self._observer.on_backlog(self._webhook, behind)
        return behind

    async def _skip_oldest(self, session: aiohttp.ClientSession) -> None:
        """Skip what exceeds the backlog, when the receiver has accepted the notice of it."""
        webhook, behind, after = self._webhook, await self._behind(), self._position
        missed = behind - webhook.max_behind
        if missed <= 0:
            return
        log.warning(
            "%s is %d envelopes behind, and max_behind is %d: it skips %d of them (%d to %d)",
            self._label,
            behind,
            webhook.max_behind,
            missed,
            after + 1,
            after + missed,
        )
        now_ms = round(self._clock() * 1000)
        gap = gateway_messages.gap(
            f"gap-{after}-{missed}", now_ms, "", after=after, before=after + missed + 1, missed=missed
        )
        await self._send(session, *message_of(webhook, replace(gap, to=()), now_ms), is_notice=True)
        self._position = after + missed
        self._observer.on_deliveries(webhook, "skipped", missed)

    async def _save(self) -> None:
        """Store the position."""
        webhook, self._saved_at = self._webhook, monotonic()
        if self._position == self._saved_position:
            return
        if not await self._spaces.move_webhook(webhook.owner, webhook.space, webhook.name, self._position):
            raise _Overtaken
        self._saved_position = self._position

    # --- sending

    async def _send(self, session: aiohttp.ClientSession, id: str, body: bytes, *, is_notice: bool = False) -> bool:
        """Send one message until it is accepted.

        Args:
            session: The connections.
            id: Id of the message.
            body: Its body.
            is_notice: Whether it is about a backlog that is too long already.

        Returns:
            False if the backlog has become too long meanwhile.
        """
        attempts, failed_since = 0, monotonic()
        while (failure := await self._post(session, id, body)) is not None:
            attempts += 1
            self._observer.on_deliveries(self._webhook, "failed", 1)
            pause = max(min(self._pauses[1], self._pauses[0] * 2 ** (attempts - 1)), failure.retry_after)
            if attempts & (attempts - 1) == 0:  # 1, 2, 4 …
                log.warning(
                    "%s cannot be delivered (%s): attempt %d, the next in %.0f s",
                    self._label,
                    failure.reason,
                    attempts,
                    pause,
                )
            await self._save()
            if await self._behind() > self._webhook.max_behind and not is_notice:
                return False
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
        self._observer.on_deliveries(self._webhook, "delivered", 1)
        if attempts:
            log.info("%s is delivered again, after %.0f s", self._label, monotonic() - failed_since)
        return True

    async def _post(self, session: aiohttp.ClientSession, id: str, body: bytes) -> _Failure | None:
        """Send one message once; return why it was not accepted."""
        import aiohttp

        headers = signed_headers(self._webhook.key, id, int(self._clock()), body)
        headers |= {"Content-Type": "application/json", "User-Agent": "pellucid"}
        try:
            async with session.post(self._webhook.url, data=body, headers=headers, allow_redirects=False) as response:
                if 200 <= response.status < 300:
                    return None
                return _Failure(f"status {response.status}", _retry_after(response.headers, self._pauses[1]))
        except PellucidError as error:
            return _Failure(error.info.code or error.info.kind)
        except TimeoutError:
            return _Failure("no answer in time")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _Failure(type(error).__name__)


class _Failure(NamedTuple):
    """Why a message was not accepted, and for how many seconds the receiver wants no other attempt."""

    reason: str
    retry_after: float = 0.0


def _retry_after(headers: Mapping[str, str], longest: float) -> float:
    text = headers.get("Retry-After", "")
    return min(float(text), longest) if text.isdecimal() else 0.0


class WebhookDeliveries:
    """All webhooks of this process. Used as `async with`."""

    def __init__(self, deliveries: list[WebhookDelivery]) -> None:
        self._deliveries = deliveries
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> WebhookDeliveries:
        self._tasks = [asyncio.create_task(one.run()) for one in self._deliveries]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
