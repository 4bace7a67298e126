"""A space as it lives in a gateway: what is said is judged at the head of its log, kept, then told to everybody.

* `Spaces` is all of them, `Space` one; a `Session` is one connection of a participant, its `Outlet` where its frames go.
* `state` judges and knows no I/O; `writer` appends what was judged, and begins anew where another replica was faster;
  `delivery` has those who sit there, and each is given what it may see, once and in order.
* `hearing` and `redaction` stand before all of it; `keeper` and `presence` say what nobody says: that somebody
  came or left, that a context fell silent.
"""
