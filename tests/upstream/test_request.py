"""What is sent: URLs to the letter, and heads that no value can extend."""

from __future__ import annotations

import pytest

from pellucid.upstream.errors import InvalidURL, origin_of
from pellucid.upstream.request import Endpoint, encode_head, parse_url, wants_close
from tests.cases import Cases

TARGETS = {
    # url: (host, port, TLS, what stands in the request line, the Host header)
    "http://h/v1": ("h", 80, False, "/v1", "h"),
    "https://h/v1": ("h", 443, True, "/v1", "h"),
    "http://h:443/": ("h", 443, False, "/", "h:443"),
    "https://h:443/": ("h", 443, True, "/", "h"),
    "HTTP://HOST/Path": ("host", 80, False, "/Path", "HOST"),
    "http://h": ("h", 80, False, "/", "h"),
    "http://h?q": ("h", 80, False, "/?q", "h"),
    "http://h/a%3Ab%2fc?x=%20&y#part": ("h", 80, False, "/a%3Ab%2fc?x=%20&y", "h"),
    "http://h//x/./y/../z": ("h", 80, False, "//x/./y/../z", "h"),
    "http://h/models/x:stream?alt=sse": ("h", 80, False, "/models/x:stream?alt=sse", "h"),
    "http://h/ä b": ("h", 80, False, "/%C3%A4%20b", "h"),
    "http://bücher.example/": ("xn--bcher-kva.example", 80, False, "/", "xn--bcher-kva.example"),
    "http://[::1]:8080/": ("::1", 8080, False, "/", "[::1]:8080"),
    "http://127.0.0.1:8080/": ("127.0.0.1", 8080, False, "/", "127.0.0.1:8080"),
    "http://h./": ("h.", 80, False, "/", "h"),
}

NOT_TARGETS = [
    "", "h", "http://", "http:///x", "http://user@/x", "ftp://h/x", "unix:///x", "http://h:x/", "http://h:99999/",
    "http://[::1", "http://a..b/", f"http://{'a' * 64}.de/", "http://127.1/", "http://2130706433/",
]  # fmt: skip


def test_what_a_url_names() -> None:
    with Cases() as case:
        for url, (host, port, is_tls, path, authority) in TARGETS.items():
            with case(url):
                target = parse_url(url)
                assert target.endpoint == Endpoint(host, port, is_tls)
                assert target.request_line == f"POST {path} HTTP/1.1\r\n".encode()
                assert target.host_header.decode() == authority


def test_what_no_request_can_be_sent_to() -> None:
    with Cases() as case:
        for url in NOT_TARGETS:
            with case(repr(url)), pytest.raises(InvalidURL):
                parse_url(url)


def test_what_is_secret_in_a_url_is_in_no_message() -> None:
    assert origin_of("http://user:hunter2@h:1/v1?key=hunter2") == "http://h:1"


def fields(url: str = "http://h/", **headers: str) -> list[str]:
    head = encode_head(parse_url(url), {name.replace("_", "-"): value for name, value in headers.items()}, 2)
    assert head.endswith(b"\r\n\r\n")
    return head.decode().split("\r\n")[1:-2]


def test_the_head_of_a_request() -> None:
    ours = ["Host: h", "Accept-Encoding: identity", "Accept: */*", "User-Agent: pellucid"]
    assert fields() == [*ours, "Content-Type: application/octet-stream", "Content-Length: 2"]
    assert fields("http://u:p%40@h/") == [
        *ours, "Authorization: Basic dTpwQA==", "Content-Type: application/octet-stream", "Content-Length: 2",
    ]  # fmt: skip


def test_the_callers_headers_replace_the_clients() -> None:
    mine = {"host": "x", "accept-encoding": "gzip", "ACCEPT": "a/b", "User_Agent": "me", "content-type": "c/d"}
    assert fields("http://u:p@h/", authorization="Bearer k", **mine) == [
        "Host: x", "authorization: Bearer k", "accept-encoding: gzip", "ACCEPT: a/b", "User-Agent: me",
        "content-type: c/d", "Content-Length: 2",
    ]  # fmt: skip


def test_the_client_alone_frames_the_request() -> None:
    framing = {"Content_Length": "99", "transfer_encoding": "chunked"}
    assert [one for one in fields("http://h/", **framing) if "ength" in one or "ncoding: c" in one] == [
        "Content-Length: 2"
    ]


@pytest.mark.parametrize("character", ["\r", "\n", "\0", "\x7f"])
def test_a_control_character_in_a_header_is_refused(character: str) -> None:
    with pytest.raises(ValueError, match="Forbidden control character"):
        fields(x=f"a{character}b")
    with pytest.raises(ValueError, match="Forbidden control character"):
        fields("http://h/", **{f"x{character}": "b"})
    with pytest.raises(ValueError, match="Forbidden control character"):
        fields(host=f"a{character}b")


def test_other_text_goes_out_as_utf8() -> None:
    assert "x: é€\ta" in fields(x="é€\ta\ud800")


def test_whether_a_request_asks_to_close() -> None:
    assert wants_close({"Connection": "foo, CLOSE"})
    assert not wants_close({"Connection": "keep-alive", "X": "close"})


def test_of_names_that_differ_in_case_the_last_counts() -> None:
    head = encode_head(parse_url("http://h/"), {"anthropic-beta": "a", "X-Own": "1", "Anthropic-Beta": "b"}, 0)
    assert head.lower().count(b"anthropic-beta") == 1
    assert b"Anthropic-Beta: b" in head
