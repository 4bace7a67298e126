"""Sign-in with an OpenID Connect provider over sockets: how it succeeds, and how every other case ends."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import RSAKey

from pellucid.server.access.config import AccessConfig, check_access
from pellucid.server.access.oidc import safe_return_path
from pellucid.server.config import Config, check_config
from tests.access.oidc_kit import CLIENT, SECRET, Browser, Provider, providing
from tests.scripted.gateway import Served, serve


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with providing() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Iterator[Provider]:
    """The provider with its initial settings."""
    fresh = vars(Provider())
    yield running
    vars(running).update(
        {name: fresh[name] for name in ("keys", "status", "body", "metadata", "make_token", "token_response")}
    )
    running.secret, running.extra_claims = SECRET, fresh["extra_claims"]
    running.codes.clear()


def config(provider: Provider, oidc: dict[str, Any] | None = None, **access: Any) -> Config:
    jwt = {"issuer": provider.name, "audience": "the-api", "retry_seconds": 0.05, **access.pop("jwt", {})}
    table = {
        "providers": {"vllm": {"base_url": "http://127.0.0.1:9/v1"}},
        "storage": {"url": "sqlite://"},
        "access": {"jwt": jwt, "oidc": {"client_id": CLIENT, "client_secret_env": "SECRET", **(oidc or {})}, **access},
    }
    return check_config(table, {"SECRET": SECRET})


@pytest.fixture(scope="module")
def gateway(running: Provider) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", SECRET)
        with serve(config(running)) as served:
            yield served


@pytest.fixture
def browser(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> Browser:
    # The tests together exceed the sign-in attempts that one address may make in a minute.
    monkeypatch.setattr("pellucid.server.access.limits._SIGN_IN_LIMITS", {"attempts": 1e6})
    return Browser(gateway)


def test_sign_in_returns_to_the_requested_page(browser: Browser, provider: Provider) -> None:
    assert browser.state == {"signed_in": False, "needed": True, "ways": ["oidc"]}
    assert browser.fetch("GET", "/api/models").status == 401
    landed = browser.sign_in_with(provider, "?next=/c/chat_1%3Fa=b")
    assert (landed.status, landed.headers["location"]) == (303, "/c/chat_1?a=b")
    state = browser.state
    assert state.pop("owner")
    assert state == {"signed_in": True, "needed": True, "ways": ["oidc"], "name": "Ada L."}
    assert browser.fetch("GET", "/api/models").status == 200
    # The cookie of the attempt is removed, and only the session cookie remains.
    assert set(browser.cookies) == {"pellucid_session"}
    attempt, gone, session = browser.set_cookie_lines
    assert attempt.endswith("; Path=/api/session/oidc; Max-Age=600; HttpOnly; SameSite=Lax")
    assert gone == "pellucid_sign_in=; Path=/api/session/oidc; Max-Age=0; HttpOnly; SameSite=Lax"
    assert session.endswith("; Path=/api; Max-Age=604800; HttpOnly; SameSite=Strict")
    browser.fetch("DELETE", "/api/session")
    assert browser.state["signed_in"] is False


def _fixed_claims(claims: dict[str, Any], authorization: dict[str, str]) -> dict[str, Any]:
    return claims


def test_each_subject_is_an_owner_of_its_own(gateway: Served, browser: Browser, provider: Provider) -> None:
    guard = gateway.server.config.app.services.guard  # type: ignore[union-attr]
    for name in ("ada", "bob"):
        provider.extra_claims = partial(_fixed_claims, {"sub": name})
        one = Browser(gateway)
        one.sign_in_with(provider)
        session = guard.browser_sessions.decode(one.cookies["pellucid_session"][1])
        assert session.who.owner == f"{provider.name}|{name}"


def test_every_attempt_has_its_own_state_nonce_and_verifier(gateway: Served, provider: Provider) -> None:
    provider.authorization_requests.clear()
    for _ in range(5):
        reply = Browser(gateway).go("/api/session/oidc")
        provider.authorize(reply.headers["location"])
    for name in ("state", "nonce", "code_challenge"):
        values = {authorization[name] for authorization in provider.authorization_requests}
        assert len(values) == 5
        assert all(len(value) >= 32 for value in values)
    assert {authorization["redirect_uri"] for authorization in provider.authorization_requests} == {
        f"{gateway.url}/api/session/oidc/callback"
    }


# --- wrong callbacks -------------------------------------------------------------------------------------------------


def assert_refused(browser: Browser, reply: Any, message: str, status: int = 400) -> None:
    """Assert that a page explains the error, links back, and creates no session."""
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert message in reply.body.decode()
    assert '<a href="/">' in reply.body.decode()
    assert "pellucid_session" not in browser.cookies
    assert browser.state["signed_in"] is False


def start_sign_in(browser: Browser, provider: Provider) -> dict[str, str]:
    """Start a sign-in and return the query of its callback."""
    url = provider.authorize(browser.go("/api/session/oidc").headers["location"])
    return {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}


def send_callback(browser: Browser, **query: str) -> Any:
    return browser.go(f"/api/session/oidc/callback?{urlencode(query)}")


def test_a_wrong_state_is_refused(browser: Browser, provider: Provider) -> None:
    answer = start_sign_in(browser, provider)
    assert_refused(browser, send_callback(browser, **{**answer, "state": "another"}), "does not belong to the sign-in")
    # An attempt can be used once, whatever its result.
    assert_refused(browser, send_callback(browser, **answer), "did not begin it here")
    del answer["state"]
    start_sign_in(browser, provider)
    assert_refused(browser, send_callback(browser, **answer), "does not belong to the sign-in")


def test_a_callback_of_another_browser_is_refused(gateway: Served, browser: Browser, provider: Provider) -> None:
    """Login CSRF: a link must not sign a person in as its author."""
    stranger = Browser(gateway)
    theirs = start_sign_in(stranger, provider)
    assert_refused(browser, send_callback(browser, **theirs), "did not begin it here")
    start_sign_in(browser, provider)
    assert_refused(browser, send_callback(browser, **theirs), "does not belong to the sign-in")
    assert send_callback(stranger, **theirs).status == 303


def test_a_callback_works_once(browser: Browser, provider: Provider) -> None:
    answer = start_sign_in(browser, provider)
    attempt_cookie = browser.cookies["pellucid_sign_in"]
    assert send_callback(browser, **answer).status == 303
    browser.cookies = {"pellucid_sign_in": attempt_cookie}
    requests = len(provider.token_requests)
    assert_refused(browser, send_callback(browser, **answer), "this sign-in was finished before")
    # Nor with a new code that the provider would accept.
    browser.cookies = {"pellucid_sign_in": attempt_cookie}
    provider.codes["new"] = provider.authorization_requests[-1]
    assert_refused(browser, send_callback(browser, **{**answer, "code": "new"}), "this sign-in was finished before")
    assert len(provider.token_requests) == requests


def test_an_expired_attempt_is_refused(browser: Browser, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.access.oidc.ATTEMPT_SECONDS", -1.0)
    assert_refused(browser, send_callback(browser, **start_sign_in(browser, provider)), "it took too long")


def test_a_code_of_another_attempt_is_refused(browser: Browser, provider: Provider) -> None:
    """Code injection: the verifier belongs to the attempt of this browser."""
    stolen = start_sign_in(browser, provider)["code"]
    mine = start_sign_in(browser, provider)
    assert_refused(browser, send_callback(browser, **{**mine, "code": stolen}), "its code may have been used up")


@pytest.mark.parametrize("nonce", ["another", None, ["a"], ""])
def test_a_wrong_nonce_is_refused(browser: Browser, provider: Provider, nonce: Any) -> None:
    provider.extra_claims = lambda authorization: {"nonce": nonce}
    assert_refused(browser, send_callback(browser, **start_sign_in(browser, provider)), "belongs to another sign-in")


def test_a_nonce_that_only_contains_the_right_one_is_refused(browser: Browser, provider: Provider) -> None:
    """The nonce is one string (OpenID Connect Core §2): a list that contains it is a different value."""
    for wrap in (lambda nonce: [nonce], lambda nonce: [nonce, "another"], lambda nonce: {nonce: True}):
        provider.extra_claims = lambda authorization, wrap=wrap: {"nonce": wrap(authorization["nonce"])}  # type: ignore[misc]
        assert_refused(
            browser, send_callback(browser, **start_sign_in(browser, provider)), "belongs to another sign-in"
        )


def test_an_id_token_of_another_attempt_is_refused(browser: Browser, provider: Provider) -> None:
    """Replay: every claim is right except the nonce."""
    start_sign_in(browser, provider)
    earlier = provider.authorization_requests[-1]["nonce"]
    provider.extra_claims = lambda authorization: {"nonce": earlier}
    assert_refused(browser, send_callback(browser, **start_sign_in(browser, provider)), "belongs to another sign-in")


def test_the_code_verifier_is_sent_to_the_token_endpoint_only(browser: Browser, provider: Provider) -> None:
    """RFC 7636 §4: the verifier is long enough and sent as its hash (S256), whatever the provider supports."""
    provider.metadata = {"code_challenge_methods_supported": ["plain"]}
    location = browser.go("/api/session/oidc").headers["location"]
    attempt_cookie = browser.cookies["pellucid_sign_in"][1]
    browser.come_back(provider.authorize(location))
    authorization, (form, _) = provider.authorization_requests[-1], provider.token_requests[-1]
    verifier = form["code_verifier"]
    assert re.fullmatch(r"[A-Za-z0-9._~-]{43,128}", verifier)
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    assert (authorization["code_challenge"], authorization["code_challenge_method"]) == (digest, "S256")
    assert verifier not in location
    assert verifier not in attempt_cookie
    assert (form["grant_type"], form["redirect_uri"]) == ("authorization_code", authorization["redirect_uri"])


def b64(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


FORGED: dict[str, Any] = {
    "alg none": lambda claims: f"{b64({'alg': 'none'})}.{b64(claims)}.",
    "alg HS256": lambda claims: f"{b64({'alg': 'HS256', 'kid': 'first'})}.{b64(claims)}.{b64('x')}",
    "no token": lambda claims: "nothing",
    "half of one": lambda claims: "eyJhbGciOiJSUzI1NiJ9.e30.",
}


@pytest.mark.parametrize("kind", FORGED)
def test_an_unsigned_id_token_is_refused(browser: Browser, provider: Provider, kind: str) -> None:
    provider.make_token = FORGED[kind]
    assert_refused(browser, send_callback(browser, **start_sign_in(browser, provider)), "cannot be verified")


@pytest.mark.parametrize("what", ["the client's secret", "the public key"])
def test_an_id_token_signed_with_hmac_is_refused(browser: Browser, provider: Provider, what: str) -> None:
    """HMAC with a secret that other parties know, too."""
    [key] = provider.keys
    assert isinstance(key, RSAKey)
    secret = SECRET.encode() if what == "the client's secret" else key.as_pem(private=False)

    def forge(claims: dict[str, Any]) -> str:
        signed = f"{b64({'alg': 'HS256', 'kid': 'first'})}.{b64(claims)}"
        digest = hmac.digest(secret, signed.encode(), "sha256")
        return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"

    provider.make_token = forge
    assert_refused(browser, send_callback(browser, **start_sign_in(browser, provider)), "cannot be verified")


def test_an_id_token_signed_with_another_key_is_refused(browser: Browser, provider: Provider) -> None:
    from joserfc import jwt

    stranger = RSAKey.generate_key(2048, {"kid": "first"})
    provider.make_token = lambda claims: jwt.encode({"alg": "RS256", "kid": "first"}, claims, stranger)
    assert_refused(browser, send_callback(browser, **start_sign_in(browser, provider)), "cannot be verified")


WRONG: dict[str, dict[str, Any]] = {
    "for another client": {"aud": "another"},
    "for the API": {"aud": "the-api"},
    "of another issuer": {"iss": "https://evil.example"},
    "expired": {"exp": int(time.time()) - 600},
    "without an end": {"exp": None},
    "of nobody": {"sub": None},
    "issued to another": {"azp": "another"},
    "issued to no name": {"azp": ""},
    "issued to a list": {"azp": [CLIENT]},
    "for several, issued to nobody": {"aud": [CLIENT, "another"]},
    "for several, issued to another": {"aud": [CLIENT, "another"], "azp": "another"},
}


@pytest.mark.parametrize("case", WRONG)
def test_an_id_token_with_wrong_claims_is_refused(browser: Browser, provider: Provider, case: str) -> None:
    provider.extra_claims = lambda authorization: WRONG[case]
    reply = send_callback(browser, **start_sign_in(browser, provider))
    message = {"of nobody": "does not name an owner"}.get(case, "the token of the provider")
    assert_refused(browser, reply, message, 401 if case == "of nobody" else 400)


def test_an_id_token_for_several_audiences_needs_our_azp(browser: Browser, provider: Provider) -> None:
    provider.extra_claims = lambda authorization: {"aud": [CLIENT, "another"], "azp": CLIENT}
    assert browser.sign_in_with(provider).status == 303
    assert browser.state["signed_in"] is True


def test_an_id_token_is_no_api_token(gateway: Served, provider: Provider) -> None:
    for audience, status in (("the-api", 200), (CLIENT, 401)):
        token = provider.token(aud=audience)
        assert gateway.request("GET", "/v1/models", None, {"Authorization": f"Bearer {token}"}).status == status


def test_a_callback_of_another_issuer_is_refused(browser: Browser, provider: Provider) -> None:
    """RFC 9207: the `iss` parameter must name the provider."""
    answer = start_sign_in(browser, provider)
    assert_refused(browser, send_callback(browser, **answer, iss="https://evil.example"), "another provider")
    assert send_callback(browser, **start_sign_in(browser, provider), iss=provider.name).status == 303


@pytest.mark.parametrize(
    ("error_code", "message"),
    [("access_denied", "access_denied"), ("<script>alert(1)</script>", "no code"), ("", "no code")],
)
def test_an_error_of_the_provider_is_shown_escaped(
    browser: Browser, provider: Provider, error_code: str, message: str
) -> None:
    state = start_sign_in(browser, provider)["state"]
    reply = send_callback(browser, state=state, error=error_code, error_description="<script>alert(2)</script>")
    assert_refused(browser, reply, message)
    assert b"<script" not in reply.body


@pytest.mark.parametrize(
    ("answer", "message", "status"),
    [
        ((500, {"error": "x"}), "does not answer as it should", 503),
        ((400, {"error": "<b>"}), "did not confirm it", 400),
        ((200, {}), "did not confirm it", 400),
        ((200, {"id_token": 7}), "did not confirm it", 400),
        ((200, []), "did not confirm it", 400),
        ((302, {}), "did not confirm it", 400),
    ],
)
def test_a_bad_response_of_the_token_endpoint_is_refused(
    browser: Browser, provider: Provider, answer: tuple[int, Any], message: str, status: int
) -> None:
    provider.token_response = answer
    assert_refused(browser, send_callback(browser, **start_sign_in(browser, provider)), message, status)


def test_a_forged_attempt_cookie_is_refused(browser: Browser, provider: Provider) -> None:
    answer = start_sign_in(browser, provider)
    value = browser.cookies["pellucid_sign_in"][1]
    browser.sign_in_with(provider)
    session = browser.cookies.pop("pellucid_session")[1]
    for forged in (value[:-2] + "AA", "x", "a.b.c.d.e", session):
        browser.cookies = {"pellucid_sign_in": ("/api/session/oidc", forged)}
        assert_refused(browser, send_callback(browser, **answer), "did not begin it here")
    # The cookie of an attempt is no session.
    browser.cookies = {"pellucid_session": ("/api", value)}
    assert browser.state["signed_in"] is False


# --- return paths ----------------------------------------------------------------------------------------------------

ELSEWHERE = [
    "//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "javascript:alert(1)", "",
    "/\t/evil.example", "/\n//evil.example", "/ /evil.example", "evil.example", "/c/\r\nSet-Cookie: a=b", "/\x00", "/é",
    "/api/session", "/" + "x" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("next_", ELSEWHERE)
def test_the_return_path_never_leads_to_another_site(browser: Browser, provider: Provider, next_: str) -> None:
    landed = browser.sign_in_with(provider, f"?{urlencode({'next': next_})}")
    assert (landed.status, landed.headers["location"]) == (303, "/")


@given(st.one_of(st.text(), st.text("/\\.:@%?#evil \t\n").map(lambda text: f"/{text}")))
def test_a_return_path_is_local_or_replaced(text: str) -> None:
    path = safe_return_path(text)
    assert path in (text, "/")
    assert path[0] == "/"
    assert path[1:2] not in ("/", "\\")
    assert "\\" not in path
    assert path.isascii()
    assert path.isprintable()
    assert urlsplit(f"http://here{path}").netloc == "here"


# --- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["client_secret_post", "none"])
def test_the_other_client_authentication_methods(provider: Provider, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    oidc = {"client_secret_env": None} if way == "none" else {}
    provider.secret = None if way == "none" else SECRET
    provider.metadata = {"token_endpoint_auth_methods_supported": [way]}
    with serve(config(provider, oidc)) as gateway:
        browser = Browser(gateway)
        assert browser.sign_in_with(provider).status == 303
        assert browser.state["signed_in"] is True
    form, headers = provider.token_requests[-1]
    assert "Authorization" not in headers
    assert ("client_secret" in form) == (way == "client_secret_post")


def test_sign_in_behind_an_https_proxy(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    with serve(config(provider, {"redirect_base": "https://chat.example.com"})) as gateway:
        browser = Browser(gateway, "chat.example.com")
        landed = browser.sign_in_with(provider)
        assert (landed.status, landed.headers["location"]) == (303, "/")
        assert (
            provider.authorization_requests[-1]["redirect_uri"] == "https://chat.example.com/api/session/oidc/callback"
        )
        assert all(line.endswith("; Secure") for line in browser.set_cookie_lines)
        assert browser.state["signed_in"] is True


def test_policies_follow_the_id_token_and_changes_of_the_configuration(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    rules: dict[str, Any] = {
        "jwt": {"policy_claim": "roles", "policies": {"user": "guest"}},
        "policies": {"guest": {"models": []}},
    }
    provider.extra_claims = lambda authorization: {"roles": ["user"]}
    with serve(config(provider, **rules)) as gateway:
        browser = Browser(gateway)
        browser.sign_in_with(provider)
        assert browser.fetch("GET", "/api/models").json["data"] == []
        provider.extra_claims = lambda authorization: {"roles": ["stranger"]}
        other = Browser(gateway)
        assert_refused(other, other.sign_in_with(provider), "gives no access", 403)
    rules["jwt"]["policies"] = {"admin": "guest"}
    with serve(config(provider, **rules)) as gateway:
        later = Browser(gateway)
        later.cookies = browser.cookies
        assert later.state["signed_in"] is False
        assert later.fetch("GET", "/api/models").json["error"]["code"] == "session_over"


def expire_provider_metadata(gateway: Served) -> None:
    """Let the gateway fetch the provider's metadata again at the next request, as it does after a while."""
    guard = gateway.server.config.app.services.guard  # type: ignore[union-attr]
    guard.oidc._attempted_at = -1e18


def test_an_outage_of_the_provider(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    with serve(config(provider)) as gateway:
        browser = Browser(gateway)
        for about in ({"issuer": "https://evil.example"}, {"authorization_endpoint": "http://evil.example/"}, None):
            provider.metadata, provider.status = about or {}, 200 if about else 500
            expire_provider_metadata(gateway)
            assert_refused(browser, browser.go("/api/session/oidc"), "does not answer as it should", 503)
        program = browser.fetch("GET", "/api/session/oidc", Accept="application/json")
        assert (program.status, program.json["error"]["code"]) == (503, "access_unavailable")
        provider.metadata, provider.status = {}, 200
        expire_provider_metadata(gateway)
        assert browser.sign_in_with(provider).status == 303
        # Cached metadata is enough for the redirect to the provider.
        provider.status = 500
        assert browser.go("/api/session/oidc").status == 303


def configuration_errors(oidc: dict[str, Any], **more: Any) -> str:
    access = msgspec.convert({"oidc": {"client_id": "us", **oidc}, **more}, AccessConfig)
    return "\n".join(check_access(access, {"GOOD": "secret"}))


JWT = {"issuer": "https://issuer.example", "audience": "us"}


@pytest.mark.parametrize(
    ("oidc", "more", "message"),
    [
        ({}, {}, "access.oidc: needs [access.jwt]"),
        (
            {},
            {"jwt": {**JWT, "issuer": "us", "jwks_url": "https://a.example/k"}},
            "access.oidc: access.jwt.issuer must",
        ),
        ({"client_id": ""}, {"jwt": JWT}, "access.oidc.client_id: required"),
        ({"client_secret_env": "NONE"}, {"jwt": JWT}, "access.oidc.client_secret_env: the environment has no NONE"),
        ({"scopes": ["profile"]}, {"jwt": JWT}, "access.oidc.scopes: a list of words with"),
        ({"redirect_base": "https://a.example/chat"}, {"jwt": JWT}, "access.oidc.redirect_base: 'https://a.example/"),
        ({"redirect_base": "http://a.example"}, {"jwt": JWT}, "access.oidc.redirect_base: 'http://a.example' must"),
    ],
)
def test_every_configuration_error_is_reported(oidc: dict[str, Any], more: dict[str, Any], message: str) -> None:
    assert message in configuration_errors(oidc, **more)


def test_a_valid_configuration_has_no_errors() -> None:
    assert not configuration_errors(
        {"client_secret_env": "GOOD", "redirect_base": "https://chat.example.com:8443"}, jwt=JWT
    )
