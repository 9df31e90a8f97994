"""TLS and SASL beside Apache Kafka: brokers with listeners for each, and clients that come in."""

import hashlib
import time
from functools import partial
from pathlib import Path
from typing import Any

from barnabas.protocol.messages import alter_user_scram_credentials
from benchmarks import raw
from benchmarks.child import ready
from benchmarks.measures import SETTINGS, Cost, Round
from benchmarks.systems import ApacheKafka, Barnabas, System
from benchmarks.whole_clients import Tls
from tests.support.brokers import timed
from tests.support.brokers.loop_hold import held_since_last
from tests.support.certificates import Authority, Stores
from tests.support.ports import free_port
from tests.support.web_tokens import Issuer

COMERS, THREADS = 2, 4
"""Processes of clients, and the connections of each at a time."""
ITERATIONS, SALT = 4096, b"salt-of-alice"
SALTED = hashlib.pbkdf2_hmac("sha512", b"alice-secret", SALT, ITERATIONS)
_LISTENERS = {"tls": "SECURE", "scram": "LOGIN", "oauth": "LOGIN"}
KINDS = {
    "tls": "new TLS 1.3 connections",
    "scram": "logins by SCRAM-SHA-512",
    "oauth": "logins by OAUTHBEARER",
}
"""The kinds of clients of `logins.py`: their listeners, and the names of the measurements."""


class Site:
    """The keys, certificates and ports of the two systems."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        stores = Stores(directory, Authority())
        self.authority = stores.trust()["ssl.truststore.location"]
        self._issuer = Issuer()
        self._properties = {
            **SETTINGS["brokers"]["secured"],
            "sasl.oauthbearer.jwks.endpoint.url": self._issuer.write(directory / "keys.json"),
            **stores.identity(),
        }
        self.ports: dict[str, dict[str, int]] = {}
        """The ports of the last broker of each system, by listener."""

    def tls(self, system: System) -> Tls:
        return Tls(self.ports[system.name]["SECURE"], self.authority)

    def barnabas(self, *, tokens: bool = True, program: str = "") -> Barnabas:
        """Return Barnabas; without `tokens` there is no OAUTHBEARER, whose libraries are large."""
        properties = {**self._properties}
        if not tokens:
            properties["sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
            del properties["sasl.oauthbearer.jwks.endpoint.url"]
        options = {"further": self._listeners(Barnabas.name), "program": program}
        return Barnabas(self._directory, properties, **options)

    def kafka(self) -> ApacheKafka:
        url = self._properties["sasl.oauthbearer.jwks.endpoint.url"]
        return ApacheKafka(
            self._directory,
            self._properties | SETTINGS["brokers"]["secured_kafka"],
            self._listeners(ApacheKafka.name),
            [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"],
        )

    def _listeners(self, name: str) -> list[str]:
        self.ports[name] = {each: free_port() for each in ("SECURE", "LOGIN")}
        return [f"{each}://localhost:{port}" for each, port in self.ports[name].items()]

    def _given(self, kind: str, count: int) -> Any:
        """Return what one process of clients needs for so many logins."""
        if kind == "oauth":
            one = partial(self._issuer.token, "alice", aud="kafka", iss="https://issuer")
            return [one(jti=f"{time.time_ns()}-{number}") for number in range(count)]
        return {"tls": self.authority, "scram": SALTED.hex()}[kind]

    def come_in(self, system: System, count: int, kind: str) -> Round:
        """Measure `count` new connections or logins of a kind."""
        port, share = self.ports[system.name][_LISTENERS[kind]], count // COMERS
        load = {"kind": kind, "port": port, "count": share, "threads": THREADS}
        several = [load | {"given": self._given(kind, share)} for _ in range(COMERS)]
        with ready("logins.come_in", several) as all_of_them, Cost(*system.pids) as cost:
            all_of_them()
        return {KINDS[kind]: cost.of(count)}

    def held(self, count: int) -> Round:
        """Measure for how long the event loop of Barnabas is held while clients come in."""
        with self.barnabas(program=timed.__name__) as system:
            add_user(system)
            found = {}
            for kind in KINDS:
                self.come_in(system, COMERS * THREADS, kind)
                held_since_last(system.pid, system.data)
                self.come_in(system, count, kind)
                held = held_since_last(system.pid, system.data)
                found[f"{KINDS[kind]}: loop"] = {"held_ms": held.longest_work}
            return found


def add_user(system: System) -> None:
    """Create alice."""
    alice = {"name": "alice", "mechanism": 2, "iterations": ITERATIONS}
    alice |= {"salt": SALT, "salted_password": SALTED}
    request = {"deletions": [], "upsertions": [alice]}
    with raw.connect(system.port) as client:
        answer = client.call(alter_user_scram_credentials.API, 0, request)
    if answer.results[0].error_code:
        raise RuntimeError(f"{system.name}: {answer.results[0].error_message}")
