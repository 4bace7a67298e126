"""Every ordered pair of providers shares a conversation, alternately, and no provider refuses a request.

The default set has, for each provider, itself and one provider of every wire (not always the same one); the other pairs
are `long`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

import pytest

from tests.cases import Cases
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
)

each_side = pytest.mark.parametrize("a", SIDES)


def one_of_each_wire(a: str) -> list[str]:
    """The side itself and one side of every wire, selected by the index of `a`, so that every side is selected."""
    by_wire: dict[str, list[str]] = {}
    for side, (kind, _, _) in SIDES.items():
        by_wire.setdefault(kind.wire, []).append(side)
    place = list(SIDES).index(a)
    return list(dict.fromkeys([a, *(sides[place % len(sides)] for sides in by_wire.values())]))


def other_sides(a: str) -> list[str]:
    return [side for side in SIDES if side not in one_of_each_wire(a)]


def test_each_side_is_a_partner_of_another_side() -> None:
    """Also besides itself."""
    assert {b for a in SIDES for b in one_of_each_wire(a) if b != a} == set(SIDES)


# --- alternating providers ---------------------------------------------------------------------------------------


@each_side
def test_providers_alternate_between_turns(run_story: StoryRunner, a: str) -> None:
    """The provider changes between turns, and between a call and its result."""
    alternate(run_story, a, one_of_each_wire(a))


@pytest.mark.needs("long")
@each_side
def test_providers_alternate_between_turns_for_all_other_pairs(run_story: StoryRunner, a: str) -> None:
    alternate(run_story, a, other_sides(a))


def alternate(run_story: StoryRunner, a: str, others: list[str]) -> None:
    async def story(conversation: Conversation, b: str) -> None:
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

    run_with_each(run_story, story, others)


# --- interrupted turns, no thinking, stored history --------------------------------------------------------------


@each_side
def test_interrupted_stored_and_without_thinking(run_story: StoryRunner, a: str) -> None:
    """Turns are cancelled in the middle, thinking is off for some, and the history is JSON in between."""
    interrupt_and_store(run_story, a, one_of_each_wire(a))


@pytest.mark.needs("long")
@each_side
def test_interrupted_stored_and_without_thinking_for_all_other_pairs(run_story: StoryRunner, a: str) -> None:
    interrupt_and_store(run_story, a, other_sides(a))


def interrupt_and_store(run_story: StoryRunner, a: str, others: list[str]) -> None:
    async def story(conversation: Conversation, b: str) -> None:
        conversation.user()
        await conversation.turn(a, CUT_THOUGHT)
        conversation.user()
        await conversation.turn(b, CALL)
        conversation.results()
        conversation.store_and_load()
        await conversation.turn(a, CUT_CALL)
        conversation.user()
        conversation.store_and_load()
        await conversation.turn(b, INTERLEAVED, thinking=False)
        conversation.results()
        await conversation.turn(a, CALL)
        conversation.results()
        conversation.store_and_load()
        await conversation.turn(a, ANSWER, thinking=False)
        conversation.user()
        await conversation.turn(b, CUT_SECOND_CALL)
        conversation.user()
        conversation.store_and_load()
        await conversation.turn(a, CUT_TEXT)
        conversation.user()
        await conversation.turn(b, ANSWER)
        conversation.user()
        await conversation.turn(a, ANSWER)

    run_with_each(run_story, story, others)


class PairStory(Protocol):
    def __call__(self, conversation: Conversation, /, b: str) -> Coroutine[Any, Any, None]: ...


def run_with_each(run_story: StoryRunner, story: PairStory, others: list[str]) -> None:
    """Run one conversation with each of the others."""
    with Cases() as case:
        for b in others:
            with case(b):
                run_story(partial(story, b=b))
