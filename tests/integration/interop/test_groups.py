"""Groups of every library: members join, leave, crash and rejoin; offsets survive a restart."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Broker
from tests.integration.interop.clients import KINDS, Client, Member, start
from tests.integration.interop.conftest import Start
from tests.integration.interop.message import Message
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("interop-groups")

PARTITIONS = 4
ALL = [str(at) for at in range(20)]
"""The values in the first partition."""
COOPERATIVE = ("confluent", "kafka_python", "java")
"""aiokafka has no cooperative assignor."""
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 100}
"""Members learn soon of a rebalance with it."""
STRATEGIES = [
    *((kind, strategy) for kind in KINDS for strategy in ("range", "roundrobin")),
    *((kind, "cooperative-sticky") for kind in COOPERATIVE),
]

_numbers = itertools.count()


@pytest.fixture
def topic(client: Start) -> str:
    """Create a topic of four partitions with messages in the first."""
    return filled(client("confluent"), f"groups-{next(_numbers)}")


def filled(client: Client, topic: str) -> str:
    client("create_topic", topic=topic, partitions=PARTITIONS)
    client.write(topic, [Message(None, value.encode()) for value in ALL])
    return topic


@pytest.fixture
def join(client: Start, topic: str) -> Iterator[Callable[..., Member]]:
    """Return a function that starts members of one group, which leave at the end of the test."""
    members: list[Member] = []

    def add(kind: str | Client, **options: Any) -> Member:
        of = client(kind) if isinstance(kind, str) else kind
        name = f"member-{next(_numbers)}"
        members.append(of.join(name, topic, f"of-{topic}", **QUICK | options))
        return members[-1]

    yield add
    for each in members:
        each.leave()


def shared(*members: Member) -> Callable[[], bool]:
    """Return a check that all partitions are owned, each once, as evenly as possible."""

    def check() -> bool:
        owned = [each.owned for each in members]
        sizes = sorted(map(len, owned))
        whole = sorted(partition for each in owned for partition in each)
        return whole == list(range(PARTITIONS)) and sizes[-1] - sizes[0] <= 1

    return check


def has_read(member: Member, values: list[str]) -> None:
    """Wait until a member has read exactly these values."""
    until(lambda: member.read == values, lambda: member.read)


@pytest.mark.parametrize(("kind", "strategy"), STRATEGIES)
def test_joining_and_leaving_members_read_nothing_twice(
    join: Callable[..., Member], kind: str, strategy: str
) -> None:
    first = join(kind, strategy=strategy)
    has_read(first, ALL)
    first.commit()
    assert first.lag == 0
    second = join(kind, strategy=strategy)
    until(shared(first, second), lambda: (first.owned, second.owned))
    second.leave()
    until(shared(first), lambda: first.owned)
    assert first.read == ALL


@pytest.mark.parametrize("kind", COOPERATIVE)
def test_cooperative_members_keep_partitions_that_do_not_move(
    join: Callable[..., Member], kind: str
) -> None:
    first = join(kind, strategy="cooperative-sticky")
    until(shared(first))
    second = join(kind, strategy="cooperative-sticky")
    until(shared(first, second))
    assert first.revoked == PARTITIONS // 2


@pytest.mark.parametrize("kind", KINDS)
def test_rejoining_static_member_causes_no_rebalance(
    join: Callable[..., Member], kind: str
) -> None:
    one = join(kind, group_instance_id="one")
    two = join(kind, group_instance_id="two")
    until(shared(one, two))
    mine, before = two.owned, one.revoked
    two.leave()
    again = join(kind, group_instance_id="two")
    until(lambda: again.owned == mine, lambda: (one.owned, mine, again.owned))
    assert one.revoked == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_crashed_members_partitions_go_to_the_others(
    servers: str, topic: str, join: Callable[..., Member], kind: str, tmp_path: Path
) -> None:
    survivor = join("confluent" if kind == "java" else "java")
    until(shared(survivor))
    process = start(kind, tmp_path)
    try:
        quickly = QUICK | {"session_timeout_ms": 1000}
        crashing = Client(kind, process, servers).join("it", topic, f"of-{topic}", **quickly)
        until(shared(survivor, crashing))
    finally:
        process.kill()
    until(shared(survivor))


def test_all_four_libraries_share_a_group(join: Callable[..., Member]) -> None:
    members = [join(kind) for kind in KINDS]
    until(shared(*members))
    while len(members) > 1:
        members.pop().leave()
        until(shared(*members))


def test_cooperative_members_of_different_libraries_share_a_group(
    join: Callable[..., Member],
) -> None:
    members = [join(kind, strategy="cooperative-sticky") for kind in COOPERATIVE]
    until(shared(*members))
    members.pop(0).leave()
    until(shared(*members))


def test_offsets_committed_by_one_library_are_used_by_another(
    client: Start, join: Callable[..., Member], topic: str
) -> None:
    for at, kind in enumerate(KINDS):
        member = join(kind)
        has_read(member, [str(at)] if at else ALL)
        member.commit()
        member.leave()
        client(kind).write(topic, [Message(None, b"%d" % (at + 1))])


def test_offsets_of_every_library_survive_a_restart_of_the_broker(
    client: Start, tmp_path: Path
) -> None:
    with Broker(data_dir=tmp_path) as broker:
        topic = filled(client("java").at(broker.bootstrap_servers), "kept")
        for kind in KINDS:
            before = client(kind).at(broker.bootstrap_servers).join(f"1-{kind}", topic, kind)
            has_read(before, ALL)
            before.commit()
            before.leave()
    with Broker(data_dir=tmp_path) as broker:
        admin = client("java").at(broker.bootstrap_servers)
        assert admin("groups") == sorted(KINDS)
        admin.write(topic, [Message(None, b"after")])
        for kind in KINDS:
            after = client(kind).at(broker.bootstrap_servers).join(f"2-{kind}", topic, kind)
            has_read(after, ["after"])
            after.leave()
