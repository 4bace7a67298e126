"""The rule for what one viewer may see: live, in the history, in a search or in a replay.

An envelope is shown if all of these hold:

* It is delivered to the viewer: it is for everyone, or the viewer is its sender, one of its recipients, or an observer.
  The recipients of an envelope that names none are the audience of its context, if it has one. Where addresses are
  advisory (MEW's way), everything is delivered. What the gateway addresses (a welcome, an error) is delivered to its
  recipient alone.
* The viewer may read it. Reasoning, and everything else within a context, needs the right to read reasoning. Everyone
  may read what they must act on (`kinds.Visibility`), what they sent themselves, and how their own reasoning ended. A
  chat within a context may also be read by its recipients; an address alone does not give access to reasoning.
* The view includes it. `main`: what stands in no context. `collapsed`: also what opens and what ends each context.
  `full`: everything. What a participant must act on is in every view: all of MCP, the gateway's envelopes, capabilities
  and the space itself, everything that is sent by the viewer, what is addressed to it and is not reasoning, and a
  cancel of its reasoning.

So `collapsed` includes `main`, and `full` includes `collapsed`, in the same order.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from ..errors import RequestError
from ..unicode import did_you_mean
from .envelope import GATEWAY, Envelope
from .kinds import kind_of
from .reasoning import ContextPlace, Role

SpaceView: TypeAlias = Literal["full", "collapsed", "main"]

SPACE_VIEWS: tuple[SpaceView, ...] = get_args(SpaceView)

ROLES_BY_VIEW: dict[SpaceView, frozenset[Role]] = {
    "main": frozenset({"main"}),
    "collapsed": frozenset({"main", "opens", "ends"}),
    "full": frozenset({"main", "opens", "step", "ends"}),
}


class SpaceViewer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A participant who reads a space, with its rights and its view."""

    participant: str
    view: SpaceView = "full"
    reasoning: bool = True
    """Whether it may read reasoning."""
    observes: bool = False
    """Whether it may read what is addressed to others."""
    advisory: bool = False
    """Whether addresses are advisory in the space."""


def space_view(name: str) -> SpaceView:
    """Return the view of this name.

    Raises:
        RequestError: If there is no such view.
    """
    for view in SPACE_VIEWS:
        if view == name:
            return view
    raise RequestError(
        f"view: {name!r} is not a view of a space; {did_you_mean(name, SPACE_VIEWS)}",
        code="unknown_view",
        param="view",
    )


def is_shown(envelope: Envelope, place: ContextPlace, viewer: SpaceViewer) -> bool:
    """Decide whether a viewer may see an envelope.

    Args:
        envelope: The envelope.
        place: Its place, from its `LifecycleEffect`.
        viewer: Who reads.
    """
    me = viewer.participant
    is_sender = envelope.sender == me
    is_addressed = me in envelope.to
    may_overhear = viewer.advisory or viewer.observes
    if envelope.sender == GATEWAY and envelope.to:
        # Of the gateway's messages to some, only what belongs to streams, whose data an observer reads as well.
        may_overhear = viewer.observes and envelope.family == "stream"
    if envelope.recipients and not (is_sender or me in envelope.recipients or may_overhear):
        return False
    kind = kind_of(envelope.kind)
    if is_sender or kind.visibility == "always" or (kind.act == "cancel" and place.owner == me):
        return True
    is_reasoning = kind.visibility == "reasoning"
    if not viewer.reasoning and (is_reasoning or (envelope.context is not None and not is_addressed)):
        return False
    is_in_view = place.role in ROLES_BY_VIEW[viewer.view]
    if is_reasoning:
        return is_in_view and viewer.view != "main"
    return is_in_view or is_addressed or envelope.context is None
