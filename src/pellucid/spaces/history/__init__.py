"""What was said in a space, for one reader: pages, search, trees, shapes, references, export, replay.

`History` is the way in. Everything that it gives passes `envelopes.is_shown`, and no answer holds a whole space.
"""
