"""Mistral's own Chat Completions. Content is a text or a list of typed chunks; reasoning is a chunk, too.

Older magistral models write reasoning between tags in the text. The profile says which models do.
"""
