"""Any input is an envelope or a named error, with its location and the id of the envelope."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes import DialectName, Envelope, EnvelopeError, Join, decode_frame, encode, parse_join, read, write
from tests.cases import Cases
from tests.envelopes.envelope_kit import DEFAULTS, NOW, dialects, envelopes, error_of, store_and_load

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800") | st.just("x" * 300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = "protocol id ts from to correlation_id correlationId context seq replayed type token weather"
PAYLOAD_FIELDS = (
    "message text content questions confidence uncertainty metadata references recipient capabilities id you"
)
KINDS = "chat reasoning/start reasoning.thought reasoning/question mcp/request capability/grant system/welcome x/y"

payloads = anything | st.fixed_dictionaries({}, optional=dict.fromkeys(PAYLOAD_FIELDS.split(), anything))
frames = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS.split()) | anything},
    optional=dict.fromkeys(FIELDS.split(), anything) | {"payload": payloads},
)


def _check_outcome(data: Any, is_ours: bool) -> None:
    """Check that the data is an envelope that can be stored and sent, or a named error."""
    args = (data, None, DEFAULTS if is_ours else None)
    failed = error_of(read, *args)
    if failed is not None:
        assert failed.info.code
        assert 0 < len(failed.info.message) < 1000
        msgspec.json.encode(failed.info.message)
    else:
        envelope = read(*args)
        assert store_and_load(envelope) == envelope
        assert read(encode(envelope, envelope.dialect)) == envelope


@given(frames | anything, st.booleans())
def test_any_json_is_an_envelope_or_a_named_error(frame: Any, defaults: bool) -> None:
    _check_outcome(frame, defaults)


@given(frames | anything, st.booleans())
def test_any_json_text_is_an_envelope_or_a_named_error(frame: Any, defaults: bool) -> None:
    _check_outcome(json.dumps(frame), defaults)


@given(st.binary(max_size=50) | st.text(max_size=50), st.booleans())
def test_any_bytes_are_an_envelope_or_a_named_error(data: bytes | str, defaults: bool) -> None:
    _check_outcome(data, defaults)


@given(envelopes(), dialects, st.data())
def test_a_wrong_value_in_any_field_is_accepted_or_a_named_error(
    envelope: Envelope, dialect: DialectName, data: st.DataObject
) -> None:
    frame = write(envelope, dialect)
    frame[data.draw(st.sampled_from(sorted(frame)))] = data.draw(anything)

    _check_outcome(frame, data.draw(st.booleans()))


@given(envelopes(), dialects, st.data())
def test_a_truncated_frame_is_refused(envelope: Envelope, dialect: DialectName, data: st.DataObject) -> None:
    encoded = encode(envelope, dialect)

    with pytest.raises(EnvelopeError):
        read(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


DEEP: Any = {}
for _ in range(5000):
    DEEP = {"a": DEEP}

LONG = "x" * 256


REFUSED: list[tuple[Any, str | None, str | None]] = [
    (b"", "invalid_json", None),
    (b'{"kind": "chat", "payload": {"n": NaN}}', "invalid_json", None),
    (b'{"kind": "chat", "payload": {"n": [1e999]}}', None, "payload.n[0]"),
    ({"kind": "x", "payload": {"\ud800" * 99: [float("nan")]}}, None, "payload." + "\ufffd" * 40 + "[0]"),
    (b'{"kind": "chat", "payload": {"n": ' + b"9" * 5000 + b"}}", "invalid_json", None),
    (b'{"kind": "chat", "id": "\xff"}', "invalid_json", None),
    (b'{"a":' * 100_000, "too_deep", None),
    (b"[" * 100_000 + b"]" * 100_000, "too_deep", None),
    (b'{"kind": "chat", "payload": ' + b'{"a":' * 70 + b"1" + b"}" * 71, "too_deep", None),
    ({"kind": "chat", "payload": DEEP}, "too_deep", None),
    (b"[]", "invalid_type", None),
    (b"null", "invalid_type", None),
    (b'"chat"', "invalid_type", None),
    ({}, "missing", "kind"),
    ({"kind": 7}, "invalid_type", "kind"),
    ({"kind": ""}, "invalid_kind", "kind"),
    ({"kind": "chat\0"}, "invalid_kind", "kind"),
    ({"kind": "chat\n"}, "invalid_kind", "kind"),
    ({"kind": "reasoning//start"}, "invalid_kind", "kind"),
    ({"kind": "/system/welcome"}, "invalid_kind", "kind"),
    ({"kind": "system\u200b/welcome"}, "invalid_kind", "kind"),
    ({"kind": "a/" * 200 + "a"}, "too_long", "kind"),
    ({"kind": "system/presence"}, "capability_violation", "kind"),
    ({"kind": "system.presence"}, "capability_violation", "kind"),
    ({"kind": "System/Presence"}, "capability_violation", "kind"),
    ({"kind": "system"}, "capability_violation", "kind"),
    ({"kind": "chat", "from": "human"}, "sender_mismatch", "from"),
    ({"kind": "chat", "from": ["agent"]}, "invalid_type", "from"),
    ({"kind": "chat", "id": LONG}, "too_long", "id"),
    ({"kind": "chat", "id": ""}, "invalid_value", "id"),
    ({"kind": "chat", "id": "a\0b"}, "invalid_value", "id"),
    ({"kind": "chat", "id": "a\u202eb"}, "invalid_value", "id"),
    ({"kind": "chat", "id": 5}, "invalid_type", "id"),
    ({"kind": "chat", "ts": "yesterday"}, "invalid_value", "ts"),
    ({"kind": "chat", "ts": "2025-13-01T00:00:00Z"}, "invalid_value", "ts"),
    ({"kind": "chat", "ts": True}, "invalid_value", "ts"),
    ({"kind": "chat", "ts": 10**30}, "invalid_value", "ts"),
    ({"kind": "chat", "ts": "0001-01-01T00:00:00+14:00"}, "invalid_value", "ts"),
    ({"kind": "chat", "to": {"a": 1}}, "invalid_type", "to"),
    ({"kind": "chat", "to": ["a", 1]}, "invalid_type", "to[1]"),
    ({"kind": "chat", "to": ["a"] * 257}, "too_long", "to"),
    ({"kind": "chat", "correlation_id": [LONG]}, "too_long", "correlation_id[0]"),
    ({"kind": "chat", "correlationId": 3}, "invalid_type", "correlationId"),
    ({"kind": "chat", "correlationId": "a", "correlation_id": ["b"]}, "invalid_value", "correlationId"),
    ({"kind": "chat", "context": "a/b/c/d/e/f"}, "too_deep", "context"),
    ({"kind": "chat", "context": LONG}, "too_long", "context"),
    ({"kind": "chat", "context": "../other"}, "invalid_context", "context"),
    ({"kind": "chat", "context": "a/../b"}, "invalid_context", "context"),
    ({"kind": "chat", "context": ["a"]}, "invalid_type", "context"),
    ({"kind": "chat", "protocol": "irc/v1"}, "unknown_protocol", "protocol"),
    ({"kind": "chat", "protocol": 4}, "invalid_type", "protocol"),
    ({"kind": "chat", "payload": "hello"}, "invalid_type", "payload"),
    ({"kind": "chat", "payload": {"text": 5}}, "invalid_payload", "payload.text"),
    ({"kind": "chat", "payload": {"message": []}}, "invalid_payload", "payload.message"),
    ({"kind": "reasoning/thought", "payload": {"confidence": 1.01}}, "invalid_payload", "payload.confidence"),
    ({"kind": "reasoning/thought", "payload": {"confidence": "high"}}, "invalid_payload", "payload.confidence"),
    ({"kind": "reasoning/start", "payload": {"metadata": {"confidence": -1}}}, None, "payload.metadata.confidence"),
    ({"kind": "reasoning/thought", "payload": {"uncertainty": {"low": 1, "high": 0}}}, None, "payload.uncertainty"),
    ({"kind": "reasoning/question", "payload": {"questions": ["a", 1]}}, None, "payload.questions[1]"),
    ({"kind": "capability/grant", "payload": {"capabilities": []}}, "missing", "payload.recipient"),
]


def test_a_refusal_names_code_and_field() -> None:
    with Cases() as case:
        for number, (frame, code, param) in enumerate(REFUSED):
            with case(f"row {number}: {code} {param}"):
                failed = error_of(read, frame, None, DEFAULTS)
                assert failed is not None
                info = failed.info
                assert (info.code if code else None, info.param) == (code, param)
                assert len(info.message) < 1000
                if param is not None:
                    assert info.message.startswith(param)


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


NAMED = '"id": "msg-7", "kind": "chat"'


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"id": "msg-7", "kind": "chat", "context": "../x"}, "invalid_context"),
        (f'{{{NAMED}, "payload": {nested(70)}}}', "too_deep"),
        (f'{{{NAMED}, "payload": {nested(5_000)}}}', "too_deep"),
        (f'{{"payload": {{"text": "{"x" * 10_000}", "d": {nested(70)}}}, {NAMED}}}'.encode(), "too_deep"),
        ({"id": "msg-7", "kind": "chat", "payload": json.loads(nested(70))}, "too_deep"),
        (f'{{{NAMED}, "payload": {{"text": "x"', "invalid_json"),
        (f'{{{NAMED}, "payload": {{"n": 1e999}}}}', "invalid_value"),
    ],
)
def test_a_refusal_names_the_envelope(frame: Any, code: str) -> None:
    failed = error_of(read, frame, None, DEFAULTS)

    assert failed is not None
    assert (failed.info.code, failed.envelope_id, failed.attempted_kind) == (code, "msg-7", "chat")


def test_without_defaults_every_field_is_required() -> None:
    complete = {"id": "a", "ts": NOW, "from": "b", "kind": "chat"}

    assert read(complete).sender == "b"
    for name in complete:
        with pytest.raises(EnvelopeError, match=f"^{name}: it is required"):
            read({key: value for key, value in complete.items() if key != name})


def test_long_lists_do_not_overflow_the_stack() -> None:
    assert read(json.dumps({"kind": "x/y", "payload": {"n": [[1]] * 100_000}}), None, DEFAULTS).payload["n"][-1] == [1]


# --- the frame to join -----------------------------------------------------------------------------------------


def test_the_join_frame_of_mews_client_is_read() -> None:
    frame = {"type": "join", "space": "demo", "token": "secret", "participantId": "human", "capabilities": []}
    wrapped = {"protocol": "mew/v0.4", "kind": "system/join", "payload": frame | {"after_seq": 7}}

    assert parse_join(decode_frame(json.dumps(frame))) == Join("demo", "secret", "human")
    assert parse_join(decode_frame(wrapped)) == Join("demo", "secret", "human", 7, dialect="mew/v0.4")
    assert parse_join(decode_frame({"kind": "chat", "type": "join"})) is None
    assert "secret" not in repr(parse_join(decode_frame(frame)))


@given(anything, st.sampled_from(["space", "token", "participantId", "after_seq", "view", "dialect", "payload"]))
def test_any_join_is_read_or_refused(value: Any, at: str) -> None:
    for frame in ({"type": "join", at: value}, {"kind": "system.join", "payload": {at: value}}):
        failed = error_of(lambda frame=frame: parse_join(decode_frame(frame)))
        assert failed is None or (failed.info.param is not None and failed.info.code is not None)
