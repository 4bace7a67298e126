"""The doors of spaces: a WebSocket for participants, and HTTP beside it. What is configured is in `space_config`.

* `asked`: what a request asks for: a view, a dialect, from where on.
* `outlets`: where a seat's frames go.
* `socket`: `/spaces/{name}/ws`, and MEW's `/ws`: who comes in, and what they say.
* `replaying`: the same socket, for who only looks at the history.
* `door`: who asks over HTTP: a participant's token opens its space, and nothing else does.
* `endpoints`: which spaces there are, who is in one, and saying something, also on the two paths of MEW's own;
  `reading`: what was said, and how answers are written.
* `routes`: the table of operations.
"""
