"""Redaction: what one viewer may see of a run. It is the last step before a protocol's encoder, on every read.

    redactor = Redactor(Viewer("summary"))
    encoder.feed(redactor.feed(events), now)          # live, resumed or replayed

The rules, which `docs/views.md` explains:

* Outside `raw`, redaction is an allow-list, and it fails closed. `fields` names the fields that are shown, `values` the
  kinds of parts, `restricted_view` the kinds of events and side events. A new field or kind is not shown until it is
  named there.
* The result is always a legal sequence (`pellucid.fold`), numbered without gaps, however the events are batched.
* The same rules apply to messages and events: a redacted stream folds into the redacted message.
* A redactor is a pure machine for one run: it looks nothing up, and remembers nothing beyond the turn.
"""

from .redactor import Redactor
from .restricted_view import SIDE_EVENT_FIELDS
from .values import redact_error, redact_messages, redact_response, redact_usage
from .viewer import VIEWS, View, Viewer, parse_view, resolve_view, stricter

__all__ = [
    "SIDE_EVENT_FIELDS",
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
