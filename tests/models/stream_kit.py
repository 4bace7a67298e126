"""An upstream response whose reads are pushed by the test, and a model that returns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pellucid.errors import ErrorInfo
from pellucid.models import HTTPModelStream, ModelStream
from pellucid.parts import Origin
from pellucid.providers.profile import Profile
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall
from pellucid.upstream import Limits


class PushedResponse:
    """Replaces an `UpstreamResponse`."""

    def __init__(self, **limits: int) -> None:
        self.headers = {"x-request-id": "req_1"}
        self.limits = Limits(**limits)
        self.body_bytes = 0
        self.text_reads = 0
        """How many reads were given to the text path."""
        self.is_closed = False
        self.flow: list[str] = []
        """Each time that reading was paused or resumed."""
        self._receiver: Any = None
        self._deliver: Callable[[bytes], None] | None = None

    def start(self, receiver: Any) -> None:
        self._receiver, self._deliver = receiver, receiver.data_received

    def redirect(self, deliver: Callable[[bytes], None]) -> bool:
        if self._deliver is not None:
            self._deliver = deliver
        return True

    def read(self, data: bytes) -> None:
        if self._deliver is not None:
            self.body_bytes += len(data)
            self.text_reads += self._deliver != self._receiver.data_received
            self._deliver(data)

    def end(self, error: ErrorInfo | None = None) -> None:
        if self._deliver is not None:
            self._deliver = None
            self._receiver.body_ended(error)

    def close(self) -> None:
        self.is_closed = True
        self._deliver = None

    finish = close

    def pause_reading(self) -> None:
        self.flow.append("pause")

    def resume_reading(self) -> None:
        self.flow.append("resume")


def stream_of(row: Profile, response: PushedResponse) -> HTTPModelStream:
    """Return the model stream that decodes `response`."""
    decoder = WIRES[row.wire].decoder(row, Origin(row.name, row.wire, "m"))
    return HTTPModelStream(cast("Any", response), decoder)


class SingleResponseModel:
    """A model that returns `response`."""

    name = "m"

    def __init__(self, row: Profile, response: PushedResponse) -> None:
        self.origin = Origin(row.name, row.wire, "m")
        self._stream = stream_of(row, response)

    async def open(self, call: ModelCall) -> ModelStream:
        return self._stream

    def warnings(self, call: ModelCall) -> list[str]:
        return []
