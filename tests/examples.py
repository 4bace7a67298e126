"""How many examples hypothesis tries, by profile.

`core` (the default, and `make test`) is quick; `long` (`make test-all`) is thorough. No property states a number: use
`costly` if every example starts a gateway, a process or a database; use `many` if examples take microseconds and
failures are rare. Loops without hypothesis, and sizes, name both numbers in `by_circle`. Under CI the examples are the
same in every run, so that a failure is caused by the change; so `long` has no more of them there than `core`, since
repeated examples find nothing new.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

Test = TypeVar("Test", bound=Callable[..., Any])

_EXAMPLES = {"core": 25, "long": 200}
_SHARE_OF_COSTLY = 5
_TIMES_MANY = 5


def register_profiles() -> None:
    """Register `core` and `long`, and load `core`; `--hypothesis-profile long` loads the other."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    same: dict[str, Any] = {"derandomize": True, "database": None} if _is_in_ci() else {}
    for name, examples in _EXAMPLES.items():
        count = _limited(_EXAMPLES["core"], examples)
        settings.register_profile(
            name, max_examples=count, deadline=None, suppress_health_check=quiet, print_blob=True, **same
        )
    settings.load_profile("core")


def by_circle(core: int, long: int) -> int:
    """Return a number of tries, or a size: `core`, or `long` with the profile of that name."""
    return _limited(core, long) if settings.get_current_profile_name() == "long" else core


def _limited(core: int, number: int) -> int:
    return min(number, core) if _is_in_ci() else number


def _is_in_ci() -> bool:
    return bool(os.environ.get("CI"))


def costly(test: Test) -> Test:
    """Decorate a property whose every example takes milliseconds or more: a fifth of the profile's examples."""
    return settings(max_examples=settings().max_examples // _SHARE_OF_COSTLY)(test)


def many(test: Test) -> Test:
    """Decorate a property whose examples are cheap and rarely fail: several times the profile's examples."""
    return settings(max_examples=settings().max_examples * _TIMES_MANY)(test)
