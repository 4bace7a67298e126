"""Rules of context paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes import EnvelopeError, context
from tests.cases import Cases
from tests.envelopes.envelope_kit import error_of, paths, segments


@given(paths)
def test_a_path_is_its_segments(path: str) -> None:
    assert "/".join(context.segments(path)) == context.parse(path) == path
    assert context.depth(path) == len(context.segments(path)) <= context.MAX_DEPTH
    assert (context.root(path), context.leaf(path)) == (context.segments(path)[0], context.segments(path)[-1])


@given(paths)
def test_a_path_is_the_child_of_its_parent(path: str) -> None:
    assert context.child(context.parent(path), context.leaf(path)) == path


@given(paths, segments)
def test_a_child_is_within_its_parent(path: str, name: str) -> None:
    if context.depth(path) == context.MAX_DEPTH or len(path) + 1 + len(name) > context.MAX_LENGTH:
        with pytest.raises(EnvelopeError):
            context.child(path, name)
        return
    below = context.child(path, name)

    assert (context.parent(below), context.leaf(below)) == (path, name)
    assert context.is_within(below, path)
    assert not context.is_within(path, below)


@given(paths)
def test_ancestors_are_parents_of_parents_up_to_the_root(path: str) -> None:
    chain = (path, *context.ancestors(path))

    assert [context.parent(one) for one in chain] == [*chain[1:], None]
    assert chain[-1] == context.root(path)
    assert len(chain) == context.depth(path)


@given(paths, paths)
def test_within_means_equal_or_below(path: str, other: str) -> None:
    assert context.is_within(path, other) == (other in (path, *context.ancestors(path)))


@given(paths)
def test_a_longer_name_is_not_within(path: str) -> None:
    assert not context.is_within(path + "x", path)
    assert not context.is_within(None, path)
    assert context.depth(None) == 0


@given(st.text() | st.from_regex(r"[a-z./ %-]{0,300}", fullmatch=True))
def test_any_text_is_a_path_or_a_named_error(text: str) -> None:
    failed = error_of(context.parse, text)
    if failed is not None:
        assert failed.info.code in ("invalid_context", "too_deep", "too_long")
        assert failed.info.message.startswith("context: ")
    else:
        assert all(context.is_segment(one) and one.strip(".") for one in context.segments(text))


INVALID_PATHS = ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "a b", "a\n", "a\0", "ä", "%2e%2e", "a\\b"]


def test_invalid_paths_are_refused() -> None:
    with Cases() as case:
        for path in INVALID_PATHS:
            with case(repr(path)):
                failed = error_of(context.parse, path)
                assert failed is not None
                assert failed.info.code == "invalid_context"


def test_an_id_with_a_slash_opens_no_context() -> None:
    assert not context.is_segment("msg/301")
    with pytest.raises(EnvelopeError, match="cannot name a context"):
        context.child("msg-301", "../msg-302")
