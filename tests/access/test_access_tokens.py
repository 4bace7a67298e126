"""Tokens of an issuer over HTTP: which are accepted, which are refused, and which requests the issuer gets."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, Key, KeySet, OctKey, OKPKey, RSAKey

from pellucid.server.access.config import AccessConfig
from pellucid.server.access.errors import AccessError
from pellucid.server.access.guard import Guard
from pellucid.server.access.jwt import TokenVerifier
from pellucid.server.access.policy import Policy
from tests.access.access_kit import AUDIENCE, Clock, Issuer, ec, guard, refusal, rsa, scope
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


LATIN = st.characters(max_codepoint=255)


def b64(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def test_the_owner_of_a_token_is_prefixed_with_its_issuer(issuer: Issuer) -> None:
    access_guard = guard({"jwt": issuer.config()})
    for kind in ("http", "websocket"):
        principal = await access_guard.admit(scope(issuer.token(name="Ada"), kind=kind))
        assert (principal.owner, principal.key_id, principal.name) == (f"{issuer.name}|ada", None, "Ada")
        assert principal.policy == Policy()
    assert issuer.fetches == 1
    await access_guard.aclose()


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "Ed25519", "EdDSA"])
async def test_every_algorithm_of_the_default_list(issuer: Issuer, algorithm: str) -> None:
    makers: dict[str, Callable[[], Key]] = {
        "R": lambda: rsa("first"),
        "P": lambda: rsa("first"),
        "ES": lambda: ec("curve"),
        "Ed": lambda: OKPKey.generate_key("Ed25519", {"kid": "edwards"}),
    }
    key = makers[algorithm[:2] if algorithm[0] == "E" else algorithm[0]]()
    issuer.keys = [key]
    access_guard = guard({"jwt": issuer.config()})
    if algorithm == "EdDSA":
        header = {"alg": "EdDSA", "kid": key.kid}
        signed = f"{b64(header)}.{b64(issuer.claims())}"
        assert isinstance(key, OKPKey)
        private = key.get_op_key("sign")
        assert isinstance(private, Ed25519PrivateKey)
        token = f"{signed}.{b64(private.sign(signed.encode()))}"
    else:
        token = issuer.token(key, algorithm)
    assert (await access_guard.admit(scope(token))).owner.endswith("|ada")
    await access_guard.aclose()


WRONG_CLAIMS: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example"},
    "the issuer with a slash more": {"iss": "{issuer}/"},
    "several issuers": {"iss": ["{issuer}"]},
    "no issuer": {"iss": None},
    "another audience": {"aud": "somebody-else"},
    "other audiences": {"aud": ["a", "b"]},
    "no audience": {"aud": None},
    "an empty audience": {"aud": ""},
    "an audience that is no text": {"aud": {AUDIENCE: 1}},
    "audiences that are not all text": {"aud": [AUDIENCE, 7]},
    "expired": {"exp": 1_000_000_000},
    "expired beyond the leeway": {"exp": -31},
    "no expiry": {"exp": None},
    "expiry that is no number": {"exp": "never"},
    "expiry that is true": {"exp": True},
    "expiry that is no number at all": {"exp": float("nan")},
    "expiry without end": {"exp": float("inf")},
    "not yet valid": {"nbf": +40},
    "issued tomorrow": {"iat": +86_400},
    "nobody": {"sub": None},
    "an empty name": {"sub": ""},
    "a name that is no text": {"sub": 7},
    "a name with a line break": {"sub": "ada\nbob"},
    "a name without end": {"sub": "a" * 300},
}


@pytest.mark.parametrize("case", WRONG_CLAIMS)
async def test_wrong_claims_are_refused(issuer: Issuer, case: str) -> None:
    claims = dict(WRONG_CLAIMS[case])
    for name, value in claims.items():
        if name in ("exp", "nbf", "iat") and type(value) is int and abs(value) < 1_000_000:
            claims[name] = int(time.time()) + value
        elif isinstance(value, str):
            claims[name] = value.replace("{issuer}", issuer.name)
        elif value == ["{issuer}"]:
            claims[name] = [issuer.name, "https://evil.example"]
    access_guard = guard({"jwt": issuer.config()})
    error = await refusal(access_guard, scope(issuer.token(**claims)))
    if case != "several issuers":
        assert error.info.code == ("token_expired" if case.startswith("expired") else "invalid_token")
    assert "ada" not in str(error)
    await access_guard.aclose()


async def test_the_leeway_is_configurable(issuer: Issuer) -> None:
    clock = Clock()
    access_guard = guard({"jwt": issuer.config(leeway_seconds=60)}, clock=clock)
    now = int(clock.now)
    await access_guard.admit(scope(issuer.token(exp=now - 59, nbf=now + 60, iat=now)))
    await refusal(access_guard, scope(issuer.token(exp=now - 60, iat=now)))
    await refusal(access_guard, scope(issuer.token(exp=now + 60, nbf=now + 61, iat=now)))
    await access_guard.aclose()


async def test_one_matching_audience_suffices(issuer: Issuer) -> None:
    access_guard = guard({"jwt": issuer.config(audience=["one", "two"])})
    await access_guard.admit(scope(issuer.token(aud=["other", "two"])))
    await access_guard.admit(scope(issuer.token(aud="one")))
    await refusal(access_guard, scope(issuer.token(aud="three")))
    await access_guard.aclose()


async def forgeries(issuer: Issuer) -> dict[str, str]:
    """Return tokens that no key of the issuer has signed, each forged in a way that some library once accepted."""
    claims, real, stranger = issuer.claims(), issuer.keys[0], RSAKey.generate_key(2048, {"kid": "first"})
    assert isinstance(real, RSAKey)
    pem, der = real.as_pem(private=False), real.as_der(private=False)
    public = json.dumps(real.as_dict(private=False)).encode()
    head, body, signature = issuer.token().split(".")
    mine = stranger.as_dict(private=False)
    return {
        "alg none": f"{b64({'alg': 'none', 'kid': 'first'})}.{b64(claims)}.",
        "alg None": f"{b64({'alg': 'None', 'kid': 'first'})}.{b64(claims)}.",
        "alg none, with a signature": f"{b64({'alg': 'none', 'kid': 'first'})}.{body}.{signature}",
        "HS256 with the public key (PEM)": hs256(claims, pem),
        "HS256 with the public key (DER)": hs256(claims, der),
        "HS256 with the public key (JWK)": hs256(claims, public),
        "HS256 with nothing": hs256(claims, b""),
        "HS256 with the public key (PEM), and no key id": hs256(claims, pem, {"alg": "HS256"}),
        "HS256 with the public key (PEM), under two names": hs256(claims, pem, b'{"alg":"RS256","alg":"HS256"}'),
        "HS512 with the public key (PEM)": hs256(claims, pem, {"alg": "HS512", "kid": "first"}),
        "another's key under the same id": issuer.token(stranger),
        "a key that it brings along": issuer.token(stranger, header={"jwk": mine}),
        "a key that it says where to fetch": issuer.token(stranger, header={"jku": f"{issuer.name}/evil"}),
        "RS256's signature as PS256": f"{b64({'alg': 'PS256', 'kid': 'first'})}.{body}.{signature}",
        "RS256's signature as ES256": f"{b64({'alg': 'ES256', 'kid': 'first'})}.{body}.{signature}",
        "an algorithm that was not allowed": issuer.token(alg="RS512"),
        "no signature": f"{head}.{body}.",
        "another body": f"{head}.{b64({**claims, 'sub': 'root'})}.{signature}",
        "an extension that must be understood": issuer.token(header={"crit": ["b64"], "b64": True}),
        "extensions that must be understood, which are none": issuer.token(header={"crit": []}),
        "a body that is not encoded": f"{b64({'alg': 'RS256', 'kid': 'first', 'b64': False})}.{body}.{signature}",
        "no algorithm": f"{b64({'kid': 'first'})}.{body}.{signature}",
        "a key id that is no text": f"{b64({'alg': 'RS256', 'kid': ['first']})}.{body}.{signature}",
        "a header that is no object": f"{b64(['RS256'])}.{body}.{signature}",
        "a deep header": f"{b64(b'[' * 3000)}.{body}.{signature}",
        "a long header": f"{b64({'alg': 'RS256', 'kid': 'first', 'x': 'y' * 9000})}.{body}.{signature}",
        "too long": f"{head}.{body}{'A' * 20_000}.{signature}",
        "five parts": f"{head}.{body}.{signature}.{body}.{signature}",
        "not a token": "certainly.not.one",
        "dots": "..",
    }


def hs256(claims: dict[str, Any], secret: bytes, header: Any = None) -> str:
    """Sign with HMAC and `secret`. `header`: a dict, or JSON as bytes."""
    import hmac

    header = header or {"alg": "HS256", "kid": "first"}
    digest = "sha512" if "HS512" in str(header) else "sha256"
    signed = f"{b64(header)}.{b64(claims)}"
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), digest))}"


async def test_forged_tokens_are_refused(issuer: Issuer) -> None:
    access_guard = guard({"jwt": issuer.config()})
    for name, token in (await forgeries(issuer)).items():
        error = await refusal(access_guard, scope(token))
        assert error.info.code in ("invalid_token", "invalid_api_key", "invalid_credentials"), name
    await access_guard.admit(scope(issuer.token()))
    await access_guard.aclose()


async def test_unusable_keys_of_a_set_are_ignored(issuer: Issuer) -> None:
    """Symmetric keys, encryption keys and short RSA keys are ignored; valid keys in the same set are used."""
    secret = OctKey.import_key("a secret that was published by mistake", {"kid": "secret"})
    other_use = RSAKey.import_key({**rsa("enc").as_dict(private=True), "use": "enc"})
    with warnings.catch_warnings(action="ignore"):
        small = RSAKey.generate_key(1024, {"kid": "small"})
    public = KeySet([rsa("first"), other_use, small]).as_dict(private=False)
    strange = [{"kty": "PQC", "kid": "q"}, 7, {}, {"kty": "RSA", "n": "!", "e": "AQAB"}, {"kty": "EC", "crv": "P-256"}]
    keys = [secret.as_dict(private=True), *strange, *public["keys"]]
    issuer.body = json.dumps({"keys": keys}).encode()
    access_guard = guard({"jwt": issuer.config()})
    await access_guard.admit(scope(issuer.token(rsa("first"))))
    await refusal(access_guard, scope(issuer.token(rsa("enc"))))
    with warnings.catch_warnings(action="ignore"):
        token = issuer.token(small)
    await refusal(access_guard, scope(token))
    await refusal(
        access_guard, scope(jwt.encode({"alg": "HS256", "kid": "secret"}, issuer.claims(), secret, ["HS256"]))
    )
    await access_guard.aclose()


async def test_a_key_made_for_one_algorithm_verifies_no_other(issuer: Issuer) -> None:
    key = RSAKey.import_key({**rsa("first").as_dict(private=True), "alg": "PS256"})
    issuer.keys = [key]
    access_guard = guard({"jwt": issuer.config()})
    await access_guard.admit(scope(issuer.token(key, "PS256")))
    await refusal(access_guard, scope(issuer.token(rsa("first"), "RS256")))
    await access_guard.aclose()


async def test_two_keys_under_one_id_both_verify(issuer: Issuer) -> None:
    """A set can have several keys with one id (RFC 7517 §4.5), of one type or of two."""
    other = RSAKey.import_key({**rsa("second").as_dict(private=True), "kid": "first"})
    issuer.keys = [ec("first"), rsa("first"), other]
    access_guard = guard({"jwt": issuer.config()})
    for key in (rsa("first"), other):
        await access_guard.admit(scope(issuer.token(key)))
    await access_guard.admit(scope(issuer.token(issuer.keys[0], "ES256")))
    await access_guard.aclose()


async def test_a_key_on_an_unsupported_curve_verifies_nothing(issuer: Issuer) -> None:
    p384, ed448 = ECKey.generate_key("P-384", {"kid": "p384"}), OKPKey.generate_key("Ed448", {"kid": "ed448"})
    x25519 = OKPKey.generate_key("X25519", {"kid": "x25519"})
    issuer.keys = [p384, ed448, x25519]
    access_guard = guard({"jwt": issuer.config()})
    other = ECKey.generate_key("P-256", {"kid": "p384"})
    with warnings.catch_warnings(action="ignore"):
        edwards = issuer.token(ed448, "EdDSA")
    stranger = OKPKey.generate_key("Ed25519", {"kid": "x25519"})
    for token in (issuer.token(other, "ES256"), edwards, issuer.token(stranger, "Ed25519")):
        assert (await refusal(access_guard, scope(token))).info.code == "invalid_token"
    _, body, signature = issuer.token(stranger, "Ed25519").split(".")
    for kid in ("x25519", "ed448"):
        forged = f"{b64({'alg': 'EdDSA', 'kid': kid})}.{body}.{signature}"
        assert "no key of the issuer" in str(await refusal(access_guard, scope(forged)))
    await access_guard.aclose()


async def test_a_token_without_a_key_id_is_tried_with_the_matching_keys(issuer: Issuer) -> None:
    issuer.keys = [ec("curve"), rsa("first"), rsa("second")]
    access_guard = guard({"jwt": issuer.config()})
    token = jwt.encode({"alg": "RS256"}, issuer.claims(), rsa("second"), ["RS256"])
    await access_guard.admit(scope(token))
    await refusal(access_guard, scope(jwt.encode({"alg": "RS256"}, issuer.claims(), rsa("third"), ["RS256"])))
    await access_guard.aclose()


async def test_an_unknown_key_id_refreshes_the_key_set(issuer: Issuer) -> None:
    ticks = Clock()
    access_guard = guard({"jwt": issuer.config()}, monotonic=ticks)
    old = issuer.token()
    await access_guard.admit(scope(old))
    issuer.keys = [rsa("second")]
    ticks.now += 0.06
    await access_guard.admit(scope(issuer.token()))
    assert issuer.fetches == 2
    ticks.now += 0.06
    assert (await refusal(access_guard, scope(old))).info.code == "invalid_token"
    await access_guard.aclose()


async def test_concurrent_unknown_key_ids_cause_one_fetch(issuer: Issuer) -> None:
    access_guard = guard({"jwt": issuer.config(retry_seconds=5)}, monotonic=Clock())
    await access_guard.admit(scope(issuer.token()))
    tokens = [issuer.token(rsa("stranger"), header={"kid": f"made up {n}"}) for n in range(100)]
    for _ in range(2):
        await asyncio.gather(*[refusal(access_guard, scope(token)) for token in tokens])
    assert issuer.fetches == 1
    await access_guard.admit(scope(issuer.token()))
    await access_guard.aclose()


async def test_fetches_for_unknown_key_ids_are_rate_limited(issuer: Issuer) -> None:
    ticks = Clock()
    access_guard = guard({"jwt": issuer.config(retry_seconds=5, jwks_url=f"{issuer.name}/keys")}, monotonic=ticks)
    stranger = rsa("stranger")
    await access_guard.admit(scope(issuer.token()))
    for second in range(20):
        ticks.now += 1
        tokens = [issuer.token(stranger, header={"kid": f"made up {second} {n}"}) for n in range(5)]
        await asyncio.gather(*[refusal(access_guard, scope(token)) for token in tokens])
    assert issuer.fetches == 1 + 20 // 5
    # A failing issuer is not asked more often, not even by a gateway that has no keys yet.
    issuer.status = 500
    cold = guard({"jwt": issuer.config(retry_seconds=5, jwks_url=f"{issuer.name}/keys")}, monotonic=ticks)
    issuer.fetches = 0
    for _ in range(10):
        ticks.now += 1
        tokens = [issuer.token(stranger, header={"kid": f"made up {n}"}) for n in range(5)]
        await asyncio.gather(*[refusal(cold, scope(token), "unavailable") for token in tokens])
    assert issuer.fetches == 2
    await access_guard.aclose()
    await cold.aclose()


async def test_a_token_that_no_key_can_verify_causes_no_fetch(issuer: Issuer) -> None:
    access_guard = guard({"jwt": issuer.config()})
    forged = await forgeries(issuer)
    for name in ("alg none", "HS256 with the public key (PEM)", "an algorithm that was not allowed", "too long"):
        await refusal(access_guard, scope(forged[name]))
    assert issuer.fetches == 0
    await access_guard.aclose()


async def test_concurrent_first_requests_cause_one_fetch(issuer: Issuer) -> None:
    issuer.delay = 0.1
    access_guard = guard({"jwt": issuer.config(retry_seconds=5)})
    principals = await asyncio.gather(*[access_guard.admit(scope(issuer.token(sub=f"user {n}"))) for n in range(50)])
    assert len({principal.owner for principal in principals}) == 50
    assert issuer.fetches == 1
    await access_guard.aclose()


async def test_stale_keys_are_refreshed_in_the_background(issuer: Issuer) -> None:
    ticks = Clock()
    access_guard = guard({"jwt": issuer.config(refresh_seconds=1)}, monotonic=ticks)
    await access_guard.admit(scope(issuer.token()))
    ticks.now += 2
    issuer.answers.clear()
    await access_guard.admit(scope(issuer.token()))
    await eventually(lambda: issuer.fetches == 2)
    issuer.answers.set()
    await access_guard.aclose()


@pytest.mark.parametrize("trouble", ["gone", "error", "nonsense", "no keys", "endless", "deep"])
async def test_known_keys_stay_valid_during_an_issuer_outage(
    issuer: Issuer, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = Clock()
    access_guard = guard({"jwt": issuer.config()}, monotonic=ticks)
    await access_guard.admit(scope(issuer.token()))
    match trouble:
        case "gone":
            await issuer.stop()
        case "error":
            issuer.status = 500
        case "nonsense":
            issuer.body = b"<html>"
        case "no keys":
            issuer.body = b'{"keys": []}'
        case "endless":
            issuer.body = b" " * (1 << 21)
        case "deep":
            issuer.body = b"[" * 100_000
    ticks.now += 0.06
    with caplog.at_level(logging.DEBUG, "pellucid"):
        error = await refusal(access_guard, scope(issuer.token(rsa("second"))))
    assert error.info.code == "invalid_token"
    assert "could not be fetched" in caplog.text
    assert "html" not in caplog.text
    await access_guard.admit(scope(issuer.token(rsa("first"))))
    # After the outage the keys are fetched again.
    await issuer.stop()
    issuer.status, issuer.body, issuer.keys = 200, None, [rsa("second")]
    await issuer.start()
    ticks.now += 0.06
    await access_guard.admit(scope(issuer.token(rsa("second"))))
    await access_guard.aclose()


async def test_an_issuer_outage_at_the_start_refuses_all_tokens(issuer: Issuer) -> None:
    ticks = Clock()
    access_guard = guard({"jwt": issuer.config()}, monotonic=ticks)
    token = issuer.token()
    await issuer.stop()
    error = await refusal(access_guard, scope(token), "unavailable")
    assert error.info.code == "access_unavailable"
    await issuer.start()
    ticks.now += 0.06
    await access_guard.admit(scope(token))
    await access_guard.aclose()


async def test_metadata_with_another_issuer_is_not_used(issuer: Issuer) -> None:
    """`localhost` and `127.0.0.1` are two issuers, even at the same address."""
    alias = issuer.name.replace("127.0.0.1", "localhost")
    access_guard = guard({"jwt": issuer.config(issuer=alias)})
    await refusal(access_guard, scope(issuer.token(iss=alias)), "unavailable")
    assert issuer.fetches == 0
    await access_guard.aclose()


async def test_keys_from_a_url_and_from_a_file(issuer: Issuer, tmp_path: Path) -> None:
    access_guard = guard({"jwt": issuer.config(issuer="the house", jwks_url=f"{issuer.name}/keys")})
    assert (await access_guard.admit(scope(issuer.token(iss="the house")))).owner == "the house|ada"
    await access_guard.aclose()
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(KeySet([rsa("first")]).as_dict(private=False)))
    ticks = Clock()
    access_guard = guard({"jwt": issuer.config(issuer="the house", jwks_file=str(file))}, monotonic=ticks)
    await access_guard.admit(scope(issuer.token(iss="the house")))
    file.write_text(json.dumps(KeySet([rsa("second")]).as_dict(private=False)))
    ticks.now += 0.06
    await access_guard.admit(scope(issuer.token(rsa("second"), iss="the house")))
    await access_guard.aclose()


POLICIES = {"full": {}, "small": {"models": ["small*"]}, "none": {"models": []}}


async def test_the_first_matching_claim_value_selects_the_policy(issuer: Issuer) -> None:
    roles = {"admin": "full", "user": "small"}
    config = {"policies": POLICIES, "jwt": issuer.config(policy_claim="realm.roles", policies=roles)}
    access_guard = guard(config)
    full, small = Policy(), Policy(models=["small*"])
    for value, policy in (
        (["user", "admin"], full),
        (["x", "user"], small),
        ("user admin", full),
        ("user", small),
    ):
        assert (await access_guard.admit(scope(issuer.token(realm={"roles": value})))).policy == policy
    unfit: list[Any] = [{"roles": []}, {"roles": "administrator"}, {"roles": 7}, {"roles": [["admin"], {}]}, "admin"]
    for nothing in (*unfit, None):
        error = await refusal(access_guard, scope(issuer.token(realm=nothing)), "forbidden")
        assert error.info.code == "no_policy_for_token"
    await access_guard.aclose()
    access_guard = guard({**config, "default_policy": "none"})
    assert (await access_guard.admit(scope(issuer.token()))).policy == Policy(models=[])
    await access_guard.aclose()


async def test_claim_names_may_contain_dots(issuer: Issuer) -> None:
    name = "https://house.example/roles"
    config = issuer.config(policy_claim=name, policies={"user": "small"}, owner_claim="https://house.example/tenant")
    access_guard = guard({"policies": POLICIES, "jwt": config})
    claims: dict[str, Any] = {name: ["user"], "https://house.example/tenant": "acme"}
    token = issuer.token(**claims)
    principal = await access_guard.admit(scope(token))
    assert principal.owner == f"{issuer.name}|acme"
    assert principal.policy.models == ["small*"]
    await access_guard.aclose()


@given(text=st.text(LATIN, max_size=300) | st.from_regex(r"[\w-]+\.[\w-]+\.[\w-]*", alphabet=LATIN))
def test_arbitrary_text_is_refused_without_an_internal_error(text: str) -> None:
    async def attempt() -> None:
        access_guard = Guard(
            msgspec.convert({"jwt": {"issuer": "x", "audience": "y", "jwks_file": __file__}}, AccessConfig),
            None,
            None,  # type: ignore[arg-type]
            environ={},
        )
        for request in (scope(text), scope(x_api_key=text), scope(authorization=text)):
            with pytest.raises(AccessError):
                await access_guard.admit(request)
        await access_guard.aclose()

    asyncio.run(attempt())


async def test_any_changed_character_of_a_token_is_detected(issuer: Issuer) -> None:
    issuer.keys = [ECKey.generate_key("P-256", {"kid": "curve"})]
    access = msgspec.convert({"jwt": issuer.config()}, AccessConfig)
    tokens, token = TokenVerifier(access), issuer.token(alg="ES256")
    await tokens.verify(token)
    # The last character of each part has bits without meaning (RFC 4648 §3.5); all other characters count.
    loose = {token.index(".") - 1, token.rindex(".") - 1, len(token) - 1}
    for at in set(range(len(token))) - loose:
        with pytest.raises(AccessError):
            await tokens.verify(token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :])
    await tokens.aclose()
