"""Names of a package that are imported on first use, so that a user of one does not wait for the others (PEP 562).

__getattr__, __dir__ = lazy_names(__name__, {"app": ("create_app",), "config": ("Config",)})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Args:
        package: The package's `__name__`.
        names: The exported names, by the submodule that defines them.
    """
    module_of = {name: module for module, some in names.items() for name in some}

    def get(name: str) -> Any:
        if name in module_of:
            return getattr(import_module(f".{module_of[name]}", package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(module_of)
