"""Client libraries together copy records through three brokers on ZooKeeper, each record once,
while kill -9 takes the leader, a follower, the coordinators and the controller in turn.

The long run, with every library:

    BARNABAS_KILLS=30 pytest -s -n 0 tests/integration/interop/test_through_kills.py
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.interop import franz_go
from tests.integration.interop.cluster import cluster_on
from tests.integration.interop.flowing import Feeder, Prober
from tests.integration.transactions.program import LAST
from tests.integration.transactions.running import read, transform
from tests.integration.transactions.transformer import Route, transformed
from tests.support.brokers.cluster import BROKER_IDS, ProcessCluster
from tests.support.client_program import Program
from tests.support.command_line import run
from tests.support.zookeeper import ZooKeeperServer

KILLS = int(os.environ.get("BARNABAS_KILLS", "3"))
IS_LONG = KILLS > 5
SESSION_MS = 6000 if IS_LONG else 3000
WITHOUT_FRANZ = franz_go.why_not()
ALL = ("kafka_python", "confluent", "aiokafka", "java", "franz")
CLIENTS = [
    kind
    for kind in (ALL if IS_LONG else ("confluent", "java", "franz"))
    if kind != "franz" or WITHOUT_FRANZ is None
]
READERS = {
    "kafka_python": "confluent",
    "confluent": "aiokafka",
    "aiokafka": "kafka_python",
    "java": "confluent",
    "franz": "franz",
}
PARTITIONS = 3
PACE = 300
"""Records per second for each library."""
RECORDS = KILLS * (12_000 if IS_LONG else 6_000)
IN_TIME_S = 90.0
PROBES = "probes"
"""A topic of which each broker leads some partitions."""

Candidates = Callable[[ProcessCluster, Sequence[Route]], Iterator[int]]


def leader(cluster: ProcessCluster, routes: Sequence[Route]) -> Iterator[int]:
    for route in routes:
        yield from (cluster.partition(route.output, index).leader for index in range(PARTITIONS))


def transaction_coordinator(cluster: ProcessCluster, routes: Sequence[Route]) -> Iterator[int]:
    for route in routes:
        yield cluster.transaction_coordinator(route.transactional_id)


def controller(cluster: ProcessCluster, _routes: Sequence[Route]) -> Iterator[int]:
    yield cluster.wait_for_controller()


def group_coordinator(cluster: ProcessCluster, routes: Sequence[Route]) -> Iterator[int]:
    for route in routes:
        yield cluster.group_coordinator(route.group)


def follower(cluster: ProcessCluster, routes: Sequence[Route]) -> Iterator[int]:
    """Yield the followers of the first route's partition 0."""
    led_by = cluster.partition(routes[0].output, 0).leader
    yield from (each for each in BROKER_IDS if each != led_by)


def victim_of(role: Candidates, cluster: ProcessCluster, routes: Sequence[Route]) -> int:
    """Return a broker in the role, if possible not the controller."""
    found = list(role(cluster, routes))
    chief = cluster.wait_for_controller()
    return next((each for each in found if each != chief), found[0])


ROLES: tuple[Candidates, ...] = (
    leader,
    transaction_coordinator,
    controller,
    group_coordinator,
    follower,
)


def create(servers: str, partitions: Mapping[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topics = [NewTopic(name, count, len(BROKER_IDS)) for name, count in partitions.items()]
    for done in admin.create_topics(topics).values():
        done.result(IN_TIME_S)


def wait_for_more(programs: Mapping[str, Program], more: int) -> None:
    """Wait until every library has committed that many more transactions."""
    before = {kind: each.counts()["committed"] for kind, each in programs.items()}
    for kind, each in programs.items():
        each.wait_for_more("committed", before[kind] + more - 1)


def end_outputs(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for kind in CLIENTS:
        for partition in range(PARTITIONS):
            producer.produce(Route.named(f"{kind}-").output, LAST, partition=partition)
    assert producer.flush(IN_TIME_S) == 0


def by_partition(lines: list[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {index: [] for index in range(PARTITIONS)}
    for line in lines:
        partition, value = line.split(" ", 1)
        found[int(partition)].append(value)
    return found


def check_once(kind: str, told: list[str]) -> None:
    """Check that the records are in order and complete, without duplicates or aborted ones."""
    for index, values in by_partition(told).items():
        written = [b"%d" % number for number in range(index, RECORDS, PARTITIONS)]
        expected = [transformed(each).decode() for each in written]
        wrong = next(
            (
                at
                for at, pair in enumerate(zip(values, expected, strict=False))
                if pair[0] != pair[1]
            ),
            None,
        )
        assert (wrong, len(values)) == (None, len(expected)), (
            kind,
            index,
            values[(wrong or 0) - 2 : (wrong or 0) + 3],
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        cluster_on(tmp_path, zookeeper, session_timeout_ms=SESSION_MS) as cluster,
    ):
        yield cluster


@pytest.mark.skipif(WITHOUT_FRANZ is not None, reason=str(WITHOUT_FRANZ))
def test_franz_go_is_among_the_clients() -> None:
    assert "franz" in CLIENTS


@pytest.mark.timeout(300 + KILLS * 60)
def test_every_record_is_written_once_while_brokers_are_killed(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    routes = {kind: Route.named(f"{kind}-") for kind in CLIENTS}
    topics = {name: PARTITIONS for route in routes.values() for name in (route.input, route.output)}
    create(servers, {**topics, PROBES: 6})
    inputs = [route.input for route in routes.values()]
    feeder = Feeder(servers, inputs, PARTITIONS, RECORDS, PACE)
    prober = Prober(servers, PROBES, 6)
    feeder.start()
    prober.start()
    with ExitStack() as programs:
        carrying = {
            kind: programs.enter_context(transform(kind, servers, RECORDS, tmp_path, f"{kind}-"))
            for kind in CLIENTS
        }
        reading = {
            kind: programs.enter_context(
                read(READERS[kind], servers, PARTITIONS, tmp_path, f"of-{kind}", f"{kind}-")
            )
            for kind in CLIENTS
        }
        wait_for_more(carrying, 1)
        cluster.wait_until_full(preferred=True)
        for number in range(KILLS):
            # The leaders and coordinators of another library come first each time.
            first = number // len(ROLES) % len(CLIENTS)
            role, turn = ROLES[number % len(ROLES)], [*routes.values()]
            victim = victim_of(role, cluster, turn[first:] + turn[:first])
            kill_one(cluster, role.__name__, victim, carrying, prober)
            assert not feeder.has_written_all
        feeder.hurry()
        told = {kind: each.finish(IN_TIME_S + RECORDS / 1000) for kind, each in carrying.items()}
        prober.finish()
        end_outputs(servers)
        for kind, each in reading.items():
            check_once(kind, each.finish())
    for kind, lines in told.items():
        words = {
            word: sum(line.startswith(word) for line in lines)
            for word in ("committed", "aborted", "failed", "renewed", "again")
        }
        print(f"{kind}: {RECORDS} records, {words}")
    check_nothing_hangs(servers)
    check_probes(servers, prober.acknowledged)
    assert "Traceback" not in cluster.errors(), cluster.errors()


def kill_one(
    cluster: ProcessCluster,
    role: str,
    victim: int,
    carrying: Mapping[str, Program],
    prober: Prober,
) -> None:
    """Kill the broker; every library commits without it, and with it again."""
    was_controller = victim == cluster.wait_for_controller()
    led = {index for index in range(6) if cluster.partition(PROBES, index).leader == victim}
    prober.longest_gaps()
    began = time.monotonic()
    cluster.brokers[victim].kill()
    wait_for_more(carrying, 2)
    gaps = prober.longest_gaps()
    took = time.monotonic() - began
    cluster.brokers[victim].start()
    cluster.wait_until_full(preferred=True)
    back = time.monotonic() - began - took
    wait_for_more(carrying, 1)
    its = max((gap for index, gap in gaps.items() if index in led), default=0.0)
    others = max((gap for index, gap in gaps.items() if index not in led), default=0.0)
    print(
        f"{role} {victim}{' (controller)' if was_controller else ''}: "
        f"all commit again after {took:.1f} s, whole again {back:.1f} s after its return; gaps: "
        f"{its:.2f} s of {len(led)} it led, {others:.2f} s of others, "
        f"{max(prober.longest_gaps().values()):.2f} s as it returned",
        flush=True,
    )
    # New leaders are known after the session timeout and the election.
    assert its < SESSION_MS / 1000 + 5


def check_nothing_hangs(servers: str) -> None:
    told = run("transactions", "list", "--json", servers=servers)
    states = {each["transactional_id"]: each["state"] for each in json.loads(told.stdout)}
    assert states.keys() == {Route.named(f"{kind}-").transactional_id for kind in CLIENTS}
    assert set(states.values()) <= {"CompleteCommit", "CompleteAbort", "Empty"}, states
    search = ("transactions", "find-hanging", "--max-transaction-timeout", "0", "--json")
    assert json.loads(run(*search, servers=servers).stdout) == []


def check_probes(servers: str, acknowledged: Mapping[int, int]) -> None:
    """Check that acknowledged records are there once."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "log_level": 0})
    for partition, count in acknowledged.items():
        place = TopicPartition(PROBES, partition)
        assert consumer.get_watermark_offsets(place, IN_TIME_S) == (0, count)
    consumer.close()
