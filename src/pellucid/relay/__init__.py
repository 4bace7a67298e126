"""The state that replicas share while runs are live: event logs, leases, signals, limits and presence.

A single process keeps it in memory (`MemoryRelay`). Replicas share a Redis or Valkey server (`RedisRelay`). Both follow
the rules in `relay.relay`.
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
    """Open the relay at a URL, and check that it responds.

    Args:
        url: None or `memory://` for a relay in memory; `redis://…`, `rediss://…` or `unix://…` as in redis-py.
        prefix: The prefix of every key and channel. `?prefix=` in the URL takes precedence.
        call_timeout_seconds: Time limit for each call.
        outage_seconds: How long a follower waits for a relay that does not respond, before it fails.

    Raises:
        ConfigError: The URL is not that of a relay.
        RelayError: The relay does not respond.
    """
    if url is None or url.rstrip("/") == "memory:":
        return MemoryRelay()
    relay = _open_redis(url, prefix, call_timeout_seconds, outage_seconds)
    try:
        await relay.check()
    except BaseException as error:
        await relay.aclose()
        if isinstance(error, RelayError):
            raise RelayError(f"{error.info.message} ({relay.address})") from error
        raise
    return relay


def check_relay_url(url: str | None) -> None:
    """Check the URL of a relay without connecting to it.

    Raises:
        ConfigError: `open_relay` would refuse the URL.
    """
    if url is not None and url.rstrip("/") != "memory:":
        _open_redis(url, DEFAULT_PREFIX, 1.0, 1.0)


def _open_redis(url: str, prefix: str, call_timeout_seconds: float, outage_seconds: float) -> RedisRelay:
    """Create the relay. It connects when it is first used."""
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
