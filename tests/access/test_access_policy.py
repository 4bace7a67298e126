"""A policy's rules: what is not allowed is said, and nothing is cut in silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.server.access.errors import AccessError
from pellucid.server.access.policy import Policy, read_policy, visible_models, write_policy
from tests.access.access_kit import principal

MOST = st.none() | st.integers(1, 2**53)
POLICIES = st.builds(
    Policy,
    models=st.none() | st.lists(st.text(max_size=5)),
    view=st.sampled_from(["raw", "summary", "sealed", "hidden"]),
    counts=st.booleans(),
    reasoning_events=st.sampled_from([None, "openai", "openresponses"]),
    store=st.booleans(),
    tools=st.none() | st.lists(st.text(max_size=5)),
    requests_per_minute=MOST,
    streams=MOST,
    max_output_tokens=MOST,
)


@given(POLICIES)
def test_a_policy_comes_back_as_it_was_stored(policy: Policy) -> None:
    assert read_policy(write_policy(policy)) == policy


def test_nothing_said_is_everything_allowed() -> None:
    assert write_policy(Policy()) == b"{}"
    policy = Policy()
    policy.check_model("any")
    policy.check_tool("any")
    assert policy.may_store(None)
    assert policy.output_token_limit(None) is None
    assert policy.output_token_limit(10**9) == 10**9
    assert policy.body_limit(100) == 100


def test_models_and_tools_are_globs_in_their_letters() -> None:
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


@given(MOST, MOST)
def test_an_answer_is_never_longer_than_allowed_and_never_shorter_than_asked(
    most: int | None, asked: int | None
) -> None:
    policy = Policy(max_output_tokens=most)
    if most is not None and asked is not None and asked > most:
        with pytest.raises(AccessError):
            policy.output_token_limit(asked)
    else:
        assert policy.output_token_limit(asked) == (most if asked is None else asked)


def test_who_may_not_have_things_kept_is_told_when_they_ask_for_it() -> None:
    policy = Policy(store=False)
    assert not policy.may_store(None)
    assert not policy.may_store(False)
    with pytest.raises(AccessError, match="store: false"):
        policy.may_store(True)
    assert not Policy().may_store(False)


def test_a_reader_sees_at_most_what_the_policy_says() -> None:
    reader = Policy(view="summary", counts=False).viewer
    assert (reader.view, reader.counts) == ("summary", False)
    assert reader.for_request("hidden").view == "hidden"
    with pytest.raises(RequestError):
        reader.for_request("raw")
