"""Opening connections: names, addresses, TLS; and how long connections are kept."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohappyeyeballs import AddrInfoType
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from pellucid.errors import ModelError
from pellucid.upstream import UpstreamClient
from pellucid.upstream.connection import KEEP_ALIVE_SECONDS
from pellucid.upstream.connector import Pool, Resolver
from pellucid.upstream.request import Endpoint
from tests.upstream.conftest import LIMITS
from tests.upstream.raw_server import CHUNKED, OK, RawServer, Received, chunk
from tests.waiting import loop_turns

pytestmark = pytest.mark.anyio


def address(host: str, port: int) -> AddrInfoType:
    [address_info] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return address_info


async def exchange(client: UpstreamClient, server: RawServer, url: str) -> bytes:
    """One request and its response. Returns the request's head."""
    opening = asyncio.create_task(client.open(url, {}, b"{}"))
    serving = asyncio.create_task(server.accept())
    await asyncio.wait({opening, serving}, return_when=asyncio.FIRST_COMPLETED)
    if opening.done():
        serving.cancel()
        await opening
    peer = await serving
    head, _ = await peer.request()
    peer.send(OK)
    assert Received(await opening).body == b"ok"
    return head


# --- names and addresses ----------------------------------------------------------------------------------------------


async def test_an_address_that_refuses_is_passed_over(server: RawServer) -> None:
    """A name that has an IPv6 address where nothing listens, and an IPv4 address where something does."""

    async def lookup(host: str, port: int) -> list[AddrInfoType]:
        assert host == "dual.invalid"
        return [address("::1", port), address("127.0.0.1", port)]

    client = UpstreamClient(LIMITS, lookup=lookup)
    head = await exchange(client, server, f"http://dual.invalid:{server.port}/v1")
    assert b"Host: dual.invalid:%d\r\n" % server.port in head
    await client.aclose()


async def test_an_address_that_does_not_answer_delays_no_request(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.upstream.connector._ATTEMPT_DELAY_SECONDS", 0.01)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.2", server.port))
        deaf.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.2", server.port))

        async def lookup(host: str, port: int) -> list[AddrInfoType]:
            return [address("127.0.0.2", port), address("127.0.0.1", port)]

        client = UpstreamClient(LIMITS, lookup=lookup)
        await exchange(client, server, f"http://two.invalid:{server.port}/v1")
        await client.aclose()
        for one in waiting:
            one.close()


async def test_a_name_without_a_working_address_says_why(client: UpstreamClient) -> None:
    async def lookup(host: str, port: int) -> list[AddrInfoType]:
        return [address("::1", 1), address("127.0.0.1", 1)]

    nowhere = UpstreamClient(LIMITS, lookup=lookup)
    with pytest.raises(ModelError) as caught:
        await nowhere.open("http://nowhere.invalid/", {}, b"")
    assert caught.value.info.message == "the model's provider cannot be reached: Connection refused"
    await nowhere.aclose()


async def test_ipv6_literals(client: UpstreamClient) -> None:
    async with RawServer("::1") as server:
        assert b"Host: [::1]:%d\r\n" % server.port in await exchange(client, server, server.url)


async def test_one_lookup_serves_all_and_for_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups: list[str] = []
    go_on = asyncio.Event()

    async def lookup(host: str, port: int) -> list[AddrInfoType]:
        lookups.append(host)
        await go_on.wait()
        if len(lookups) == 2:
            raise socket.gaierror(socket.EAI_AGAIN, "later")
        return [address("127.0.0.1", port), address("127.0.0.2", port), address("127.0.0.3", port)]

    resolver = Resolver(lookup)
    first, second = (asyncio.create_task(resolver.resolve("a.invalid", 80)) for _ in range(2))
    await loop_turns()
    first.cancel()  # the other still waits for the same lookup
    await asyncio.wait([first])
    go_on.set()
    seen = [(await second)[0][4][0]]
    seen += [(await resolver.resolve("a.invalid", 80))[0][4][0] for _ in range(3)]
    assert lookups == ["a.invalid"]
    assert seen == ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.1"]
    with pytest.raises(socket.gaierror):
        await resolver.resolve("b.invalid", 80)
    assert await resolver.resolve("b.invalid", 80)  # what failed is asked again
    assert len(lookups) == 3
    monkeypatch.setattr("pellucid.upstream.connector._LOOKUP_TTL_SECONDS", -1.0)
    await resolver.resolve("c.invalid", 80)
    await resolver.resolve("c.invalid", 80)
    assert len(lookups) == 5


async def test_addresses_are_not_looked_up() -> None:
    async def lookup(host: str, port: int) -> list[AddrInfoType]:
        raise AssertionError

    resolver = Resolver(lookup)
    assert await resolver.resolve("127.0.0.1", 80) == [address("127.0.0.1", 80)]
    assert await resolver.resolve("::1", 80) == [address("::1", 80)]


# --- TLS --------------------------------------------------------------------------------------------------------------

CA_USAGE = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip
Certify = Callable[..., ssl.SSLContext]


@pytest.fixture
def certify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certify:
    """An authority that the client trusts by `SSL_CERT_FILE`. Returns what makes a server's certificate of it.

    Certificates have what Python requires since 3.13 (`ssl.VERIFY_X509_STRICT`, RFC 5280).
    """
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)

    def build(
        name: str, key: ec.EllipticCurvePrivateKey, issuer: str, ends: datetime.timedelta
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * day)
            .not_valid_after(now + ends)
        )

    authority = ec.generate_private_key(ec.SECP256R1())
    root = (
        build("Tests", authority, "Tests", day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .add_extension(CA_USAGE, critical=True)
        .sign(authority, hashes.SHA256())
    )
    trusted = tmp_path / "root.pem"
    trusted.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))

    def server(*names: str, ends: datetime.timedelta = day, is_signed: bool = True) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        also: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
        ]
        signer = authority if is_signed else key
        certificate = (
            build(names[0], key, "Tests" if is_signed else names[0], ends)
            .add_extension(x509.SubjectAlternativeName(also), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        both = tmp_path / "server.pem"
        both.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(both)
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context

    return server


async def local(host: str, port: int) -> list[AddrInfoType]:
    return [address("127.0.0.1", port)]


async def test_an_operators_own_authority(certify: Certify) -> None:
    async with RawServer(tls=certify("model.invalid", "127.0.0.1")) as server:
        client = UpstreamClient(LIMITS, lookup=local)
        for host in ("127.0.0.1", "model.invalid", "model.invalid."):
            await exchange(client, server, f"https://{host}:{server.port}/v1")
            tls = server.peers[-1].writer.get_extra_info("ssl_object")
            assert tls.selected_alpn_protocol() == "http/1.1"
        await client.aclose()


async def test_bodies_and_their_ends_over_tls(certify: Certify) -> None:
    async with RawServer(tls=certify("127.0.0.1")) as server:
        client = UpstreamClient(LIMITS)
        large = bytes(range(256)) * 10_000
        opening = asyncio.create_task(client.open(server.url, {}, large))
        peer = await server.accept()
        assert (await peer.request())[1] == large
        peer.send(CHUNKED + chunk(b"a") + b"0\r\n\r\n")
        assert Received(await opening).body == b"a"
        assert client.idle_connections == 1
        opening = asyncio.create_task(client.open(server.url, {}, b"{}"))
        await peer.request()
        peer.send(b"HTTP/1.0 200 OK\r\n\r\n" + large)
        received = Received(await opening)
        peer.close()
        assert await received.end() is None
        assert received.body == large
        opening = asyncio.create_task(client.open(server.url, {}, b"{}"))
        peer = await server.accept()
        await peer.request()
        peer.send(CHUNKED)
        response = await opening
        received = Received(response)
        response.pause_reading()
        response.resume_reading()
        peer.send(chunk(b"b"))
        assert await received.next() == b"b"
        response.close()
        await peer.left()
        await client.aclose()


@pytest.mark.parametrize(
    ("name", "says"),
    [("other", "not valid for"), ("expired", "certificate has expired"), ("own", "self-signed certificate")],
)
async def test_a_certificate_that_is_not_good(certify: Certify, name: str, says: str) -> None:
    context = {
        "other": lambda: certify("other.invalid"),
        "expired": lambda: certify("127.0.0.1", ends=-datetime.timedelta(days=1)),
        "own": lambda: certify("127.0.0.1", is_signed=False),
    }[name]()
    async with RawServer(tls=context) as server:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        client = UpstreamClient(LIMITS)
        with pytest.raises(ModelError) as caught:
            await client.open(server.url, {}, b"{}")
        info = caught.value.info
        assert (info.kind, info.code) == ("unavailable", "unreachable")
        assert info.message == "the model's provider cannot be reached: no secure connection could be established"
        assert says in (info.upstream_message or "")
        assert str(server.port) not in (info.upstream_message or "")
        await client.aclose()


async def test_a_server_that_does_not_speak_tls(client: UpstreamClient, server: RawServer) -> None:
    opening = asyncio.create_task(client.open(server.url.replace("http:", "https:"), {}, b"{}"))
    peer = await server.accept()
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ModelError, match="no secure connection could be established"):
        await opening


async def test_cancelling_a_handshake_closes_the_connection(client: UpstreamClient, server: RawServer) -> None:
    opening = asyncio.create_task(client.open(server.url.replace("http:", "https:"), {}, b"{}"))
    peer = await server.accept()
    await peer.reader.read(10)
    opening.cancel()
    await asyncio.wait([opening])
    await peer.left()


async def test_a_handshake_has_the_time_of_connecting(client: UpstreamClient, server: RawServer) -> None:
    url = server.url.replace("http:", "https:")
    opening = asyncio.create_task(client.open(url, {}, b"{}"))
    await server.accept()
    opening.cancel()  # the roots are read by now
    with pytest.raises(ModelError, match=r"no connection within 0\.05 s"):
        await client.open(url, {}, b"{}", replace(LIMITS, connect=0.05))
    for peer in server.peers:
        await peer.left()


# --- connections that grow old ----------------------------------------------------------------------------------------


async def served(pool: Pool, server: RawServer, sent: bytes) -> None:
    """One exchange on a connection of the pool, which gets it back."""
    connection = await pool.connect(Endpoint("127.0.0.1", server.port, False))
    peer = await server.accept()
    peer.send(sent)
    await connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
    connection.receive(lambda data: None, lambda is_whole: None)
    pool.release(connection)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (b"", KEEP_ALIVE_SECONDS),
        (b"Keep-Alive: timeout=5, max=100\r\n", 4.0),
        (b"Keep-Alive: max=100,  Timeout=1000\r\n", KEEP_ALIVE_SECONDS),
        (b"Keep-Alive: timeout=soon\r\n", KEEP_ALIVE_SECONDS),
    ],
)
async def test_a_connection_is_kept_as_long_as_the_server_says(
    server: RawServer, monkeypatch: pytest.MonkeyPatch, header: bytes, seconds: float
) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    ahead = [0.0]
    monkeypatch.setattr("pellucid.upstream.connection.monotonic", lambda: now + ahead[0])
    monkeypatch.setattr("pellucid.upstream.connector.monotonic", lambda: now + ahead[0])
    endpoint = Endpoint("127.0.0.1", server.port, False)
    pool = Pool()
    await served(pool, server, OK.replace(b"OK\r\n", b"OK\r\n" + header))
    ahead[0] = seconds - 0.1
    pooled = pool.acquire(endpoint)
    assert pooled is not None
    pool.release(pooled)
    ahead[0] = seconds
    assert pool.acquire(endpoint) is None
    await server.peers[-1].left()
    pool.close()


async def test_expired_connections_are_closed_without_a_request(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.upstream.connector._SWEEP_SECONDS", 0.01)
    monkeypatch.setattr("pellucid.upstream.connection.KEEP_ALIVE_SECONDS", 0.03)
    pool = Pool()
    await served(pool, server, OK)
    await server.peers[-1].left()
    assert pool.idle_count == 0
    pool.close()
