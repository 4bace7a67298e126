"""Runs that happen: a driver for the `run` machine."""

from .attached import AttachedRun

__all__ = ["AttachedRun"]
