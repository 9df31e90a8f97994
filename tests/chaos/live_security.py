"""Changes of security under load: certificates, rules, users, sessions, a broker, ZooKeeper.

    python -m tests.chaos.live_security

runs `barnabas verify eos` over TLS and SCRAM on three processes and a real ZooKeeper. Meanwhile
certificates are rotated 50 times, and 1,000 rules and 1,000 passwords change. Sessions of clients
last 3 s; a broker is killed, the session of another with ZooKeeper expires, and ZooKeeper is away.

The load is a user of its own, without further rights. Its rules and its password are replaced by
equivalent ones all the time: it must never be refused. Other users, logins and handshakes are
judged on every broker without a pause, also while a fault acts (`judging`). The figures are printed
as JSON; the exit code is 0 without a fault.
"""

import argparse
import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster as Client
from barnabas.client.connection import AuthenticationError, BrokerUnreachable, Connection
from barnabas.client.security import connect_with
from barnabas.client.settings import ClientSettings
from barnabas.client.user_admin import UserAdmin
from barnabas.protocol.config_resources import ConfigOperation
from barnabas.protocol.config_resources import ConfigResourceType as ConfigResource
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import fetch, metadata, produce
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.acl.rules import AclBinding, AclFilter
from barnabas.security.sasl.credentials import MIN_ITERATIONS, ScramMechanism
from barnabas.testing import allow, deny
from tests.chaos.cluster import password_of
from tests.chaos.judging import HOLDS_S, Judge, Timeline
from tests.chaos.security_changes import WITHIN_S, SecuredCluster
from tests.support.brokers.cluster import BROKER_IDS
from tests.support.brokers.process import ROOT
from tests.support.checker import Checker
from tests.support.zookeeper import ZooKeeperServer

ADMIN, LOAD, READER = "admin", "load", "alice"
TOPICS: Final = 21
"""The topics, each of which has one rule for READER or none."""
USERS: Final = 10
"""The users whose passwords change."""
OPERATIONS: Final = ("Describe", "Read", "Write")
REPLACED_EVERY_S: Final = 3.0
"""The interval in which the rules and the password of the load are replaced."""
LISTENERS: Final = ("clients", "brokers")
_MECHANISM: Final = ScramMechanism.SHA_512
_GRANTED, _DENIED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
"""The answers about topics that do not exist, with a right and without."""
_UNSURE: Final = (KafkaError, BrokerUnreachable, OSError, TimeoutError)
_REFUSALS: Final = ("AUTHORIZATION_FAILED", "AUTHENTICATION_FAILED")


class Plan(NamedTuple):
    """The changes of a run, and the seconds that they take."""

    certificates: int = 50
    rules: int = 1000
    users: int = 1000
    seconds: float = 360.0
    away_s: float = 20.0
    """The time in s for which ZooKeeper is away; sessions end after 6 s."""


class Found(NamedTuple):
    """The changes that were made, and the faults."""

    certificates: int
    rules: int
    users: int
    replaced: int
    """Times that the rules and the password of the load were replaced."""
    judged: int
    judged_in_faults: int
    slowest_s: float
    """The longest time until an answer."""
    wrong: list[str]
    wrongs: int
    refused: list[str]
    """Refusals of the load, and of the administrator."""
    verdict: str
    violations: int
    problems: dict[str, int]
    figures: dict[str, Any]
    anomalies: list[str]
    """Differences between the files of the stopped brokers."""
    repeated: dict[str, int]
    """Errors of requests of the administrator that were repeated, with their number."""

    @property
    def is_clean(self) -> bool:
        return self.verdict == "clean" and not (
            self.wrongs or self.refused or self.violations or self.anomalies
        )


class LiveCluster(SecuredCluster):
    """Three brokers with TLS, SCRAM and rules, and a first administrator in ZooKeeper (KIP-900)."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer) -> None:
        super().__init__(directory, zookeeper)
        self.stores.trust()
        self.issue(self.stores.authority)
        password = directory / "password"
        password.write_text(self.settings(ADMIN).password)
        words = ["users", "--zookeeper", zookeeper.connect, "set", ADMIN]
        words += ["--mechanism", _MECHANISM.value, "--password-file", str(password)]
        subprocess.run(
            [sys.executable, "-m", "barnabas", *words],
            check=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )

    def keys_of(self, broker: int) -> dict[str, str]:
        return {
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SASL_SSL",
            **self.sasl(broker, "BROKERS"),
            "listener.name.clients.sasl.enabled.mechanisms": _MECHANISM.value,
            "listener.name.clients.ssl.keystore.type": "PEM",
            "listener.name.clients.ssl.keystore.location": str(self.keystore(broker)),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(
                f"User:{name}" for name in (ADMIN, *(f"b{each}" for each in BROKER_IDS))
            ),
            "connections.max.reauth.ms": "3000",
            "zookeeper.session.timeout.ms": "6000",
        }

    def settings(self, name: str, password: str = "") -> ClientSettings:
        """Return the settings of a user; without `password` with its first one."""
        return ClientSettings(
            self.bootstrap_servers,
            str(self.stores.directory / "trust.pem"),
            user=name,
            password=password or f"first-{name}",
        )

    def expire(self, broker: int) -> None:
        """End the session of a broker with ZooKeeper as if it had been silent."""
        _, session = self.registered()[broker]
        self.zookeeper.expire(session, password_of(session))
        self.until(
            lambda: self.registered().get(broker, (0, session))[1] != session,
            WITHIN_S,
            self.errors,
        )


def user(number: int) -> str:
    return f"user-{number}"


def rights_of_load() -> Iterator[list[AclBinding]]:
    """Yield sets of rules that all let the load do what it does."""
    needs = {
        "Topic": ("Read", "Write", "Create", "Describe", "DescribeConfigs"),
        "Group": ("Read", "Describe"),
        "TransactionalId": ("Write", "Describe"),
    }
    names = ("verify-*", "*", "verify*", "v*")
    hosts = ("*", "127.0.0.1")
    for name, host, number in zip(cycle(names), cycle([hosts[0], *hosts]), count()):
        for_all = number % 2
        rules = [
            allow("*" if number % 3 == 2 and name != "*" else LOAD, operation, f"{kind}:{name}",
                  host=host)
            for kind, operations in needs.items()
            for operation in (("All",) if for_all else operations)
        ]  # fmt: skip
        # Rules that deny others what the load may do, and the load what it does elsewhere.
        denied = [
            deny(f"stranger-{number}", "All", f"Topic:{name}"),
            deny(LOAD, "All", f"Topic:{name}", host=f"203.0.113.{number % 250}"),
            deny(LOAD, "Write", f"Topic:elsewhere-{number}*"),
        ]
        yield [*rules, allow(LOAD, "DescribeConfigs", "Cluster:kafka-cluster"), *denied]


class Changes:
    """The changes of the administrator, and the judgement of what brokers answer meanwhile."""

    def __init__(self, cluster: LiveCluster, plan: Plan, judge: Judge) -> None:
        self._cluster = cluster
        self._plan = plan
        self._judge = judge
        self._begun = time.monotonic()
        self._admin = cluster.settings(ADMIN).java()
        self._topics = {f"probe-{each}": Timeline(f"probe-{each}", False) for each in range(TOPICS)}
        self._passwords = {
            name: Timeline(name, cluster.settings(name).password)
            for name in map(user, range(USERS))
        }
        self._certificates = {
            broker: Timeline("certificate", cluster.keystore(broker).read_text())
            for broker in BROKER_IDS
        }
        self._first = 0
        self._rights = rights_of_load()
        self._rules_of_load: list[AclBinding] = []
        self.made: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()

    # -- what an administrator does ---------------------------------------------------------------

    async def run(self) -> None:
        """Make all changes; meanwhile judge, and let the faults act."""
        plan = self._plan
        self._begun = time.monotonic()
        watching = [
            asyncio.create_task(watch(broker))
            for broker in BROKER_IDS
            for watch in (self._watch_rules, self._watch_passwords, self._watch_certificates)
        ]
        replacing = asyncio.create_task(self._replace())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pace("rules", plan.rules, self._change_rule))
                tasks.create_task(self._pace("users", plan.users, self._change_password))
                tasks.create_task(self._pace("certificates", plan.certificates, self._rotate))
                tasks.create_task(self._act())
            # The last changes are judged too.
            await asyncio.sleep(2 * HOLDS_S)
        finally:
            replacing.cancel()
            for each in watching:
                each.cancel()
            ended = await asyncio.gather(*watching, replacing, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _pace(self, what: str, number: int, change: Callable[[int], Awaitable[None]]) -> None:
        """Make a number of changes in the seconds of the plan."""
        for each in range(number):
            await change(each)
            self.made[what] += 1
            due = self._begun + self._plan.seconds * (each + 1) / number
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _persist(self, servers: str, work: Callable[[Client], Awaitable[Any]]) -> None:
        """Repeat a request until it is acknowledged. Raises TimeoutError after a minute or so."""
        end = time.monotonic() + WITHIN_S + self._plan.away_s
        while True:
            try:
                async with Client(servers, connect=connect_with(self._admin), timeout=5) as client:
                    await work(client)
                return
            except _UNSURE as error:
                name = error.code.name if isinstance(error, KafkaError) else type(error).__name__
                self.repeated[name] += 1
                if name.endswith(_REFUSALS):
                    self._judge.found(f"the administrator is refused: {name}")
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.1)

    def _servers(self) -> str:
        """Return the brokers, with another one first each time: that one makes the change."""
        self._first = self._first % len(BROKER_IDS) + 1
        ids = [*BROKER_IDS[self._first :], *BROKER_IDS[: self._first]]
        return ",".join(map(self._cluster.address_of, ids))

    async def _change_rule(self, number: int) -> None:
        """Grant a right, or take it away."""
        topic = self._topics[f"probe-{number % TOPICS}"]
        rule = allow(READER, OPERATIONS[number % len(OPERATIONS)], f"Topic:{topic.name}")
        change = topic.ask(not topic.value)
        if change.value:
            await self._persist(
                self._servers(),
                lambda client: Admin(client).create_acls([rule]),
            )
        else:
            await self._delete([rule])
        change.done = time.monotonic()

    async def _delete(self, rules: list[AclBinding]) -> None:
        filters = [
            AclFilter(*rule.pattern, str(rule.entry.principal), *rule.entry[1:]) for rule in rules
        ]
        await self._persist(self._servers(), lambda client: Admin(client).delete_acls(filters))

    async def _change_password(self, number: int) -> None:
        password = self._passwords[user(number % USERS)]
        change = password.ask(f"password-{number}")
        await self._set_password(password.name, change.value, MIN_ITERATIONS)
        change.done = time.monotonic()

    async def _set_password(self, name: str, password: str, iterations: int) -> None:
        await self._persist(
            self._servers(),
            lambda client: UserAdmin(client).set_password(name, password, _MECHANISM, iterations),
        )

    async def _rotate(self, number: int) -> None:
        """Give each broker another certificate, on both listeners."""
        for broker, certificate in self._certificates.items():
            # Another file each time: a broker finds a changed one by itself, but after 10 s only.
            path = self._cluster.stores.directory / f"b{broker}-{number}.pem"
            issued = self._cluster.stores.authority.issue(f"b{broker}", hosts=("127.0.0.1",))
            path.write_text(issued.pem)
            values = [
                (f"listener.name.{name}.ssl.keystore.location", ConfigOperation.SET, str(path))
                for name in LISTENERS
            ]
            change = certificate.ask(issued.pem)
            await self._persist(
                self._cluster.address_of(broker),
                lambda client, broker=broker, values=values: Admin(  # type: ignore[misc]
                    client
                ).alter_configs(ConfigResource.BROKER, str(broker), values),
            )
            change.done = time.monotonic()

    async def prepare(self) -> None:
        """Create the users, and give the load its rules."""
        for name in (LOAD, READER, *self._passwords):
            await self._set_password(name, self._cluster.settings(name).password, MIN_ITERATIONS)
        await self._give_rights()

    async def _give_rights(self) -> None:
        """Give the load its rules, or equivalent ones in place of those that it has."""
        old, self._rules_of_load = self._rules_of_load, next(self._rights)
        await self._persist(
            self._servers(),
            lambda client: Admin(client).create_acls(self._rules_of_load),
        )
        kept = set(self._rules_of_load)
        await self._delete([rule for rule in old if rule not in kept])

    async def _replace(self) -> None:
        for number in count(1):
            await asyncio.sleep(REPLACED_EVERY_S)
            await self._give_rights()
            # The same password with another salt and other iterations.
            password = self._cluster.settings(LOAD).password
            await self._set_password(LOAD, password, MIN_ITERATIONS + number % 3 * 1024)
            self.made["replaced"] += 1

    # -- what happens to the cluster --------------------------------------------------------------

    async def _act(self) -> None:
        """Let one fault after the other act, evenly over the seconds of the plan."""
        faults = (self._kill, self._expire, self._take_zookeeper_away)
        for number, fault in enumerate(faults, 1):
            due = self._begun + self._plan.seconds * number / (len(faults) + 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._judge.faults += 1
            await asyncio.to_thread(fault)
            await asyncio.to_thread(self._cluster.wait_until_full, WITHIN_S)
            self._judge.faults -= 1

    def _kill(self) -> None:
        """Kill a broker; it comes back with what its store has then."""
        process = self._cluster.brokers[2]
        process.kill()
        time.sleep(HOLDS_S)
        process.launch(**self._cluster.keys_of(2))
        process.wait_until_serving()

    def _expire(self) -> None:
        away = self._judge.away(3)
        self._cluster.expire(3)
        away.until = time.monotonic()

    def _take_zookeeper_away(self) -> None:
        zookeeper = self._cluster.zookeeper
        connected = zookeeper.sessions()
        away = self._judge.away(*BROKER_IDS)
        zookeeper.kill()
        time.sleep(self._plan.away_s)
        zookeeper.start()
        self._cluster.until(
            lambda: zookeeper.sessions() >= connected, WITHIN_S, self._cluster.errors
        )
        away.until = time.monotonic()

    # -- what brokers answer ----------------------------------------------------------------------

    async def _watch_rules(self, broker: int) -> None:
        """Ask for everything that READER may do, over a connection that stays open."""
        link: Connection | None = None
        while True:
            try:
                if link is None or not link.is_open:
                    link = await self._login(broker, READER)
                for operation in OPERATIONS:
                    await self._ask(broker, link, operation)
            except AuthenticationError as error:
                self._judge.found(f"broker {broker} refuses {READER}: {error}")
            except _UNSURE:
                # A broker that does not answer refuses no request.
                link = None
            await asyncio.sleep(0.02)

    async def _ask(self, broker: int, link: Connection, operation: str) -> None:
        names = [name for at, name in enumerate(self._topics) if OPERATIONS[at % 3] == operation]
        asked = time.monotonic()
        for name, code in await ASK[operation](link, names):
            self._judge.hear(
                self._topics[name],
                broker,
                asked,
                lambda granted, code=code: code == (_GRANTED if granted else _DENIED),  # type: ignore[misc]
                f"{operation} gets {ErrorCode.of(code).name}",
            )

    async def _watch_passwords(self, broker: int) -> None:
        """Log in with the newest password of each user, and with the one before."""
        while True:
            for timeline in self._passwords.values():
                for password in {timeline.value, timeline.previous}:
                    asked = time.monotonic()
                    try:
                        link = await self._login(broker, timeline.name, password)
                    except AuthenticationError:
                        taken = False
                    except _UNSURE:
                        await asyncio.sleep(0.1)
                        continue
                    else:
                        taken = True
                        await link.close()
                    self._judge.hear(
                        timeline,
                        broker,
                        asked,
                        lambda value, password=password, taken=taken: (  # type: ignore[misc]
                            (value == password) == taken
                        ),
                        f"{password} is {'taken' if taken else 'refused'}",
                    )

    async def _login(self, broker: int, name: str, password: str = "") -> Connection:
        host, _, port = self._cluster.address_of(broker).partition(":")
        keys = self._cluster.settings(name, password).librdkafka()
        return await Connection.open(host, int(port), connect=connect_with(keys), timeout=10)

    async def _watch_certificates(self, broker: int) -> None:
        """Look which certificate new connections get, on both listeners."""
        while True:
            for port in self._cluster.ports[broker]:
                asked = time.monotonic()
                try:
                    served = await asyncio.to_thread(
                        ssl.get_server_certificate, ("127.0.0.1", port), timeout=5
                    )
                except (OSError, ssl.SSLError):
                    continue
                finally:
                    await asyncio.sleep(0.1)
                self._judge.hear(
                    self._certificates[broker],
                    broker,
                    asked,
                    lambda pem, served=served: served.strip() in pem,  # type: ignore[misc]
                    "another certificate",
                )


Answers = list[tuple[str, int]]


async def _describe(link: Connection, names: list[str]) -> Answers:
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    answer = await link.request(metadata.API, request)
    return [(row.name, row.error_code) for row in answer.topics]


async def _read(link: Connection, names: list[str]) -> Answers:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[fetch.FetchTopic(topic=name, partitions=[partition]) for name in names],
        forgotten_topics_data=[],
    )
    answer = await link.request(fetch.API, request, version=12)
    return [(row.topic, row.partitions[0].error_code) for row in answer.responses]


async def _write(link: Connection, names: list[str]) -> Answers:
    batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, b"", ())])
    data = [produce.PartitionProduceData(index=0, records=batch)]
    request = produce.ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[produce.TopicProduceData(name=name, partition_data=data) for name in names],
    )
    answer = await link.request(produce.API, request, version=9)
    return [(row.name, row.partition_responses[0].error_code) for row in answer.responses]


ASK: Final[dict[str, Callable[[Connection, list[str]], Awaitable[Answers]]]] = dict(
    zip(OPERATIONS, (_describe, _read, _write), strict=True)
)


def refusals(cluster: LiveCluster, load: Checker) -> list[str]:
    """Return the refusals of the load and of super users, as the history and the brokers tell."""
    names = [f"User:{name}" for name in (LOAD, ADMIN, *(f"b{each}" for each in BROKER_IDS))]
    logged = [
        line
        for line in cluster.errors().splitlines()
        if '"denied"' in line and any(f'"{name}"' in line for name in names)
    ]
    with load.history.open() as history:
        told = [line.strip() for line in history if any(each in line for each in _REFUSALS)]
    return (logged + told)[:20]


@contextmanager
def _loaded(cluster: LiveCluster, directory: Path) -> Iterator[Checker]:
    config = directory / "load.properties"
    keys = cluster.settings(LOAD).java()
    config.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    words = ["--workload", "pipeline", "--min-insync-replicas", "2"]
    with Checker(cluster, directory / "load", *words, "--command-config", str(config)) as load:
        yield load


def run(directory: Path, plan: Plan) -> Found:
    """Run the load and the changes, and return what was found."""
    judge = Judge()
    with (
        ZooKeeperServer(directory / "zookeeper") as zookeeper,
        LiveCluster(directory / "cluster", zookeeper) as cluster,
    ):
        cluster.wait_until_full(WITHIN_S)
        changes = Changes(cluster, plan, judge)
        asyncio.run(changes.prepare())
        with _loaded(cluster, directory) as load:
            asyncio.run(changes.run())
            verdict = load.judge()
        refused = refusals(cluster, load)
        anomalies = cluster.at_rest()
    return Found(  # type: ignore[call-arg]
        *(changes.made[what] for what in ("certificates", "rules", "users", "replaced")),
        judge.judged,
        judge.judged_in_faults,
        judge.slowest_s,
        judge.wrong,
        judge.wrongs,
        refused,
        verdict["verdict"],
        sum(each["count"] for each in verdict["checks"]),
        verdict["problems"],
        verdict["figures"],
        anomalies,
        dict(changes.repeated),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for key, value in Plan()._asdict().items():
        parser.add_argument(f"--{key.replace('_', '-')}", type=type(value), default=value)
    plan = Plan(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="security-") as directory:
        found = run(Path(directory), plan)
    print(json.dumps(found._asdict(), indent=1))
    return 0 if found.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
