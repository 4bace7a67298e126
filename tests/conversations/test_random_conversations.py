"""Random conversations: any upstreams, acts, interruptions and storage of the history."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.conversations.conversation_kit import Conversation, StoryRunner
from tests.conversations.strict import (
    ANSWER,
    CALL,
    CUT_CALL,
    CUT_SECOND_CALL,
    CUT_TEXT,
    CUT_THOUGHT,
    INTERLEAVED,
    SIDES,
    Act,
)


class Step(NamedTuple):
    """What happens to pending calls, and then the next turn."""

    calls: str
    stored: bool
    side: str
    act: Act
    thinking: bool


WHOLE = (
    ANSWER,
    CALL,
    INTERLEAVED,
    Act(("text", "think", "call")),
    Act(("think", "text", "call")),
    Act(("call", "call")),
)
CUT = (CUT_THOUGHT, CUT_CALL, CUT_SECOND_CALL, CUT_TEXT)

steps = st.builds(
    Step,
    calls=st.sampled_from(["answered", "answered", "failed", "some", "ignored"]),
    stored=st.booleans(),
    side=st.sampled_from(list(SIDES)),
    act=st.sampled_from(WHOLE) | st.sampled_from(CUT),
    thinking=st.booleans(),
)


@given(st.lists(steps, min_size=2, max_size=9))
def test_any_random_conversation_is_accepted(run_story: StoryRunner, walk: list[Step]) -> None:
    async def story(conversation: Conversation) -> None:
        for step in walk:
            if not conversation.pending_calls or step.calls == "ignored":
                conversation.user()
            elif step.calls == "some":
                conversation.results(some=1)
            else:
                conversation.results(failed=step.calls == "failed")
            if step.stored:
                conversation.store_and_load()
            thinking = step.thinking or step.act == CUT_THOUGHT
            await conversation.turn(step.side, step.act, thinking=thinking)

    run_story(story)
