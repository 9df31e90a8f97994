"""OAUTHBEARER: messages, tokens that are forged or out of time, and the issuer's key set."""

import base64
import json
import subprocess
import sys
import warnings
from concurrent.futures import Future
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from barnabas.security.principal import Principal
from barnabas.security.sasl import oauthbearer
from barnabas.security.sasl.exchange import AuthenticationFailed, Await, Challenge, OffLoop
from barnabas.security.sasl.oauthbearer import KeySet, TokenRules
from barnabas.security.sasl.web_tokens import MAX_DOCUMENT, InvalidKeySet, WebKeys
from tests.support.sasl_exchanges import answer, converse, outcome_of, step

RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
EC_384 = ec.generate_private_key(ec.SECP384R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
STRANGE = ec.generate_private_key(ec.SECP256R1())

NOW = 1_700_000_000
INVALID = b'{"status":"invalid_token"}'
GENERAL = (
    "Authentication failed during authentication due to invalid credentials "
    "with SASL mechanism OAUTHBEARER"
)


def jwk(key, kid, **members):
    kinds = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    reader: Any = next((kinds[kind] for kind in kinds if isinstance(key, kind)), OKPAlgorithm)
    public = key if members.pop("private", False) else key.public_key()
    return reader.to_jwk(public, as_dict=True) | {"kid": kid} | members


def key_set(*keys):
    return WebKeys(json.dumps({"keys": keys}).encode())


KEYS = key_set(jwk(RSA_KEY, "r"), jwk(EC_KEY, "e"), jwk(EC_384, "e384"), jwk(ED_KEY, "d"))


def done(result=None, error=None):
    future: Future = Future()
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
    return future


def fixed(keys=KEYS):
    return KeySet(lambda: done(keys), 100, 10_000)


def claims(**changes):
    merged = {"sub": "alice", "iat": NOW - 60, "exp": NOW + 600} | changes
    return {name: value for name, value in merged.items() if value is not None}


def token(key=EC_KEY, algorithm="ES256", headers=None, payload=None, **changes):
    body = payload if payload is not None else json.dumps(claims(**changes)).encode()
    header = {"kid": "e", "typ": "JWT"} | (headers or {})
    header = {name: value for name, value in header.items() if value is not None}
    return jwt.PyJWS().encode(body, key, algorithm, header)


def first(value, header=b"n,,", extensions=b""):
    return header + b"\x01auth=Bearer " + value.encode() + b"\x01" + extensions + b"\x01"


def authenticate(message, keys=None, rules=None, now=NOW):
    exchange = oauthbearer.authenticate(message, keys or fixed(), rules or TokenRules(), now * 1000)
    return outcome_of(exchange)


def refused(value, **parts):
    """Assert that a token is refused as RFC 7628 says; return the reason in the log."""
    exchange = oauthbearer.authenticate(
        first(value), parts.get("keys") or fixed(), parts.get("rules") or TokenRules(), NOW * 1000
    )
    assert step(exchange) == Challenge(INVALID)
    with pytest.raises(AuthenticationFailed) as error:
        exchange.send(b"\x01")
    assert error.value.answer("OAUTHBEARER") == INVALID.decode()
    return str(error.value)


# --- tokens that are accepted


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (RSA_KEY, "RS256", "r"),
        (RSA_KEY, "RS512", "r"),
        (RSA_KEY, "PS384", "r"),
        (EC_KEY, "ES256", "e"),
        (EC_384, "ES384", "e384"),
        (ED_KEY, "EdDSA", "d"),
        (EC_384, "ES384", None),
    ],
)
def test_token_of_the_issuer_gives_its_subject_until_it_expires(key, algorithm, kid):
    outcome = authenticate(first(token(key, algorithm, {"kid": kid})))
    assert outcome.principal == Principal("User", "alice")
    assert (outcome.answer, outcome.expires_ms) == (b"", (NOW + 600) * 1000)


def test_client_and_server_agree_on_extensions():
    extensions = {"logicalCluster": "lkc-1", "traceId": "a b\t="}
    outcome = converse(
        lambda message: oauthbearer.authenticate(message, fixed(), TokenRules(), NOW * 1000),
        oauthbearer.login(token(), extensions),
    )
    assert outcome.extensions == extensions


@pytest.mark.parametrize("header", [b"n,a=alice,", b"n,,"])
def test_authorization_id_may_be_the_subject(header):
    assert authenticate(first(token(), header)).principal.name == "alice"


def test_authorization_id_of_another_user_is_refused():
    with pytest.raises(AuthenticationFailed) as error:
        authenticate(first(token(), b"n,a=b=2Cb,"))
    assert error.value.answer("OAUTHBEARER") == (
        "Authentication failed: Client requested an authorization id (b,b) that is different from "
        "the token's principal name (alice)"
    )


@pytest.mark.parametrize(
    ("rules", "changes"),
    [
        (TokenRules(), {"exp": NOW - 29}),
        (TokenRules(), {"nbf": NOW + 30, "exp": NOW + 31}),
        (TokenRules(), {"iat": NOW + 30}),
        (TokenRules(expected_issuer="https://me"), {"iss": "https://me"}),
        (TokenRules(), {"iss": "https://any"}),
        (TokenRules(expected_audience=("kafka", "b")), {"aud": "kafka"}),
        (TokenRules(expected_audience=("kafka", "b")), {"aud": ["a", "b"]}),
        (TokenRules(any_audience=True), {"aud": "kafka"}),
        (TokenRules(any_audience=True), {"aud": []}),
        (TokenRules(any_audience=True), {}),
        (TokenRules(sub_claim_name="client_id"), {"client_id": " alice ", "sub": None}),
        (TokenRules(), {"scope": "kafka read"}),
        (TokenRules(), {"scope": ["kafka", "read"]}),
        (TokenRules(scope_claim_name="scp"), {"scope": ["a", "a"], "scp": []}),
        (TokenRules(), {"exp": NOW + 600.5}),
    ],
)
def test_claims_that_the_rules_accept(rules, changes):
    assert authenticate(first(token(**changes)), rules=rules).principal.name == "alice"


# --- tokens that are refused


@pytest.mark.parametrize(
    ("rules", "changes", "reason"),
    [
        (TokenRules(), {"exp": NOW - 30}, "expired"),
        (TokenRules(clock_skew_seconds=0), {"exp": NOW}, "expired"),
        (TokenRules(), {"exp": None}, "exp"),
        (TokenRules(), {"exp": str(NOW + 600)}, "exp"),
        (TokenRules(), {"exp": True}, "exp"),
        (TokenRules(), {"exp": 1e300}, "exp"),
        (TokenRules(), {"exp": -1}, "exp"),
        (TokenRules(), {"nbf": NOW + 31}, "not yet valid"),
        (TokenRules(), {"nbf": "soon"}, "nbf"),
        (TokenRules(), {"iat": NOW + 31}, "in the future"),
        (TokenRules(), {"iat": None}, "iat"),
        (TokenRules(), {"iat": NOW + 10, "exp": NOW + 5}, "before it begins"),
        (TokenRules(), {"nbf": NOW + 10, "exp": NOW + 5}, "before it begins"),
        (TokenRules(expected_issuer="https://me"), {}, "issuer"),
        (TokenRules(expected_issuer="https://me"), {"iss": "https://me/"}, "issuer"),
        (TokenRules(), {"iss": 7}, "iss"),
        (TokenRules(expected_audience=("kafka",)), {}, "audience"),
        (TokenRules(expected_audience=("kafka",)), {"aud": "kafka2"}, "audience"),
        (TokenRules(expected_audience=("kafka",)), {"aud": []}, "audience"),
        (TokenRules(), {"aud": "kafka"}, "audience"),
        (TokenRules(expected_audience=("a",), any_audience=True), {"aud": "b"}, "audience"),
        (TokenRules(), {"aud": []}, "audience"),
        (TokenRules(), {"aud": {"kafka": 1}}, "aud"),
        (TokenRules(), {"sub": None}, "claim sub"),
        (TokenRules(), {"sub": "  "}, "claim sub"),
        (TokenRules(), {"sub": ["alice"]}, "claim sub"),
        (TokenRules(sub_claim_name="client_id"), {}, "claim client_id"),
        (TokenRules(), {"scope": ["a", "a "]}, "claim scope"),
        (TokenRules(), {"scope": ["a", ""]}, "claim scope"),
        (TokenRules(), {"scope": ["a", 1]}, "claim scope"),
        (TokenRules(), {"scope": " "}, "claim scope"),
        (TokenRules(scope_claim_name="scp"), {"scp": [[]]}, "claim scp"),
    ],
)
def test_claims_that_the_rules_refuse(rules, changes, reason):
    assert reason in refused(token(**changes), rules=rules)


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"null", b"{", b"\xff", b"[" * 50_000, b'{"exp":NaN,"iat":1,"sub":"a"}'],
)
def test_payload_without_claims_is_refused(payload):
    assert "claims are missing or invalid" in refused(token(payload=payload))


def part(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def by_hand(header, signature=b"", **changes):
    return f"{part(header)}.{part(claims(**changes))}.{part(signature)}"


def pem(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def signed_with_the_public_key():
    """Return HS256 with what every client can read as the secret (CVE-2015-9235)."""
    head = f"{part({'alg': 'HS256', 'kid': 'r'})}.{part(claims())}"
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    return f"{head}.{part(algorithm.sign(head.encode(), pem(RSA_KEY)))}"


FORGED = {
    "none": by_hand({"alg": "none"}),
    "None": by_hand({"alg": "None", "kid": "e"}),
    "none with a signature": by_hand({"alg": "none", "kid": "e"}, b"x" * 64),
    "no algorithm": by_hand({"kid": "e"}),
    "a list of algorithms": by_hand({"alg": ["ES256"], "kid": "e"}),
    "HS256 with the public key": signed_with_the_public_key(),
    "key of another": token(STRANGE),
    "key in jwk": token(STRANGE, headers={"jwk": jwk(STRANGE, "e")}),
    "key at jku": token(STRANGE, headers={"jku": "https://evil/jwks", "kid": "evil"}),
    "key of another kid": token(EC_KEY, headers={"kid": "r"}),
    "unknown kid": token(EC_KEY, headers={"kid": "x"}),
    "kid that is no text": by_hand({"alg": "ES256", "kid": 1}),
    "curve of another algorithm": token(EC_384, "ES384", {"kid": "e"}),
    "signature of zeros": by_hand({"alg": "ES256", "kid": "e"}, bytes(64)),
    "empty signature": by_hand({"alg": "ES256", "kid": "e"}),
    "crit": token(headers={"crit": ["exp"], "exp": 1}),
    "b64": by_hand({"alg": "ES256", "kid": "e", "b64": False}),
    "two parts": token().rpartition(".")[0],
    "four parts": token() + ".",
    "header of a list": f"{part([])}.{part(claims())}.AAAA",
    "header of garbage": f"{part(b'{')}.{part(claims())}.AAAA",
    "header that is deep": f"{part(b'[' * 3000)}.{part(claims())}.AAAA",
    "header that is long": token(headers={"x": "y" * 4000}),
    "header that is not base64": f"A.{part(claims())}.AAAA",
    "cut": token()[:-4],
    "other claims": by_hand({"alg": "ES256", "kid": "e"}, sub="root") + token().rpartition(".")[2],
}


@pytest.mark.parametrize("value", FORGED.values(), ids=FORGED.keys())
def test_forged_token_is_refused(value):
    refused(value)


def test_algorithms_are_asymmetric():
    assert not [name for name in oauthbearer.ALGORITHMS if name.startswith("HS")]
    assert "none" not in oauthbearer.ALGORITHMS


def test_long_message_is_refused():
    with pytest.raises(AuthenticationFailed, match="too long"):
        authenticate(first("a" * oauthbearer.MAX_MESSAGE))


ONE_TOKEN = token(subject="x")


@settings(max_examples=200)
@given(st.integers(0, 10_000), st.integers(1, 255), st.sampled_from(["flip", "cut", "insert"]))
def test_changed_token_is_refused(at, how, kind):
    value = ONE_TOKEN.encode()
    at %= len(value)
    match kind:
        case "flip":
            value = value[:at] + bytes([value[at] ^ how]) + value[at + 1 :]
        case "cut":
            value = value[:at]
        case _:
            value = value[:at] + bytes([how]) + value[at:]
    exchange = oauthbearer.authenticate(
        b"n,,\x01auth=Bearer " + value + b"\x01\x01", fixed(), TokenRules(), NOW * 1000
    )
    with pytest.raises(AuthenticationFailed):
        outcome_of(exchange, b"\x01")


@given(st.binary(max_size=60), st.booleans())
def test_no_message_raises_another_error(message, prefixed):
    exchange = oauthbearer.authenticate(
        b"n,,\x01auth=Bearer " * prefixed + message, fixed(), TokenRules(), NOW * 1000
    )
    with pytest.raises(AuthenticationFailed):
        outcome_of(exchange, b"\x01")


def test_signature_is_checked_off_the_event_loop():
    exchange = oauthbearer.authenticate(
        first(token()), fixed(key_set(jwk(EC_KEY, "e"))), TokenRules(), NOW * 1000
    )
    fetched = answer(exchange, next(exchange))
    assert isinstance(fetched, OffLoop)
    assert fetched.function()["sub"] == "alice"


# --- messages


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"p=x,,\x01auth=Bearer t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,a=a=b,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Bearer t\x01\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01a=b\x01a=c\x01\x01",
        b"n,,\x01auth=Bearer t\x01a1=b\x01\x01",
        b"n,,\x01auth=Bearer t\x01a=\x01\x01",
        b"n,,\x01auth=Bearer t\x01a=\xc3\xbc\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,,\x01auth=Bearer t"
        + b"".join(b"\x01%b=x" % (b"a" * at) for at in range(1, 71))
        + b"\x01\x01",
        b"n,,auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_malformed_first_message_gets_the_general_answer(message):
    exchange = oauthbearer.authenticate(message, fixed(), TokenRules(), NOW * 1000)
    with pytest.raises(AuthenticationFailed) as error:
        next(exchange)
    assert error.value.answer("OAUTHBEARER") == GENERAL


def test_scheme_is_compared_without_case():
    message = first(token()).replace(b"Bearer ", b"bEARER  ")
    assert authenticate(message).principal.name == "alice"


def test_second_token_is_not_looked_at_after_the_error():
    exchange = oauthbearer.authenticate(first("a.b.c"), fixed(), TokenRules(), NOW * 1000)
    assert step(exchange) == Challenge(INVALID)
    with pytest.raises(AuthenticationFailed) as error:
        exchange.send(first(token()))
    assert error.value.answer("OAUTHBEARER") == GENERAL


def test_client_ends_the_exchange_after_an_error():
    client = oauthbearer.login("a.b.c")
    assert next(client) == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert client.send(INVALID) == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        client.send(b"")


# --- the key set


class Issuer:
    """An issuer whose fetches the test completes."""

    def __init__(self):
        self.fetches = []

    def fetch(self):
        self.fetches.append(Future())
        return self.fetches[-1]


def login(keys, now_ms, kid="e"):
    value = token(headers={"kid": kid})
    return oauthbearer.authenticate(first(value), keys, TokenRules(), now_ms)


def until_fetch(exchange):
    waits = exchange.send(None)
    assert isinstance(waits, Await)
    return waits


def accepted(exchange, wait=None):
    try:
        yielded = exchange.send(None) if wait is None else answer(exchange, wait)
        while isinstance(yielded, OffLoop):
            yielded = answer(exchange, yielded)
    except StopIteration as returned:
        return returned.value.principal.name == "alice"
    assert yielded == Challenge(INVALID)
    return False


T0 = NOW * 1000


def test_logins_with_an_unknown_key_share_one_fetch():
    issuer = Issuer()
    keys = KeySet(issuer.fetch, 100, 10_000)
    exchanges = [login(keys, T0 + late) for late in range(3)]
    waits = [until_fetch(exchange) for exchange in exchanges]
    (fetch,) = issuer.fetches
    fetch.set_result(KEYS)
    exchanges.pop(0).close()
    assert all(accepted(*pair) for pair in zip(exchanges, waits[1:], strict=True))
    assert accepted(login(keys, T0 + 9))
    assert len(issuer.fetches) == 1


def test_unknown_keys_have_the_set_fetched_at_a_bounded_rate():
    issuer = Issuer()
    keys = KeySet(issuer.fetch, 100, 10_000)
    for late, fetches in ((0, 1), (1, 1), (9_999, 1), (10_000, 2), (10_001, 2)):
        exchange = login(keys, T0 + late, kid=f"new-{late}")
        yielded = exchange.send(None)
        if isinstance(yielded, Await):
            issuer.fetches[-1].set_result(KEYS)
            assert not accepted(exchange, yielded)
        assert len(issuer.fetches) == fetches
    assert accepted(login(keys, T0 + 10_002))


def test_rotated_key_is_accepted_and_the_old_one_is_not():
    issuer = Issuer()
    keys = KeySet(issuer.fetch, 100, 10_000)
    for late, published, known in ((0, EC_KEY, True), (10_000, STRANGE, False)):
        exchange = login(keys, T0 + late, kid=f"at-{late}")
        wait = until_fetch(exchange)
        issuer.fetches[-1].set_result(key_set(jwk(published, f"at-{late}")))
        assert accepted(exchange, wait) == known
    assert not accepted(login(keys, T0 + 10_001, kid="at-0"))


def test_last_good_set_stays_when_fetches_fail_and_they_back_off():
    issuer = Issuer()
    keys = KeySet(issuer.fetch, 100, 300)
    first_login = login(keys, T0)
    wait = until_fetch(first_login)
    issuer.fetches[-1].set_result(KEYS)
    assert accepted(first_login, wait)
    at = T0 + 300
    for delay, error in ((100, OSError("gone")), (200, InvalidKeySet()), (300, OSError())):
        refreshing = keys.refresh(at)
        wait = next(refreshing)
        issuer.fetches[-1].set_exception(error)
        with pytest.raises(StopIteration):
            answer(refreshing, wait)
        assert accepted(login(keys, at))
        fetches = len(issuer.fetches)
        assert not accepted(login(keys, at + delay - 1, kid="x"))
        assert len(issuer.fetches) == fetches
        at += delay
    assert isinstance(login(keys, at, kid="x").send(None), Await)


def test_fetch_whose_login_was_cut_off_is_used_by_the_next():
    issuer = Issuer()
    keys = KeySet(issuer.fetch, 100, 10_000)
    cut = login(keys, T0)
    until_fetch(cut)
    cut.close()
    issuer.fetches[-1].set_result(KEYS)
    late = login(keys, T0 + 1)
    assert accepted(late, until_fetch(late))
    assert len(issuer.fetches) == 1


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys":{}}',
        b'{"keys":[]}',
        b'{"keys":[1]}',
        b'{"keys":' + b"[" * 100_000,
        b" " * (MAX_DOCUMENT + 1),
        b"\xff",
    ],
)
def test_document_without_keys_is_refused(document):
    with pytest.raises(InvalidKeySet):
        WebKeys(document)


GOOD = jwk(EC_384, "good")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    SHORT = rsa.generate_private_key(65537, 1024)


@pytest.mark.parametrize(
    "entry",
    [
        jwk(SHORT, "r"),
        jwk(EC_KEY, "r", use="enc"),
        jwk(EC_KEY, "r", alg="HS256"),
        jwk(EC_KEY, "r", alg="ES384"),
        {"kty": "oct", "kid": "r", "k": part(b"secret" * 8), "alg": "HS256"},
        {"kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "kid": "r"},
        {"kty": "RSA", "kid": "r", "n": 5, "e": []},
        {"kty": "EC", "kid": "r", "crv": "P-256", "x": part(bytes(32)), "y": part(bytes(32))},
        {"kty": "EC", "kid": "r", "crv": {}, "x": None},
        {"kty": "OKP", "kid": "r", "crv": "Ed25519", "x": "AA"},
        {"kty": ["RSA"], "kid": "r"},
        {"kid": "r"},
    ],
)
def test_key_that_is_not_for_signatures_is_left_out(entry):
    keys = key_set(entry, GOOD)
    assert keys.find("good", "ES384") is not None
    for algorithm in oauthbearer.ALGORITHMS:
        if (entry.get("alg"), algorithm) != ("ES384", "ES384"):
            assert keys.find("r", algorithm) is None


def test_private_part_of_a_key_is_not_read():
    found = key_set(jwk(RSA_KEY, "r", private=True)).find("r", "RS256")
    assert isinstance(found.public_key, rsa.RSAPublicKey)
    assert found.claims(token(RSA_KEY, "RS256", {"kid": "r"}), "RS256")["sub"] == "alice"


def test_heavy_packages_are_imported_only_to_read_a_key_set():
    program = (
        "import sys, barnabas.security.sasl.oauthbearer\n"
        "sys.exit(bool({'jwt', 'cryptography', 'pydantic'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
