"""Views are an order from most to least, and a request may only go down in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.view import VIEWS, Reader, View, at_most, lesser, view_of

views = st.sampled_from(VIEWS)


@given(views, views, views)
def test_views_are_an_order(a: View, b: View, c: View) -> None:
    assert lesser(a, a) == a
    assert lesser(a, b) == lesser(b, a) in (a, b)
    assert lesser(lesser(a, b), c) == lesser(a, lesser(b, c))
    assert lesser("raw", a) == a
    assert lesser("hidden", a) == "hidden"


@given(views, views)
def test_a_request_may_ask_for_less_and_not_for_more(asked: View, allowed: View) -> None:
    assert at_most(None, allowed) == allowed
    if VIEWS.index(asked) >= VIEWS.index(allowed):
        assert at_most(asked, allowed) == asked
        return
    with pytest.raises(RequestError) as caught:
        at_most(asked, allowed, "reasoning.view")
    info = caught.value.info
    assert (info.kind, info.code, info.param) == ("forbidden", "view_not_allowed", "reasoning.view")
    assert repr(allowed) in info.message
    assert repr(asked) in info.message


def test_the_sentence_says_what_would_be_right() -> None:
    with pytest.raises(RequestError) as caught:
        at_most("raw", "sealed")
    assert caught.value.info.message == (
        "reasoning may be seen here as 'sealed' at most, and 'raw' was asked for; "
        "ask for 'sealed' or 'hidden', or use a key that may see more, of a model that shows more"
    )


def test_a_view_has_one_of_four_names() -> None:
    assert [view_of(name) for name in VIEWS] == list(VIEWS)
    with pytest.raises(RequestError, match="'Raw' is not a view; it is one of raw, summary, sealed, hidden"):
        view_of("Raw")
    with pytest.raises(ValueError, match="'all' is not a view"):
        Reader("all")  # type: ignore[arg-type]


@given(views, st.booleans(), st.none() | views, st.none() | st.booleans(), st.none() | st.booleans())
def test_what_is_asked_for_is_never_more_than_what_is_allowed(
    view: View, counts: bool, asked: View | None, shown: bool | None, summaries: bool | None
) -> None:
    reader = Reader(view, counts)
    if (shown and not counts) or (asked is not None and lesser(asked, view) != asked):
        with pytest.raises(RequestError):
            reader.asking(asked, counts=shown, summaries=summaries)
        return
    narrowed = reader.asking(asked, counts=shown, summaries=summaries)
    assert lesser(narrowed.view, view) == narrowed.view == (asked or view)
    assert narrowed.counts == (counts and shown is not False)
    assert narrowed.summaries == bool(summaries)
