"""The strict upstreams, started once per module, and one event loop for clients and server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pellucid.upstream import UpstreamClient
from tests.conversations.conversation_kit import Conversation, Story, StoryRunner
from tests.conversations.strict import StrictServer


@pytest.fixture(scope="module")
def run_story() -> Iterator[StoryRunner]:
    """A function that runs a story (a coroutine that drives a conversation) and returns the conversation."""
    server, transport = StrictServer(), UpstreamClient()
    with asyncio.Runner() as runner:
        runner.run(server.start())

        def run_story(story: Story) -> Conversation:
            server.reset()
            conversation = Conversation(server, transport)
            runner.run(story(conversation))
            return conversation

        yield run_story
        runner.run(transport.aclose())
        runner.run(server.stop())
