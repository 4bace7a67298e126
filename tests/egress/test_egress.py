"""Which URLs are fetched for others, and which are not: real servers, and a table in place of the name service."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import httpx2
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from pellucid.egress import EgressError, EgressPolicy
from pellucid.egress.connector import EgressConnector, fetch
from pellucid.egress.httpx_transport import EgressTransport, cause_of
from pellucid.egress.policy import special_purpose
from pellucid.errors import ConfigError
from tests.cases import Cases
from tests.examples import many
from tests.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Names:
    """A name service: each name's answers, one after the other; the last one stays."""

    def __init__(self, **table: list[Sequence[str]]) -> None:
        self.table = {name.replace("_", "."): answers for name, answers in table.items()}
        self.lookups: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.lookups.append(host)
        answers = self.table.get(host)
        if answers is None:
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Server:
    """A server on loopback that remembers who came."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        path = request.path
        if path == "/redirect":
            return web.Response(status=302, headers={"Location": request.query["to"]})
        if path == "/loop":
            raise web.HTTPFound("/loop")
        if path == "/nowhere":
            return web.Response(status=302)
        if path == "/image":
            return web.Response(body=b"PNG" * 10, headers={"Content-Type": "Image/PNG; q=1"})
        if path == "/gzip":
            return web.Response(body=gzip.compress(b"\0" * 1_000_000), headers={"Content-Encoding": "gzip"})
        if path == "/cookie":
            return web.Response(status=302, headers={"Location": "/image", "Set-Cookie": "a=b"})
        if path in ("/endless", "/slow"):
            stream = web.StreamResponse(headers={"Content-Type": "image/png"})
            await stream.prepare(request)
            while True:
                await stream.write(b"x" * (1000 if path == "/endless" else 1))
                await asyncio.sleep(0 if path == "/endless" else 0.05)
        if path == "/sized":
            return web.Response(body=b"x" * 2000, content_type="image/png")
        raise web.HTTPNotFound

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    running = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", running.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    running.port = runner.addresses[0][1]
    yield running
    await runner.cleanup()


async def get(policy: EgressPolicy, url: str, **limits: Any) -> Any:
    return await fetch(
        policy,
        url,
        **{"max_bytes": 1000, "timeout_seconds": LIMIT_SECONDS, "accept": ["*/*"], "param": "url", **limits},
    )


async def refusal(policy: EgressPolicy, url: str, **limits: Any) -> str | None:
    with pytest.raises(EgressError) as raised:
        await get(policy, url, **limits)
    return raised.value.info.code


# --- addresses ---------------------------------------------------------------------------------------------------

NOT_PUBLIC = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.255
    168.63.129.16 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.168.0.1 198.18.0.1
    198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
    :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:a9fe:a9fe ::ffff:0:127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254
    64:ff9b:1::1 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe::1
    2002:c0a8:1::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1
    2606:4700::5efe:10.0.0.1 2606:4700::200:5efe:127.0.0.1
"""
PUBLIC = """
    1.1.1.1 8.8.8.8 100.63.0.1 100.128.0.1 172.15.0.1 172.32.0.1 2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8
    64:ff9b::8.8.8.8 2002:808:808::1 2001:4860:4860::8888
"""


def test_an_address_that_is_not_public() -> None:
    with Cases() as case:
        for address in NOT_PUBLIC.split():
            with case(address):
                assert special_purpose(ipaddress.ip_address(address))


def test_an_address_that_is_public() -> None:
    with Cases() as case:
        for address in PUBLIC.split():
            with case(address):
                assert special_purpose(ipaddress.ip_address(address)) is None


@many
@given(st.ip_addresses())
def test_python_s_own_table_knows_no_special_address_that_ours_does_not(address: Any) -> None:
    if special_purpose(address) is None:
        means = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
        if means in ipaddress.ip_network("64:ff9b::/96"):
            means = ipaddress.IPv4Address(int(means) & 0xFFFFFFFF)
        assert means.is_global
        assert not means.is_multicast


@many
@given(st.ip_addresses(v=4))
def test_an_address_is_judged_alike_however_it_is_wrapped(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    wrapped = [(0xFFFF << 32) | number, (0xFFFF << 48) | number, (0x64FF9B << 96) | number]
    wrapped.append((0x2002 << 112) | (number << 80))
    for one in wrapped:
        assert special_purpose(ipaddress.IPv6Address(one)) == special_purpose(address)


# --- URLs --------------------------------------------------------------------------------------------------------

NASTY = [
    *("http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://017700000001/", "http://0177.0.0.1/"),
    *("http://127.1/", "http://127.0.1/", "http://0/", "http://134744072/", "http://8.8.8.8.8/", "http://1.2.3.256/"),
    *("http://127.0.0.1/", "http://127.0.0.1./", "http://127.0.0.1:80/", "http://localhost/", "http://localhost./"),
    *("http://LOCALHOST/", "http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
    *("http://[0:0:0:0:0:ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/"),
    *("http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[::127.0.0.1]/", "http://169.254.169.254/latest"),
    *("http://①②⑦.⓪.⓪.①/", "http://127。0。0。1/", "http://localhoſt/", "http://１２７.0.0.1/"),
    *("http://user@good.test/", "http://user:word@good.test/", "http://:@good.test/", "http://good.test@127.0.0.1/"),
    *("http://good.test\\@127.0.0.1/", "http://good.test /", "http://good.test\t/", "http://good.test\r\nHost: x/"),
    *("http://127.0.0.1%00.good.test/", "http://good.test%2f@127.0.0.1/", "http://%6c%6fcalhost/", "http://a..b/"),
    *(
        "http://-good.test/",
        "http:///good.test",
        "http://",
        "http:good.test",
        "http://[::1",
        "http://]/",
        "http://:80/",
    ),
    *("http://good.test:0/", "http://good.test:99999/", "http://good.test:x/", "http://" + "a." * 200 + "test/"),
    *(
        "file:///etc/passwd",
        "ftp://good.test/",
        "gopher://good.test/",
        "data:text/plain,x",
        "javascript:1",
        "//good.test/",
    ),
    *("good.test", "/etc/passwd", "", " ", "http://unknown.test/", "http://private.test/", "http://nothing.test/"),
    *("http://odd.test/", "http://mapped.test/"),
]


async def test_a_nasty_url_is_refused_without_a_connection() -> None:
    with Cases() as case:
        for url in NASTY:
            names = Names(
                good_test=[["127.0.0.1"]],
                localhost=[["127.0.0.1", "::1"]],
                private_test=[["10.0.0.1", "192.168.0.1"]],
                mapped_test=[["::ffff:127.0.0.1"]],
                nothing_test=[[]],
                odd_test=[["fe80::1%eth0", "1.2.3"]],
            )
            policy = EgressPolicy(["good.test"], resolve=names)
            with case(repr(url)):
                assert await refusal(policy, url) in ("bad_url", "egress_refused")


@many
@given(st.text(max_size=30) | st.from_regex(r"\Ahttps?://[^/]{0,20}/.{0,5}", fullmatch=True))
def test_any_text_is_a_url_that_may_be_fetched_or_a_refusal(text: str) -> None:
    try:
        url = EgressPolicy().check_url(text)
    except EgressError as error:
        assert error.info.code in ("bad_url", "egress_refused")  # noqa: PT017
    else:
        assert url.scheme in ("http", "https")
        assert url.raw_host


def test_an_unknown_and_a_private_host_give_the_same_error() -> None:
    async def error_of(host: str) -> str:
        with pytest.raises(EgressError) as raised:
            await EgressPolicy(resolve=Names(private_test=[["10.0.0.1"]])).allowed_addresses(host)
        return raised.value.info.message.replace(host, "?")

    assert asyncio.run(error_of("private.test")) == asyncio.run(error_of("unknown.test"))


async def test_a_message_quotes_neither_path_nor_query(server: Server) -> None:
    for path in ("/missing?key=hunter2", "/sized?key=hunter2", "/loop?key=hunter2", "/redirect?to=file:///hunter2"):
        with pytest.raises(EgressError) as raised:
            await get(EgressPolicy(["127.0.0.1"]), server.url(path))
        assert "hunter2" not in str(raised.value)


# --- what is allowed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "host", "goes"),
    [
        ("*", "good.test", True),
        ("good.test", "good.test", True),
        ("GOOD.test.", "good.test.", True),
        ("*.good.test", "a.good.test", True),
        ("*.good.test", "good.test", False),
        ("*.good.test", "evilgood.test", False),
        ("od.test", "good.test", False),
        ("127.0.0.0/8", "good.test", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("::1/128", "good.test", False),
        ("10.0.0.0/8", "good.test", False),
        ("*", "127.0.0.1", True),
        ("*", "[::ffff:127.0.0.1]", True),
        ("127.0.0.0/8", "[::ffff:127.0.0.1]", True),
    ],
)
async def test_what_the_operator_allows(server: Server, allow: str, host: str, goes: bool) -> None:
    names = Names(good_test=[["127.0.0.1"]], a_good_test=[["127.0.0.1"]], evilgood_test=[["127.0.0.1"]])
    policy = EgressPolicy([allow], resolve=names)
    if goes:
        assert (await get(policy, server.url("/image", host))).data == b"PNG" * 10
    else:
        assert await refusal(policy, server.url("/image", host)) == "egress_refused"
        assert server.requests == []


def test_an_entry_that_is_nothing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'10\.1\.2\.3/8'.*\n.*'http://x'"):
        EgressPolicy(["10.1.2.3/8", "http://x", "fine.test"])


# --- names that change their mind, redirects -----------------------------------------------------------------------


async def test_what_was_judged_is_what_is_connected_to(server: Server) -> None:
    names = Names(rebind_test=[["127.0.0.1"], ["127.0.0.2"]])
    await get(EgressPolicy(["127.0.0.1"], resolve=names), server.url("/image", "rebind.test"))
    assert names.lookups == ["rebind.test"]
    assert server.requests[0].transport is None or server.requests[0].headers["Host"].startswith("rebind.test:")


async def test_a_name_that_becomes_private_is_refused_at_its_next_connection(server: Server) -> None:
    names = Names(rebind_test=[["127.0.0.1"], ["127.0.0.2"]])
    policy = EgressPolicy(["127.0.0.1"], resolve=names)
    url = server.url("/redirect?to=/image", "rebind.test")
    assert await refusal(policy, url) == "egress_refused"
    assert len(server.requests) == 1


async def test_of_a_name_s_addresses_only_the_allowed_ones_are_tried(server: Server) -> None:
    names = Names(mixed_test=[["10.0.0.1", "127.0.0.1", "::1"]])
    policy = EgressPolicy(["127.0.0.1"], resolve=names)
    assert [str(address) for address in await policy.allowed_addresses("mixed.test")] == ["127.0.0.1"]
    await get(policy, server.url("/image", "mixed.test"))


@pytest.mark.parametrize(
    "to",
    [
        *("http://127.0.0.2/", "http://localhost/", "file:///etc/passwd", "http://u:p@good.test/", "//127.0.0.2/"),
        *(
            "http://[::1]/",
            "http://2130706434/",
            "http://169.254.169.254/",
            "ftp://good.test/",
            "http://[",
        ),
    ],
)
async def test_every_redirect_is_judged_again(server: Server, to: str) -> None:
    names = Names(good_test=[["127.0.0.1"]], localhost=[["127.0.0.1"]])
    policy = EgressPolicy(["good.test"], resolve=names)
    url = server.url("/redirect", "good.test") + f"?to={to}"
    assert await refusal(policy, url) in ("bad_url", "egress_refused")
    assert len(server.requests) == 1


@pytest.mark.parametrize("to", ["http://10.1.2.3:81/x", "http://files.corp.internal/x", "http://127.0.0.1:1/x"])
async def test_where_a_redirect_leads_is_only_in_the_log(
    server: Server, to: str, caplog: pytest.LogCaptureFixture
) -> None:
    policy = EgressPolicy(["good.test", "127.0.0.1"], resolve=Names(good_test=[["127.0.0.1"]]))
    with pytest.raises(EgressError) as raised:
        await get(policy, server.url("/redirect", "good.test") + f"?to={to}")
    message = raised.value.info.message
    assert "http://good.test" in message
    host = to.split("/")[2]
    assert host not in message
    assert raised.value.info.code == "egress_failed" or host.split(":")[0] in caplog.text


async def test_redirects_are_followed_and_counted(server: Server) -> None:
    policy = EgressPolicy(["127.0.0.1"])
    got = await get(policy, server.url("/redirect?to=/image"))
    assert (got.media_type, server.requests[-1].path) == ("image/png", "/image")
    assert await refusal(policy, server.url("/nowhere")) == "egress_failed"
    server.requests.clear()
    assert await refusal(policy, server.url("/loop")) == "egress_failed"
    assert len(server.requests) == 6


async def test_nothing_of_ours_goes_along(server: Server) -> None:
    await get(EgressPolicy(["127.0.0.1"]), server.url("/cookie"), accept=["image/*"])
    headers = server.requests[-1].headers
    assert set(headers) == {"Host", "Accept", "Accept-Encoding", "User-Agent", "Connection"}
    assert headers["User-Agent"] == "pellucid"
    assert headers["Accept"] == "image/*"


# --- limits --------------------------------------------------------------------------------------------------------


async def test_limits_of_bytes_time_and_type(server: Server) -> None:
    policy = EgressPolicy(["127.0.0.1"])
    assert await refusal(policy, server.url("/sized")) == "egress_too_large"
    assert await refusal(policy, server.url("/endless")) == "egress_too_large"
    assert await refusal(policy, server.url("/slow"), timeout_seconds=0.2) == "egress_timeout"
    assert await refusal(policy, server.url("/image"), accept=["text/plain", "image/jpeg"]) == "bad_media_type"
    assert await refusal(policy, server.url("/missing")) == "egress_failed"
    assert await refusal(policy, server.url("/gzip"), max_bytes=10_000_000) == "egress_failed"
    assert (await get(policy, server.url("/image"), accept=["image/*"], max_bytes=30)).data == b"PNG" * 10
    assert await refusal(policy, server.url("/image"), max_bytes=29) == "egress_too_large"
    assert await refusal(policy, "http://127.0.0.1:1/") == "egress_failed"


async def test_the_field_that_named_the_url_is_named(server: Server) -> None:
    with pytest.raises(EgressError) as raised:
        await get(EgressPolicy(), server.url("/image"), param="input[0].content[1].image_url")
    assert raised.value.info.param == "input[0].content[1].image_url"
    assert raised.value.info.kind == "forbidden"


async def test_a_slow_name_service_is_within_the_time() -> None:
    async def never(host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    assert await refusal(EgressPolicy(resolve=never), "http://slow.test/", timeout_seconds=0.1) == "egress_timeout"


# --- other clients -------------------------------------------------------------------------------------------------


async def test_aiohttp_s_own_redirects_are_judged_too(server: Server) -> None:
    policy = EgressPolicy(["127.0.0.1"])
    async with aiohttp.ClientSession(connector=EgressConnector(policy)) as session:
        async with session.get(server.url("/redirect?to=/image")) as answer:
            assert answer.status == 200
        with pytest.raises(EgressError):
            await session.get(server.url("/redirect?to=http://127.0.0.2/"))


async def test_httpx_over_the_same_policy(server: Server) -> None:
    policy = EgressPolicy(["good.test"], resolve=Names(good_test=[["127.0.0.1"]]))
    async with httpx2.AsyncClient(transport=EgressTransport(policy, 1000), follow_redirects=True) as client:
        answer = await client.get(server.url("/redirect?to=/image", "good.test"))
        assert (answer.status_code, answer.content) == (200, b"PNG" * 10)
        assert (await client.post(server.url("/missing", "good.test"), json={"a": 1})).status_code == 404
        assert server.requests[-1].method == "POST"
        with pytest.raises(httpx2.ConnectError) as raised:
            await client.get(server.url("/redirect?to=http://127.0.0.1/", "good.test"))
        refused = cause_of(raised.value)
        assert refused is not None
        assert refused.info.code == "egress_refused"
        with pytest.raises(httpx2.StreamError, match="too large"):
            await client.get(server.url("/endless", "good.test"))
        silent = httpx2.Timeout(LIMIT_SECONDS, read=0.02)
        with pytest.raises(httpx2.ReadTimeout):
            async with client.stream("GET", server.url("/slow", "good.test"), timeout=silent) as slow:
                await slow.aread()
