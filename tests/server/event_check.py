"""Check events against the schemas, once for events that differ only in ids, times and names."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tests.openresponses import openresponses_kit

_RANDOM = re.compile(r'(?<=_)[0-9A-Za-z-]{16,}(?=")')
"""The random part of an id."""
_ANY_TEXT = re.compile(r'("(?:encrypted_content|model|previous_response_id)":)"[^"\\]*"')
_ANY_NUMBER = re.compile(r'("(?:created_at|completed_at|sequence_number)":)\d+')

_valid: set[str] = set()


def check_events(events: list[dict[str, Any]]) -> None:
    """Check every event against the gateway's document, and against the published one if it is installed.

    Validation is slow, and most events of most tests differ only in values for which both documents allow any string
    or any number. Those values are replaced by constants before events are compared.
    """
    for event in events:
        form = msgspec.json.encode(event).decode()
        form = _ANY_NUMBER.sub(r"\g<1>0", _ANY_TEXT.sub(r'\g<1>""', _RANDOM.sub("0", form)))
        if form not in _valid:
            openresponses_kit.check_events([event])
            _valid.add(form)
