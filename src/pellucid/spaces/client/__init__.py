"""The client side of a space: a participant's connection, its pending envelopes, and the history over HTTP.

It does not depend on the server or on a database.
"""
