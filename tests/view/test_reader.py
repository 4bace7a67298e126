"""Views are an order from most to least, and a request may only go down in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.view import VIEWS, View, Viewer, parse_view, resolve_view, stricter

views = st.sampled_from(VIEWS)


@given(views, views, views)
def test_views_are_totally_ordered(a: View, b: View, c: View) -> None:
    assert stricter(a, a) == a
    assert stricter(a, b) == stricter(b, a) in (a, b)
    assert stricter(stricter(a, b), c) == stricter(a, stricter(b, c))
    assert stricter("raw", a) == a
    assert stricter("hidden", a) == "hidden"


@given(views, views)
def test_a_request_may_ask_for_less_and_not_for_more(requested: View, allowed: View) -> None:
    assert resolve_view(None, allowed) == allowed
    if VIEWS.index(requested) >= VIEWS.index(allowed):
        assert resolve_view(requested, allowed) == requested
        return
    with pytest.raises(RequestError) as caught:
        resolve_view(requested, allowed)
    info = caught.value.info
    assert (info.kind, info.code) == ("forbidden", "view_not_allowed")
    assert repr(allowed) in info.message
    assert repr(requested) in info.message


def test_the_error_message_lists_the_allowed_views() -> None:
    with pytest.raises(RequestError) as caught:
        resolve_view("raw", "sealed")
    assert caught.value.info.message == (
        "reasoning may be seen here as 'sealed' at most, and 'raw' was asked for; "
        "ask for 'sealed' or 'hidden', or use a key that may see more, of a model that shows more"
    )


def test_a_view_has_one_of_four_names() -> None:
    assert [parse_view(name) for name in VIEWS] == list(VIEWS)
    with pytest.raises(RequestError, match="'Raw' is not a view; it is one of raw, summary, sealed, hidden"):
        parse_view("Raw")
    with pytest.raises(ValueError, match="'all' is not a view"):
        Viewer("all")  # type: ignore[arg-type]


@given(views, st.booleans(), st.none() | views, st.none() | st.booleans())
def test_a_request_cannot_extend_its_view(
    view: View, counts: bool, requested: View | None, summaries: bool | None
) -> None:
    reader = Viewer(view, counts)
    if requested is not None and stricter(requested, view) != requested:
        with pytest.raises(RequestError):
            reader.for_request(requested, summaries=summaries)
        return
    narrowed = reader.for_request(requested, summaries=summaries)
    assert stricter(narrowed.view, view) == narrowed.view == (requested or view)
    assert narrowed.counts == counts
    assert narrowed.summaries == bool(summaries)
