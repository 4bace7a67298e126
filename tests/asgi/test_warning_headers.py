"""Warnings quote what clients sent; a header cannot hold everything that they can send."""

from hypothesis import given
from hypothesis import strategies as st

from pellucid.asgi.http import warning_headers


def test_many_and_long_warnings_are_cut_to_what_clients_accept() -> None:
    headers = warning_headers([f"{number} {'x' * 2000}" for number in range(1000)])
    assert sum(len(name) + len(value) for name, value in headers) < 12_000
    assert headers[-1][1] == b"985 more warnings"


@given(st.lists(st.text(), max_size=4))
def test_any_text_is_a_valid_header_value(texts: list[str]) -> None:
    headers = warning_headers(texts)
    assert len(headers) == len(set(texts))
    for _, value in headers:
        assert all(0x20 <= byte < 0x7F for byte in value)


def test_readable_text_is_unchanged_and_a_control_character_is_escaped() -> None:
    assert [value for _, value in warning_headers(["no \x1b[1m\x7f here\n\tnow", "so"])] == [
        rb"no \x1b[1m\x7f here now",
        b"so",
    ]
