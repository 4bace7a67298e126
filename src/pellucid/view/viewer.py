"""Views, and the viewers who have them.

A viewer's view is the requested one, if the key and the model allow it; a request for more is refused. Without a
requested view, it is the stricter of the key's and the model's.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from ..errors import RequestError
from ..parts import Form

View: TypeAlias = Literal["raw", "summary", "sealed", "hidden"]
"""In what form a viewer receives reasoning; `VIEW_RULES` defines it."""


class ViewRule(NamedTuple):
    """What a view shows of reasoning."""

    forms: frozenset[Form] = frozenset()
    """The forms of reasoning text that are shown."""
    items: bool = True
    """Whether the start and the end of a reasoning item are shown, with or without text."""
    seals: bool = True
    """Whether sealed tokens of reasoning are shown."""
    form: Literal["summary", "sealed"] | None = None
    """How all reasoning is shown; None where it depends on the reasoning."""
    is_full: bool = False
    """Whether the whole run is shown, and not only the fields that `fields` lists. (Token counts and summaries have
    settings of their own.)"""

    @property
    def only_seals(self) -> bool:
        """Whether the token is all that is shown, so that it is made even if the request does not ask for it."""
        return self.form == "sealed"


VIEW_RULES: dict[View, ViewRule] = {
    "raw": ViewRule(frozenset({"raw", "summary", "redacted"}), is_full=True),
    "summary": ViewRule(frozenset({"summary"}), form="summary"),
    "sealed": ViewRule(form="sealed"),
    "hidden": ViewRule(items=False, seals=False),
}
"""The rules of each view, from the one that shows most to the one that shows least.

All views that are not full treat everything but reasoning alike: see `fields`, `values` and `restricted_view`.
"""

VIEWS: tuple[View, ...] = tuple(VIEW_RULES)


def stricter(a: View, b: View) -> View:
    """Return the more restricted of two views."""
    return max(a, b, key=VIEWS.index)


def parse_view(name: str, param: str | None = None) -> View:
    """Return the view with this name.

    Args:
        name: The name.
        param: The request's field that holds the name, for the error.

    Raises:
        RequestError: There is no such view.
    """
    for view in VIEWS:
        if view == name:
            return view
    raise RequestError(f"{name!r} is not a view; it is one of {', '.join(VIEWS)}", code="unknown_view", param=param)


def resolve_view(requested: View | None, allowed: View) -> View:
    """Return the requested view, or the allowed one if none is requested.

    Args:
        requested: The view in the request.
        allowed: The least restricted view that is allowed.

    Raises:
        RequestError: The requested view shows more than the allowed one (`forbidden`).
    """
    if requested is None:
        return allowed
    if stricter(requested, allowed) != requested:
        raise RequestError(
            f"reasoning may be seen here as {allowed!r} at most, and {requested!r} was asked for; "
            f"ask for {_alternatives(allowed)}, or use a key that may see more, of a model that shows more",
            kind="forbidden",
            code="view_not_allowed",
        )
    return requested


def _alternatives(allowed: View) -> str:
    return " or ".join(repr(view) for view in VIEWS[VIEWS.index(allowed) :])


class Viewer(msgspec.Struct, frozen=True):
    """What one viewer may see of a run.

    Raises:
        ValueError: `view` is not a view.
    """

    view: View
    counts: bool = True
    """Whether token counts are shown."""
    summaries: bool = False
    """Whether a viewer of raw reasoning also requested the gateway's summaries. The view `summary` always has them, the
    more restricted views never."""

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ValueError(f"{self.view!r} is not a view; it is one of {', '.join(VIEWS)}")

    @property
    def rule(self) -> ViewRule:
        """What the view shows of reasoning."""
        return VIEW_RULES[self.view]

    def limited_to(self, view: View) -> Viewer:
        """Return this viewer, limited to a view."""
        return self if stricter(self.view, view) == self.view else replace(self, view=view)

    def for_request(self, view: View | None = None, *, summaries: bool | None = None) -> Viewer:
        """Return the viewer for a request.

        Args:
            view: The requested view; None for the allowed one.
            summaries: Whether summaries are requested in the raw view; None for this viewer's value.

        Raises:
            RequestError: The requested view shows more than the allowed one (`forbidden`).
        """
        return replace(
            self,
            view=resolve_view(view, self.view),
            summaries=self.summaries if summaries is None else summaries,
        )
