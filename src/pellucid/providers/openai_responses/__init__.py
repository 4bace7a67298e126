"""Wire of OpenAI's Responses, and of other servers that implement it.

A model's output is a list of *items*: a stretch of reasoning (with summaries, raw text and an encrypted blob, in any
combination), a message, a call. They are decoded into parts, and sent back as the same items.
"""
