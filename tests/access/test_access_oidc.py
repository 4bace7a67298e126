"""Signing in with a provider, against a real one over sockets: who gets in, and how every other way ends."""

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
    """As it was made."""
    fresh = vars(Provider())
    yield running
    vars(running).update({name: fresh[name] for name in ("keys", "status", "body", "about", "make_token", "redeem")})
    running.secret, running.claims_of = SECRET, fresh["claims_of"]
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
    # Every test is a minute's worth of attempts from the same address.
    monkeypatch.setattr("pellucid.server.access.limits._LIMITS", {"attempts": 1e6})
    return Browser(gateway)


def test_a_person_comes_back_signed_in_where_they_wanted_to_go(browser: Browser, provider: Provider) -> None:
    assert browser.state == {"signed_in": False, "needed": True, "ways": ["oidc"]}
    assert browser.fetch("GET", "/api/models").status == 401
    landed = browser.sign_in_with(provider, "?next=/c/chat_1%3Fa=b")
    assert (landed.status, landed.headers["location"]) == (303, "/c/chat_1?a=b")
    assert browser.state == {"signed_in": True, "needed": True, "ways": ["oidc"], "name": "Ada L."}
    assert browser.fetch("GET", "/api/models").status == 200
    # What was needed for it is gone, and the session is all there is.
    assert set(browser.cookies) == {"pellucid_session"}
    begun, gone, session = browser.set_cookie_lines
    assert begun.endswith("; Path=/api/session/oidc; Max-Age=600; HttpOnly; SameSite=Lax")
    assert gone == "pellucid_sign_in=; Path=/api/session/oidc; Max-Age=0; HttpOnly; SameSite=Lax"
    assert session.endswith("; Path=/api; Max-Age=604800; HttpOnly; SameSite=Strict")
    browser.fetch("DELETE", "/api/session")
    assert browser.state["signed_in"] is False


def _claims(claims: dict[str, Any], asked: dict[str, str]) -> dict[str, Any]:
    return claims


def test_two_persons_are_two_owners_and_neither_is_an_owner_of_keys(
    gateway: Served, browser: Browser, provider: Provider
) -> None:
    guard = gateway.server.config.app.services.guard  # type: ignore[union-attr]
    for name in ("ada", "bob"):
        provider.claims_of = partial(_claims, {"sub": name})
        one = Browser(gateway)
        one.sign_in_with(provider)
        session = guard.browser_sessions.decode(one.cookies["pellucid_session"][1])
        assert session.who.owner == f"{provider.name}|{name}"


def test_every_attempt_has_a_state_a_nonce_and_a_verifier_of_its_own(gateway: Served, provider: Provider) -> None:
    provider.authorization_requests.clear()
    for _ in range(5):
        reply = Browser(gateway).go("/api/session/oidc")
        provider.authorize(reply.headers["location"])
    for name in ("state", "nonce", "code_challenge"):
        values = {asked[name] for asked in provider.authorization_requests}
        assert len(values) == 5
        assert all(len(value) >= 32 for value in values)
    assert {asked["redirect_uri"] for asked in provider.authorization_requests} == {
        f"{gateway.url}/api/session/oidc/callback"
    }


# --- what comes back wrong -------------------------------------------------------------------------------------------


def refused(browser: Browser, reply: Any, said: str, status: int = 400) -> None:
    """In words, with a way back; and nobody is signed in."""
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert said in reply.body.decode()
    assert '<a href="/">' in reply.body.decode()
    assert "pellucid_session" not in browser.cookies
    assert browser.state["signed_in"] is False


def begun(browser: Browser, provider: Provider) -> dict[str, str]:
    """What a provider would send the browser back with."""
    url = provider.authorize(browser.go("/api/session/oidc").headers["location"])
    return {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}


def back(browser: Browser, **query: str) -> Any:
    return browser.go(f"/api/session/oidc/callback?{urlencode(query)}")


def test_another_state(browser: Browser, provider: Provider) -> None:
    answer = begun(browser, provider)
    refused(browser, back(browser, **{**answer, "state": "another"}), "does not belong to the sign-in")
    # Good for one answer, whatever came of it.
    refused(browser, back(browser, **answer), "did not begin it here")
    del answer["state"]
    begun(browser, provider)
    refused(browser, back(browser, **answer), "does not belong to the sign-in")


def test_the_answer_to_somebody_elses_attempt_signs_nobody_in(
    gateway: Served, browser: Browser, provider: Provider
) -> None:
    """Login CSRF: a link that would sign a person in as the one who made it."""
    stranger = Browser(gateway)
    theirs = begun(stranger, provider)
    refused(browser, back(browser, **theirs), "did not begin it here")
    begun(browser, provider)
    refused(browser, back(browser, **theirs), "does not belong to the sign-in")
    assert back(stranger, **theirs).status == 303


def test_a_code_is_good_once(browser: Browser, provider: Provider) -> None:
    answer = begun(browser, provider)
    kept = browser.cookies["pellucid_sign_in"]
    assert back(browser, **answer).status == 303
    browser.cookies = {"pellucid_sign_in": kept}
    refused(browser, back(browser, **answer), "its code may have been used up")


def test_an_attempt_that_took_too_long(browser: Browser, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.access.oidc.ATTEMPT_SECONDS", -1.0)
    refused(browser, back(browser, **begun(browser, provider)), "it took too long")


def test_a_code_of_another_attempt_is_worth_nothing(browser: Browser, provider: Provider) -> None:
    """Code injection: the verifier is that of this browser's attempt."""
    stolen = begun(browser, provider)["code"]
    mine = begun(browser, provider)
    refused(browser, back(browser, **{**mine, "code": stolen}), "its code may have been used up")


@pytest.mark.parametrize("nonce", ["another", None, ["a"], ""])
def test_another_nonce(browser: Browser, provider: Provider, nonce: Any) -> None:
    provider.claims_of = lambda asked: {"nonce": nonce}
    refused(browser, back(browser, **begun(browser, provider)), "belongs to another sign-in")


def test_a_nonce_that_only_contains_the_right_one(browser: Browser, provider: Provider) -> None:
    """It is one text (OpenID Connect Core §2): a list that holds it is another value."""
    for wrap in (lambda nonce: [nonce], lambda nonce: [nonce, "another"], lambda nonce: {nonce: True}):
        provider.claims_of = lambda asked, wrap=wrap: {"nonce": wrap(asked["nonce"])}  # type: ignore[misc]
        refused(browser, back(browser, **begun(browser, provider)), "belongs to another sign-in")


def test_the_token_of_another_attempt(browser: Browser, provider: Provider) -> None:
    """A replay: everything fits but the nonce."""
    begun(browser, provider)
    earlier = provider.authorization_requests[-1]["nonce"]
    provider.claims_of = lambda asked: {"nonce": earlier}
    refused(browser, back(browser, **begun(browser, provider)), "belongs to another sign-in")


def test_the_verifier_leaves_for_the_token_endpoint_alone(browser: Browser, provider: Provider) -> None:
    """RFC 7636 §4: long enough to be a secret, sent as its hash (S256), whatever the provider says it could do."""
    provider.about = {"code_challenge_methods_supported": ["plain"]}
    location = browser.go("/api/session/oidc").headers["location"]
    kept = browser.cookies["pellucid_sign_in"][1]
    browser.come_back(provider.authorize(location))
    asked, (form, _) = provider.authorization_requests[-1], provider.redeemed[-1]
    verifier = form["code_verifier"]
    assert re.fullmatch(r"[A-Za-z0-9._~-]{43,128}", verifier)
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    assert (asked["code_challenge"], asked["code_challenge_method"]) == (digest, "S256")
    assert verifier not in location
    assert verifier not in kept
    assert (form["grant_type"], form["redirect_uri"]) == ("authorization_code", asked["redirect_uri"])


def b64(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


FORGED: dict[str, Any] = {
    "alg none": lambda claims: f"{b64({'alg': 'none'})}.{b64(claims)}.",
    "alg HS256": lambda claims: f"{b64({'alg': 'HS256', 'kid': 'first'})}.{b64(claims)}.{b64('x')}",
    "no token": lambda claims: "nothing",
    "half of one": lambda claims: "eyJhbGciOiJSUzI1NiJ9.e30.",
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_token_that_nobody_signed(browser: Browser, provider: Provider, kind: str) -> None:
    provider.make_token = FORGED[kind]
    refused(browser, back(browser, **begun(browser, provider)), "cannot be verified")


@pytest.mark.parametrize("what", ["the client's secret", "the public key"])
def test_a_token_that_was_signed_with_what_others_know(browser: Browser, provider: Provider, what: str) -> None:
    """HMAC with a secret that whoever made it may have, too."""
    [key] = provider.keys
    assert isinstance(key, RSAKey)
    secret = SECRET.encode() if what == "the client's secret" else key.as_pem(private=False)

    def forge(claims: dict[str, Any]) -> str:
        signed = f"{b64({'alg': 'HS256', 'kid': 'first'})}.{b64(claims)}"
        digest = hmac.digest(secret, signed.encode(), "sha256")
        return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"

    provider.make_token = forge
    refused(browser, back(browser, **begun(browser, provider)), "cannot be verified")


def test_a_token_that_somebody_else_signed(browser: Browser, provider: Provider) -> None:
    from joserfc import jwt

    stranger = RSAKey.generate_key(2048, {"kid": "first"})
    provider.make_token = lambda claims: jwt.encode({"alg": "RS256", "kid": "first"}, claims, stranger)
    refused(browser, back(browser, **begun(browser, provider)), "cannot be verified")


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
def test_a_token_that_is_not_for_this(browser: Browser, provider: Provider, case: str) -> None:
    provider.claims_of = lambda asked: WRONG[case]
    reply = back(browser, **begun(browser, provider))
    said = {"of nobody": "does not name an owner"}.get(case, "the token of the provider")
    refused(browser, reply, said, 401 if case == "of nobody" else 400)


def test_a_token_for_several_that_was_issued_to_us_is_right(browser: Browser, provider: Provider) -> None:
    provider.claims_of = lambda asked: {"aud": [CLIENT, "another"], "azp": CLIENT}
    assert browser.sign_in_with(provider).status == 303
    assert browser.state["signed_in"] is True


def test_a_token_for_the_page_is_none_for_the_api(gateway: Served, provider: Provider) -> None:
    for audience, status in (("the-api", 200), (CLIENT, 401)):
        token = provider.token(aud=audience)
        assert gateway.request("GET", "/v1/models", None, {"Authorization": f"Bearer {token}"}).status == status


def test_an_answer_of_another_provider(browser: Browser, provider: Provider) -> None:
    """RFC 9207."""
    answer = begun(browser, provider)
    refused(browser, back(browser, **answer, iss="https://evil.example"), "another provider")
    assert back(browser, **begun(browser, provider), iss=provider.name).status == 303


@pytest.mark.parametrize(
    ("said", "told"),
    [("access_denied", "access_denied"), ("<script>alert(1)</script>", "no code"), ("", "no code")],
)
def test_a_provider_that_lets_nobody_in(browser: Browser, provider: Provider, said: str, told: str) -> None:
    state = begun(browser, provider)["state"]
    reply = back(browser, state=state, error=said, error_description="<script>alert(2)</script>")
    refused(browser, reply, told)
    assert b"<script" not in reply.body


@pytest.mark.parametrize(
    ("answer", "said", "status"),
    [
        ((500, {"error": "x"}), "does not answer as it should", 503),
        ((400, {"error": "<b>"}), "did not confirm it", 400),
        ((200, {}), "did not confirm it", 400),
        ((200, {"id_token": 7}), "did not confirm it", 400),
        ((200, []), "did not confirm it", 400),
        ((302, {}), "did not confirm it", 400),
    ],
)
def test_a_token_endpoint_that_answers_otherwise(
    browser: Browser, provider: Provider, answer: tuple[int, Any], said: str, status: int
) -> None:
    provider.redeem = answer
    refused(browser, back(browser, **begun(browser, provider)), said, status)


def test_a_cookie_of_ones_own_making_is_none(browser: Browser, provider: Provider) -> None:
    answer = begun(browser, provider)
    value = browser.cookies["pellucid_sign_in"][1]
    browser.sign_in_with(provider)
    session = browser.cookies.pop("pellucid_session")[1]
    for forged in (value[:-2] + "AA", "x", "a.b.c.d.e", session):
        browser.cookies = {"pellucid_sign_in": ("/api/session/oidc", forged)}
        refused(browser, back(browser, **answer), "did not begin it here")
    # Nor is an attempt a session.
    browser.cookies = {"pellucid_session": ("/api", value)}
    assert browser.state["signed_in"] is False


# --- where it leads --------------------------------------------------------------------------------------------------

ELSEWHERE = [
    "//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "javascript:alert(1)", "",
    "/\t/evil.example", "/\n//evil.example", "/ /evil.example", "evil.example", "/c/\r\nSet-Cookie: a=b", "/\x00", "/é",
    "/api/session", "/" + "x" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("next_", ELSEWHERE)
def test_it_leads_nowhere_else(browser: Browser, provider: Provider, next_: str) -> None:
    landed = browser.sign_in_with(provider, f"?{urlencode({'next': next_})}")
    assert (landed.status, landed.headers["location"]) == (303, "/")


@given(st.one_of(st.text(), st.text("/\\.:@%?#evil \t\n").map(lambda text: f"/{text}")))
def test_a_path_is_one_of_ours_or_it_is_none(text: str) -> None:
    path = safe_return_path(text)
    assert path in (text, "/")
    assert path[0] == "/"
    assert path[1:2] not in ("/", "\\")
    assert "\\" not in path
    assert path.isascii()
    assert path.isprintable()
    assert urlsplit(f"http://here{path}").netloc == "here"


# --- how it is set up ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["client_secret_post", "none"])
def test_the_other_ways_to_say_who_the_client_is(provider: Provider, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    oidc = {"client_secret_env": None} if way == "none" else {}
    provider.secret = None if way == "none" else SECRET
    provider.about = {"token_endpoint_auth_methods_supported": [way]}
    with serve(config(provider, oidc)) as gateway:
        browser = Browser(gateway)
        assert browser.sign_in_with(provider).status == 303
        assert browser.state["signed_in"] is True
    form, headers = provider.redeemed[-1]
    assert "Authorization" not in headers
    assert ("client_secret" in form) == (way == "client_secret_post")


def test_behind_a_proxy_that_speaks_https(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_policies_and_names_come_from_the_id_token_and_rules_that_change_end_what_they_allowed(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    rules: dict[str, Any] = {
        "jwt": {"policy_claim": "roles", "policies": {"user": "guest"}},
        "policies": {"guest": {"models": []}},
    }
    provider.claims_of = lambda asked: {"roles": ["user"]}
    with serve(config(provider, **rules)) as gateway:
        browser = Browser(gateway)
        browser.sign_in_with(provider)
        assert browser.fetch("GET", "/api/models").json["data"] == []
        provider.claims_of = lambda asked: {"roles": ["stranger"]}
        other = Browser(gateway)
        refused(other, other.sign_in_with(provider), "gives no access", 403)
    rules["jwt"]["policies"] = {"admin": "guest"}
    with serve(config(provider, **rules)) as gateway:
        later = Browser(gateway)
        later.cookies = browser.cookies
        assert later.state["signed_in"] is False
        assert later.fetch("GET", "/api/models").json["error"]["code"] == "session_over"


def ask_again(gateway: Served) -> None:
    """Let the gateway ask the provider what it is at the next request, as it does after a while."""
    guard = gateway.server.config.app.services.guard  # type: ignore[union-attr]
    guard.oidc._attempted_at = -1e18


def test_a_provider_that_is_down_and_comes_back(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    with serve(config(provider)) as gateway:
        browser = Browser(gateway)
        for about in ({"issuer": "https://evil.example"}, {"authorization_endpoint": "http://evil.example/"}, None):
            provider.about, provider.status = about or {}, 200 if about else 500
            ask_again(gateway)
            refused(browser, browser.go("/api/session/oidc"), "does not answer as it should", 503)
        program = browser.fetch("GET", "/api/session/oidc", Accept="application/json")
        assert (program.status, program.json["error"]["code"]) == (503, "access_unavailable")
        provider.about, provider.status = {}, 200
        ask_again(gateway)
        assert browser.sign_in_with(provider).status == 303
        # What was once known of it is enough to send people there.
        provider.status = 500
        assert browser.go("/api/session/oidc").status == 303


def mistakes(oidc: dict[str, Any], **more: Any) -> str:
    access = msgspec.convert({"oidc": {"client_id": "us", **oidc}, **more}, AccessConfig)
    return "\n".join(check_access(access, {"GOOD": "secret"}))


JWT = {"issuer": "https://issuer.example", "audience": "us"}


@pytest.mark.parametrize(
    ("oidc", "more", "said"),
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
def test_every_mistake_is_named(oidc: dict[str, Any], more: dict[str, Any], said: str) -> None:
    assert said in mistakes(oidc, **more)


def test_a_right_configuration_has_no_mistakes() -> None:
    assert not mistakes({"client_secret_env": "GOOD", "redirect_base": "https://chat.example.com:8443"}, jwt=JWT)
