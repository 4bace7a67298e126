"""A Python client that behaves like the chat of `@ai-sdk/react`: its requests and its messages.

The tests of pages run with it and with the package itself, which shows that they agree.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from pellucid.framing import SSEDecoder
from tests.ai_sdk.ai_sdk_kit import message_of
from tests.waiting import LIMIT_SECONDS


class Chat:
    """One chat; `report` returns the same as `chats` of `node/chats.mjs`."""

    def __init__(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], messages: Sequence[dict[str, Any]]
    ) -> None:
        self.messages = deepcopy(list(messages))
        self._url = urlsplit(url)
        self._body = body
        self._headers = headers
        self._ids = count(1)
        self._status = "ready"
        self._sent: list[dict[str, Any]] = []
        self._heads: list[dict[str, Any]] = []
        self._errors: list[str] = []
        self._finishes: list[dict[str, Any]] = []

    def take_turn(self, turn: str | Mapping[str, Any], stopped: Callable[[Any], None]) -> None:
        """Send a text, or perform a turn as `node/chats.mjs` defines it."""
        turn = {"text": turn} if isinstance(turn, str) else turn
        trigger = "submit-message"
        if turn.get("resume"):
            self._request("GET", f"{self._url.path}/c/stream", None).close()
            return
        if turn.get("regenerate"):
            self.messages.pop()
            trigger = "regenerate-message"
        if "text" in turn:
            parts = [{"type": "text", "text": turn["text"]}]
            self.messages.append({"id": f"user-{next(self._ids)}", "role": "user", "parts": parts})
        self._exchange({**self._body, "id": "c", "messages": self.messages, "trigger": trigger}, turn.get("stop"))
        if turn.get("stop"):
            stopped("stopped")

    def report(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "status": self._status,
            "sent": self._sent,
            "heads": self._heads,
            "errors": self._errors,
            "finishes": self._finishes,
        }

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._url.netloc, timeout=LIMIT_SECONDS)
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json", **self._headers})
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.getheaders()}
        self._heads.append({"status": response.status, **named})
        return response

    def _exchange(self, body: dict[str, Any], stop: str | None) -> None:
        """Send the messages and read the answer; with `stop`, until a part of that kind has text."""
        self._sent.append(json.loads(json.dumps(body)))
        with self._request("POST", self._url.path, body) as response:
            if response.status != 200:
                self._fail(response.read().decode())
                return
            goes_on = self.messages[-1] if self.messages[-1]["role"] == "assistant" else None
            chunks: list[dict[str, Any]] = []
            decoder = SSEDecoder(max_bytes=1 << 24)
            while piece := response.read1(65536):
                chunks += [json.loads(event.data) for event in decoder.feed(piece) if event.data != b"[DONE]"]
                if stop and any(chunk["type"] == f"{stop}-delta" for chunk in chunks):
                    break
        message = message_of(chunks, deepcopy(goes_on))
        if goes_on is not None:
            self.messages.pop()
        self.messages.append(message)
        last = next((chunk for chunk in chunks if chunk["type"] == "finish"), {})
        errors = [chunk["errorText"] for chunk in chunks if chunk["type"] == "error"]
        if errors:
            self._fail(errors[0])
        else:
            self._status = "ready"
        is_abort = bool(stop)
        self._finishes.append({"finishReason": last.get("finishReason"), "isAbort": is_abort, "isError": bool(errors)})

    def _fail(self, message: str) -> None:
        self._status = "error"
        self._errors.append(message)


def chats(
    url: str,
    turns: Sequence[Any],
    on_progress: Callable[[Any], None] = print,
    *,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    messages: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the messages of a chat after these turns, and its requests."""
    chat = Chat(url, body or {}, headers or {}, messages)
    for turn in turns:
        chat.take_turn(turn, on_progress)
    return chat.report()
