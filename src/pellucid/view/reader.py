"""Views, and who reads with which: the least of what a key lets its holder see, of what anybody may see of a model, and
of what a request asks for.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from ..errors import RequestError

View = Literal["raw", "summary", "sealed", "hidden"]
"""In what form reasoning leaves, from most to least: all of it; summaries alone; that there was some, as an opaque
token; not at all."""

VIEWS: tuple[View, ...] = get_args(View)


def lesser(a: View, b: View) -> View:
    """The view of the two that shows less."""
    return max(a, b, key=VIEWS.index)


def view_of(name: str, param: str | None = None) -> View:
    """The view of this name. Raises `RequestError` if there is none; `param` says where the name stood."""
    for view in VIEWS:
        if view == name:
            return view
    raise RequestError(f"{name!r} is not a view; it is one of {', '.join(VIEWS)}", code="unknown_view", param=param)


def at_most(asked: View | None, allowed: View, param: str | None = None) -> View:
    """The view that was asked for, or all that is allowed. Raises `RequestError` (forbidden) if more was asked for."""
    if asked is None:
        return allowed
    if lesser(asked, allowed) != asked:
        raise RequestError(
            f"reasoning may be seen here as {allowed!r} at most, and {asked!r} was asked for; "
            f"ask for {_alternatives(allowed)}, or use a key that may see more, of a model that shows more",
            kind="forbidden",
            code="view_not_allowed",
            param=param,
        )
    return asked


def _alternatives(allowed: View) -> str:
    return " or ".join(repr(view) for view in VIEWS[VIEWS.index(allowed) :])


class Reader(msgspec.Struct, frozen=True):
    """What one reader may see."""

    view: View
    counts: bool = True
    """Whether numbers of tokens are shown."""
    summaries: bool = False
    """Whether a reader who sees raw reasoning asked for our summaries too. `summary` has them anyway, less has none."""

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ValueError(f"{self.view!r} is not a view; it is one of {', '.join(VIEWS)}")

    def lesser(self, view: View) -> Reader:
        """The same reader, of something of which nobody may see more than this."""
        return self if lesser(self.view, view) == self.view else replace(self, view=view)

    def asking(self, view: View | None = None, *, counts: bool | None = None, summaries: bool | None = None) -> Reader:
        """The reader for a request that asks for this. Raises `RequestError` (forbidden) if it asks for more."""
        if counts and not self.counts:
            raise RequestError(
                "this key may not see numbers of tokens; leave them out, or use a key that may",
                kind="forbidden",
                code="counts_not_allowed",
            )
        return replace(
            self,
            view=at_most(view, self.view),
            counts=self.counts if counts is None else counts,
            summaries=self.summaries if summaries is None else summaries,
        )
