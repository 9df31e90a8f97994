"""SCRAM: both sides, delegation tokens, and the credentials of users that do not exist."""

import base64
import itertools
from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.net.sasl.scram import ScramClient

from barnabas.security.principal import Principal
from barnabas.security.sasl import scram
from barnabas.security.sasl.credentials import (
    DelegationToken,
    ScramCredential,
    ScramMechanism,
    StandIns,
    new_salt,
    token_hmac,
)
from barnabas.security.sasl.exchange import MAX_MESSAGE, AuthenticationFailed, Challenge
from tests.support.sasl_exchanges import converse, outcome_of, step

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
BOTH = pytest.mark.parametrize("mechanism", [SHA_256, SHA_512], ids=lambda each: each.value)
STAND_INS = StandIns(b"cluster")
NONCE = "3rfcNHYJY1ZVvWVs7j"
NOW_MS = 1_000_000
GENERAL = (
    "Authentication failed during authentication due to invalid credentials "
    "with SASL mechanism SCRAM-SHA-256"
)


def credential(mechanism, password="secret", iterations=4096):
    return ScramCredential.of_password(mechanism, password.encode(), b"a salt", iterations)


def server(mechanism=SHA_256, users=None, tokens=None, nonce=NONCE):
    users = {"alice": credential(mechanism)} if users is None else users
    side = scram.ScramServer(mechanism, users.get, STAND_INS, tokens)
    return lambda message: side.authenticate(message, nonce, NOW_MS)


def client(mechanism=SHA_256, user="alice", password="secret", nonce="fyko", extensions=None):
    return scram.login(mechanism, user, password, nonce, extensions)


# --- the vector of RFC 7677

RFC_CREDENTIAL = ScramCredential.of_password(
    SHA_256, b"pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096
)
RFC_SERVER = server(users={"user": RFC_CREDENTIAL}, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
RFC_MESSAGES = (
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


def test_messages_are_those_of_rfc_7677():
    seen = []

    def record(_, message):
        seen.append(message)
        return message

    outcome = converse(
        RFC_SERVER, client(user="user", password="pencil", nonce="rOprNGfwEbeRWgbNEkqO"), record
    )
    assert tuple(seen) == RFC_MESSAGES
    assert outcome.principal == Principal("User", "user")
    assert (outcome.expires_ms, outcome.by_token) == (None, False)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_python_gets_in_and_accepts_our_signature(mechanism):
    foreign = ScramClient("alice", "secret", mechanism)
    exchange = server(ScramMechanism(mechanism))(foreign.first_message())  # type: ignore[call-arg]
    foreign.process_server_first_message(step(exchange).data)
    with pytest.raises(StopIteration) as returned:
        step(exchange, foreign.final_message())
    foreign.process_server_final_message(returned.value.value.answer)
    with pytest.raises(ValueError, match="wrong signature"):
        foreign.process_server_final_message(b"v=AAAA")


# --- every user and password, and every change of a message

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)


@settings(max_examples=40)
@given(st.sampled_from([SHA_256, SHA_512]), NAMES, st.text(max_size=20))
def test_any_user_and_password_get_in(mechanism, user, password):
    serve = server(mechanism, {user: credential(mechanism, password)})
    assert converse(serve, client(mechanism, user, password)).principal == ("User", user)


# HMAC fills its key with zeros, so zeros at the end of a password change nothing.
OTHERS = st.text(max_size=5).filter(lambda text: not text.endswith("\0"))


@settings(max_examples=40)
@given(OTHERS, OTHERS)
def test_another_password_is_refused(password, tried):
    serve = server(users={"alice": credential(SHA_256, password)})
    if password != tried:
        with pytest.raises(AuthenticationFailed):
            converse(serve, client(password=tried))


CHANGES = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 10_000), st.integers(1, 255)),
    st.tuples(st.just("cut"), st.integers(0, 10_000), st.just(0)),
    st.tuples(st.just("insert"), st.integers(0, 10_000), st.integers(0, 255)),
    st.tuples(st.just("double"), st.integers(0, 10_000), st.just(0)),
    st.tuples(st.just("append"), st.just(0), st.sampled_from([b",x=y", b",", b",r=x", b"="])),
    st.tuples(st.just("swap"), st.integers(0, 10), st.integers(0, 10)),
)


def changed(message, change):
    kind, at, how = change
    parts = message.split(b",")
    match kind:
        case "flip":
            at %= len(message)
            return message[:at] + bytes([message[at] ^ how]) + message[at + 1 :]
        case "cut":
            return message[: at % len(message)]
        case "insert":
            at %= len(message) + 1
            return message[:at] + bytes([how]) + message[at:]
        case "double":
            return b",".join([*parts, parts[at % len(parts)]])
        case "append":
            return message + how
        case _:
            one, other = at % len(parts), how % len(parts)
            parts[one], parts[other] = parts[other], parts[one]
            return b",".join(parts)


@settings(max_examples=300)
@given(st.integers(0, 3), CHANGES)
def test_changed_message_is_refused(number, change):
    done = []

    def tamper(at, message):
        if at != number:
            return message
        done.append(changed(message, change) != message)
        return changed(message, change)

    try:
        converse(RFC_SERVER, client(user="user", password="pencil"), tamper)
    except AuthenticationFailed:
        accepted = False
    else:
        accepted = True
    assert accepted == (done == [False])


@given(st.binary(max_size=60), st.booleans())
def test_no_message_raises_another_error(message, later):
    exchange = RFC_SERVER(RFC_MESSAGES[0] if later else message)
    with pytest.raises(AuthenticationFailed):
        outcome_of(exchange, message)


# --- refusals one by one


def proof_for(first, server_first, without_proof, password="secret"):
    """Return a final message as a client that computes all else correctly would send it."""
    _, _, bare = first.split(b",", 2)
    salted = SHA_256.salted(password.encode(), b"a salt", 4096)
    key = SHA_256.hmac(salted, b"Client Key")
    signed = b",".join((bare, server_first, without_proof))
    signature = SHA_256.hmac(SHA_256.digest(key), signed)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


def refusal(first, without_proof=None):
    """Return the answer to a client that signs whatever it sends with the right password."""
    with pytest.raises(AuthenticationFailed) as error:
        outcome(first, without_proof)
    return error.value.answer("SCRAM-SHA-256")


def outcome(first, without_proof=None):
    exchange = server()(first)
    challenge = step(exchange)
    assert isinstance(challenge, Challenge)
    header = first[: len(first) - len(first.split(b",", 2)[2])]
    honest = b"c=" + base64.b64encode(header) + b",r=fyko" + NONCE.encode()
    last = proof_for(first, challenge.data, without_proof or honest)
    with pytest.raises(StopIteration) as returned:
        step(exchange, last)
    return returned.value.value


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=alice,r=fyko",
        b"y,,n=alice,r=fyko",
        b"n,a=alice,n=alice,r=fyko",
        b"n,,n=alice,r=fyko,unknown=1",
        b"n,,n=alice,r=fyko,tokenauth=false",
    ],
)
def test_first_messages_that_are_served(first):
    assert outcome(first).principal.name == "alice"


@pytest.mark.parametrize(
    "first",
    [
        b"p=tls-unique,,n=alice,r=fyko",
        b"p,,n=alice,r=fyko",
        b",,n=alice,r=fyko",
        b"n,n=alice,r=fyko",
        b"n,alice,n=alice,r=fyko",
        b"n,a=,n=alice,r=fyko",
        b"n,,m=must,n=alice,r=fyko",
        b"n,,r=fyko,n=alice",
        b"n,,n=alice,n=bob,r=fyko",
        b"n,,n=alice,r=fyko,r=fyko",
        b"n,,n=alice,r=fyko,tokenauth=true,tokenauth=false",
        b"n,,n=alice,r=",
        b"n,,n=alice",
        b"n,,n=,r=fyko",
        b"n,,n=al=ice,r=fyko",
        b"n,,n=al=2cice,r=fyko",
        b"n,,n=alice\0,r=fyko",
        b"n,,n=alice,r=fy ko",
        b"n,,n=alice,r=fyk\xc3\xb6",
        b"n,,n=alice\xff,r=fyko",
        b"n,,n=alice,r=fyko," + b"x" * MAX_MESSAGE,
        b"n,,n=alice,r=fyko\n",
        b"n,,n=alice,r=fyko," + b",".join(b"a" * at + b"=x" for at in range(1, 41)),
    ],
)
def test_first_messages_that_are_refused(first):
    with pytest.raises(AuthenticationFailed) as error:
        next(server()(first))
    assert error.value.answer("SCRAM-SHA-256") == GENERAL


@pytest.mark.parametrize("user", [b"alice", b"carol"])
def test_authorization_id_of_another_user_is_refused(user):
    assert refusal(b"n,a=bob,n=" + user + b",r=fyko") == (
        "Authentication failed: Client requested an authorization id that is different from "
        "username"
    )


@pytest.mark.parametrize(
    ("first", "without_proof"),
    [
        (b"n,,n=alice,r=fyko", b"c=eSws,r=fyko" + NONCE.encode()),
        (b"y,,n=alice,r=fyko", b"c=biws,r=fyko" + NONCE.encode()),
        (b"n,a=alice,n=alice,r=fyko", b"c=biws,r=fyko" + NONCE.encode()),
        (b"n,,n=alice,r=fyko", b"c=biws,r=fyko"),
        (b"n,,n=alice,r=fyko", b"c=biws,r=" + NONCE.encode()),
        (b"n,,n=alice,r=fyko", b"c=biws,r=fyko" + NONCE.encode() + b"0"),
        (b"n,,n=alice,r=fyko", b"c=biws,r=Fyko" + NONCE.encode()),
        (b"n,,n=alice,r=fyko", b"r=fyko" + NONCE.encode() + b",c=biws"),
        (b"n,,n=alice,r=fyko", b"c=biws,r=fyko" + NONCE.encode() + b",r=fyko" + NONCE.encode()),
    ],
)
def test_final_message_must_bind_the_first_and_the_nonce(first, without_proof):
    assert refusal(first, without_proof) == GENERAL


@pytest.mark.parametrize(
    ("nonce", "old_client"),
    [("fykofyko" + NONCE, True), ("fyko", False), ("fyko" + NONCE + NONCE, False)],
)
def test_log_names_the_client_that_repeats_its_nonce(nonce: str, old_client: bool) -> None:
    exchange = server()(b"n,,n=alice,r=fyko")
    next(exchange)
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.send(f"c=biws,r={nonce},p={'A' * 43}=".encode())
    assert str(caught.value).startswith("Invalid client nonce in the final client message.")
    assert ("librdkafka before 2.6.1" in str(caught.value)) == old_client
    # The client is told nothing of it, as in Kafka.
    assert caught.value.answer("SCRAM-SHA-256") == GENERAL


@pytest.mark.parametrize("proof", [b"", b",p=", b",p=AAAA", b",p=" + b"A" * 43, b",v=AAAA"])
def test_proof_of_another_size_is_refused(proof):
    exchange = server()(b"n,,n=alice,r=fyko")
    next(exchange)
    with pytest.raises(AuthenticationFailed):
        exchange.send(b"c=biws,r=fyko" + NONCE.encode() + proof)


def test_replayed_exchange_is_refused():
    serve = server(users={"user": RFC_CREDENTIAL}, nonce="another")
    with pytest.raises(AuthenticationFailed):
        outcome_of(serve(RFC_MESSAGES[0]), RFC_MESSAGES[2])


# --- users that do not exist


def challenge_for(user, **parts):
    exchange = server(**parts)(f"n,,n={user},r=fyko".encode())
    challenge = step(exchange)
    assert isinstance(challenge, Challenge)
    return dict(item.split("=", 1) for item in challenge.data.decode().split(","))


def test_unknown_user_gets_a_stable_challenge_that_looks_like_any_other():
    first, again, other = (challenge_for(user) for user in ("bob", "bob", "carol"))
    assert first == again
    assert first["s"] != other["s"]
    assert first["i"] == "4096"
    salt = base64.b64decode(first["s"]).decode()
    created = new_salt(lambda bits: (1 << bits) - 1).decode()
    assert salt.isalnum()
    assert salt == salt.lower()
    assert len(created) - 2 <= len(salt) <= len(created) == 26
    elsewhere = StandIns(b"another cluster").salt(SHA_256, "bob")
    assert base64.b64decode(first["s"]) != elsewhere
    assert STAND_INS.salt(SHA_512, "bob") != STAND_INS.salt(SHA_256, "bob")


def test_unknown_user_is_refused_like_a_wrong_password():
    answers = set()
    for user, password in (("bob", "secret"), ("alice", "wrong")):
        with pytest.raises(AuthenticationFailed) as error:
            converse(server(), client(user=user, password=password))
        answers.add((str(error.value), error.value.answer("SCRAM-SHA-256")))
    assert answers == {("Invalid client credentials", GENERAL)}


@pytest.mark.parametrize("unusable", [credential(SHA_256, iterations=4095), credential(SHA_512)])
def test_credential_that_is_not_usable_is_as_good_as_none(unusable):
    users = {"alice": unusable}
    assert challenge_for("alice", users=users) == challenge_for("alice", users={})
    with pytest.raises(AuthenticationFailed):
        converse(server(users=users), client())


# --- delegation tokens


def delegation_token(token_id, hmac, expires_ms):
    spark = Principal("User", "spark")
    return DelegationToken(
        id=token_id,
        owner=spark,
        requester=spark,
        renewers=(),
        issued_ms=0,
        max_ms=NOW_MS + 1000,
        expires_ms=expires_ms,
        hmac=hmac,
    )


class Tokens:
    """One token, whose credential may still have to be made."""

    def __init__(self, expires_ms=NOW_MS + 1, *, made=True):
        self.token = delegation_token("id-1", token_hmac("id-1", "master"), expires_ms)
        self.password = self.token.password.decode()
        self._made = made

    def find(self, token_id):
        return self.token if token_id == "id-1" else None

    def credential(self, mechanism, token):
        credential = STAND_INS.token_credential(mechanism, token)
        if self._made:
            return credential
        future: Future[ScramCredential] = Future()
        future.set_result(credential)
        return future


@pytest.mark.parametrize("made", [True, False], ids=["made", "not made"])
@BOTH
def test_token_gives_the_owners_principal_until_it_expires(mechanism, made):
    tokens = Tokens(made=made)
    outcome = converse(
        server(mechanism, tokens=tokens),
        client(mechanism, "id-1", tokens.password, extensions={"tokenauth": "true"}),
    )
    assert outcome.principal == Principal("User", "spark")
    assert (outcome.expires_ms, outcome.by_token) == (NOW_MS + 1, True)


@pytest.mark.parametrize(
    ("user", "extensions", "expires_ms", "enabled"),
    [
        ("id-1", {"tokenauth": "true"}, NOW_MS, True),
        ("id-1", {"tokenauth": "true"}, NOW_MS + 1, False),
        ("id-1", {"tokenauth": "false"}, NOW_MS + 1, True),
        ("id-1", {}, NOW_MS + 1, True),
        ("id-2", {"tokenauth": "true"}, NOW_MS + 1, True),
    ],
    ids=["expired", "disabled", "not as a token", "as a user", "unknown"],
)
def test_token_that_does_not_count_is_refused(user, extensions, expires_ms, enabled):
    tokens = Tokens(expires_ms)
    serve = server(tokens=tokens if enabled else None)
    with pytest.raises(AuthenticationFailed) as error:
        converse(serve, client(user=user, password=tokens.password, extensions=extensions))
    assert (str(error.value), error.value.answer("SCRAM-SHA-256")) == (
        "Invalid client credentials",
        GENERAL,
    )


def test_no_password_without_the_secret_matches_an_unknown_token():
    tokens = Tokens()
    for password in ("", "id-2", base64.b64encode(b"").decode(), tokens.password):
        with pytest.raises(AuthenticationFailed):
            converse(
                server(tokens=tokens),
                client(user="id-2", password=password, extensions={"tokenauth": "true"}),
            )


def test_user_cannot_log_in_as_a_token():
    with pytest.raises(AuthenticationFailed):
        converse(server(tokens=Tokens()), client(extensions={"tokenauth": "TRUE"}))


@pytest.mark.parametrize("tokens", [None, Tokens(), Tokens(NOW_MS)])
@pytest.mark.parametrize("token_id", ["id-1", "id-2"])
def test_message_with_a_token_costs_no_work(tokens, token_id):
    """Anyone can send it: with 4096 rounds of a hash for each, a crowd kept all logins waiting."""
    exchange = server(tokens=tokens)(f"n,,n={token_id},r=fyko,tokenauth=true".encode())
    challenge = exchange.send(None)
    assert isinstance(challenge, Challenge)
    salt = base64.b64encode(STAND_INS.salt(SHA_256, token_id)).decode()
    assert challenge.data.decode().endswith(f",s={salt},i=4096")


# --- the client


@pytest.mark.parametrize(
    "answer",
    [
        b"r=other,s=YSBzYWx0,i=4096",
        b"r=fyko,s=YSBzYWx0,i=4096",
        b"r=fykoX,s=YSBzYWx0,i=4095",
        b"r=fykoX,s=YSBzYWx0,i=1048577",
        b"r=fykoX,s=YSBzYWx0,i=04096",
        b"r=fykoX,s=YSBzYWx0,i=-1",
        b"r=fykoX,s=YSBzYWx0,i=" + b"9" * 5000,
        b"r=fykoX,s=YSBzYWx,i=4096",
        b"r=fykoX,s=,i=4096",
        b"m=x,r=fykoX,s=YSBzYWx0,i=4096",
        b"r=fykoX,i=4096,s=YSBzYWx0",
        b"r=fykoX,s=YSBzYWx0,i=4096,i=4096",
        b"",
        b"\xff",
    ],
)
def test_client_refuses_a_servers_first_message(answer):
    side = client()
    next(side)
    with pytest.raises(AuthenticationFailed):
        side.send(answer)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "Invalid server signature"),
        (b"v=AAAA", "Invalid server signature"),
        (b"x=AAAA", "Invalid server signature"),
        (b"", "Invalid SCRAM message"),
        (b"v=", "Invalid SCRAM message"),
        (b"e=other-error", "Sasl authentication using SCRAM-SHA-256 failed with error: other-"),
    ],
)
def test_client_refuses_a_server_that_proves_nothing(answer, text):
    def tamper(number, message):
        return answer if number == 3 else message

    with pytest.raises(AuthenticationFailed, match=text):
        converse(server(), client(), tamper)


def test_clients_work_leaves_the_event_loop():
    side = client()
    next(side)
    work = side.send(b"r=fykoX,s=YSBzYWx0,i=4096")
    assert len(work.function()) == 32


# --- credentials at rest


@BOTH
def test_credential_comes_back_from_kafkas_text(mechanism):
    stored = credential(mechanism)
    assert ScramCredential.decode(mechanism, stored.encode()) == stored
    assert stored.encode().startswith("salt=YSBzYWx0,stored_key=")
    assert stored.encode().endswith(",iterations=4096")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:0],
        lambda text: text + ",x=y",
        lambda text: text + ",iterations=4096",
        lambda text: text.replace("4096", "0"),
        lambda text: text.replace("4096", "many"),
        lambda text: text.replace("salt=YSBzYWx0", "salt="),
        lambda text: text.replace("salt=YSBzYWx0", "salt=*"),
        lambda text: text.replace("stored_key=", "stored_key=AAAA"),
        lambda text: text.replace("server_key=", "server_key=AAAA"),
        lambda text: text.replace(",iterations=4096", ""),
    ],
)
def test_invalid_text_of_a_credential_is_refused_and_not_shown(change):
    with pytest.raises(ValueError, match=r"^invalid credential of SCRAM-SHA-256$"):
        ScramCredential.decode(SHA_256, change(credential(SHA_256).encode()))


def test_secrets_are_in_no_repr():
    stored = credential(SHA_256)
    token = delegation_token("id-1", b"hunter2", 0)
    for secret in (stored.stored_key, stored.server_key, b"hunter2"):
        assert repr(secret)[2:-1] not in repr((stored, token))


def test_salts_differ():
    numbers = itertools.count(1)
    assert new_salt(lambda _: next(numbers)) != new_salt(lambda _: next(numbers))
