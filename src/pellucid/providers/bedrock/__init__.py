"""Amazon Bedrock: Converse and ConverseStream, one API for models of many makers.

Blocks have an index and an end event, but only tool calls have a start event. A delta has one level less than the
block that it extends. Opaque data comes as base64. The profile holds the differences between models.
"""
