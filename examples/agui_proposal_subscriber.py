"""A client written only from AG-UI's reasoning proposal, for the dialect `proposal` of any Pellucid server.

    python agui_proposal_subscriber.py http://127.0.0.1:8000/ "Why is the sky blue?" "And at night?"

It prints reasoning as it arrives, and sends it back with the next question: readable or encrypted, as
`ReasoningMessage`s. It needs only Python's standard library.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

Event = dict[str, Any]


class Subscriber:
    """A thread: `feed` takes the events of its runs; `messages` are the messages of the next request."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._reasoning: dict[str, Any] | None = None
        """The open reasoning span."""
        self._chunk: str | None = None
        """Id of the message to which chunks are appended."""

    def ask(self, text: str) -> None:
        self.messages.append({"id": str(uuid.uuid4()), "role": "user", "content": text})

    def feed(self, event: Event) -> None:
        if self._chunk is not None and not event["type"].startswith("REASONING_"):
            self.reasoning_ended(self._chunk)  # a chunked message ends with the next event of another kind
            self._chunk = None
        handle = getattr(self, "on_" + event["type"].lower(), None)
        if handle is not None:  # unknown events are ignored
            handle(event)

    # --- reasoning: start (with the encrypted content, if it is known), messages, end --------------------------------

    def on_reasoning_start(self, event: Event) -> None:
        self._reasoning = self._message(event["messageId"], "reasoning", content=[])
        if "encryptedContent" in event:
            self._reasoning["encryptedContent"] = event["encryptedContent"]

    def on_reasoning_message_start(self, event: Event) -> None:
        assert event["role"] == "assistant"
        self._thought(event["messageId"])["content"].append("")

    def on_reasoning_message_content(self, event: Event) -> None:
        self._thought(event["messageId"])["content"][-1] += event["delta"]
        self.reasoned(event["messageId"], event["delta"])

    def on_reasoning_message_end(self, event: Event) -> None:
        self.reasoning_ended(event["messageId"])

    def on_reasoning_message_chunk(self, event: Event) -> None:
        id = event.get("messageId") or self._chunk
        assert id, "the first chunk must have a messageId"
        if id != self._chunk:
            self.on_reasoning_message_start({"messageId": id, "role": "assistant"})
        self._chunk = id
        if event.get("delta"):
            self.on_reasoning_message_content({"messageId": id, "delta": event["delta"]})
        else:  # an empty chunk ends it
            self._chunk = None
            self.reasoning_ended(id)

    def on_reasoning_end(self, event: Event) -> None:
        self._reasoning = None

    # --- the answer, and tools that the server calls ------------------------------------------------------------------

    def on_text_message_start(self, event: Event) -> None:
        self._message(event["messageId"], "assistant", content="")

    def on_text_message_content(self, event: Event) -> None:
        message = self._message(event["messageId"], "assistant", content="")
        message["content"] += event["delta"]
        self.answered(event["delta"])

    def on_tool_call_start(self, event: Event) -> None:
        function = {"name": event["toolCallName"], "arguments": ""}
        calling = self._message(event.get("parentMessageId") or event["toolCallId"], "assistant")
        calling.setdefault("toolCalls", []).append(
            {"id": event["toolCallId"], "type": "function", "function": function}
        )

    def on_tool_call_args(self, event: Event) -> None:
        for message in self.messages:
            for call in message.get("toolCalls", ()):
                if call["id"] == event["toolCallId"]:
                    call["function"]["arguments"] += event["delta"]

    def on_tool_call_result(self, event: Event) -> None:
        self._message(event["messageId"], "tool", toolCallId=event["toolCallId"], content=event["content"])

    # --- the end ------------------------------------------------------------------------------------------------------

    def on_messages_snapshot(self, event: Event) -> None:
        self.messages = event["messages"]  # the whole thread, with encrypted content

    def on_run_error(self, event: Event) -> None:
        raise RuntimeError(event["message"])

    # --- output; override these methods to show the stream in another way ---------------------------------------------

    def reasoned(self, id: str, delta: str) -> None:
        print(f"\x1b[2m{delta}\x1b[0m", end="", flush=True)

    def reasoning_ended(self, id: str) -> None:
        print()

    def answered(self, delta: str) -> None:
        print(delta, end="", flush=True)

    def _thought(self, id: str) -> dict[str, Any]:
        """Return the message to which this text belongs: that of the open span, or its own if there is no span."""
        return self._reasoning if self._reasoning is not None else self._message(id, "reasoning", content=[])

    def _message(self, id: str, role: str, **fields: Any) -> dict[str, Any]:
        for message in self.messages:
            if message["id"] == id:
                return message
        self.messages.append({"id": id, "role": role, **fields})
        return self.messages[-1]


def run(url: str, subscriber: Subscriber, thread: str) -> None:
    """Run the agent at `url` with the subscriber's messages."""
    body = {"threadId": thread, "runId": str(uuid.uuid4()), "messages": subscriber.messages}
    head = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    request = Request(f"{url}?dialect=proposal", json.dumps(body).encode(), head)
    try:
        with urlopen(request) as response:
            for event in events(response):
                subscriber.feed(event)
    except HTTPError as error:
        sys.exit(f"{url} refused the run: {error.code} {error.read().decode()}")


def events(lines: Any) -> Iterator[Event]:
    """Yield the events of a stream of server-sent events."""
    for line in lines:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} URL QUESTION [QUESTION …]")
    url, *questions = sys.argv[1:]
    subscriber, thread = Subscriber(), str(uuid.uuid4())
    for question in questions:
        subscriber.ask(question)
        run(url, subscriber, thread)
        print()
