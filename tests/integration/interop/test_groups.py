"""Groups of every library: members come, go, crash and come back; offsets outlive the broker."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Broker
from tests.integration.interop.clients import KINDS, Client, Member, start
from tests.integration.interop.conftest import Start
from tests.integration.interop.message import Message
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("interop-groups")

PARTITIONS = 4
ALL = [str(at) for at in range(20)]
"""What stands in the first partition."""
COOPERATIVE = ("confluent", "kafka_python", "java")
"""aiokafka has no cooperative assignor."""
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 100}
"""So that members hear of a rebalance soon."""
STRATEGIES = [
    *((kind, strategy) for kind in KINDS for strategy in ("range", "roundrobin")),
    *((kind, "cooperative-sticky") for kind in COOPERATIVE),
]

_numbers = itertools.count()


@pytest.fixture
def topic(client: Start) -> str:
    """A topic of four partitions with messages in the first."""
    return filled(client("confluent"), f"groups-{next(_numbers)}")


def filled(client: Client, topic: str) -> str:
    client("create_topic", topic=topic, partitions=PARTITIONS)
    client.write(topic, [Message(None, value.encode()) for value in ALL])
    return topic


@pytest.fixture
def join(client: Start, topic: str) -> Iterator[Callable[..., Member]]:
    """Starts members of one group, which have left after the test."""
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
    """Whether all partitions are owned, each once, as evenly as can be."""

    def check() -> bool:
        owned = [each.owned for each in members]
        sizes = sorted(map(len, owned))
        whole = sorted(partition for each in owned for partition in each)
        return whole == list(range(PARTITIONS)) and sizes[-1] - sizes[0] <= 1

    return check


def has_read(member: Member, values: list[str]) -> None:
    """Waits until a member has read these values and no others."""
    until(lambda: member.read == values, lambda: member.read)


@pytest.mark.parametrize(("kind", "strategy"), STRATEGIES)
def test_members_come_and_go_and_nothing_is_read_twice(
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
def test_cooperative_members_keep_what_they_need_not_give_up(
    join: Callable[..., Member], kind: str
) -> None:
    first = join(kind, strategy="cooperative-sticky")
    until(shared(first))
    second = join(kind, strategy="cooperative-sticky")
    until(shared(first, second))
    assert first.revoked == PARTITIONS // 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_static_member_that_comes_back_disturbs_nobody(
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


def test_what_one_library_commits_another_goes_on_from(
    client: Start, join: Callable[..., Member], topic: str
) -> None:
    for at, kind in enumerate(KINDS):
        member = join(kind)
        has_read(member, [str(at)] if at else ALL)
        member.commit()
        member.leave()
        client(kind).write(topic, [Message(None, b"%d" % (at + 1))])


def test_commits_of_every_library_outlive_the_broker(client: Start, tmp_path: Path) -> None:
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
