"""The history of a space, for one viewer: pages, search, trees, summaries, references, export, replay.

`History` is the entry point. Everything that it returns passes `envelopes.is_shown`, and no result holds a whole space.
"""
