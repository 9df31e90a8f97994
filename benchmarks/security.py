"""TLS and SASL beside Apache Kafka: brokers with listeners for each, and clients that come in."""

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from barnabas.protocol.messages import alter_user_scram_credentials, api_versions
from benchmarks import logins, raw
from benchmarks.measures import Cost, Figures, Round, percentiles
from benchmarks.systems import ApacheKafka, Barnabas, System
from benchmarks.whole_clients import Tls
from tests.support.brokers import timed
from tests.support.brokers.loop_hold import held_since_last
from tests.support.certificates import Authority, Stores
from tests.support.ports import free_port
from tests.support.web_tokens import Issuer

COMERS, THREADS = 2, 4
"""Processes of clients, and the connections of each at a time."""
ISSUER = "https://issuer"
ITERATIONS, SALT = 4096, b"salt-of-alice"
SALTED = hashlib.pbkdf2_hmac("sha512", b"alice-secret", SALT, ITERATIONS)
_COMMON = "org.apache.kafka.common.security"
_OAUTH = "listener.name.login.oauthbearer.sasl"
_BETWEEN_PROBES_S = 0.002


class Site:
    """The keys, certificates and ports of the two systems."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        stores = Stores(directory, Authority())
        self.authority = stores.trust()["ssl.truststore.location"]
        self._issuer = Issuer()
        self._properties = {
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SSL,LOGIN:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.login.scram-sha-512.sasl.jaas.config": (
                f"{_COMMON}.scram.ScramLoginModule required;"
            ),
            f"{_OAUTH}.jaas.config": (f"{_COMMON}.oauthbearer.OAuthBearerLoginModule required;"),
            "sasl.oauthbearer.jwks.endpoint.url": self._issuer.write(directory / "keys.json"),
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
            **stores.identity(),
        }
        self.ports: dict[str, dict[str, int]] = {}
        """The ports of the last broker of each system, by listener."""
        self._made: list[System] = []

    def knows(self, system: System) -> bool:
        """Return whether a system is one with listeners for TLS and SASL."""
        return system in self._made

    def tls(self, system: System) -> Tls:
        return Tls(self.ports[system.name]["SECURE"], self.authority)

    def barnabas(self, *, tokens: bool = True, program: str = "") -> Barnabas:
        """Return Barnabas; without `tokens` there is no OAUTHBEARER, whose libraries are large."""
        properties = {**self._properties}
        if not tokens:
            properties["sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
            del properties["sasl.oauthbearer.jwks.endpoint.url"]
        made = Barnabas(self._directory, properties, self._listeners(Barnabas.name), program)
        self._made.append(made)
        return made

    def kafka(self) -> ApacheKafka:
        own = {
            f"{_OAUTH}.server.callback.handler.class": (
                f"{_COMMON}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
        }
        url = self._properties["sasl.oauthbearer.jwks.endpoint.url"]
        made = ApacheKafka(
            self._directory,
            self._properties | own,
            self._listeners(ApacheKafka.name),
            [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"],
        )
        self._made.append(made)
        return made

    def _listeners(self, name: str) -> list[str]:
        self.ports[name] = {each: free_port() for each in ("SECURE", "LOGIN")}
        return [f"{each}://localhost:{port}" for each, port in self.ports[name].items()]

    def tokens(self, count: int) -> str:
        """Write different tokens into a file, one a line; return its path."""
        path = self._directory / f"tokens-{time.time_ns()}"
        one = partial(self._issuer.token, "alice", aud="kafka", iss=ISSUER)
        tokens = (one(jti=str(number)) for number in range(count))
        path.write_text("\n".join(tokens))
        return str(path)

    def come_in(self, system: System, count: int, *, tokens: bool = True, only: str = "") -> Round:
        """Measure new connections and logins, `count` of each kind, or of one kind."""
        ports = self.ports[system.name]
        share = count // COMERS
        with ExitStack() as stack:
            files = [stack.enter_context(_file(self.tokens(share))) for _ in range(COMERS)]
            orders = {
                "new TLS 1.3 connections": [["tls", str(ports["SECURE"]), self.authority]] * COMERS,
                "logins by SCRAM-SHA-512": [["scram", str(ports["LOGIN"]), SALTED.hex()]] * COMERS,
                "logins by OAUTHBEARER": [["oauth", str(ports["LOGIN"]), each] for each in files],
            }
            if not tokens:
                del orders["logins by OAUTHBEARER"]
            if only:
                orders = {only: orders[only]}
            return {name: _come_in(system, count, each) for name, each in orders.items()}

    def held(self, count: int) -> Round:
        """Measure for how long the event loop of Barnabas is held while clients come in."""
        with self.barnabas(program=timed.__name__) as system:
            add_user(system)
            found = {}
            for name in self.come_in(system, COMERS * THREADS):
                held_since_last(system.pid, system.data)
                self.come_in(system, count, only=name)
                held = held_since_last(system.pid, system.data)
                found[f"{name}: loop"] = {"held_ms": held.longest_work}
            return found


@contextmanager
def _file(path: str) -> Iterator[str]:
    try:
        yield path
    finally:
        Path(path).unlink()


def add_user(system: System) -> None:
    """Create alice; return when she is known."""
    alice = {
        "name": "alice",
        "mechanism": 2,
        "iterations": ITERATIONS,
        "salt": SALT,
        "salted_password": SALTED,
    }
    request = {"deletions": [], "upsertions": [alice]}
    with raw.connect(system.port) as client:
        answer = client.call(alter_user_scram_credentials.API, 0, request)
        if answer.results[0].error_code:
            raise RuntimeError(f"{system.name}: {answer.results[0].error_message}")


def _come_in(system: System, count: int, orders: Sequence[Sequence[str]]) -> Figures:
    """Let clients of several processes come in; another client asks for something meanwhile."""
    share = str(count // len(orders))
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", logins.__name__, kind, port, share, str(THREADS), given],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for kind, port, given in orders
        ]
        for each in clients:
            _expect(each, "ready")
        with _neighbour(system) as waits, Cost(system.pid) as cost:
            for each in clients:
                assert each.stdin is not None
                each.stdin.write("\n")
                each.stdin.flush()
            for each in clients:
                _expect(each, "done")
    waits.sort()
    p99_ms = percentiles(waits, "ms")["p99_ms"]
    longest = {"neighbour_p99_ms": p99_ms, "neighbour_longest_ms": waits[-1] * 1e3}
    return cost.of(count) | longest


def _expect(client: "subprocess.Popen[str]", word: str) -> None:
    assert client.stdout is not None
    if client.stdout.readline().strip() != word:
        raise RuntimeError(f"a client of benchmarks/logins.py is not {word}")


@contextmanager
def _neighbour(system: System) -> Iterator[list[float]]:
    """Ask on the listener without TLS, again and again; yield the times of the answers in s."""
    taken: list[float] = []
    enough = threading.Event()
    request = raw.frame(api_versions.API, 0, {})

    def ask() -> None:
        with raw.connect(system.port) as client:
            while not enough.wait(_BETWEEN_PROBES_S):
                taken.extend(client.latencies(request, 1))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield taken
    finally:
        enough.set()
        asking.join()
