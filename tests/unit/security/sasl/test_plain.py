"""PLAIN: users of JAAS lines, and passwords checked against SCRAM credentials."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.principal import Principal
from barnabas.security.sasl import plain
from barnabas.security.sasl.credentials import ScramCredential, ScramMechanism, StandIns
from barnabas.security.sasl.exchange import MAX_MESSAGE, AuthenticationFailed
from barnabas.security.sasl.jaas import parse_jaas
from tests.support.sasl_exchanges import converse, outcome_of

JAAS = parse_jaas(
    'PlainLoginModule required username="admin" password="internal"'
    ' user_alice="secret" user_ünal="pässword" user_mute="";'
)
USERS = plain.JaasUsers(JAAS.options)
STAND_INS = StandIns(b"cluster")
SCRAM_USERS = {
    "alice": ScramCredential.of_password(ScramMechanism.SHA_512, b"secret", b"salt", 4096),
}


def find_scram(user):
    return STAND_INS.credential(ScramMechanism.SHA_512, user, SCRAM_USERS.get(user))


FINDERS = pytest.mark.parametrize("find", [USERS.find, find_scram], ids=["jaas", "scram"])


def authenticate(message, find=USERS.find):
    return outcome_of(plain.authenticate(message, find))


@FINDERS
@pytest.mark.parametrize("authorization_id", [b"", b"alice"])
def test_right_password_gives_the_users_principal(find, authorization_id):
    outcome = authenticate(authorization_id + b"\0alice\0secret", find)
    assert outcome.principal == Principal("User", "alice")
    assert (outcome.answer, outcome.expires_ms, outcome.by_token) == (b"", None, False)


def test_client_and_server_agree_on_utf_8():
    outcome = converse(
        lambda message: plain.authenticate(message, USERS.find), plain.login("ünal", "pässword")
    )
    assert outcome.principal.name == "ünal"


@FINDERS
@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0Secret",
        b"\0alice\0secret2",
        b"\0alice\0secre",
        b"\0Alice\0secret",
        b"\0bob\0secret",
        b"\0admin\0internal",
        b"\0username\0admin",
        b"\0user_alice\0secret",
        b"alice\0bob\0secret",
    ],
)
def test_wrong_password_and_unknown_user_get_the_same_answer(find, message):
    with pytest.raises(AuthenticationFailed) as error:
        authenticate(message, find)
    assert error.value.answer("PLAIN") == "Authentication failed: Invalid username or password"


@FINDERS
def test_authorization_id_of_another_user_is_refused(find):
    with pytest.raises(AuthenticationFailed) as error:
        authenticate(b"bob\0alice\0secret", find)
    assert error.value.answer("PLAIN") == (
        "Authentication failed: Client requested an authorization id that is different from "
        "username"
    )


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0alice\0secret\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0mute\0", "Authentication failed: password not specified"),
    ],
)
def test_malformed_message_gets_kafkas_answer(message, told):
    with pytest.raises(AuthenticationFailed) as error:
        authenticate(message)
    assert error.value.answer("PLAIN") == told


@pytest.mark.parametrize("message", [b"\0alice\0secret\xff", b"\0alice\0" + b"s" * MAX_MESSAGE])
def test_message_that_is_not_read_gets_the_general_answer(message):
    with pytest.raises(AuthenticationFailed) as error:
        authenticate(message)
    assert error.value.answer("PLAIN") == (
        "Authentication failed during authentication due to invalid credentials "
        "with SASL mechanism PLAIN"
    )
    assert "during re-authentication due" in error.value.answer("PLAIN", again=True)


@given(st.text(max_size=8), st.text(max_size=8), st.data())
def test_only_the_password_of_the_configuration_is_accepted(user, password, data):
    tried = data.draw(st.one_of(st.just(password), st.text(max_size=8)))
    users = plain.JaasUsers({f"user_{user}": password})
    message = f"\0{user}\0{tried}".encode()
    try:
        accepted = authenticate(message, users.find).principal.name == user
    except AuthenticationFailed:
        accepted = False
    sane = user and password and "\0" not in user + password
    assert accepted == bool(sane and tried == password)


@given(st.binary(max_size=40))
def test_no_message_raises_another_error(message):
    with pytest.raises(AuthenticationFailed):
        authenticate(message)


def test_the_check_leaves_the_event_loop():
    exchange = plain.authenticate(b"\0alice\0secret", find_scram)
    assert exchange.send(None).function() is True


def test_client_needs_user_and_password():
    for user, password in (("", "p"), ("u", ""), ("u\0", "p"), ("u", "p\0")):
        with pytest.raises(AuthenticationFailed, match="without NUL"):
            next(plain.login(user, password))


def test_client_refuses_an_answer_with_content():
    client = plain.login("u", "p")
    next(client)
    with pytest.raises(AuthenticationFailed, match="not empty"):
        client.send(b"?")
