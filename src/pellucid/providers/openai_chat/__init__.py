"""Wire of OpenAI's Chat Completions and its many dialects.

Reasoning may be in a field next to the content (three names), in structured details, in tags inside the content, or in
several of these at once. Requests and history differ as much. The profile has the differences.
"""
