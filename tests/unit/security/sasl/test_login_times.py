"""The time of a failed login does not tell whether its user exists."""

import random

import pytest

from barnabas.security.principal import USER, Principal
from barnabas.security.sasl import plain
from barnabas.security.sasl.credentials import (
    NO_CREDENTIAL,
    NO_TOKEN,
    DelegationToken,
    ScramCredential,
    ScramMechanism,
    StandIns,
)
from barnabas.security.sasl.exchange import AuthenticationFailed, OffLoop, ServerExchange
from barnabas.security.sasl.scram import ScramServer
from benchmarks.login_times import (
    BY_TOKEN,
    KINDS,
    KNOWN,
    Login,
    compare,
    final_message,
    first_message,
)

TRIES = 1_000


class Tokens:
    """Delegation tokens whose credentials are made."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        alice = Principal(USER, "alice")
        self._tokens = {
            name: DelegationToken(name, alice, alice, (), 0, 1, 1, random.randbytes(64))
            for name in KNOWN
        }
        self._credentials = {name: credential_of(mechanism) for name in KNOWN}
        self._credentials[NO_TOKEN.id] = NO_CREDENTIAL

    def find(self, token_id: str) -> DelegationToken | None:
        return self._tokens.get(token_id)

    def credential(self, _mechanism: ScramMechanism, token: DelegationToken) -> ScramCredential:
        return self._credentials[token.id]


def by_mechanism(kind: str) -> Login:
    """Return the login of a kind without a broker."""
    if kind == "PLAIN":
        users = plain.JaasUsers({f"user_{name}": "secret" for name in KNOWN})

        def by_plain(name: str) -> None:
            refused(plain.authenticate(f"\0{name}\0wrong".encode(), users.find))

        return by_plain
    scram = ScramMechanism(kind.removesuffix(BY_TOKEN))  # type: ignore[call-arg]
    known = {name: credential_of(scram) for name in KNOWN}
    server = ScramServer(scram, known.get, StandIns(b"secret" * 6), Tokens(scram))

    def by_scram(name: str) -> None:
        exchange = server.authenticate(first_message(kind, name), "server", 0)
        next(exchange)
        refused(exchange, final_message(scram, "clientserver"))

    return by_scram


def credential_of(mechanism: ScramMechanism) -> ScramCredential:
    size = len(mechanism.digest(b""))
    return ScramCredential(mechanism, b"1" * 26, random.randbytes(size), bytes(size), 4096)


def refused(exchange: ServerExchange, message: bytes | None = None) -> None:
    try:
        step = exchange.send(message)
        while isinstance(step, OffLoop):
            step = exchange.send(step.function())
    except AuthenticationFailed:
        return
    raise AssertionError("a wrong password was accepted")


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_user_takes_the_time_of_a_known_one(kind: str) -> None:
    """Behind a network a tenth of these microseconds is not seen."""
    login = by_mechanism(kind)
    found = [compare(login, TRIES, seed) for seed in range(3)]
    apart = min(abs(each.known_us - each.unknown_us) / each.known_us for each in found)
    assert apart < 0.1, found
