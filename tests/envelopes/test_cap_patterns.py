"""What a capability allows: a table of the pattern language."""

from __future__ import annotations

from typing import Any

import pytest

from pellucid.envelopes import Envelope
from pellucid.envelopes.capability import HeldCapability, decide, read_capabilities, read_capability
from pellucid.envelopes.regex import StepBudget
from pellucid.errors import RequestError
from tests.cases import Cases


def make_envelope(
    kind: str, payload: dict[str, Any] | None = None, to: tuple[str, ...] = (), sender: str = "a"
) -> Envelope:
    return Envelope(id="e", ts=0, sender=sender, kind=kind, payload=payload or {}, to=to)


def is_allowed(capability: Any, envelope: Envelope) -> bool:
    return read_capability(capability).allows(envelope, StepBudget(100_000))


def call(name: Any = "read_file", **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": name, "arguments": arguments}}


KINDS: list[tuple[Any, str, bool]] = [
    # exact
    ("mcp/request", "mcp/request", True),
    ("mcp/request", "mcp/response", False),
    ("chat", "chat/cancel", False),
    # dots are slashes
    ("mcp.request", "mcp/request", True),
    ("mcp.*", "mcp/request", True),
    ("reasoning.*", "reasoning/start", True),
    # `*` does not cross a slash, but alone it is every kind
    ("mcp/*", "mcp/request", True),
    ("mcp/*", "mcp/request/deep", False),
    ("mcp/**", "mcp/request/deep", True),
    ("mcp/*", "mcp", False),
    ("*", "chat", True),
    ("*", "reasoning/start", True),
    ("**", "reasoning/start", True),
    ("*/request", "mcp/request", True),
    ("chat*", "chat/cancel", False),
    ("cha?", "chat", True),
    ("cha?", "cha", False),
    # negation
    ("!chat", "mcp/request", True),
    ("!chat", "chat", False),
    ("!mcp/*", "chat", True),
    ("!mcp/*", "mcp/request", False),
    ("!mcp.*", "mcp/request", False),
    ("!*", "chat", False),
    ("!!chat", "chat", True),
    ("!reasoning/step", "reasoning/thought", False),
    ("!reasoning/step", "reasoning/start", True),
    # alternatives
    (["mcp/request", "mcp/proposal"], "mcp/proposal", True),
    (["mcp.request", "mcp.proposal"], "mcp/response", False),
    (["chat", "*"], "mcp/response", True),
    # regular expressions: match anywhere, unless anchored
    ("/^mcp\\/(request|proposal)$/", "mcp/request", True),
    ("/^mcp\\/(request|proposal)$/", "mcp/response", False),
    ("/^mcp\\.request$/", "mcp/request", True),
    ("/request/", "mcp/request", True),
    ("!/^mcp/", "mcp/request", False),
    ("!/^mcp/", "chat", True),
    # steps of reasoning
    *(("reasoning/step", f"reasoning/{kind}", True) for kind in ("thought", "question", "observation", "hypothesis")),
    *(("reasoning.step", f"reasoning/{kind}", False) for kind in ("start", "conclusion", "cancel")),
    *(("reasoning/*", f"reasoning/{kind}", True) for kind in ("start", "thought", "conclusion", "cancel")),
    ("reasoning/start", "reasoning/start", True),
    ("reasoning/start", "reasoning/thought", False),
]


def test_patterns_of_kinds() -> None:
    with Cases() as case:
        for pattern, kind, expected in KINDS:
            with case(f"{pattern} allows {kind}"):
                assert is_allowed({"kind": pattern}, make_envelope(kind)) is expected


SELECT = "/^SELECT .* FROM public\\..*$/"
DEEP = {"method": "tools/call", "params": {"nested": {"deeply": [{"value": "sensitive_data"}]}}}
LIST = {"params": [{"name": "file_read", "path": "/tmp/a"}, {"name": "other"}]}

PAYLOADS: list[tuple[Any, dict[str, Any], bool]] = [
    # nested: every key of the pattern must match
    ({"method": "tools/call"}, call(), True),
    ({"method": "tools/call", "params": {"name": "read_file"}}, call(), True),
    ({"method": "tools/call", "params": {"name": "write_file"}}, call(), False),
    ({"method": "tools/list", "params": {"name": "read_file"}}, call(), False),
    ({}, call(), True),
    ({"params": {}}, call(), True),
    ({"method": {}}, call(), False),
    # globs in values
    ({"method": "tools/*"}, call(), True),
    ({"method": "*"}, call(), False),
    ({"method": "**"}, call(), True),
    ({"params": {"name": "read_*"}}, call(), True),
    ({"params": {"name": "read_?ile"}}, call(), True),
    ({"params": {"uri": "/public/**"}}, {"params": {"uri": "/public/docs/readme.md"}}, True),
    ({"params": {"uri": "/public/*"}}, {"params": {"uri": "/public/docs/readme.md"}}, False),
    ({"params": {"uri": "/public/**"}}, {"params": {"uri": "/private/secrets.txt"}}, False),
    ({"params": {"uri": "/public/**"}}, {"params": {"uri": "/public/../private/secrets.txt"}}, False),
    ({"params": {"uri": "/public/**"}}, {"params": {"uri": "/public/.env"}}, False),
    # negation
    ({"params": {"name": "!delete_*"}}, call("read_file"), True),
    ({"params": {"name": "!delete_*"}}, call("delete_file"), False),
    ({"method": "!tools/call"}, {"method": "resources/list"}, True),
    ({"method": "!tools/call"}, call(), False),
    ({"params": {"uri": "!/private/**"}}, {"params": {"uri": "/private/.hidden"}}, False),
    ({"params": {"uri": "!/private/**"}}, {"params": {"uri": "/private/../private/x"}}, False),
    # regular expressions
    ({"params": {"arguments": {"query": SELECT}}}, call(query="SELECT id, name FROM public.users"), True),
    ({"params": {"arguments": {"query": SELECT}}}, call(query="DELETE FROM users"), False),
    # alternatives
    ({"method": ["tools/call", "tools/list"], "params": {"name": ["read_file", "list_files"]}}, call(), True),
    ({"params": {"name": ["write_*", "list_files"]}}, call(), False),
    ({"params": {"name": []}}, call(), False),
    # a missing key fails, also for a negated pattern
    ({"params": {"who": "x"}}, call(), False),
    ({"params": {"who": "!x"}}, call(), False),
    ({"params": {"who": "**"}}, call(), False),
    ({"who": {}}, {}, False),
    # globs in keys
    ({"par*": {"na?e": "read_*"}}, call(), True),
    ({"*": "tools/call"}, call(), True),
    ({"m*": "nothing"}, call(), False),
    # at any depth
    ({"**": "sensitive_data"}, DEEP, True),
    ({"**": "sensitive_*"}, DEEP, True),
    ({"**": "other"}, DEEP, False),
    ({"**": {"value": "sensitive_data"}}, DEEP, True),
    ({"params": {"**": "tools/call"}}, DEEP, False),
    # JSONPath
    ({"$.params.name": "read_*"}, call(), True),
    ({"$.params.name": "!read_*"}, call(), False),
    ({"$.params[*].name": "file_*"}, LIST, True),
    ({"$.params[*].name": "nothing"}, LIST, False),
    ({"$.params[0].path": "/tmp/*"}, LIST, True),
    ({"$.params[-1].name": "other"}, LIST, True),
    ({"$.params[7].name": "**"}, LIST, False),
    ({"$..value": "sensitive_data"}, DEEP, True),
    ({"$..*": "sensitive_data"}, DEEP, True),
    ({"$['params']['name']": "read_file"}, call(), True),
    ({"$.missing": "!x"}, call(), False),
    ({"$": {"method": "tools/call"}}, call(), True),
    # values that are no text
    ({"n": 1}, {"n": 1}, True),
    ({"n": 1}, {"n": 1.0}, True),
    ({"n": 1}, {"n": True}, False),
    ({"n": True}, {"n": 1}, False),
    ({"n": False}, {"n": False}, True),
    ({"n": None}, {"n": None}, True),
    ({"n": None}, {"n": 0}, False),
    ({"n": "1"}, {"n": 1}, False),
    ({"n": "**"}, {"n": 1}, False),
    ({"n": "!x"}, {"n": 1}, False),
    ({"n": [1, 2]}, {"n": 2}, True),
    ({"n": "x"}, {"n": ["x"]}, False),
    # `/` is a path, not an empty expression
    ({"uri": "/"}, {"uri": "/etc/passwd"}, False),
    ({"uri": "//"}, {"uri": "/etc/passwd"}, False),
    # a pattern does not match its own source
    ({"name": "!*_x"}, {"name": "!*_x"}, False),
]


def test_patterns_of_payloads() -> None:
    with Cases() as case:
        for pattern, payload, expected in PAYLOADS:
            with case(f"{pattern} allows {payload}"):
                assert (
                    is_allowed({"kind": "mcp/request", "payload": pattern}, make_envelope("mcp/request", payload))
                    is expected
                )


@pytest.mark.parametrize(
    ("to", "targets", "expected"),
    [
        ("bob", ("bob",), True),
        ("bob", ("bob", "eve"), False),
        ("bob", (), False),
        (["bob", "b*"], ("bob", "ben"), True),
        ("*", ("team/bob",), True),
        ("*", (), False),
    ],
)
def test_with_to_every_target_must_be_allowed(to: Any, targets: tuple[str, ...], expected: bool) -> None:
    assert is_allowed({"kind": "chat", "to": to}, make_envelope("chat", to=targets)) is expected


def hold(*written: Any) -> list[HeldCapability]:
    return [HeldCapability(one, "door") for one in read_capabilities(written)]


def test_the_first_match_decides_and_is_named() -> None:
    holdings = hold("chat", {"kind": "mcp/request", "payload": {"method": "tools/*"}}, {"id": "all", "kind": "mcp/*"})
    decision = decide(holdings, make_envelope("mcp/request", call()))
    assert (decision.allowed, decision.by, decision.source) == (
        True,
        {"kind": "mcp/request", "payload": {"method": "tools/*"}},
        "door",
    )
    assert decide(holdings, make_envelope("mcp/response")).by == {"id": "all", "kind": "mcp/*"}


def test_no_match_denies() -> None:
    assert decide(hold("chat"), make_envelope("reasoning/start")).why == "no_match"
    assert decide([], make_envelope("chat")).allowed is False


def test_system_kinds_are_reserved_for_the_gateway() -> None:
    assert decide(hold("*", "system/*"), make_envelope("system/presence")).why == "reserved"
    assert decide([], make_envelope("system/presence", sender="system:gateway")).allowed


WRONG: list[tuple[Any, str, str]] = [
    ({}, "capability", "kind is missing"),
    (7, "capability", "not int"),
    ({"kind": ""}, "capability.kind", "empty"),
    ({"kind": "!"}, "capability.kind", "empty"),
    ({"kind": []}, "capability.kind", "list"),
    ({"kind": ["chat", 1]}, "capability.kind[1]", "not int"),
    ({"kind": "chat", "payload": None}, "capability.payload", "left out"),
    ({"kind": "chat", "payload": "x"}, "capability.payload", "object"),
    ({"kind": "chat", "paylod": {}}, "capability.paylod", "payload"),
    ({"kind": "chat", "from": "x"}, "capability.from", "no such key"),
    ({"kind": "chat", "payload": {"a": {"b": "/(/"}}}, "capability.payload.a.b", "missing )"),
    ({"kind": "chat", "payload": {"a": "/(?=x)/"}}, "capability.payload.a", "invalid perl operator"),
    ({"kind": "chat", "payload": {"a": "/(.)\\1/"}}, "capability.payload.a", "invalid escape sequence"),
    ({"kind": "chat", "payload": {"a": "/x{1000}{1000}/"}}, "capability.payload.a", "repetition"),
    ({"kind": "chat", "payload": {"a": "/(x{1000}){1000}/"}}, "capability.payload.a", "repetition"),
    ({"kind": "chat", "payload": {"a": "/(x{100}){10}y{10}/"}}, "capability.payload.a", "too large"),
    ({"kind": "chat", "payload": {"a": "{b,c}*"}}, "capability.payload.a", "a list"),
    ({"kind": "chat", "payload": {"a": "![bc]"}}, "capability.payload.a", "a list"),
    ({"kind": "chat", "payload": {"$.a[?(@.b)]": "c"}}, "capability.payload.$.a[?(@.b)]", "is not a step"),
    ({"kind": "chat", "payload": {"$ref": "c"}}, "capability.payload.$ref", "is not a step"),
    ({"kind": "chat", "payload": {"a": "x" * 3000}}, "capability.payload.a", "2000"),
    ({"kind": "chat", "payload": {"a": list(range(300))}}, "capability.payload.a[198]", "at most"),
]


def test_an_error_names_its_location() -> None:
    with Cases() as case:
        for written, param, part in WRONG:
            with case(f"{written!r:.80}"):
                with pytest.raises(RequestError) as caught:
                    read_capability(written)
                assert caught.value.info.param == param
                assert part in caught.value.info.message
                assert caught.value.info.message.startswith(f"{param}: ")


def test_values_too_deep_are_refused() -> None:
    pattern: Any = "x"
    for _ in range(1000):
        pattern = {"a": pattern}
    with pytest.raises(RequestError, match="at most 16 deep"):
        read_capability({"kind": "chat", "payload": pattern})
