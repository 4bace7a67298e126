"""Runs that happen: drivers for the `run` machine, and what becomes of what they say.

`attached` drives a run for the request that waits for it, `detached` one that nobody waits for; `keeping` puts what
was said into the store, `replay` reads it again. `seals` and `summaries` enrich it, once. All of them look like
`Running` to whoever serves them.
"""

from .attached import Answered, AttachedRun, Nobody, Owner
from .running import Running, clock

__all__ = ["Answered", "AttachedRun", "Nobody", "Owner", "Running", "clock"]
