"""The far end of a space: a participant's connection, what is on its way over it, and the history over HTTP. Nothing
here knows a server or a database."""
