"""Failed logins of users that exist and of users that do not: `python -m benchmarks.login_times`.

Delegation tokens, which exist or not, log in by SCRAM too.

    --tries N   logins of each kind (10,000)
    --machine   the mechanisms alone, without a broker and its network

For each mechanism Welch's t-test compares the times; the slowest tenth of each kind is left out, as
what else the machine does. A |t| of 4.5 or more tells them apart (as in dudect), and the exit code
is 1 then.
"""

import argparse
import contextlib
import logging
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas.protocol.messages import (
    alter_user_scram_credentials,
    create_delegation_token,
    sasl_authenticate,
    sasl_handshake,
)
from barnabas.protocol.types import uuid_text
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
from barnabas.testing import Broker
from benchmarks import raw

TRIES: Final = 10_000
APART: Final = 4.5
"""The |t| from which two kinds of logins can be told apart."""
KEPT: Final = 0.9
USERS: Final = 50
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_BY_TOKEN: Final = " by token"
KINDS: Final = (*MECHANISMS, *(f"{each}{_BY_TOKEN}" for each in MECHANISMS[1:]))
_KNOWN: Final = [f"user-{number:04}" for number in range(USERS)]
_UNKNOWN: Final = [f"none-{number:04}" for number in range(USERS)]
_ITERATIONS: Final = 4096
_SALT: Final = b"1" * 26
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"

Login = Callable[[str], None]
"""A login of a user with a wrong password, up to its refusal."""


class Compared(NamedTuple):
    """The mean times in microseconds, and Welch's t."""

    kind: str
    known_us: float
    unknown_us: float
    t: float

    @property
    def differ(self) -> bool:
        return abs(self.t) >= APART


def compare(kind: str, login: Login, tries: int, seed: int = 0) -> Compared:
    """Time logins of both kinds in random order."""
    rng = random.Random(seed)
    order = [True, False] * tries
    rng.shuffle(order)
    times: dict[bool, list[int]] = {True: [], False: []}
    for name in [*_KNOWN, *_UNKNOWN]:
        login(name)
    for known in order:
        name = rng.choice(_KNOWN if known else _UNKNOWN)
        began = time.perf_counter_ns()
        login(name)
        times[known].append(time.perf_counter_ns() - began)
    one, other = (sorted(each)[: int(len(each) * KEPT)] for each in times.values())
    means = statistics.fmean(one), statistics.fmean(other)
    error = math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))
    return Compared(kind, means[0] / 1e3, means[1] / 1e3, (means[0] - means[1]) / error)


# -- the mechanisms alone --------------------------------------------------------------------------


class _Tokens:
    """Delegation tokens whose credentials are made."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        alice = Principal(USER, "alice")
        self._tokens = {
            name: DelegationToken(name, alice, alice, (), 0, 1, 1, random.randbytes(64))
            for name in _KNOWN
        }
        self._credentials = {name: _credential(mechanism) for name in _KNOWN}
        self._credentials[NO_TOKEN.id] = NO_CREDENTIAL

    def find(self, token_id: str) -> DelegationToken | None:
        return self._tokens.get(token_id)

    def credential(self, _mechanism: ScramMechanism, token: DelegationToken) -> ScramCredential:
        return self._credentials[token.id]


def machine(kind: str) -> Login:
    """Return the login of a kind without a broker."""
    if kind == "PLAIN":
        users = plain.JaasUsers({f"user_{name}": "secret" for name in _KNOWN})

        def by_plain(name: str) -> None:
            _refused(plain.authenticate(f"\0{name}\0wrong".encode(), users.find))

        return by_plain
    scram = ScramMechanism(kind.removesuffix(_BY_TOKEN))  # type: ignore[call-arg]
    known = {name: _credential(scram) for name in _KNOWN}
    server = ScramServer(scram, known.get, StandIns(b"secret" * 6), _Tokens(scram))

    def by_scram(name: str) -> None:
        exchange = server.authenticate(_first(kind, name), "server", 0)
        next(exchange)
        _refused(exchange, _final(scram, "clientserver"))

    return by_scram


def _credential(mechanism: ScramMechanism) -> ScramCredential:
    size = len(mechanism.digest(b""))
    return ScramCredential(mechanism, _SALT, random.randbytes(size), bytes(size), _ITERATIONS)


def _first(kind: str, name: str) -> bytes:
    extension = ",tokenauth=true" if kind.endswith(_BY_TOKEN) else ""
    return f"n,,n={name},r=client{extension}".encode()


def _final(mechanism: ScramMechanism, nonce: str) -> bytes:
    """Return a final message with a wrong proof."""
    proof = {32: "A" * 43 + "=", 64: "A" * 86 + "=="}[len(mechanism.digest(b""))]
    return f"c=biws,r={nonce},p={proof}".encode()


def _refused(exchange: ServerExchange, message: bytes | None = None) -> None:
    try:
        step = exchange.send(message)
        while isinstance(step, OffLoop):
            step = exchange.send(step.function())
    except AuthenticationFailed:
        return
    raise AssertionError("a wrong password was accepted")


# -- a broker --------------------------------------------------------------------------------------


@contextlib.contextmanager
def broker() -> Iterator[Callable[[str], Login]]:
    """Run a broker with users and tokens; give the function that returns the login of a kind."""
    users = " ".join(f'user_{name}="secret"' for name in ("admin", *_KNOWN))
    keys = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.plaintext.plain.sasl.jaas.config": f"{_MODULE} {users};",
        "connection.failed.authentication.delay.ms": "0",
        "delegation.token.secret.key": "secret",
    }
    with Broker(keys) as running:
        port = int(running.bootstrap_servers.rpartition(":")[2])
        with _connected(port, "PLAIN") as client:
            assert not _authenticate(client, b"\0admin\0secret").error_code
            _add_users(client)
            ids = _add_tokens(client)
        yield lambda kind: partial(_over_network, port, kind, ids)


def _add_users(client: raw.Client) -> None:
    for mechanism in map(ScramMechanism, MECHANISMS[1:]):
        users = [
            {
                "name": name,
                "mechanism": mechanism.code,
                "iterations": _ITERATIONS,
                "salt": _SALT,
                "salted_password": random.randbytes(len(mechanism.digest(b""))),
            }
            for name in _KNOWN
        ]
        request = {"deletions": [], "upsertions": users}
        answer = client.call(alter_user_scram_credentials.API, 0, request)
        assert not any(each.error_code for each in answer.results)


def _add_tokens(client: raw.Client) -> dict[str, str]:
    """Create a token for each known name. Return the ids by name, those of unknown ones too."""
    ids = {name: uuid_text(random.randbytes(16)) for name in _UNKNOWN}
    for name in _KNOWN:
        request = {"renewers": [], "max_lifetime_ms": -1}
        answer = client.call(create_delegation_token.API, 3, request)
        assert not answer.error_code
        ids[name] = answer.token_id
    return ids


def _over_network(port: int, kind: str, ids: dict[str, str], name: str) -> None:
    """Log in by a kind; `ids` are those of tokens, by name."""
    mechanism = kind.removesuffix(_BY_TOKEN)
    with _connected(port, mechanism) as client:
        if mechanism == "PLAIN":
            last = f"\0{name}\0wrong".encode()
        else:
            known = ids[name] if kind.endswith(_BY_TOKEN) else name
            answer = _authenticate(client, _first(kind, known))
            nonce = bytes(answer.auth_bytes).decode().split(",")[0][2:]
            last = _final(ScramMechanism(mechanism), nonce)  # type: ignore[call-arg]
        assert _authenticate(client, last).error_code


def _connected(port: int, mechanism: str) -> raw.Client:
    """Open a connection, and choose a mechanism."""
    client = raw.Client(port)
    client.call(sasl_handshake.API, 1, {"mechanism": mechanism})
    return client


def _authenticate(client: raw.Client, message: bytes) -> Any:
    return client.call(sasl_authenticate.API, 1, {"auth_bytes": message})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--machine", action="store_true")
    options = parser.parse_args()
    # The broker warns of each failed login.
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    differ = False
    with contextlib.nullcontext(machine) if options.machine else broker() as login_by:
        for kind in KINDS:
            found = compare(kind, login_by(kind), options.tries)
            differ |= found.differ
            print(
                f"{kind:22} known {found.known_us:9.2f} us, unknown {found.unknown_us:9.2f} "
                f"us, t = {found.t:6.2f}",
                flush=True,
            )
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
