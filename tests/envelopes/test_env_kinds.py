"""Kinds, their texts and tools, and the messages of the gateway."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from pellucid.envelopes import (
    DIALECTS,
    DialectName,
    EnvelopeError,
    Present,
    gateway_messages,
    kinds,
    parse_dialect,
    payloads,
    read,
    text_of,
    tool_of,
    write,
)
from pellucid.envelopes.envelope import check_participant
from tests.cases import Cases
from tests.envelopes.envelope_kit import DEFAULTS, NOW, dialects
from tests.envelopes.seed_flows import FLOWS


def _flow(name: str) -> list[Any]:
    return [read(text, None, DEFAULTS._replace(sender="user" if '"user"' in text else "agent")) for text in FLOWS[name]]


def test_texts_and_tools_of_the_structured_flow() -> None:
    flow = [(one.kind, text_of(one) or tool_of(one)) for one in _flow("option_4")]

    assert flow[1:6] == [
        ("reasoning/start", "Evaluate deployment safety for auth system changes"),
        (
            "reasoning/question",
            "What specific auth components are modified?\nAre there breaking changes to the API?\n"
            "Have security tests passed?\nIs there a rollback plan?",
        ),
        ("reasoning/thought", "Need to check the diff and test results first"),
        ("mcp/request", "git_diff"),
        ("reasoning/observation", "Changes affect OAuth2 token validation and session management"),
    ]
    assert flow[8] == ("reasoning/hypothesis", "The code change introduces a regression in token expiration")
    assert flow[10] == ("reasoning/conclusion", "do_not_deploy")
    assert flow[12] == ("mcp/proposal", "create_issue")


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        ("reasoning/start", {"input": "why?"}, "why?"),
        ("reasoning/thought", {"reasoning": "because", "action": "respond", "actionInput": {"a": 1}}, "because"),
        ("reasoning/thought", {"message": "", "content": "b"}, "b"),
        ("reasoning/conclusion", {}, ""),
        ("reasoning/conclusion", {"cancelled": True, "reason": "stop"}, "stop"),
        ("chat", {"text": "a", "content": "b"}, "a"),
        ("chat", {"content": [{"type": "text"}]}, ""),
        ("system/error", {"error": "invalid_request", "message": "no"}, "no"),
        ("acme/x", {"text": "hello"}, "hello"),
    ],
)
def test_every_text_field_is_read(kind: str, payload: dict[str, Any], words: str) -> None:
    assert text_of(read({"id": "a", "ts": 0, "from": "b", "kind": kind, "payload": payload})) == words


def test_payloads_are_decoded_to_their_types() -> None:
    flow = _flow("option_4")
    start, hypothesis, conclusion = (kinds.decode_payload(flow[at].kind, flow[at].payload) for at in (1, 8, 10))

    assert isinstance(start, payloads.Start)
    assert (start.triggered_by, start.approach) == ("user-request", "security-first analysis")
    assert isinstance(hypothesis, payloads.Hypothesis)
    assert (hypothesis.confidence, hypothesis.evidence) == (0.85, ["test_failures", "oauth2_changes"])
    assert isinstance(conclusion, payloads.Conclusion)
    assert conclusion.key_factors is not None
    assert len(conclusion.key_factors) == 3
    metadata = kinds.decode_payload("reasoning/start", _flow("metadata")[0].payload)
    assert isinstance(metadata, payloads.Start)
    assert metadata.metadata == payloads.ReasoningMetadata("security-first", "30s", 0.7)


def test_every_reasoning_kind_is_in_the_table() -> None:
    assert kinds.KINDS.keys() >= kinds.STEP_KINDS
    assert all(
        kinds.normalize_kind(kind) == kinds.normalize_kind(kind.replace("/", ".")) == kind for kind in kinds.KINDS
    )


def test_a_kind_in_the_table_is_shown_and_searched_like_the_rest_of_its_family() -> None:
    for row in kinds.KINDS.values():
        other = kinds.kind_of(f"{row.name.partition('/')[0]}/of-no-row")
        assert (row.visibility, row.unsearched_fields) == (other.visibility, other.unsearched_fields), row.name
        assert (row.act == "message") == (other.act == "message"), row.name


# --- names -----------------------------------------------------------------------------------------------------


def test_a_dialect_by_any_of_its_names() -> None:
    names = [(name, row.name) for row in DIALECTS.values() for name in (row.name, row.protocol, row.subprotocol)]
    with Cases() as case:
        for name, dialect in [*names, ("meup/v0.1", "meup-draft"), ("mew/v0.3", "mew/v0.4"), ("mew", "mew/v0.4")]:
            with case(name):
                assert parse_dialect(name) == dialect


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(EnvelopeError, match=r"^dialect: 'mew/0.4' is not supported; did you mean 'mew/v0.4'\?$"):
        parse_dialect("mew/0.4", "dialect")


@pytest.mark.parametrize("name", ["system:gateway", "System:x", "", "a\nb", "x" * 256, 5, None])
def test_invalid_participant_names_are_refused(name: Any) -> None:
    with pytest.raises(EnvelopeError, match=r"^participant: "):
        check_participant(name)


# --- messages of the gateway -----------------------------------------------------------------------------------

YOU, OTHER = Present("a", ("chat", {"kind": "reasoning/*"})), Present("b", ("*",))


@given(dialects)
def test_a_welcome_in_every_dialect(dialect: DialectName) -> None:
    welcome = gateway_messages.welcome("w-1", NOW, YOU, [OTHER], head_seq=41)
    frame = write(welcome, dialect)

    assert frame["kind"] == ("system.welcome" if dialect == "meup-draft" else "system/welcome")
    assert (frame["from"], frame["to"]) == ("system:gateway", ["a"])
    assert frame["payload"] == {
        "you": {"id": "a", "capabilities": ["chat", {"kind": "reasoning/*"}]},
        "participants": [{"id": "b", "capabilities": ["*"]}],
        "active_streams": [],
        "head_seq": 41,
    }
    assert kinds.decode_payload(read(frame).kind, read(frame).payload) == payloads.Welcome(YOU, (OTHER,))


def test_a_presence_message() -> None:
    assert write(gateway_messages.presence("p-1", NOW, "join", OTHER), "mew/v0.4")["payload"] == {
        "event": "join",
        "participant": {"id": "b", "capabilities": ["*"]},
    }


def test_an_error_goes_to_its_sender_and_names_what_was_refused() -> None:
    with pytest.raises(EnvelopeError) as refused:
        read({"id": "msg-7", "kind": "system/presence"}, None, DEFAULTS)

    frame = write(gateway_messages.error("e-1", NOW, "agent", refused.value, your_capabilities=["chat"]), "meup-draft")

    assert (frame["to"], frame["correlationId"]) == (["agent"], "msg-7")
    assert frame["payload"] == {
        "error": "capability_violation",
        "message": "kind: system/presence is reserved for the gateway, like all of system/*",
        "code": "capability_violation",
        "param": "kind",
        "attempted_kind": "system/presence",
        "your_capabilities": ["chat"],
    }


def test_an_error_that_mew_has_no_code_for_has_its_kind_and_ours() -> None:
    failed = EnvelopeError("context: 'msg-1' is concluded", code="context_closed", param="context")
    about = read({"id": "t", "kind": "reasoning.thought", "context": "msg-1"}, None, DEFAULTS)

    payload = gateway_messages.error("e-1", NOW, "agent", failed, about).payload

    assert (payload["error"], payload["code"]) == ("invalid_request", "context_closed")
    assert payload["attempted_kind"] == "reasoning/thought"
