"""Streams: data that participants send outside of the order of a space, in frames that are no envelopes (MEW's).

    error = streams.check(envelope, membership)           # a `stream/*` of a participant: why it is refused
    streams.apply(envelope, time_ms)                  # every accepted envelope, in order
    envelopes = streams.follow_ups(envelope, membership)  # what the gateway sends because of it

The rules:

1. The gateway answers a `stream/request` with a `stream/open`, which has the id of the stream and the fields of the
   request. Only who is connected may open streams, and a limited number of them.
2. The readers are the recipients of the `stream/open`: the owner and the `target` of the request, or its recipients, or
   the audience of its context; everyone if it has none of these. Who does not read a stream does not learn that it
   exists.
3. The owner writes, closes, lets others write (`stream/grant-write`, `revoke-write`) and hands the stream over
   (`transfer-ownership`). Of a stream in a context, targets, writers and owners are in its audience. The gateway
   announces each change. Other envelopes of these kinds are refused.
4. The gateway closes a stream whose owner leaves, is removed, or may not request it any more. Writers who leave are
   not writers any more.
5. A `stream/close` of a stream that the gateway did not open, and `stream/open` and announcements of participants, are
   passed on and change nothing.

The state is the fold of the log, like all of a space; the data is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..errors import ErrorInfo
from ..unicode import truncate
from . import kinds
from .envelope import GATEWAY, Envelope, EnvelopeError, Sees, is_id, refuse, sees_as
from .translate import time_text
from .visibility import SpaceViewer

MAX_DETAILS_BYTES = 4096
"""Maximum size of the payload of a request: every welcome has those of all streams."""
MAX_TARGETS = 256
MAX_STREAM_ID = 255

_STRUCTURE = ("stream_id", "owner", "authorized_writers", "target", "created")


class StreamError(EnvelopeError):
    """A refused frame of a stream."""

    def __init__(self, message: str, code: str, stream_id: str, kind: Any = "not_found") -> None:
        super().__init__(message, kind=kind, code=code)
        self.stream_id = stream_id


class Stream(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An open stream."""

    id: str
    owner: str
    writers: tuple[str, ...]
    created: int
    """Milliseconds since 1970."""
    opening: tuple[str, ...]
    """Ids of the request and of the `stream/open`."""
    readers: tuple[str, ...] = ()
    """Empty: everyone."""
    context: str | None = None
    requested_to: tuple[str, ...] = ()
    """The recipients of the request."""
    details: dict[str, Any] = {}
    """The fields of the request."""

    @property
    def audience(self) -> tuple[str, ...]:
        """Who learns of it and of its changes: its readers and its writers. Empty: everyone."""
        return tuple(dict.fromkeys((*self.readers, *self.writers))) if self.readers else ()

    def is_read_by(self, viewer: SpaceViewer) -> bool:
        """Check whether a viewer receives the data. It may be reasoning, so it needs the full view and that right."""
        if viewer.view != "full" or not viewer.reasoning:
            return False
        return viewer.observes or sees_as(viewer.participant)(self.audience)

    def describe(self) -> dict[str, Any]:
        """Return the stream as a welcome lists it."""
        return {
            **self.details,
            "stream_id": self.id,
            "owner": self.owner,
            "authorized_writers": list(self.writers),
            "direction": self.details.get("direction", "unknown"),
            "created": time_text(self.created),
        }


class Membership(NamedTuple):
    """What streams need to know of the participants of a space."""

    is_member: Callable[[str], bool]
    is_present: Callable[[str], bool]
    may_send: Callable[[Envelope], bool]
    audience_of: Callable[[str], tuple[str, ...] | None]
    """The audience of a context, which is empty if it is for everyone. None: the context is not remembered."""
    max_streams: int


class PendingRequest(NamedTuple):
    """A `stream/request` that is not answered."""

    id: str
    recipients: tuple[str, ...]


class Streams:
    """The open streams of a space, by id."""

    def __init__(
        self, state: Mapping[str, Stream] | None = None, pending_request: PendingRequest | None = None
    ) -> None:
        self.state: dict[str, Stream] = dict(state or {})
        self.pending_request = pending_request
        """The newest request, until its `stream/open`, which is the next envelope."""

    def writable(self, stream_id: str, participant: str, sees: Sees | None = None) -> Stream:
        """Return the stream of a frame.

        Args:
            stream_id: The id of the stream.
            participant: The sender of the frame.
            sees: What it may read. None: what is for it and for everyone.

        Raises:
            StreamError: If there is no such stream, or the participant may not write to it.
        """
        stream = self.state.get(stream_id)
        if stream is None or not (sees or sees_as(participant))(stream.audience):
            raise StreamError(
                "the frame belongs to no open stream of this space; open one with stream/request, on a socket",
                "stream_not_found",
                truncate(stream_id),
            )
        if participant not in stream.writers:
            raise StreamError(
                f"you are not authorized to write to {stream_id}; ask {stream.owner!r} for a stream/grant-write",
                "unauthorized_stream_write",
                stream_id,
                kind="forbidden",
            )
        return stream

    def check(self, envelope: Envelope, membership: Membership, sees: Sees | None = None) -> ErrorInfo | None:
        """Return why a `stream/*` of a participant is refused, or None.

        Args:
            envelope: The envelope.
            membership: The participants.
            sees: What its sender may read. None: what is for it and for everyone.
        """
        sender, payload, sees = envelope.sender, envelope.payload, sees or sees_as(envelope.sender)
        if sender == GATEWAY or envelope.family != "stream":
            return None
        if envelope.kind == kinds.STREAM_REQUEST:
            return self._request_error(envelope, membership, sees)
        if envelope.kind not in (kinds.STREAM_CLOSE, *_CONTROLS):
            return None
        stream = self.named(envelope)
        if stream is None or not sees(stream.audience):
            if envelope.kind == kinds.STREAM_CLOSE:
                return None
            return refuse("stream_not_found", "payload.stream_id: no such stream is open", param="payload.stream_id")
        if sender != stream.owner:
            return refuse(
                "unauthorized", f"stream {stream.id} is {stream.owner!r}'s", param="payload", kind="forbidden"
            )
        if envelope.kind == kinds.STREAM_CLOSE:
            return None
        field = _CONTROLS[envelope.kind]
        name = payload.get(field)
        if envelope.kind == kinds.STREAM_REVOKE_WRITE:
            if name == stream.owner:
                return refuse("invalid_operation", "the owner of a stream always writes", param=f"payload.{field}")
            return None
        if not isinstance(name, str) or not membership.is_member(name):
            return refuse("participant_not_found", f"payload.{field}: not in this space", param=f"payload.{field}")
        if not self._may_join(stream, name, membership):
            return _not_in_audience(name, f"payload.{field}")
        if envelope.kind == kinds.STREAM_TRANSFER:
            if self._is_full(name, membership):
                return _too_many(name, membership.max_streams)
            if not membership.is_present(name) or not membership.may_send(_request_of(stream, name)):
                return refuse(
                    "invalid_operation",
                    f"payload.{field}: {name!r} is not connected, or may not open such a stream",
                    param=f"payload.{field}",
                )
        return None

    def _request_error(self, envelope: Envelope, membership: Membership, sees: Sees) -> ErrorInfo | None:
        if not membership.is_present(envelope.sender):
            return refuse("invalid_operation", "a stream needs a connection: join with a socket first", param="kind")
        if self._is_full(envelope.sender, membership):
            return _too_many(envelope.sender, membership.max_streams)
        if len(msgspec.json.encode(envelope.payload)) > MAX_DETAILS_BYTES:
            return refuse("too_large", f"payload: at most {MAX_DETAILS_BYTES} bytes of JSON", param="payload")
        target = envelope.payload.get("target")
        if target is None:
            return None
        if not isinstance(target, list) or not 0 < len(target) <= MAX_TARGETS or not all(map(is_id, target)):
            return refuse("invalid_value", "payload.target: a list of participants", param="payload.target")
        if unknown := [one for one in target if not membership.is_member(one)]:
            return refuse(
                "participant_not_found", f"payload.target: {truncate(unknown[0])!r} is not here", param="payload.target"
            )
        # A context whose audience its sender may not know is refused as an unknown one, by its life cycle.
        audience = membership.audience_of(envelope.context) if envelope.context is not None else None
        if audience and sees(audience) and (outside := [one for one in target if one not in audience]):
            return _not_in_audience(outside[0], "payload.target")
        return None

    def _may_join(self, stream: Stream, participant: str, membership: Membership) -> bool:
        """Check whether a participant is in the audience of the context of a stream, if that has one."""
        if stream.context is None:
            return True
        audience = membership.audience_of(stream.context)
        return sees_as(participant)(stream.audience if audience is None else audience)

    def _is_full(self, participant: str, membership: Membership) -> bool:
        return sum(one.owner == participant for one in self.state.values()) >= membership.max_streams

    def named(self, envelope: Envelope) -> Stream | None:
        """Return the stream that an envelope names by its id, or by a correlation to its request or opening."""
        stream_id = envelope.payload.get("stream_id")
        if isinstance(stream_id, str):
            return self.state.get(stream_id)
        ids = set(envelope.correlation_id)
        return next((one for one in self.state.values() if ids.intersection(one.opening)), None)

    def apply(self, envelope: Envelope, time_ms: int) -> None:
        """Apply an accepted envelope."""
        if envelope.family != "stream":
            return
        if envelope.kind == kinds.STREAM_REQUEST:
            self.pending_request = PendingRequest(envelope.id, envelope.to)
        elif envelope.kind == kinds.STREAM_CLOSE:
            stream = self.named(envelope)
            if stream is not None and envelope.sender in (GATEWAY, stream.owner):
                del self.state[stream.id]
        elif envelope.sender == GATEWAY:
            self._apply_announcement(envelope, time_ms)

    def _apply_announcement(self, envelope: Envelope, time_ms: int) -> None:
        payload = envelope.payload
        stream_id, owner, writers = (payload.get(name) for name in _STRUCTURE[:3])
        if not (isinstance(stream_id, str) and isinstance(owner, str) and isinstance(writers, list | tuple)):
            return
        known = self.state.get(stream_id)
        if envelope.kind == kinds.STREAM_OPEN:
            request, self.pending_request = self.pending_request, None
            self.state[stream_id] = Stream(
                id=stream_id,
                owner=owner,
                writers=tuple(writers),
                created=time_ms,
                opening=(*envelope.correlation_id, envelope.id),
                readers=envelope.recipients,
                context=envelope.context,
                requested_to=request.recipients
                if request is not None and request.id in envelope.correlation_id
                else (),
                details={name: value for name, value in payload.items() if name not in _STRUCTURE or name == "target"},
            )
        elif known is not None:
            readers = known.readers
            if readers and owner not in readers:
                readers = (*readers, owner)
            self.state[stream_id] = replace(known, owner=owner, writers=tuple(writers), readers=readers)

    def follow_ups(self, envelope: Envelope, membership: Membership, *, rights_changed: bool) -> list[Envelope]:
        """Return the envelopes that the gateway sends after an accepted one. They still need an id and a time.

        Args:
            envelope: The accepted envelope, which has been applied.
            membership: The participants.
            rights_changed: Whether it changed rights of participants.
        """
        if envelope.sender != GATEWAY:
            if envelope.kind == kinds.STREAM_REQUEST:
                return [self._opening(envelope, membership)]
            if envelope.kind in _CONTROLS and (stream := self.named(envelope)) is not None:
                return [_announcement(stream, envelope)]
        left = _who_left(envelope)
        if not self.state or (left is None and not rights_changed):
            return []
        return [*self._end_of(left, membership, rights_changed)]

    def _end_of(self, left: str | None, membership: Membership, rights_changed: bool) -> Iterable[Envelope]:
        for stream in self.state.values():
            owner = stream.owner
            reason = "disconnected" if owner == left else ""
            if rights_changed and not (membership.is_member(owner) and membership.may_send(_request_of(stream, owner))):
                reason = "unauthorized"
            if reason:
                payload = {"stream_id": stream.id, "reason": reason}
                yield _from_gateway(kinds.STREAM_CLOSE, payload, stream.audience, stream.opening)
                continue
            gone = [one for one in stream.writers if one == left or not membership.is_member(one)]
            for number, one in enumerate(gone):
                writers = [other for other in stream.writers if other not in gone[: number + 1]]
                yield _from_gateway(
                    kinds.STREAM_WRITE_REVOKED,
                    _change(stream, stream.owner, writers, participant_id=one),
                    stream.audience,
                )

    def _opening(self, request: Envelope, membership: Membership) -> Envelope:
        payload, owner = request.payload, request.sender
        named = payload.get("target") or [one for one in request.to if membership.is_member(one)]
        stream_id = f"stream-{request.seq}"
        described = {
            **payload,
            "stream_id": stream_id,
            "encoding": "text",
            "owner": owner,
            "authorized_writers": [owner],
        }
        to = tuple(dict.fromkeys((owner, *named))) if named else ()
        opened = _from_gateway(kinds.STREAM_OPEN, described, to, (request.id,))
        return replace(opened, context=request.context)


_CONTROLS = {
    kinds.STREAM_GRANT_WRITE: "participant_id",
    kinds.STREAM_REVOKE_WRITE: "participant_id",
    kinds.STREAM_TRANSFER: "new_owner",
}
"""Kinds by which the owner changes a stream, with the field that names the other participant."""


def _announcement(stream: Stream, control: Envelope) -> Envelope:
    name = control.payload.get(_CONTROLS[control.kind])
    owner, writers, kind = stream.owner, list(stream.writers), kinds.STREAM_WRITE_GRANTED
    more: dict[str, Any] = {"participant_id": name}
    if control.kind == kinds.STREAM_TRANSFER:
        kind, more = kinds.STREAM_TRANSFERRED, {"previous_owner": owner, "new_owner": name}
        writers, owner = [one for one in writers if one != owner], str(name)
    if control.kind == kinds.STREAM_REVOKE_WRITE:
        kind, writers = kinds.STREAM_WRITE_REVOKED, [one for one in writers if one != name]
    elif name not in writers:
        writers.append(str(name))
    to = tuple(dict.fromkeys((*stream.audience, str(name)))) if stream.readers else ()
    return _from_gateway(kind, _change(stream, owner, writers, **more), to, (control.id,))


def _change(stream: Stream, owner: str, writers: list[str], **more: Any) -> dict[str, Any]:
    return {"stream_id": stream.id, "owner": owner, "authorized_writers": writers, **more}


def _from_gateway(
    kind: str, payload: dict[str, Any], to: tuple[str, ...], correlation_id: tuple[str, ...] = ()
) -> Envelope:
    return Envelope(id="", ts=0, sender=GATEWAY, to=to, kind=kind, correlation_id=correlation_id, payload=payload)


def _request_of(stream: Stream, owner: str) -> Envelope:
    """Return the request of a stream, for the question whether a participant may send it."""
    details = {name: value for name, value in stream.details.items() if name != "encoding"}
    return Envelope(id="", ts=0, sender=owner, to=stream.requested_to, kind=kinds.STREAM_REQUEST, payload=details)


def _who_left(envelope: Envelope) -> str | None:
    if envelope.sender != GATEWAY or envelope.kind != kinds.PRESENCE or envelope.payload.get("event") != "leave":
        return None
    participant = envelope.payload.get("participant")
    name = participant.get("id") if isinstance(participant, dict) else None
    return name if isinstance(name, str) else None


def _not_in_audience(participant: str, param: str) -> ErrorInfo:
    return refuse(
        "not_in_audience",
        f"{param}: {participant!r} is not in the audience of the stream's context; its starter can add participants "
        f"with {kinds.SHARE}",
        param=param,
        kind="forbidden",
    )


def _too_many(participant: str, maximum: int) -> ErrorInfo:
    return refuse("too_many", f"{participant!r} has {maximum} open streams, the maximum; close one", param="kind")


def stream_id_of(frame: str | bytes) -> str | None:
    """Return the id in a frame of a stream, `#ID#DATA`; None if it is no frame of a stream."""
    if frame[:1] not in ("#", b"#"):
        return None
    start = frame[1 : MAX_STREAM_ID + 2]
    text = start.decode(errors="replace") if isinstance(start, bytes) else start
    return text.partition("#")[0]


def structure_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an announcement is needed for the state, without the descriptions of its sender."""
    return {name: payload[name] for name in (*_STRUCTURE, "reason") if name in payload}
