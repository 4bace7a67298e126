"""What replicas share while runs are live: logs, leases, signals and limits.

One process shares with nobody and keeps it in memory; replicas share a Redis (or Valkey). Both keep the same rules,
which are told in `relay`.

The relay that an address names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from ..errors import ConfigError
from .follower import Follower
from .memory import LogAppender, MemoryRelay
from .relay import FencedError, LimitResult, Listener, LogEntry, LogLost, Relay, RelayError

if TYPE_CHECKING:
    from .redis_relay import RedisRelay


DEFAULT_PREFIX = "pellucid:"
SCHEMES = ("redis", "rediss", "unix")


async def open_relay(
    url: str | None, *, prefix: str = DEFAULT_PREFIX, call_timeout_seconds: float = 5.0, outage_seconds: float = 5.0
) -> Relay:
    """The relay at `url`: None or `memory://`, or `redis://…`, `rediss://…`, `unix://…` as redis-py reads them.

    `prefix` begins every key and channel (`?prefix=` in the address wins); `call_timeout` is how many seconds a call
    may take, `patience` for how many seconds a follower waits for a relay that went away. Raises `ConfigError` for an
    address that names no relay, `RelayError` if nobody answers there.
    """
    if url is None or url.rstrip("/") == "memory:":
        return MemoryRelay()
    relay = _open_redis(url, prefix, call_timeout_seconds, outage_seconds)
    try:
        await relay.check()
    except BaseException:
        await relay.aclose()
        raise
    return relay


def check_relay_url(url: str | None) -> None:
    """Raises `ConfigError` for an address that `open_relay` would not take. Nothing is connected to."""
    if url is not None and url.rstrip("/") != "memory:":
        _open_redis(url, DEFAULT_PREFIX, 1.0, 1.0)


def _open_redis(url: str, prefix: str, call_timeout_seconds: float, outage_seconds: float) -> RedisRelay:
    """It connects when it is first used."""
    address, _, query_text = url.partition("?")
    scheme = address.partition(":")[0]
    if scheme not in SCHEMES:
        raise ConfigError([f"the relay's address begins with {scheme!r}; it can be memory, {', '.join(SCHEMES)}"])
    try:
        from .redis_relay import RedisRelay
    except ImportError as error:
        raise ConfigError(
            ["a relay in Redis needs the package redis; install Pellucid with the extra: pellucid[redis]"]
        ) from error
    query = dict(parse_qsl(query_text))
    prefix = query.pop("prefix", prefix)
    try:
        return RedisRelay(
            f"{address}?{urlencode(query)}",
            prefix=prefix,
            timeout_seconds=call_timeout_seconds,
            outage_seconds=outage_seconds,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(["the relay's address is not one that redis-py can read"]) from error


__all__ = [
    "FencedError",
    "Follower",
    "LimitResult",
    "Listener",
    "LogAppender",
    "LogEntry",
    "LogLost",
    "MemoryRelay",
    "Relay",
    "RelayError",
    "check_relay_url",
    "open_relay",
]
