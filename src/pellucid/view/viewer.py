"""Views, and who reads with which: the least of what a key lets its holder see, of what anybody may see of a model, and
of what a request asks for.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..errors import RequestError
from ..parts import VIEWS, Form, View


class ViewRule(NamedTuple):
    """What a view shows of reasoning."""

    forms: frozenset[Form] = frozenset()
    """The forms of text that leave."""
    items: bool = True
    """Whether the start and the end of an item of reasoning leave, with or without text."""
    seals: bool = True
    """Whether the tokens leave in which reasoning is sealed."""
    only_seals: bool = False
    """Whether a token is all that a reader gets, and is therefore made also where the request did not ask for it."""


VIEW_RULES: dict[View, ViewRule] = {
    "raw": ViewRule(frozenset({"raw", "summary", "redacted"})),
    "summary": ViewRule(frozenset({"summary"})),
    "sealed": ViewRule(only_seals=True),
    "hidden": ViewRule(items=False, seals=False),
}
"""The views. Everything but reasoning is the same in all that are less than `raw`: `fields`, `values` and `less`."""


def stricter(a: View, b: View) -> View:
    """The view of the two that shows less."""
    return max(a, b, key=VIEWS.index)


def parse_view(name: str, param: str | None = None) -> View:
    """The view of this name. Raises `RequestError` if there is none; `param` says where the name stood."""
    for view in VIEWS:
        if view == name:
            return view
    raise RequestError(f"{name!r} is not a view; it is one of {', '.join(VIEWS)}", code="unknown_view", param=param)


def resolve_view(requested: View | None, allowed: View, param: str | None = None) -> View:
    """The view that was asked for, or all that is allowed. Raises `RequestError` (forbidden) if more was asked for."""
    if requested is None:
        return allowed
    if stricter(requested, allowed) != requested:
        raise RequestError(
            f"reasoning may be seen here as {allowed!r} at most, and {requested!r} was asked for; "
            f"ask for {_alternatives(allowed)}, or use a key that may see more, of a model that shows more",
            kind="forbidden",
            code="view_not_allowed",
            param=param,
        )
    return requested


def _alternatives(allowed: View) -> str:
    return " or ".join(repr(view) for view in VIEWS[VIEWS.index(allowed) :])


class Viewer(msgspec.Struct, frozen=True):
    """What one reader may see."""

    view: View
    counts: bool = True
    """Whether numbers of tokens are shown."""
    summaries: bool = False
    """Whether a reader who sees raw reasoning asked for our summaries too. `summary` has them anyway, less has none."""

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ValueError(f"{self.view!r} is not a view; it is one of {', '.join(VIEWS)}")

    @property
    def rule(self) -> ViewRule:
        """What the reader's view shows of reasoning."""
        return VIEW_RULES[self.view]

    def limited_to(self, view: View) -> Viewer:
        """The same reader, of something of which nobody may see more than this."""
        return self if stricter(self.view, view) == self.view else replace(self, view=view)

    def for_request(
        self, view: View | None = None, *, counts: bool | None = None, summaries: bool | None = None
    ) -> Viewer:
        """The reader for a request that asks for this. Raises `RequestError` (forbidden) if it asks for more."""
        if counts and not self.counts:
            raise RequestError(
                "this key may not see numbers of tokens; leave them out, or use a key that may",
                kind="forbidden",
                code="counts_not_allowed",
            )
        return replace(
            self,
            view=resolve_view(view, self.view),
            counts=self.counts if counts is None else counts,
            summaries=self.summaries if summaries is None else summaries,
        )
