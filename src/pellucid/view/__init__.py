"""What one reader may see of a run: the last step before a protocol's encoder, on every read.

    redactor = Redactor(Reader("summary"))
    encoder.feed(redactor.feed(events), now)          # live, resumed or told again from what was stored

The rules, which `docs/views.md` explains:

* Outside `raw` it is an allow-list, and it fails closed: the fields that leave are named in `fields`, kinds of parts
  that leave in `values`, kinds of events and of side events in `less`. What is new leaves nowhere until
  somebody names it.
* What leaves is always a legal sequence (`pellucid.fold`), numbered without gaps, however the events were batched.
* Messages and events are redacted by the same rules: what a redacted stream folds into is the redacted message.
* Nothing is looked up, remembered beyond the turn, or handed on: a redactor is a pure machine for one run.
"""

from ..parts import VIEWS, View
from .redactor import Redactor
from .values import redact_error, redact_messages, redact_response, redact_usage
from .viewer import Viewer, parse_view, resolve_view, stricter

__all__ = [
    "VIEWS",
    "Redactor",
    "View",
    "Viewer",
    "parse_view",
    "redact_error",
    "redact_messages",
    "redact_response",
    "redact_usage",
    "resolve_view",
    "stricter",
]
