"""Changes of security under load: certificates, rules, users, sessions, a broker, the metadata.

    python -m tests.chaos.live_security --seconds 180

runs `barnabas verify eos` over TLS and SCRAM on three brokers. Meanwhile certificates are rotated
50 times, and rules and users are changed 1,000 times. Sessions last 3 s; a broker is killed, the
session of another with the metadata store expires, and the store is away. A change has to hold on
every broker 1 s later, on connections that were open before. The exit code is 0 without a fault.
"""

import argparse
import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster as Client
from barnabas.client.connection import AuthenticationError, BrokerUnreachable, Connection
from barnabas.client.security import connect_with
from barnabas.client.user_admin import UserAdmin
from barnabas.protocol.config_resources import ConfigOperation
from barnabas.protocol.config_resources import ResourceType as ConfigResource
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import metadata
from barnabas.security.acl.rules import AclFilter, ResourceType
from barnabas.security.sasl.credentials import ScramMechanism
from barnabas.testing import Cluster, allow

HOLDS_S: Final = 1.0
"""The time after which a change holds everywhere."""
AT_ONCE: Final = 20
"""The rules that a round changes; it changes a password too."""
QUIET_S: Final = 20.0
"""The time for which nothing is judged after a fault: brokers without their store or a session."""
USER: Final = "alice"
_KEYSTORE: Final = "listener.name.sasl_ssl.ssl.keystore.location"
_MECHANISM: Final = ScramMechanism.SHA_512
_KEYS: Final = {"connections.max.reauth.ms": "3000", "transaction.state.log.num.partitions": "2"}


class Found(NamedTuple):
    """The changes that were made, and the faults."""

    rounds: int
    changes: int
    certificates: int
    checks: int
    faults: list[str]
    verdict: str


class Changes:
    """A user whose rights and password change, and the brokers' answers to it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._administer = cluster.settings().java()
        self._links: dict[int, Connection] = {}
        self._password = cluster.settings(USER).password
        self.changes = self.checks = 0
        self.faults: list[str] = []
        self.disturbed = False
        """Whether a broker or the metadata store is away."""

    async def round(self, number: int) -> None:
        """Grant rights, check them, take them away, check again; change the password."""
        topics = [f"probe-{each}" for each in range(AT_ONCE)]
        rules = [allow(USER, "Describe", f"Topic:{name}") for name in topics]
        servers = self._administer["bootstrap.servers"]
        async with Client(servers, connect=connect_with(self._administer), timeout=60) as client:
            admin = Admin(client)
            await admin.create_acls(rules)
            await self._check(topics, granted=True)
            await admin.delete_acls([AclFilter(ResourceType.TOPIC, name) for name in topics])
            await self._check(topics, granted=False)
            old, self._password = self._password, f"password-{number}"
            await UserAdmin(client).set_password(USER, self._password, _MECHANISM)
            await asyncio.sleep(HOLDS_S)
            for broker in self._cluster.running:
                await self._check_password(broker, self._password, good=True)
                await self._check_password(broker, old, good=False)
        self.changes += 2 * AT_ONCE + 1

    async def _check(self, topics: list[str], *, granted: bool) -> None:
        await asyncio.sleep(HOLDS_S)
        asked = [metadata.MetadataRequestTopic(name=name) for name in topics]
        request = metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        wanted = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if granted
            else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        for broker in self._cluster.running:
            answer = await (await self._link(broker)).request(metadata.API, request)
            for row in answer.topics:
                self.checks += 1
                if row.error_code != wanted:
                    code = ErrorCode.of(row.error_code).name
                    self.faults.append(f"broker {broker}: {row.name}: {code}, not {wanted.name}")

    async def _link(self, broker: int) -> Connection:
        """Return the open connection to a broker; it renews its session, or is opened again."""
        link = self._links.get(broker)
        if link is None or not link.is_open:
            link = self._links[broker] = await self._open(broker, self._password)
        return link

    async def _open(self, broker: int, password: str) -> Connection:
        host, _, port = self._cluster.address_of(broker).partition(":")
        settings = self._cluster.settings(USER).librdkafka() | {"sasl.password": password}
        return await Connection.open(host, int(port), connect=connect_with(settings), timeout=10)

    async def _check_password(self, broker: int, password: str, *, good: bool) -> None:
        self.checks += 1
        try:
            link = await self._open(broker, password)
        except AuthenticationError:
            if good:
                self.faults.append(f"broker {broker} refuses the new password")
            return
        if good:
            # The session of the open connection cannot be renewed with the old password.
            await self.close(broker)
            self._links[broker] = link
        else:
            self.faults.append(f"broker {broker} takes the old password")
            await link.close()

    async def close(self, *brokers: int) -> None:
        for each in brokers or tuple(self._links):
            if link := self._links.pop(each, None):
                await link.close()


def faults_of(cluster: Cluster, seconds: float) -> list[tuple[float, Callable[[], None]]]:
    """Return what happens to the cluster, each with its time in s."""

    def kill() -> None:
        cluster.kill(2)
        cluster.start_broker(2)

    def expire() -> None:
        cluster.expire_session(3)

    def away() -> None:
        cluster.cut_store(*cluster.broker_ids)
        time.sleep(3)
        cluster.heal()

    return [(seconds * (at + 1) / 5, each) for at, each in enumerate((kill, expire, away))]


async def rotate(cluster: Cluster, changes: Changes, seconds: float, count: int) -> int:
    """Give the brokers new certificates, by AlterConfigs; return how many new clients have seen."""
    security = cluster._security
    assert security is not None
    assert security._authority is not None
    keys, seen, end = cluster.settings().java(), 0, time.monotonic() + seconds
    for number in range(count):
        # Another file each time: a broker finds a changed one by itself, but after 10 s only.
        path = security._directory / f"rotated-{number}.pem"
        path.write_bytes(security._authority.issue("broker", ("127.0.0.1", "localhost")))
        for broker in cluster.running:
            try:
                async with Client(
                    cluster.address_of(broker), connect=connect_with(keys), timeout=10
                ) as client:
                    await Admin(client).alter_configs(
                        ConfigResource.BROKER,
                        str(broker),
                        [(_KEYSTORE, ConfigOperation.SET, str(path))],
                    )
                    await asyncio.sleep(HOLDS_S)
                    served = await asyncio.to_thread(_certificate, cluster.address_of(broker))
            except (KafkaError, BrokerUnreachable, OSError, TimeoutError) as error:
                if not changes.disturbed:
                    changes.faults.append(f"certificate {number} on broker {broker}: {error!r}")
                continue
            seen += 1
            if served not in path.read_text() and not changes.disturbed:
                changes.faults.append(f"broker {broker} still has a certificate before {number}")
        await asyncio.sleep(max(0.0, (end - time.monotonic()) / (count - number) - HOLDS_S))
    return seen


def _certificate(address: str) -> str:
    """Return the lines of the certificate that a broker presents."""
    host, _, port = address.partition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=10).strip()


async def change(
    cluster: Cluster, changes: Changes, seconds: float, certificates: int, *, faults: bool
) -> tuple[int, int]:
    """Change everything for some seconds; return the rounds and the rotations."""
    begun, rounds = time.monotonic(), 0
    rotating = asyncio.create_task(rotate(cluster, changes, seconds, certificates))
    due = faults_of(cluster, seconds) if faults else []
    while (passed := time.monotonic() - begun) < seconds:
        if due and passed > due[0][0]:
            changes.disturbed = True
            await asyncio.to_thread(due.pop(0)[1])
            await asyncio.to_thread(cluster.wait_until_in_sync, 60)
            await asyncio.sleep(min(QUIET_S, seconds / 20))
            changes.disturbed = False
        try:
            await changes.round(rounds)
        except (KafkaError, BrokerUnreachable, OSError, TimeoutError) as error:
            changes.faults.append(f"round {rounds}: {type(error).__name__}: {error}")
        rounds += 1
    await changes.close()
    return rounds, await rotating


def run(directory: Path, seconds: float, certificates: int, *, faults: bool = True) -> Found:
    """Run the load and the changes, and return what was found."""
    with Cluster(_KEYS, processes=True, users={USER: "first-password"}) as cluster:
        config = directory / "admin.properties"
        config.write_text("".join(f"{a}={b}\n" for a, b in cluster.settings().java().items()))
        words = ["verify", "eos", "-b", cluster.bootstrap_servers, "--json", "-d", f"{seconds:g}"]
        words += ["--min-insync-replicas", "2", "--command-config", str(config)]
        load = subprocess.Popen([sys.executable, "-m", "barnabas", *words], stdout=subprocess.PIPE)
        try:
            changes = Changes(cluster)
            rounds, rotated = asyncio.run(
                change(cluster, changes, seconds, certificates, faults=faults)
            )
            told = load.communicate(timeout=seconds + 180)[0]
        finally:
            load.kill()
            load.wait()
    verdict = json.loads(told)["verdict"] if told else "none"
    return Found(rounds, changes.changes, rotated, changes.checks, changes.faults, verdict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--certificates", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = run(Path(directory), given.seconds, given.certificates)
    print(json.dumps(found._asdict(), indent=1))
    sys.exit(bool(found.faults) or found.verdict != "clean")


if __name__ == "__main__":
    main()
