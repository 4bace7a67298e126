"""A client written from the proposal of 2025 alone; strict wherever the proposal has a rule.

Events that the proposal does not define (text, tools, the run) are those of AG-UI at that time and are not checked.
"""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]

FIELDS = {
    "REASONING_START": ({"messageId"}, {"encryptedContent"}),
    "REASONING_MESSAGE_START": ({"messageId", "role"}, set()),
    "REASONING_MESSAGE_CONTENT": ({"messageId", "delta"}, set()),
    "REASONING_MESSAGE_END": ({"messageId"}, set()),
    "REASONING_MESSAGE_CHUNK": (set(), {"messageId", "delta"}),
    "REASONING_END": ({"messageId"}, set()),
}
"""The required and the optional fields of each event, without its type."""
REMOVED = ("THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_CONTENT", "THINKING_TEXT_MESSAGE_END")


class SeedReader:
    """Reader of events. `messages` are those that an application would keep; encrypted blobs are returned unread."""

    def __init__(self, messages: list[Event]) -> None:
        self.messages = list(messages)
        self.spans: list[Event] = []
        """Each REASONING_START, in order."""
        self.reasoning: list[tuple[str, str]] = []
        """The reasoning that was shown, by message."""
        self.text = ""
        self.seen: list[str] = []
        self._spans: set[str] = set()
        self._message: str | None = None
        self._chunked = False

    def feed(self, event: Event) -> None:
        kind = event["type"]
        self.seen.append(kind)
        assert kind not in REMOVED
        if not kind.startswith("REASONING_"):
            if self._chunked:  # closes on the next event that is not of reasoning
                self._message, self._chunked = None, False
            assert self._message is None, f"{kind} while a reasoning message is open"
            self._other(kind, event)
            return
        must, may = FIELDS[kind]
        assert must <= set(event) - {"type"} <= must | may, event
        assert all(isinstance(value, str) for value in event.values())
        id = event.get("messageId", "")
        match kind:
            case "REASONING_START":
                assert id
                assert id not in self._spans
                assert event.get("encryptedContent", "x")
                self._spans.add(id)
                self.spans.append(event)
            case "REASONING_MESSAGE_START":
                assert event["role"] == "assistant"
                assert self._message is None
                self._open(id)
            case "REASONING_MESSAGE_CONTENT":
                assert event["delta"], "a delta is a non-empty string"
                assert id == self._message
                self._say(event["delta"])
            case "REASONING_MESSAGE_END":
                assert id == self._message
                self._message = None
            case "REASONING_MESSAGE_CHUNK":
                self._chunk(event)
            case "REASONING_END":
                self._spans.remove(id)

    def _chunk(self, event: Event) -> None:
        id, delta = event.get("messageId"), event.get("delta", "")
        if self._message is None or (id is not None and id != self._message):
            assert id, "the first chunk must have an id"
            self._open(id)
            self._chunked = True
        if delta:
            self._say(delta)
        else:
            self._message, self._chunked = None, False

    def _open(self, id: str) -> None:
        assert id
        assert id not in self._spans
        assert id not in [known for known, _ in self.reasoning], "ids are of one message each"
        self._message = id
        self.reasoning.append((id, ""))

    def _say(self, delta: str) -> None:
        id, text = self.reasoning[-1]
        self.reasoning[-1] = (id, text + delta)

    def _other(self, kind: str, event: Event) -> None:
        if kind in ("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK"):
            self.text += event.get("delta", "")
        elif kind == "MESSAGES_SNAPSHOT":
            for message in event["messages"]:
                if message["role"] == "reasoning":
                    assert set(message) - {"encryptedContent"} == {"id", "role", "content"}, message
                    assert isinstance(message["content"], list)
                    assert all(isinstance(one, str) for one in message["content"])
            self.messages = event["messages"]
        elif kind in ("RUN_FINISHED", "RUN_ERROR"):
            assert not self._spans, "reasoning that never ends"

    @property
    def blobs(self) -> list[str]:
        """Return the encrypted contents of the spans, in order."""
        return [span["encryptedContent"] for span in self.spans if "encryptedContent" in span]


def read(events: list[Event], messages: list[Event]) -> SeedReader:
    """Read a whole run with a client that began it with these messages."""
    reader = SeedReader(messages)
    for event in events:
        reader.feed(event)
    return reader
