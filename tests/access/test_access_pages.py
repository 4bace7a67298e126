"""Access where no key is required, and requests from web pages of other origins."""

from __future__ import annotations

import re
import socket
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.server.access.config import AccessConfig, CorsConfig, check_access
from pellucid.server.access.errors import AccessError
from pellucid.server.access.origins import Cors
from pellucid.server.access.policy import Policy
from pellucid.server.config import check_config
from pellucid.storage import Store, StoreError
from tests.access.access_kit import Clock, guard, make_key, refusal, scope

pytestmark = pytest.mark.anyio

PAGE = "https://app.example.com"


async def test_local_clients_need_no_key_until_the_first_is_created(store: Store) -> None:
    ticks = Clock()
    access_guard = guard({"key_seconds": 5.0}, store, monotonic=ticks)
    for request in (scope(), scope("sk-unused"), scope(client="::1"), scope(client=None), scope(client="127.9.9.9")):
        principal = await access_guard.admit(request)
        assert (principal.owner, principal.key_id, principal.policy) == ("local", None, Policy(operator=True))
    text, id_ = await make_key(store)
    ticks.now += 5
    await refusal(access_guard, scope())
    await refusal(access_guard, scope("sk-unused"))
    assert (await access_guard.admit(scope(text))).owner == "acme"
    # Revoking the last key does not make access open again, neither here nor after a restart.
    await store.keys.revoke(id_, 1.0)
    ticks.now += 5
    for each_guard in (access_guard, guard({}, store)):
        await refusal(each_guard, scope())


async def test_remote_clients_are_never_local(store: Store) -> None:
    for config in ({}, {"keys": False}):
        for client in ("192.168.1.7", "10.0.0.1", "8.8.8.8", "fe80::1%eth0", "::ffff:10.0.0.1"):
            error = await refusal(guard(config, store), scope(client=client))
            assert "pellucid keys create" in str(error)
            open_guard = guard(config, store, allow_unauthenticated=True)
            assert (await open_guard.admit(scope(client=client))).owner == "local"


async def test_the_default_policy_applies_to_local_clients() -> None:
    access_guard = guard({"default_policy": "p", "policies": {"p": {"view": "summary"}}})
    assert (await access_guard.admit(scope())).policy.view == "summary"


async def test_local_access_needs_the_store_once() -> None:
    class Keys:
        down = True

        async def list(self, owner: str | None = None) -> Any:
            if self.down:
                raise StoreError()
            return []

    class StoreWithKeys:
        keys = Keys()

    access_guard = guard({"key_seconds": 0}, StoreWithKeys())  # type: ignore[arg-type]
    await refusal(access_guard, scope(), "unavailable")
    StoreWithKeys.keys.down = False
    await access_guard.admit(scope())
    StoreWithKeys.keys.down = True
    await access_guard.admit(scope())


async def test_no_pepper_is_created_without_keys(store: Store, tmp_path: Any) -> None:
    pepper = tmp_path / "data" / "pepper"
    config = {"pepper_file": str(pepper), "key_seconds": 0}
    access_guard = guard(config, store, environ={"PELLUCID_KEY_PEPPER": ""})
    await access_guard.start()
    await access_guard.admit(scope())
    assert not pepper.parent.exists()


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_foreign_origin_is_refused_with_and_without_a_key(store: Store, kind: str) -> None:
    text, _ = await make_key(store)
    for request in (
        scope(origin=PAGE, kind=kind),
        scope(text, origin=PAGE, kind=kind),
        scope(origin="null", kind=kind),
    ):
        error = await refusal(guard({}, store), request, "forbidden")
        assert error.info.code == "foreign_origin"
    named = guard({"cors": {"origins": [PAGE]}}, store)
    assert (await named.admit(scope(text, origin=PAGE, kind=kind))).owner == "acme"
    for near in (PAGE + ":8443", PAGE.replace("https", "http"), PAGE + ".evil.com", "https://evil.com", PAGE.upper()):
        await refusal(named, scope(text, origin=near, kind=kind), "forbidden")


MIXED_HOSTS = ("127.0.0.1:80@evil.example", "[::1].evil.example", "[::1]evil", "localhost:1.evil.example", "[]")
FOREIGN_HOSTS = ("evil.example:8080", "localhost.evil.example", "[evil]", "127.0.0.1.evil.example", *MIXED_HOSTS)
OWN_HOSTS = ("127.0.0.1:8080", "localhost:8080", "[::1]:8080", "app.localhost", "192.168.1.5:80", "LOCALHOST")


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_dns_rebinding_is_refused_where_no_key_is_required(store: Store, kind: str) -> None:
    # A page in a browser of the network reaches a gateway that is open to the network, too.
    for host, is_open in product(FOREIGN_HOSTS, (False, True)):
        with pytest.raises(RequestError) as caught:
            await guard({}, allow_unauthenticated=is_open).check_host(scope(host=host, kind=kind))
        assert (caught.value.info.kind, caught.value.info.code) == ("forbidden", "foreign_host"), host
        assert "access.hosts" in caught.value.info.message
    for host in (*OWN_HOSTS, socket.gethostname()):
        await guard({}).check_host(scope(host=host, kind=kind))
    # With a key, a host name is as good as an address.
    await make_key(store)
    await guard({}, store).check_host(scope(host="gateway.example", kind=kind))


async def test_the_operator_can_list_hosts() -> None:
    listed = guard({"hosts": ["gateway.example", "with.port:81"], "cors": {"origins": [PAGE]}})
    for host in ("gateway.example", "Gateway.Example:8080", "with.port:81", PAGE.partition("://")[2]):
        await listed.check_host(scope(host=host))
    for host in ("x.gateway.example", "with.port:82", "with.port"):
        with pytest.raises(RequestError):
            await listed.check_host(scope(host=host))
    await guard({"hosts": ["*"]}).check_host(scope(host="anything"))


@pytest.mark.parametrize("hosts", [[], ["localhost", "localhost"], ["localhost", "evil.example"]])
async def test_a_request_has_one_host(hosts: list[str]) -> None:
    request = scope()
    request["headers"] = [*((b"host", host.encode()) for host in hosts), (b"accept", b"*/*")]
    with pytest.raises(RequestError) as caught:
        await guard({}, allow_unauthenticated=True).check_host(request)
    assert (caught.value.info.kind, caught.value.info.code) == ("invalid_request", "invalid_host")


def test_without_configured_origins_no_cors_header_is_sent() -> None:
    cors = Cors(CorsConfig())
    for request in (scope(), scope(origin=PAGE)):
        assert cors.headers(request) == []
        preflight = {**scope(origin=PAGE, access_control_request_method="POST"), "method": "OPTIONS"}
        assert cors.preflight(preflight) == []


def test_only_configured_origins_get_cors_headers_and_all_responses_vary() -> None:
    cors = Cors(CorsConfig([PAGE], credentials=True))
    headers = dict(cors.headers(scope(origin=PAGE)))
    assert headers[b"access-control-allow-origin"] == PAGE.encode()
    assert headers[b"access-control-allow-credentials"] == b"true"
    assert b"x-ratelimit-remaining-reasoning-tokens" in headers[b"access-control-expose-headers"]
    assert headers[b"vary"] == b"origin"
    for other in (scope(), scope(origin="https://evil.example")):
        assert cors.headers(other) == [(b"vary", b"origin")]


def test_only_cors_preflights_are_answered() -> None:
    cors = Cors(CorsConfig([PAGE]))
    preflight_headers = {
        "access_control_request_method": "POST",
        "access_control_request_headers": "authorization, x-stainless-os",
    }
    headers = dict(cors.preflight({**scope(origin=PAGE, **preflight_headers), "method": "OPTIONS"}) or [])
    assert headers[b"access-control-allow-origin"] == PAGE.encode()
    assert headers[b"access-control-allow-headers"] == b"authorization, x-stainless-os"
    assert b"POST" in headers[b"access-control-allow-methods"]
    assert b"access-control-allow-credentials" not in headers
    assert cors.preflight({**scope(origin="https://evil.example", **preflight_headers), "method": "OPTIONS"}) == [
        (b"vary", b"origin")
    ]
    assert cors.preflight(scope(origin=PAGE, **preflight_headers)) is None
    assert cors.preflight({**scope(origin=PAGE), "method": "OPTIONS"}) is None


@given(st.lists(st.sampled_from([PAGE, "http://a.example", "http://b.example:81", "*"]), unique=True), st.data())
def test_credentials_are_allowed_for_configured_origins_only(origins: list[str], data: st.DataObject) -> None:
    cors = Cors(CorsConfig(origins, credentials=True))
    origin = data.draw(st.sampled_from([PAGE, "http://a.example", "http://c.example", "null", ""]))
    headers = dict(cors.headers(scope(origin=origin)))
    if b"access-control-allow-credentials" in headers:
        assert origin in origins
        assert headers[b"access-control-allow-origin"] == origin.encode()
    if headers.get(b"access-control-allow-origin") == b"*":
        assert "*" in origins
    try:
        cors.check(scope(origin=origin))
    except AccessError:
        assert origin not in origins
        assert "*" not in origins


def configuration_errors(**table: Any) -> str:
    import msgspec

    return "\n".join(check_access(msgspec.convert(table, AccessConfig), {"GOOD": "x" * 24, "SHORT": "x" * 23}))


JWT = {"issuer": "https://issuer.example", "audience": "us"}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"default_policy": "smal", "policies": {"small": {}}},
            "access.default_policy: no policy 'smal'; did you mean",
        ),
        ({"key_env": "NONE"}, "access.key_env: the environment has no NONE"),
        ({"key_env": "SHORT"}, "access.key_env: SHORT must hold at least 24"),
        ({"key_owner": "a|b"}, "access.key_owner: an owner has"),
        ({"cors": {"origins": ["https://a.example/"]}}, "access.cors.origins: 'https://a.example/' is no origin"),
        ({"cors": {"origins": ["null"]}}, "is no origin"),
        ({"cors": {"origins": ["https://*.example"]}}, "is no origin"),
        ({"cors": {"origins": ["https://a.example:443"]}}, "leave out the default port"),
        ({"cors": {"origins": ["*"], "credentials": True}}, "not with every origin"),
        (
            {"jwt": {**JWT, "issuer": "http://issuer.example"}},
            "access.jwt.issuer: 'http://issuer.example' is not an https",
        ),
        ({"jwt": {**JWT, "issuer": "a|b", "jwks_url": "https://a.example/k"}}, "access.jwt.issuer: must be"),
        ({"jwt": {**JWT, "audience": []}}, "access.jwt.audience: required"),
        ({"jwt": {**JWT, "algorithms": []}}, "access.jwt.algorithms: at least one"),
        ({"jwt": {**JWT, "jwks_url": "ftp://x/y"}}, "access.jwt.jwks_url:"),
        ({"jwt": {**JWT, "jwks_url": "https://user:pw@x/y"}}, "access.jwt.jwks_url:"),
        ({"jwt": {**JWT, "jwks_file": "/nowhere"}}, "access.jwt.jwks_file: there is no file"),
        ({"jwt": {**JWT, "policies": {"a": "b"}}}, "access.jwt.policies: needs policy_claim"),
        ({"jwt": {**JWT, "policy_claim": "r", "policies": {"a": "b"}}}, "access.jwt.policies.a: no policy 'b'"),
    ],
)
def test_every_configuration_error_is_reported_with_a_correction(table: dict[str, Any], message: str) -> None:
    assert message in configuration_errors(**table)


def test_a_valid_configuration_has_no_errors() -> None:
    assert not configuration_errors()
    origins = ["https://a.example", "http://localhost:3000", "chrome-extension://abcdef"]
    assert not configuration_errors(keys=True, key_env="GOOD", jwt=JWT, cors={"origins": origins, "credentials": True})
    assert not configuration_errors(jwt={**JWT, "issuer": "http://127.0.0.1:9000"})


def test_the_examples_of_the_guide_are_valid() -> None:
    guide = Path(__file__).parents[2] / "docs" / "access.md"
    blocks = re.findall(r"```toml\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)
    policies, tokens, people, pages, names = (check_config(tomllib.loads(block), {}).access for block in blocks)
    assert policies.policy("staff").reasoning_events == "openai"
    assert tokens.jwt is not None
    assert people.oidc is not None
    assert pages.cors.origins
    assert names.hosts


@pytest.mark.parametrize("algorithm", ["none", "HS256", "HS512", "ES256K"])
def test_algorithms_with_a_shared_secret_cannot_be_configured(algorithm: str) -> None:
    with pytest.raises(ValueError, match="Invalid enum value"):
        configuration_errors(jwt={**JWT, "algorithms": [algorithm]})
