"""Rules of a policy: what it forbids is an error, and nothing is truncated silently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.server.access.errors import AccessError
from pellucid.server.access.policy import Policy, read_policy, visible_models, write_policy
from tests.access.access_kit import principal

LIMITS = st.none() | st.integers(1, 2**53)
POLICIES = st.builds(
    Policy,
    models=st.none() | st.lists(st.text(max_size=5)),
    view=st.sampled_from(["raw", "summary", "sealed", "hidden"]),
    counts=st.booleans(),
    reasoning_events=st.sampled_from([None, "openai", "openresponses", "summary"]),
    store=st.booleans(),
    tools=st.none() | st.lists(st.text(max_size=5)),
    requests_per_minute=LIMITS,
    streams=LIMITS,
    max_output_tokens=LIMITS,
)


@given(POLICIES)
def test_a_policy_survives_serialization(policy: Policy) -> None:
    assert read_policy(write_policy(policy)) == policy


def test_an_empty_policy_allows_everything() -> None:
    assert write_policy(Policy()) == b"{}"
    policy = Policy()
    policy.check_model("any")
    policy.check_tool("any")
    assert policy.may_store(None)
    assert policy.output_token_limit(None) is None
    assert policy.output_token_limit(10**9) == 10**9
    assert policy.body_limit(100) == 100


def test_what_concerns_the_whole_gateway_is_for_operators() -> None:
    Policy(operator=True).check_operator()
    with pytest.raises(AccessError) as caught:
        Policy().check_operator()
    assert (caught.value.info.kind, caught.value.info.code) == ("forbidden", "operator_only")


def test_models_and_tools_are_case_sensitive_globs() -> None:
    policy = Policy(models=["qwen*", "openai:gpt-?"], tools=["search"])
    policy.check_model("qwen3")
    policy.check_model("openai:gpt-5")
    for name in ("Qwen3", "openai:gpt-55", "my-qwen", "", "local"):
        with pytest.raises(AccessError) as caught:
            policy.check_model(name)
        assert (caught.value.info.kind, caught.value.info.param) == ("forbidden", "model")
    with pytest.raises(AccessError, match="search"):
        policy.check_tool("shell")
    assert visible_models(principal(models=["qwen*"]), ["a", "qwen3", "b"]) == ["qwen3"]
    with pytest.raises(AccessError, match="no model at all"):
        Policy(models=[]).check_model("a")


@given(LIMITS, LIMITS)
def test_the_output_limit_is_the_requested_one_or_an_error(max_tokens: int | None, requested: int | None) -> None:
    policy = Policy(max_output_tokens=max_tokens)
    if max_tokens is not None and requested is not None and requested > max_tokens:
        with pytest.raises(AccessError):
            policy.output_token_limit(requested)
    else:
        assert policy.output_token_limit(requested) == (max_tokens if requested is None else requested)


def test_a_request_to_store_is_refused_where_the_policy_forbids_it() -> None:
    policy = Policy(store=False)
    assert not policy.may_store(None)
    assert not policy.may_store(False)
    with pytest.raises(AccessError, match="store: false"):
        policy.may_store(True)
    assert not Policy().may_store(False)


def test_a_viewer_is_limited_by_the_policy() -> None:
    reader = Policy(view="summary", counts=False).viewer
    assert (reader.view, reader.counts) == ("summary", False)
    assert reader.for_request("hidden").view == "hidden"
    with pytest.raises(RequestError):
        reader.for_request("raw")
