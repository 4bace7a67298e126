"""The schemas of events, applied once to events that differ in ids, times and names alone."""

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
    """Every event is what both documents say: ours, and the published one where it is there.

    The documents are slow to apply, and most events of most tests are the same but for values that both allow to be any
    string or any number: those are replaced by one value before events are compared.
    """
    for event in events:
        form = msgspec.json.encode(event).decode()
        form = _ANY_NUMBER.sub(r"\g<1>0", _ANY_TEXT.sub(r'\g<1>""', _RANDOM.sub("0", form)))
        if form not in _valid:
            openresponses_kit.check_events([event])
            _valid.add(form)
