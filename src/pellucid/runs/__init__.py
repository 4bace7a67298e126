"""Runs that happen: a driver for the `run` machine."""

from .attached import Answered, AttachedRun, Nobody, Owner

__all__ = ["Answered", "AttachedRun", "Nobody", "Owner"]
