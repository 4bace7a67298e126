"""What replicas share while runs are live: logs, leases, signals and limits.

One process shares with nobody and keeps it in memory; replicas share a Redis (or Valkey). Both keep the same rules,
which are told in `relay`.
"""

from .follower import Follower
from .memory import LogAppender, MemoryRelay
from .open import check_relay_url, open_relay
from .relay import Fenced, Listener, LogEntry, LogLost, Relay, RelayError, Verdict

__all__ = [
    "Fenced",
    "Follower",
    "Listener",
    "LogAppender",
    "LogEntry",
    "LogLost",
    "MemoryRelay",
    "Relay",
    "RelayError",
    "Verdict",
    "check_relay_url",
    "open_relay",
]
