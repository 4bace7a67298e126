"""Anthropic Messages, and the servers that implement the same API.

A message is a list of typed blocks. Reasoning comes in blocks of its own, with a signature. Reasoning without a
signature is never sent to Anthropic, but is returned to a compatible server that wrote it. The profile holds the
differences between models and servers.
"""
