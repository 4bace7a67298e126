"""Titles of chats that a model writes when the first answer of a chat ends.

* Until then, and where no model writes, the title is the beginning of the question (`title_of`).
* The model reads the question and the answer, never the reasoning. Its tokens are charged to the key of the question.
* A title that a person has set meanwhile stays.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from ...background_tasks import start_task
from ...events import PartEndEvent, RunEndEvent
from ...parts import TextPart
from ...protocols.chat.markdown import without_marks
from ...runs import Batch, Stage
from ...runs.model_text import write_text
from ...storage import StoredChat
from ..access.policy import Principal
from ..factories import find_title_writer
from ..feed import ConversationChanged
from ..services import Services
from .conversations import AUTO_TITLE_CHARACTERS, is_visible, single_line, title_of

INSTRUCTIONS = (
    "You are shown the beginning of a chat. Write a title for it: two to six words that say what it is about, in the "
    "language of the question, without quotation marks and without a full stop. Do not answer the question. Reply with "
    "the title alone."
)

MAX_READ_CHARACTERS = 1_000
"""Maximum number of characters that are read of the question, and of the answer."""

MAX_TOKENS = 60

TIMEOUT_SECONDS = 30.0

_LABEL = re.compile(r"^\W*title[*_ ]*:", re.IGNORECASE)
_MARKS = " \t\"'`*#_“”„«»‘’「」『』"


def title_stages(
    services: Services, principal: Principal, chat: StoredChat, question: str, model_name: str
) -> list[Stage]:
    """Return the stages of the first turn of a chat by which it gets a title from a model; none if no model writes.

    Args:
        services: The gateway's services.
        principal: The caller, who pays.
        chat: The new chat.
        question: The text of its first question.
        model_name: The public name of the model that answers.
    """
    writer = find_title_writer(services.config, services.catalog, model_name)
    if writer is None:
        return []
    name, model = writer

    async def write(answer: str) -> None:
        text = f"Question:\n{question[:MAX_READ_CHARACTERS]}\n\nAnswer:\n{answer[:MAX_READ_CHARACTERS]}"
        charge = services.charge_for(principal, name)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                written = await write_text(
                    model, INSTRUCTIONS, text, max_tokens=MAX_TOKENS, purpose="a title", on_usage=charge
                )
        except TimeoutError:
            return
        if (title := clean_title(written or "")) is None:
            return
        changed = await services.store.chats.update(chat.owner, chat.id, title=title, expected_title=chat.title)
        if changed is not None and changed.title == title:
            services.feed.publish(chat.owner, ConversationChanged(conversation_id=chat.id))

    def start(answer: str) -> None:
        if not services.is_closing:
            start_task(write(answer), "the title of a chat could not be stored")

    return [_TitleStage(start)]


def clean_title(text: str) -> str | None:
    """Return the title in what a model wrote, or None: its first line, without a label, Markdown and a full stop."""
    line = next((line for line in text.splitlines() if is_visible(line)), "")
    title = without_marks(single_line(_LABEL.sub("", line))).strip(_MARKS).removesuffix(".").rstrip(_MARKS)
    if not is_visible(title):
        return None
    return title if len(title) <= AUTO_TITLE_CHARACTERS else title_of(title)


class _TitleStage(Stage):
    """Stage that calls a function with the text of the answer when a run has completed."""

    wants_deltas = False

    def __init__(self, on_completed: Callable[[str], None]) -> None:
        self._on_completed = on_completed
        self._answer = ""

    def process(self, batch: Batch) -> Batch:
        for event in batch.events:
            if type(event) is PartEndEvent and isinstance(event.part, TextPart):
                if len(self._answer) < MAX_READ_CHARACTERS:
                    self._answer += event.part.content
            elif type(event) is RunEndEvent and event.status == "completed":
                self._on_completed(self._answer)
        return batch
