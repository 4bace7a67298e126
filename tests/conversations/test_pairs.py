"""Every ordered pair of providers shares a conversation, turn about, and nobody has anything to object to."""

from __future__ import annotations

import pytest

from tests.conversations.conversing import Conversation, Talk
from tests.conversations.strict import (
    ANSWER,
    CALL,
    CUT_CALL,
    CUT_SECOND_CALL,
    CUT_TEXT,
    CUT_THOUGHT,
    INTERLEAVED,
    SIDES,
)

each_pair = pytest.mark.parametrize(("a", "b"), [(a, b) for a in SIDES for b in SIDES])


@each_pair
def test_turn_about(talk: Talk, a: str, b: str) -> None:
    """The provider changes between turns, and between a call and its result."""

    async def story(conversation: Conversation) -> None:
        conversation.user()
        await conversation.turn(a, CALL)
        conversation.results()
        await conversation.turn(a, ANSWER)
        conversation.user()
        await conversation.turn(b, INTERLEAVED)
        conversation.results()
        await conversation.turn(a, INTERLEAVED)
        conversation.results(failed=True)
        await conversation.turn(b, ANSWER)
        conversation.user()
        await conversation.turn(a, ANSWER)

    talk(story)


@each_pair
def test_cut_off_switched_off_and_stored(talk: Talk, a: str, b: str) -> None:
    """Turns are cancelled in the middle, thinking is off for some, and the history is JSON in between."""

    async def story(conversation: Conversation) -> None:
        conversation.user()
        await conversation.turn(a, CUT_THOUGHT)
        conversation.user()
        await conversation.turn(b, CALL)
        conversation.results()
        conversation.through_json()
        await conversation.turn(a, CUT_CALL)
        conversation.user()
        conversation.through_json()
        await conversation.turn(b, INTERLEAVED, thinking=False)
        conversation.results()
        await conversation.turn(a, CALL)
        conversation.results()
        conversation.through_json()
        await conversation.turn(a, ANSWER, thinking=False)
        conversation.user()
        await conversation.turn(b, CUT_SECOND_CALL)
        conversation.user()
        conversation.through_json()
        await conversation.turn(a, CUT_TEXT)
        conversation.user()
        await conversation.turn(b, ANSWER)
        conversation.user()
        await conversation.turn(a, ANSWER)

    talk(story)
