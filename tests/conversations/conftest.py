"""The strict upstreams, once for all conversations; one loop for both ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pellucid.upstream import UpstreamClient
from tests.conversations.conversing import Conversation, Story, Talk
from tests.conversations.strict import StrictServer


@pytest.fixture(scope="module")
def talk() -> Iterator[Talk]:
    """`talk(story)`: a conversation that goes as `story(conversation)` tells."""
    server, transport = StrictServer(), UpstreamClient()
    with asyncio.Runner() as runner:
        runner.run(server.start())

        def talk(story: Story) -> Conversation:
            server.forget()
            conversation = Conversation(server, transport)
            runner.run(story(conversation))
            return conversation

        yield talk
        runner.run(transport.aclose())
        runner.run(server.stop())
