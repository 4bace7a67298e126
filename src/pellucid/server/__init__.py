"""The gateway: models behind one address, in the protocols that applications already use."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .app import create_app as create_app
    from .config import Config as Config

__getattr__, __dir__ = lazy_names(__name__, {"app": ("create_app",), "config": ("Config",)})
