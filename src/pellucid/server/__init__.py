"""The gateway: models behind one address, in the protocols that applications already speak."""

from .app import create_app
from .config import Config

__all__ = ["Config", "create_app"]
