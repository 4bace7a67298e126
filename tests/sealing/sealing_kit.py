"""Keys, items and strategies of the sealing tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from pellucid.parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    FilePart,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pellucid.sealing import Keys, Sealed

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORIGIN = Origin("p", "w", "m", "account")
KEYS = Keys.generate(NOW)
SEALED = Sealed([ThinkingPart("why", signature="s", origin=ORIGIN)], ORIGIN, "rs_1", 1_770_000_000)

texts = st.text(st.characters(), max_size=40)  # half surrogate pairs too
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
_maybe = st.none() | texts
_details = st.none() | st.dictionaries(texts, _json, max_size=3)
_objects = st.lists(st.dictionaries(texts, _json, max_size=2), max_size=2)
origins = st.builds(Origin, texts, texts, texts, _maybe)
_common: dict[str, Any] = {"id": _maybe, "provider_name": _maybe, "item_id": _maybe, "origin": st.none() | origins}
_more: dict[str, Any] = {**_common, "provider_details": _details}
_signed: dict[str, Any] = {**_more, "signature": _maybe}
_call: dict[str, Any] = {**_signed, "args": _maybe | _details, "tool_call_id": texts, "complete": st.booleans()}

parts: st.SearchStrategy[ModelResponsePart] = st.one_of(
    st.builds(
        ThinkingPart, texts, form=st.sampled_from(["raw", "summary", "redacted"]), complete=st.booleans(), **_signed
    ),
    st.builds(
        TextPart,
        texts,
        annotations=st.none() | _objects,
        logprobs=st.none() | _objects,
        complete=st.booleans(),
        **_signed,
    ),
    st.builds(RefusalPart, texts, complete=st.booleans(), **_more),
    st.builds(ToolCallPart, texts, **_call),
    st.builds(BuiltinToolCallPart, texts, **_call),
    st.builds(BuiltinToolReturnPart, texts, _json, texts, **_more),
    st.builds(FilePart, texts, texts, st.booleans(), **_signed),
    st.builds(CompactionPart, _maybe, **_signed),
    st.builds(OpaquePart, texts, _json, **_common),
)
sealed_items = st.builds(Sealed, st.lists(parts, max_size=4), origins, _maybe, st.integers(0, 2**40))

_names = st.sampled_from(["", "a", "b", "tenant", "ä\x00", "\ud83d"])
BOUNDS = st.fixed_dictionaries({"tenant": _names, "thread": st.none() | _names, "entity": st.none() | _names})
