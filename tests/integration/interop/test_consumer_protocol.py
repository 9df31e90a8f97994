"""Members of the four libraries that speak the consumer protocol (KIP-848), and of Kafka Connect on
one of them, through kill -9 of members and brokers, and through changes of the protocol."""

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Cluster
from tests.integration.interop import franz_go
from tests.integration.interop.flowing import Feeder
from tests.integration.interop.running_members import COMMANDS, RunningMember
from tests.integration.transactions.running import transform
from tests.integration.transactions.transformer import Route, transformed
from tests.support import node_programs
from tests.support.client_program import Program
from tests.support.command_line import run
from tests.support.read_committed import committed
from tests.support.waiting import until

KEYS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    # All groups have one coordinator.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "3",
}
PARTITIONS = 12
RECORDS = 10_000
COPIED = 12_000
COPIERS = 6
"""The partitions of the topics that are copied."""
PACE = 300
"""Records per second at first."""
WITHOUT = {"franz": franz_go.why_not(), "platformatic": node_programs.why_not()}
KINDS = [each for each in COMMANDS if WITHOUT.get(each) is None]
TRANSACTIONAL: list[str] = [each for each in ("confluent", "java", "franz") if each in KINDS]

SESSION = "consumer.session.timeout.ms"

Join = Callable[..., RunningMember]
Copy = Callable[..., Program]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(KEYS, processes=True) as cluster:
        yield cluster


@pytest.fixture
def join(cluster: Cluster, tmp_path: Path) -> Iterator[Join]:
    """Return a function that starts a member."""
    with ExitStack() as programs:
        count = 0

        def start(kind: str, topic: str, group: str, protocol: str = "consumer") -> RunningMember:
            nonlocal count
            count += 1
            command = COMMANDS[kind](tmp_path, cluster.bootstrap_servers, topic, group, protocol)
            program = programs.enter_context(Program(command, tmp_path / f"{count}-{kind}"))
            return RunningMember(kind, program)

        yield start


@pytest.fixture
def copy(cluster: Cluster, tmp_path: Path) -> Iterator[Copy]:
    """Return a function that starts a member which copies the input of a route to its output."""
    with ExitStack() as programs:
        count = 0

        def start(kind: str, route: str, protocol: str = "consumer") -> Program:
            nonlocal count
            count += 1
            (directory := tmp_path / f"copy-{count}").mkdir()
            member = (f"-{kind}", protocol)
            servers = cluster.bootstrap_servers
            program = transform(kind, servers, COPIED, directory, route, *member)
            return programs.enter_context(program)

        yield start


@pytest.mark.parametrize("kind", WITHOUT)
def test_library_takes_part(kind: str) -> None:
    if (reason := WITHOUT[kind]) is not None:
        pytest.skip(reason)


@pytest.mark.timeout(300)  # for the first build in Go
def test_members_read_everything_through_kills_and_wait_for_no_slow_one(
    cluster: Cluster, join: Join
) -> None:
    topic, group = cluster.create_topic(partitions=PARTITIONS, replication_factor=3), "of-all"
    alter(cluster, group, "--set", f"{SESSION}=30000")
    members = [join(kind, topic, group) for kind in KINDS]
    until(lambda: shared(members), lambda: described(members))
    feeder = Feeder(cluster.bootstrap_servers, [topic], PARTITIONS, RECORDS, PACE)
    feeder.start()
    *others, slow = members
    slow.program.send(signal.SIGSTOP)
    late = join("confluent", topic, group)
    go_on([*others, late])
    # The slow one is still a member.
    assert protocols(cluster, group) == ["consumer"] * (len(members) + 1)
    slow.program.send(signal.SIGCONT)
    alter(cluster, group, "--delete", SESSION)
    members.append(late)
    until(lambda: shared(members), lambda: described(members))
    restart(cluster, cluster.coordinator_of(group=group), members)
    killed = members[-3:]
    for each in killed:
        each.program.send(signal.SIGKILL)
    restart(cluster, cluster.leader_of(topic), members[:-3])
    members[-3:] = [join(each.kind, topic, group) for each in killed]
    until(lambda: shared(members), lambda: described(members))
    feeder.hurry()
    everything = set(range(RECORDS))
    until(
        lambda: set().union(*(each.read for each in members + killed)) == everything,
        lambda: described(members),
    )


@pytest.mark.timeout(300)
def test_members_of_one_group_copy_each_record_once_through_kills(
    cluster: Cluster, copy: Copy
) -> None:
    route, feeder = fed(cluster, "copied-")
    copying = {kind: copy(kind, "copied-") for kind in TRANSACTIONAL}
    commit_on(copying)
    assert protocols(cluster, route.group) == ["consumer"] * len(copying)
    coordinator = cluster.coordinator_of(group=route.group)
    cluster.kill(coordinator)
    commit_on(copying)
    cluster.start_broker(coordinator)
    cluster.wait_until_in_sync()
    for kind in TRANSACTIONAL[:-1]:
        copying[kind].send(signal.SIGKILL)
        copying[kind] = copy(kind, "copied-")
    leaders = {cluster.leader_of(route.output, each) for each in range(COPIERS)}
    leader = min(leaders - {cluster.coordinator_of(group=route.group)})
    cluster.kill(leader)
    commit_on(copying)
    cluster.start_broker(leader)
    feeder.hurry()
    check_copies(cluster, route, copying)


@pytest.mark.timeout(300)
def test_groups_change_their_protocol_and_back_while_all_members_read_on(
    cluster: Cluster, join: Join, copy: Copy
) -> None:
    """One group reads every record, and another copies it once; their members are restarted with
    the other protocol, one after the other."""
    route, feeder = fed(cluster, "rolled-")
    reading: dict[str, RunningMember] = {}
    copying: dict[str, Program] = {}
    ended: list[RunningMember] = []

    def start(kind: str, protocol: str) -> None:
        copying[kind] = copy(kind, "rolled-", protocol)
        reading[kind] = join(kind, route.input, "readers", protocol)

    def change(kinds: list[str], protocol: str) -> None:
        for kind in kinds:
            copying[kind].stop()
            reading[kind].program.stop()
            ended.append(reading[kind])
            start(kind, protocol)
            go_on([*reading.values()])
            commit_on(copying)

    def check(group_type: str, newer: int) -> None:
        for group in ("readers", route.group):
            told = describe(cluster, group)
            members = Counter(each["protocol"] for each in told["members"])
            assert (told["type"], members["consumer"]) == (group_type, newer), told
            assert members.total() == len(TRANSACTIONAL), told

    first, others = TRANSACTIONAL[:1], TRANSACTIONAL[1:]
    for kind in TRANSACTIONAL:
        start(kind, "classic")
    go_on([*reading.values()])
    commit_on(copying)
    check("classic", 0)
    change(first, "consumer")
    check("consumer", 1)
    coordinator = cluster.coordinator_of(group=route.group)
    cluster.kill(coordinator)
    go_on([*reading.values()])
    cluster.start_broker(coordinator)
    change(others, "consumer")
    check("consumer", len(TRANSACTIONAL))
    change(others, "classic")
    check("consumer", 1)
    change(first, "classic")
    check("classic", 0)
    feeder.hurry()
    members = [*reading.values(), *ended]
    until(
        lambda: set().union(*(each.read for each in members)) == set(range(COPIED)),
        lambda: described(members),
    )
    check_copies(cluster, route, copying)


def fed(cluster: Cluster, name: str) -> tuple[Route, Feeder]:
    """Create the topics of a route, and write records to its input."""
    route = Route.named(name)
    for topic in (route.input, route.output):
        cluster.create_topic(topic, partitions=COPIERS, replication_factor=3)
    feeder = Feeder(cluster.bootstrap_servers, [route.input], COPIERS, COPIED, PACE)
    feeder.start()
    return route, feeder


def check_copies(cluster: Cluster, route: Route, copying: dict[str, Program]) -> None:
    """Wait until the whole input is copied, and check that each record is copied once."""
    until(
        lambda: cluster.lag(route.group, route.input) == 0,
        lambda: [each.complaints() for each in copying.values()],
    )
    copies = Counter(transformed(b"%d" % number) for number in range(COPIED))
    assert Counter(committed(cluster, route.output, range(COPIERS))) == copies


def commit_on(programs: dict[str, Program]) -> None:
    """Wait until each program has committed two more transactions, the second begun later."""
    before = {kind: each.counts()["committed"] for kind, each in programs.items()}
    for kind, each in programs.items():
        each.wait_for_more("committed", before[kind] + 1)


def alter(cluster: Cluster, group: str, *change: str) -> None:
    """Change the configuration of a group."""
    words = ("configs", "alter", "group", group, *change)
    done = run(*words, servers=cluster.bootstrap_servers)
    assert done.returncode == 0, done


def go_on(members: list[RunningMember]) -> None:
    """Wait until each member has read what is written from now on."""
    last = max(max(each.read, default=0) for each in members)
    until(
        lambda: all(max(each.read, default=0) > last + PACE // 2 for each in members),
        lambda: described(members),
    )


def restart(cluster: Cluster, broker: int, members: list[RunningMember]) -> None:
    """Kill a broker, and start it when each member reads without it."""
    cluster.kill(broker)
    go_on(members)
    cluster.start_broker(broker)
    cluster.wait_until_in_sync()


def protocols(cluster: Cluster, group: str) -> list[str]:
    """Return the protocol of each member of a group."""
    return [each["protocol"] for each in describe(cluster, group)["members"]]


def describe(cluster: Cluster, group: str) -> dict[str, Any]:
    told = run("groups", "describe", group, "--json", servers=cluster.bootstrap_servers).stdout
    described: dict[str, Any] = json.loads(told)
    return described


def shared(members: list[RunningMember]) -> bool:
    """Return whether each partition is owned once, as evenly as possible."""
    owned = [each.owned for each in members]
    sizes = sorted(map(len, owned))
    whole = sorted(partition for each in owned for partition in each)
    return whole == list(range(PARTITIONS)) and sizes[-1] - sizes[0] <= 1


def described(members: list[RunningMember]) -> str:
    return "\n".join(
        f"{each.kind} owns {sorted(each.owned)}, has read {len(each.read)}: "
        f"{each.program.complaints()[-1500:]}"
        for each in members
    )
