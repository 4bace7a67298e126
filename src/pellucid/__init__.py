"""Pellucid: the reasoning of any language model as one ordered stream of parts."""

__version__ = "0.1.0"
