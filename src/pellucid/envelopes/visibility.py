"""What one subscriber is given of what is said: live, from the history, searched or replayed, by one rule.

An envelope is shown if all of these hold:

* It is delivered: it is for everybody, or the reader is its sender, one of those it is addressed to, or an observer.
  Where addresses are advisory (MEW's way), everything is delivered; but what the gateway addresses (a welcome, an
  error) is never anybody else's.
* It may be read: reasoning, and what else stands in a context, is for those who may read reasoning. For everybody are
  what somebody must act on (`kinds.Visibility`), what they said themselves, and what becomes of their own reasoning.
  Words in a context (a chat) may also be read by those whom they are addressed to; reasoning itself is not given away
  by its address.
* The view holds it. `main`: what stands in no context. `collapsed`: also what opens and what ends each context.
  `full`: everything. What somebody must act on is in every view: all of MCP, what the gateway says, capabilities and
  the space itself, whatever is addressed to the reader or said by it, and a cancel of its reasoning.

So `main` is in `collapsed`, and that in `full`, in the same order.
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
    """Who reads, and how."""

    participant: str
    view: SpaceView = "full"
    reasoning: bool = True
    """Whether it may read reasoning."""
    observes: bool = False
    """Whether it may read what is addressed to others."""


def space_view(name: str, param: str = "view") -> SpaceView:
    """The view of this name. Raises `RequestError` if there is none."""
    for view in SPACE_VIEWS:
        if view == name:
            return view
    raise RequestError(
        f"{param}: {name!r} is no view of a space; {did_you_mean(name, SPACE_VIEWS)}", code="unknown_view", param=param
    )


def is_shown(envelope: Envelope, place: ContextPlace, viewer: SpaceViewer, *, advisory: bool = False) -> bool:
    """Whether `reader` is given the envelope. `place` is what its `Verdict` said."""
    me = viewer.participant
    is_sender = envelope.sender == me
    is_addressed = me in envelope.to
    may_overhear = (advisory or viewer.observes) and envelope.sender != GATEWAY
    if envelope.to and not (is_sender or is_addressed or may_overhear):
        return False
    kind = kind_of(envelope.kind)
    if is_sender or kind.visibility == "always" or (kind.act == "cancel" and place.owner == me):
        return True
    is_reasoning = kind.visibility == "reasoning"
    if not viewer.reasoning and (is_reasoning or (envelope.context is not None and not is_addressed)):
        return False
    return is_addressed or envelope.context is None or place.role in ROLES_BY_VIEW[viewer.view]
