"""A space in the gateway: envelopes are judged at the head of its log, stored, then delivered to all participants.

* `SpaceManager` holds all spaces of a process, `Space` is one; a `Session` is one connection of a participant, its
  `Outlet` is the sink for its frames.
* `state` judges envelopes and does no I/O. `writer` appends what was judged, and starts again if another replica was
  faster. `delivery` knows the sessions and gives each one what it may see, once and in order.
* `ingest` and `redaction` come before all of it.
* `replicas` is what the replicas of a space share: who is present, and the writer lease. `maintenance` ends silent
  contexts, and reads what other replicas wrote.
"""
