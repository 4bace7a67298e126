"""Serving of the page: only its files, compressed, with the security headers."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.server import page
from pellucid.server.page import SECURITY, choose_encoding, etag_matches, prefers_html, read_files
from tests.cases import Cases
from tests.scripted.gateway import Reply, Served, serve

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
HTML = b'<!doctype html><script type="module" src="/assets/index-Bp8NNgcm.js"></script>' + b" " * 300
SCRIPT = b"export const answer = 42\n" * 100
FONT = bytes(range(256)) * 4
FOREVER = "public, max-age=31536000, immutable"
PROVIDERS = {"providers": {"vllm": {"base_url": "http://127.0.0.1:9/v1"}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page as a build writes it."""
    root = tmp_path_factory.mktemp("web")
    (root / "assets" / "deep").mkdir(parents=True)
    (root / "index.html").write_bytes(HTML)
    (root / "robots.txt").write_bytes(b"User-agent: *\n")
    (root / ".secret").write_bytes(b"nobody's business")
    (root.parent / "outside.txt").write_bytes(b"nobody's business")
    assets = root / "assets"
    (assets / "index-Bp8NNgcm.js").write_bytes(SCRIPT)
    (assets / "index-Bp8NNgcm.js.br").write_bytes(b"as if it were brotli")
    (assets / "style-a1B2c3D4.css").write_bytes(b"a { color: red }\n" * 100)
    (assets / "style-a1B2c3D4.css.gz").write_bytes(gzip.compress(b"a { color: red }\n" * 100))
    (assets / "font-a1B2c3D4.woff2").write_bytes(FONT)
    (assets / "plain.js").write_bytes(b"1")
    (assets / "the-composer.js").write_bytes(b"1")
    (assets / "deep" / "chunk-a1B2c3D4.js").write_bytes(b"2")
    return root


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pellucid.server.meta_routes.built_files", lambda: read_files(folder))
        with serve(PROVIDERS) as served:
            yield served


@pytest.fixture(scope="module")
def unbuilt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "pellucid.server.meta_routes.built_files", lambda: read_files(tmp_path_factory.mktemp("none") / "web")
        )
        with serve(PROVIDERS) as served:
            yield served


def get(gateway: Served, path: str, method: str = "GET", **headers: str) -> Reply:
    return gateway.request(method, path, None, {name.replace("_", "-"): value for name, value in headers.items()})


def secured(reply: Reply) -> bool:
    return all(reply.headers.get(name.decode()) == value.decode() for name, value in SECURITY)


def test_a_browser_gets_the_page_and_a_program_gets_json(gateway: Served) -> None:
    for path in ("/", "/c/chat_1", "/c/whatever-it-is"):
        reply = get(gateway, path, Accept=BROWSER)
        assert (reply.status, reply.body) == (200, HTML)
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert reply.headers["cache-control"] == "no-cache"
        assert "accept" in reply.headers["vary"].split(", ")
        assert secured(reply)
    for accept in ("*/*", "application/json", "text/plain, */*", ""):
        reply = get(gateway, "/", Accept=accept)
        assert reply.json["pellucid"]
        assert reply.headers["vary"] == "accept"
    assert get(gateway, "/").json["speaks"]


def test_the_policy_is_that_of_the_contract(gateway: Served) -> None:
    headers = get(gateway, "/", Accept=BROWSER).headers
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "font-src": "'self'",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    for name, value in {
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }.items():
        assert headers[name] == value
    assert "camera=()" in headers["permissions-policy"]


FILES: dict[str, tuple[str, str]] = {
    "/assets/index-Bp8NNgcm.js": ("text/javascript; charset=utf-8", FOREVER),
    "/assets/style-a1B2c3D4.css": ("text/css; charset=utf-8", FOREVER),
    "/assets/font-a1B2c3D4.woff2": ("font/woff2", FOREVER),
    "/assets/deep/chunk-a1B2c3D4.js": ("text/javascript; charset=utf-8", FOREVER),
    "/assets/plain.js": ("text/javascript; charset=utf-8", "no-cache"),
    "/assets/the-composer.js": ("text/javascript; charset=utf-8", "no-cache"),
    "/robots.txt": ("text/plain; charset=utf-8", "no-cache"),
}


@pytest.mark.parametrize("path", FILES)
def test_every_file_has_a_type_and_a_cache_lifetime(gateway: Served, folder: Path, path: str) -> None:
    content_type, cache = FILES[path]
    reply = get(gateway, path)
    assert (reply.status, reply.body) == (200, (folder / path[1:]).read_bytes())
    assert (reply.headers["content-type"], reply.headers["cache-control"]) == (content_type, cache)
    assert secured(reply)
    head = get(gateway, path, "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(reply.body))
    assert get(gateway, path, "POST").status == 405


@pytest.mark.parametrize("path", ["/", *FILES])
def test_a_cached_file_is_not_sent_again(gateway: Served, path: str) -> None:
    tags = set()
    for encoding in ("identity", "gzip", "br"):
        headers = {"Accept": BROWSER, "Accept_Encoding": encoding}
        first = get(gateway, path, **headers)
        tag = first.headers["etag"]
        assert re.fullmatch(r'"[^"]+"', tag)
        tags.add((tag, first.body))
        for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            for method in ("GET", "HEAD"):
                again = get(gateway, path, method, If_None_Match=known, **headers)
                assert (again.status, again.body) == (304, b"")
                for name in ("etag", "cache-control", "vary"):
                    assert again.headers[name] == first.headers[name]
                assert secured(again)
        assert get(gateway, path, If_None_Match='"other"', **headers).status == 200
    # A strong entity tag belongs to one representation, including its encoding.
    assert len({tag for tag, _ in tags}) == len(tags)


def test_the_smallest_accepted_encoding_is_sent(gateway: Served) -> None:
    script, css, font = "/assets/index-Bp8NNgcm.js", "/assets/style-a1B2c3D4.css", "/assets/font-a1B2c3D4.woff2"
    cases = [
        (script, "gzip, deflate, br, zstd", "br"),
        (script, "gzip, deflate", "gzip"),
        (script, "br;q=0, gzip", "gzip"),
        (script, "br;q=0.1, gzip", "gzip"),
        (script, "*", "br"),
        (script, "deflate", None),
        (script, "gzip;q=0", None),
        (css, "br, gzip", "gzip"),
        (font, "br, gzip", None),
    ]
    for path, accept, encoding in cases:
        reply = get(gateway, path, Accept_Encoding=accept)
        assert reply.headers.get("content-encoding") == encoding, (path, accept)
        assert "accept-encoding" in reply.headers["vary"]
        if encoding == "gzip":
            plain = get(gateway, path).body
            assert len(reply.body) < len(plain) / 2
            assert zlib.decompress(reply.body, 31) == plain


OUTSIDE = [
    "/assets/../index.html", "/assets/../../outside.txt", "/assets/..%2f..%2foutside.txt",
    "/assets/%2e%2e/%2e%2e/outside.txt",
    "/assets//index-Bp8NNgcm.js", "/assets/", "/assets", "/assets/deep", "/assets/deep/", "/assets/index-Bp8NNgcm.js/",
    "/assets/index-Bp8NNgcm.js.br", "/assets/style-a1B2c3D4.css.gz", "/.secret", "/index.html", "/robots.txt.gz",
    "/assets/%00", "/assets/index-bp8nngcm.js", "/assets/..\\..\\outside.txt", "/c/", "/c/a/b", "/c",
    "/assets/%2fetc%2fpasswd", "//etc/passwd", "/outside.txt",
]  # fmt: skip


def test_only_the_files_of_the_table_exist(gateway: Served) -> None:
    with Cases() as case:
        for path in OUTSIDE:
            with case(path):
                reply = get(gateway, path, Accept=BROWSER)
                assert reply.status == 404
                assert b"nobody" not in reply.body


def test_without_a_build_the_page_explains_how_to_make_one(unbuilt: Served) -> None:
    for path in ("/", "/c/chat_1"):
        reply = get(unbuilt, path, Accept=BROWSER)
        assert reply.status == 503
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert "make page" in reply.body.decode()
        assert secured(reply)
        assert b"<script" not in reply.body
        assert b"style=" not in reply.body
    program = get(unbuilt, "/c/chat_1")
    assert (program.status, program.json["error"]["code"]) == (503, "page_not_built")
    assert "make page" in program.json["error"]["message"]
    assert get(unbuilt, "/assets/index-Bp8NNgcm.js").status == 404
    assert get(unbuilt, "/").json["pellucid"]
    assert get(unbuilt, "/health").status == 200


def test_the_page_can_be_disabled() -> None:
    with serve({**PROVIDERS, "server": {"page": False}}) as served:
        reply = get(served, "/", Accept=BROWSER)
        assert reply.json["pellucid"]
        assert "vary" not in reply.headers
        assert get(served, "/c/chat_1", Accept=BROWSER).status == 404
        assert get(served, "/assets/index-Bp8NNgcm.js").status == 404
        assert get(served, "/api/session").status == 200


def test_what_is_shipped_is_a_page_under_its_own_policy() -> None:
    """Nothing inline, nothing from other hosts, and every referenced file exists."""
    files = page.built_files()
    if page.INDEX not in files:
        pytest.skip("the page has not been built")
    html = files[page.INDEX].bodies["identity"].decode()
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", html)
    named = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert named
    for path in named:
        assert path.removeprefix("/") in files, path


# --- what a client would rather have ---------------------------------------------------------------------------------

ACCEPTS: dict[str, bool] = {
    BROWSER: True,
    "text/html": True,
    "TEXT/HTML;charset=utf-8": True,
    "text/*": True,
    "text/html;q=0.5": True,
    "application/json;q=0.4, text/html;q=0.5": True,
    "*/*": False,
    "text/html, application/json": False,
    "text/html;q=0.5, */*": False,
    "text/html;q=0": False,
    "text/html;q=x": False,
    "application/json": False,
    "": False,
    ";;;,,,": False,
}


def test_who_prefers_html() -> None:
    with Cases() as case:
        for accept, prefers in ACCEPTS.items():
            with case(accept):
                assert prefers_html(accept) is prefers


@given(st.text('abgzipr*;q=0.19, "W/', max_size=60), st.sets(st.sampled_from(["br", "gzip"])))
def test_every_request_gets_a_response(header: str, there: set[str]) -> None:
    assert choose_encoding(header, {*there, "identity"}) in {*there, "identity"}
    assert prefers_html(header) in (True, False)
    assert etag_matches(header, '"tag"') in (True, False)


def test_no_request_is_reflected_in_its_response() -> None:
    everything: Any = ("br", "gzip", "identity")
    assert choose_encoding(None, everything) == choose_encoding("", everything) == "identity"
    assert not prefers_html(None)
    assert not etag_matches(None, '"tag"')


@pytest.mark.parametrize("path", ["/settings", "/nope/deeper", "/%3Cscript%3E", "/c"])
def test_a_browser_at_an_unknown_address_gets_words_and_a_program_json(path: str, gateway: Served) -> None:
    notice = gateway.request("GET", path, headers={"Accept": BROWSER})
    assert (notice.status, notice.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is no page at this address." in notice.body.decode()
    assert 'href="/"' in notice.body.decode()
    assert "<script>" not in notice.body.decode()
    assert notice.headers["content-security-policy"]
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        reply = gateway.request("GET", path, headers=headers)
        assert (reply.status, reply.headers["content-type"]) == (404, "application/json")
        assert "there is no route" in reply.json["error"]["message"]
    posted = gateway.request("POST", path, b"{}", {"Accept": BROWSER, "Content-Type": "application/json"})
    assert posted.headers["content-type"] == "application/json"


def test_a_gateway_without_the_page_answers_browsers_as_programs() -> None:
    with serve({**PROVIDERS, "server": {"page": False}}) as gateway:
        reply = gateway.request("GET", "/settings", headers={"Accept": BROWSER})
        assert (reply.status, reply.headers["content-type"]) == (404, "application/json")
