"""What concerns an agent in a space: which of the things that are said there it is to answer.

* A chat that is addressed to it. But not an agent's answer to what it said itself: two agents would thank each other
  for ever.
* A chat in the main conversation, to everybody, from somebody who is no agent, unless it answers what somebody else
  said.

An agent is whoever was heard reasoning, or answering a request, which people do not. `answers` says otherwise: the ids
of those who are answered, whoever else is there; or a function, which decides alone about all chats of others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection

from ...envelopes import kinds
from ...envelopes.envelope import Envelope

REMEMBERED = 10_000
"""So many ids of one's own envelopes are known again."""


class Concerns:
    def __init__(self, answers: Callable[[Envelope], bool] | Collection[str] | None = None) -> None:
        self._decides = answers if callable(answers) else None
        self._people = frozenset(answers) if answers is not None and not callable(answers) else None
        self._agents: set[str] = set()
        self._mine: OrderedDict[str, None] = OrderedDict()
        self._asked: OrderedDict[str, str] = OrderedDict()
        """Questions, and who asked."""

    def hear(self, envelope: Envelope, me: str) -> bool:
        """Whether it is to be answered. Is to be given every envelope, in order."""
        if envelope.sender == me:
            _remember(self._mine, envelope.id, None)
            return False
        if envelope.family == "reasoning" or envelope.kind == kinds.RESPONSE:
            self._agents.add(envelope.sender)
            return False
        if envelope.replayed or envelope.kind != kinds.CHAT or not self._is_for(envelope, me):
            return False
        _remember(self._asked, envelope.id, envelope.sender)
        return True

    def may_cancel(self, envelope: Envelope, question: str) -> bool:
        """Whoever asked may take it back."""
        return self._asked.get(question) == envelope.sender

    def _is_for(self, envelope: Envelope, me: str) -> bool:
        if self._decides is not None:
            return self._decides(envelope)
        to_mine = any(id in self._mine for id in envelope.correlation_id)
        if self._people is not None and envelope.sender not in self._people:
            return False
        is_agent = self._people is None and envelope.sender in self._agents
        if me in envelope.to:
            return not (is_agent and to_mine)
        if envelope.to or envelope.context is not None or is_agent:
            return False
        return to_mine or not envelope.correlation_id


def _remember(table: OrderedDict[str, str] | OrderedDict[str, None], id: str, value: str | None) -> None:
    table[id] = value  # type: ignore[assignment]
    if len(table) > REMEMBERED:
        table.popitem(last=False)
