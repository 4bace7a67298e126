"""Endpoints of spaces: a WebSocket for participants, and HTTP. Configured spaces are in `space_config`.

* `space_query`: parameters of the query: view, dialect, position.
* `outlets`: where the frames of a session are written.
* `socket`: `/spaces/{name}/ws`, and MEW's `/ws`: participants join, and send envelopes.
* `replay`: the same socket, for a client that only reads the history.
* `auth`: authentication over HTTP: a participant's token opens its space, and no other credential does.
* `space_handlers`: the list of spaces, the members of one, and posting an envelope, also on the two paths of MEW;
  `history_handlers`: the history, and how values are encoded.
* `routes`: the table of operations.
"""
