"""An envelope survives writing and reading in any dialect, and storage."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.envelopes import DIALECTS, Defaults, DialectName, Envelope, EnvelopeError, encode, read, text_of, write
from tests.cases import Cases
from tests.envelopes.envelope_kit import DEFAULTS, NOW, SENDER, dialects, envelopes, store_and_load
from tests.envelopes.seed_flows import FLOWS


@given(envelopes(), dialects)
def test_every_dialect_round_trips(envelope: Envelope, dialect: DialectName) -> None:
    frame = encode(envelope, dialect)
    back = read(frame, dialect)

    assert back == replace(envelope, dialect=dialect)
    assert read(frame) == back, "the frame says in which dialect it is"
    assert text_of(back) == text_of(envelope)
    assert store_and_load(back) == back


@given(envelopes(), dialects)
def test_seq_and_replayed_of_a_participant_are_ignored(envelope: Envelope, dialect: DialectName) -> None:
    sent = read(encode(envelope, dialect), dialect, DEFAULTS._replace(sender=envelope.sender))

    assert sent == replace(envelope, dialect=dialect, seq=0, replayed=False)


@given(envelopes(), dialects, st.lists(dialects, max_size=4))
def test_any_chain_of_dialects_round_trips(envelope: Envelope, last: DialectName, chain: list[DialectName]) -> None:
    """A bridge between two spaces changes nothing."""
    through = envelope
    for dialect in (*chain, last):
        through = read(write(through, dialect))

    assert through == replace(envelope, dialect=last)


# --- the flows of the proposal ---------------------------------------------------------------------------------

SENT = {f"{name}-{number}": text for name, flow in FLOWS.items() for number, text in enumerate(flow)}


def test_every_envelope_of_the_proposal_is_accepted_as_written() -> None:
    with Cases() as case:
        for name, text in SENT.items():
            with case(name):
                _check_accepted(text)


def _check_accepted(text: str) -> None:
    raw = msgspec.json.decode(text)
    envelope = read(text, None, DEFAULTS._replace(sender=raw.get("from", SENDER)))

    assert envelope.sender == raw.get("from", SENDER)
    assert envelope.kind == raw["kind"].replace(".", "/")
    assert (envelope.id, envelope.ts) == (raw.get("id", DEFAULTS.id), NOW)
    assert envelope.correlation_id == ((raw["correlationId"],) if "correlationId" in raw else ())
    assert envelope.context == raw.get("context")
    assert envelope.dialect == "meup-draft"
    assert envelope.extra == {}
    for dialect in DIALECTS:
        assert read(encode(envelope, dialect)) == replace(envelope, dialect=dialect)


def test_the_draft_dialect_writes_what_was_read() -> None:
    with Cases() as case:
        for name, text in SENT.items():
            with case(name):
                _check_written_back(text)


def _check_written_back(text: str) -> None:
    raw = msgspec.json.decode(text)
    envelope = read(text, None, DEFAULTS._replace(sender=raw.get("from", SENDER)))

    frame = write(envelope, "meup-draft")

    assert frame == {
        "protocol": "meup/draft",
        "id": DEFAULTS.id,
        "ts": "2025-08-31T12:00:00.123Z",
        "from": SENDER,
        "payload": {},
        **raw,
    }


def test_the_seven_envelopes_of_the_short_flow_in_mew() -> None:
    flow = [read(text, None, DEFAULTS._replace(sender=msgspec.json.decode(text)["from"])) for text in FLOWS["option_5"]]

    frames = [write(envelope, "mew/v0.4") for envelope in flow]

    assert [one["kind"] for one in frames] == [
        "chat",
        "reasoning/start",
        "reasoning/thought",
        "mcp/request",
        "reasoning/thought",
        "mcp/request",
        "reasoning/thought",
        "reasoning/conclusion",
        "chat",
    ]
    assert frames[0]["payload"] == {"text": "Should we deploy this auth change?"}
    assert frames[1]["correlation_id"] == ["msg-100"]
    assert frames[2]["context"] == "msg-101"
    assert text_of(flow[1]) == "Analyzing deployment safety..."


# --- accepted variants -----------------------------------------------------------------------------------------

REASON = read({"kind": "chat", "correlation_id": ["reason-123"], "payload": {"text": "No."}}, "mew/v0.4", DEFAULTS)


@pytest.mark.parametrize(
    "variant",
    [
        {"correlationId": "reason-123", "payload": {"message": "No."}},
        {"correlationId": ["reason-123"], "payload": {"content": "No."}},
        {"correlation_id": "reason-123", "payload": {"text": "No."}},
        {"correlation_id": ["reason-123"], "correlationId": "reason-123", "payload": {"text": "No.", "message": None}},
        {"protocol": "mew/v0.3", "from": SENDER, "to": [], "context": "", "correlationId": ["reason-123"]}
        | {"payload": {"text": None, "message": "No."}},
        {
            "ts": NOW,
            "id": None,
            "to": None,
            "context": None,
            "correlation_id": "reason-123",
            "payload": {"text": "No."},
        },
        {"ts": "2025-08-31T14:00:00.123456+02:00", "correlation_id": "reason-123", "payload": {"text": "No."}},
    ],
)
def test_all_spellings_mean_the_same(variant: dict[str, object]) -> None:
    assert read({"kind": "chat", **variant}, "mew/v0.4", DEFAULTS) == REASON


@pytest.mark.parametrize(
    ("frame", "dialect"),
    [
        ({"protocol": "meup/v0.2", "kind": "reasoning.start"}, "meup/v0.2"),
        ({"protocol": "mew/v0.3", "kind": "chat"}, "mew/v0.4"),
        ({"kind": "reasoning.start"}, "meup-draft"),
        ({"kind": "reasoning/start"}, "mew/v0.4"),
        ({"kind": "chat", "payload": {"message": "x"}}, "meup-draft"),
        ({"kind": "chat", "payload": {"text": "x"}}, "mew/v0.4"),
        ({"kind": "chat", "correlationId": "x"}, "meup-draft"),
        ({"kind": "chat"}, "mew/v0.4"),
    ],
)
def test_the_first_envelope_shows_its_dialect(frame: dict[str, object], dialect: str) -> None:
    assert read(frame, None, DEFAULTS).dialect == dialect


def test_a_lone_surrogate_is_replaced() -> None:
    thought = read(
        b'{"kind": "reasoning/thought", "payload": {"message": "good \\ud83d", "n": "\\u0000"}}', None, DEFAULTS
    )

    assert thought.payload == {"message": "good \ufffd", "n": "\0"}
    assert store_and_load(thought) == thought


def test_unknown_kinds_and_fields_are_kept() -> None:
    frame = {
        "kind": "acme.forecast",
        "weather": {"a": [1]},
        "type": "error",
        "token": "t",
        "payload": {"x": {"y": None}},
    }
    envelope = read(frame, None, DEFAULTS)

    assert (envelope.kind, envelope.payload) == ("acme/forecast", {"x": {"y": None}})
    assert envelope.extra == {"weather": {"a": [1]}}
    assert write(envelope, "mew/v0.4").keys() >= {"weather"}


def test_unknown_fields_do_not_override_known_ones() -> None:
    forged = replace(REASON, extra={"from": "human", "kind": "system/welcome"})

    assert write(forged, "mew/v0.4") == write(REASON, "mew/v0.4")


def test_system_envelopes_are_accepted_from_the_gateway_alone() -> None:
    welcome = {"kind": "system.welcome", "id": "w", "ts": 0, "from": "system:gateway", "payload": {"you": {"id": "a"}}}

    assert read(welcome).kind == "system/welcome"
    with pytest.raises(EnvelopeError) as refused:
        read(welcome, None, Defaults("system:gateway", "w", 0))
    assert (refused.value.info.kind, refused.value.info.code) == ("forbidden", "capability_violation")
    assert (refused.value.envelope_id, refused.value.attempted_kind) == ("w", "system.welcome")
