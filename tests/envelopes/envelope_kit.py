"""Strategies of envelopes and their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from pellucid.envelopes import DIALECTS, Defaults, Envelope, EnvelopeError
from pellucid.envelopes import kinds as k

SENDER, ID, NOW = "agent", "minted-1", 1_756_641_600_123
DEFAULTS = Defaults(sender=SENDER, id=ID, ts=NOW)

dialects = st.sampled_from(sorted(DIALECTS))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ids = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12) | st.sampled_from(["msg-1", "a b"])
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
segments = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.:@+~=-]{0,8}", fullmatch=True)
paths = st.lists(segments, min_size=1, max_size=5).map("/".join)

_KNOWN_FIELDS = {name for row in k.KINDS.values() for name in row.payload.__struct_fields__}
unknown = st.dictionaries(texts.filter(lambda name: name not in _KNOWN_FIELDS), values, max_size=3)
"""Payload fields that the gateway does not know."""

_words = st.one_of(texts, st.lists(texts, max_size=3))
_known: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    k.CHAT: st.fixed_dictionaries({"text": texts}, optional={"message": texts, "content": values, "format": texts}),
    k.START: st.fixed_dictionaries({}, optional={"message": texts, "goal": texts, "references": _words}),
    k.THOUGHT: st.fixed_dictionaries({}, optional={"message": texts, "confidence": st.floats(0, 1)}),
    "reasoning/question": st.fixed_dictionaries({"questions": _words}),
    "reasoning/hypothesis": st.fixed_dictionaries({"hypothesis": texts}, optional={"evidence": values}),
    k.REQUEST: st.fixed_dictionaries({"method": texts}, optional={"id": texts | numbers}),
    k.GRANT: st.fixed_dictionaries({"recipient": ids, "capabilities": st.lists(texts, max_size=2)}),
    "participant/request-status": st.just({}),
    "acme/v1:thing": st.just({}),
}

_OWN_NAMES = {"protocol", "id", "ts", "from", "to", "kind", "correlation_id", "correlationId", "context", "payload"}
_OWN_NAMES |= {"seq", "replayed", "type", "token"}
_FOLDED_NAMES = {name.casefold() for name in _OWN_NAMES}
"""Names that no other field may have, in any case."""
_other_names = texts.filter(lambda name: name.casefold() not in _FOLDED_NAMES)


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    """Any envelope that a participant could have sent and the gateway numbered."""
    kind = draw(st.sampled_from(sorted(_known)))
    in_path = draw(st.booleans())
    return Envelope(
        id=draw(ids),
        ts=draw(st.integers(-62_135_596_800_000, 253_402_300_799_999)),
        sender=draw(ids),
        to=tuple(draw(st.lists(ids, max_size=3))),
        kind=kind,
        correlation_id=tuple(draw(st.lists(ids, max_size=3))),
        context=draw(st.none() | paths) if in_path else None,
        context_operation=None if in_path else draw(st.none() | st.fixed_dictionaries({"operation": texts})),
        payload=draw(unknown) | draw(_known[kind]),
        dialect=draw(dialects),
        seq=draw(st.integers(0, 2**63 - 1)),
        extra=draw(
            st.dictionaries(texts.filter(lambda name: name.casefold() not in _FOLDED_NAMES), values, max_size=2)
        ),
        replayed=draw(st.booleans()),
    )


def store_and_load(envelope: Envelope) -> Envelope:
    return msgspec.json.decode(msgspec.json.encode(envelope), type=Envelope)


def error_of(do: Callable[..., object], *args: Any) -> EnvelopeError | None:
    """Call `do`; return its error, if any."""
    try:
        do(*args)
    except EnvelopeError as error:
        return error
    return None
