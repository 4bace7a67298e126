"""Cohere's chat API, version 2: typed events, blocks with an index, reasoning as a block or as a plan for tools."""
