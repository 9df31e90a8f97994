"""The reads of the cluster that several pages share.

A broker that does not answer costs its own rows only.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas.client.admin import Admin
from barnabas.client.cluster import TopicInfo
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.transaction_admin import (
    OpenTransaction,
    TransactionAdmin,
    TransactionListing,
)
from barnabas.console.console import CLUSTER_ERRORS, Console, soon
from barnabas.console.rates import PERIOD_S, Rates
from barnabas.operations.answers.cluster import Problem
from barnabas.operations.answers.transactions import StuckPartition
from barnabas.operations.group_description import DESCRIBED_TYPES, GROUPS_AT_ONCE
from barnabas.operations.health import find_problems
from barnabas.operations.partitions import readable_partitions
from barnabas.operations.transactions.stuck import held_back, stuck_partitions
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_groups import ListedGroup
from barnabas.protocol.topic_partition import TopicPartition

MOST_GROUPS: Final = 1000
"""The groups whose offsets are read for the pages of topics."""
SOON_S: Final = 0.3
"""The time that a page waits for its slow parts."""
_ANSWER_S: Final = 3.0
"""The time that a page waits for one broker or group."""
_AT_ONCE: Final = 4
"""The brokers or groups that are asked at the same time: other clients of a broker wait behind the
questions that it has got."""
_FEW_S: Final = 1.5
_SLOW_S: Final = 5.0
_SIZES_S: Final = 10.0
_STALE_S: Final = 30.0
"""The age up to which a slow result is shown while it is computed anew."""

T = TypeVar("T")
K = TypeVar("K")


class Found(NamedTuple, Generic[K, T]):
    """The results by key, and the errors of the keys without a result."""

    answers: dict[K, T]
    errors: dict[K, str]


async def ask_each(
    keys: Iterable[K], ask: Callable[[K], Awaitable[T]], at_once: int = _AT_ONCE
) -> Found[K, T]:
    """Ask for each key, some at the same time, and wait for each only a short time."""
    turns = asyncio.Semaphore(at_once)
    found: Found[K, T] = Found({}, {})

    async def one(key: K) -> None:
        async with turns:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    found.answers[key] = await ask(key)
            except CLUSTER_ERRORS as error:
                found.errors[key] = str(error) or "no answer in time"

    await asyncio.gather(*map(one, keys))
    return found


async def ask_for_groups(
    console: Console,
    groups: Sequence[str],
    ask: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]],
    at_once: int = _AT_ONCE,
) -> Found[str, T]:
    """Ask for some groups of a coordinator at a time, and for each alone where that fails."""
    nodes: Mapping[str, int] = {}
    with suppress(*CLUSTER_ERRORS):
        async with asyncio.timeout(_ANSWER_S):
            nodes = await console.cluster.coordinators(groups)
    by_node: dict[int, list[str]] = defaultdict(list)
    for group in groups:
        by_node[nodes.get(group, -1)].append(group)
    some = [
        tuple(each[first : first + GROUPS_AT_ONCE])
        for each in by_node.values()
        for first in range(0, len(each), GROUPS_AT_ONCE)
    ]
    together = await ask_each(some, ask, at_once)

    async def one(group: str) -> T:
        return (await ask([group]))[group]

    found = await ask_each([group for each in together.errors for group in each], one, at_once)
    for answer in together.answers.values():
        found.answers.update(answer)
    return found


class LogEnds(NamedTuple):
    """The offsets of a partition: log start, last stable offset and high watermark."""

    start: int
    stable: int
    end: int


async def high_watermarks(
    console: Console, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, int]:
    """Return the high watermarks of the partitions whose leaders answer, of some seconds ago."""
    return await console.results.get(
        ("high watermarks", partitions),
        lambda: _high_watermarks(console, partitions),
        for_s=_FEW_S,
        rows=len,
    )


async def _high_watermarks(
    console: Console, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, int]:
    by_leader = await led(console, partitions)
    found = await ask_each(
        by_leader,
        lambda leader: find_offsets(console.cluster, dict.fromkeys(by_leader[leader], LATEST)),
    )
    return {each: row.offset for rows in found.answers.values() for each, row in rows.items()}


async def log_ends(
    console: Console, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LogEnds]:
    """Return the offsets of the partitions whose leaders answer."""
    cluster = console.cluster

    async def of_leader(leader: int) -> dict[TopicPartition, LogEnds]:
        wanted = by_leader[leader]
        starts = await find_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
        # First the ends: a transaction that commits between two requests holds nothing back.
        ends = await find_offsets(cluster, dict.fromkeys(wanted, LATEST))
        stable = await find_offsets(cluster, dict.fromkeys(wanted, LATEST), read_committed=True)
        return {
            each: LogEnds(
                starts[each].offset, min(stable[each].offset, ends[each].offset), ends[each].offset
            )
            for each in wanted
        }

    by_leader = await led(console, partitions)
    found = await ask_each(by_leader, of_leader)
    return {each: ends for rows in found.answers.values() for each, ends in rows.items()}


async def transactions(console: Console, states: Sequence[str]) -> list[TransactionListing]:
    """Return the transactional ids in some states, or in all, by id."""
    admin = TransactionAdmin(console.cluster)
    return await console.results.get(
        ("transactions", states), lambda: admin.transactions(states=states), for_s=_FEW_S
    )


async def open_transactions(
    console: Console, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[OpenTransaction]]:
    """Return the open transactions of each partition, oldest first."""
    admin = TransactionAdmin(console.cluster)
    by_leader = await led(console, partitions)
    found = await ask_each(by_leader, lambda leader: admin.open_in(by_leader[leader]))
    opened: dict[TopicPartition, list[OpenTransaction]] = defaultdict(list)
    for rows in found.answers.values():
        for each in rows:
            opened[each.topic_partition].append(each)
    return opened


async def led(
    console: Console, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """Return the partitions that have a live leader, by leader."""
    cluster = console.cluster
    await cluster.refresh()
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for each in partitions:
        topic = cluster.topics.get(each.topic)
        leader = -1 if topic is None else topic.leaders.get(each.partition, -1)
        if leader in cluster.nodes:
            by_leader[leader].append(each)
    return by_leader


async def topic_named(console: Console, name: str) -> TopicInfo:
    """Return a topic; raises UNKNOWN_TOPIC_OR_PARTITION."""
    await console.cluster.refresh()
    if name not in console.cluster.topics:
        # It may have been created a moment ago.
        await console.cluster.refresh_after_now()
    return await console.cluster.topic(name)


def partitions_of(topic: TopicInfo) -> list[TopicPartition]:
    """Return the partitions of a topic, in order."""
    return [TopicPartition(topic.name, index) for index in sorted(topic.leaders)]


class Replica(NamedTuple):
    """A replica on a disk: bytes, and the offsets that it lacks."""

    bytes: int
    lag: int


class Disks(NamedTuple):
    """The log directories of all brokers."""

    replicas: Mapping[TopicPartition, Mapping[int, Replica]]
    directories: Mapping[int, Sequence["Directory"]]
    errors: Mapping[int, str]

    def size(self, topic: TopicInfo) -> int:
        """Return the bytes of all replicas of a topic."""
        return sum(
            replica.bytes
            for each in partitions_of(topic)
            for replica in self.replicas.get(each, {}).values()
        )


class Directory(NamedTuple):
    """A log directory; the error is "" for a sound one, and bytes are -1 if unknown."""

    path: str
    error: str
    bytes: int
    total_bytes: int
    usable_bytes: int


async def disks(
    console: Console,
    partitions: tuple[TopicPartition, ...] | None = None,
    *,
    for_s: float = _SIZES_S,
) -> Disks:
    """Return the sizes of all replicas, or of those of some partitions, of some seconds ago."""
    return await console.results.get(
        ("disks", partitions),
        lambda: _disks(console, partitions),
        for_s=for_s,
        stale_s=_STALE_S,
        rows=lambda found: sum(map(len, found.replicas.values())),
    )


async def _disks(console: Console, partitions: tuple[TopicPartition, ...] | None) -> Disks:
    await console.cluster.refresh()
    admin = Admin(console.cluster)
    found = await ask_each(
        sorted(console.cluster.nodes), lambda node: admin.describe_log_dirs(node, partitions)
    )
    replicas: dict[TopicPartition, dict[int, Replica]] = defaultdict(dict)
    directories = {}
    for broker, rows in found.answers.items():
        directories[broker] = [
            Directory(
                row.log_dir,
                ErrorCode.of(row.error_code).text if row.error_code else "",
                sum(each.partition_size for topic in row.topics for each in topic.partitions),
                row.total_bytes,
                row.usable_bytes,
            )
            for row in rows
        ]
        for row in rows:
            for topic in row.topics:
                for each in topic.partitions:
                    if not each.is_future_key:
                        at = TopicPartition(topic.name, each.partition_index)
                        replicas[at][broker] = Replica(each.partition_size, each.offset_lag)
    return Disks(replicas, directories, found.errors)


async def groups(console: Console) -> list[ListedGroup]:
    """Return the groups of the brokers that answer, by id."""
    return await console.results.get(
        "groups", GroupAdmin(console.cluster).groups, for_s=_FEW_S, rows=len
    )


class Committed(NamedTuple):
    """The committed offsets of groups, by partition and group."""

    by_partition: Mapping[TopicPartition, Mapping[str, int]]
    read: int
    groups: int

    def readers(self, topic: str, indexes: Iterable[int]) -> list[str]:
        """Return the groups that have an offset in a topic."""
        found = (self.by_partition.get(TopicPartition(topic, each), {}) for each in indexes)
        return sorted({group for groups in found for group in groups})


def begin_committed(console: Console) -> "asyncio.Future[Committed]":
    """Begin to read the offsets of all groups, or take those of some seconds ago."""
    return console.results.begin(
        "committed",
        lambda: _committed(console),
        for_s=_SIZES_S,
        stale_s=_STALE_S,
        rows=lambda found: sum(map(len, found.by_partition.values())),
    )


async def _committed(console: Console) -> Committed:
    listed = await groups(console)
    admin = GroupAdmin(console.cluster)
    ids = [each.group_id for each in listed if each.group_type in DESCRIBED_TYPES]
    # One after the other: they are many, and no page waits for all of them.
    found = await ask_for_groups(console, ids[:MOST_GROUPS], admin.offsets_of, at_once=1)
    by_partition: dict[TopicPartition, dict[str, int]] = defaultdict(dict)
    for group, offsets in found.answers.items():
        for partition, offset in offsets.items():
            by_partition[partition][group] = offset
    return Committed(by_partition, len(found.answers), len(ids))


async def rates(console: Console) -> Rates:
    """Return the rates, as of a sample of some seconds ago."""
    sampling = console.results.begin("rates", console.rates.sample, for_s=PERIOD_S)
    await soon(sampling, SOON_S)
    return console.rates


class Seen(NamedTuple, Generic[T]):
    """The rows that were found, and the time in ms."""

    rows: list[T]
    at_ms: int


def begin_health(console: Console) -> "asyncio.Future[Seen[Problem]]":
    """Begin to look for problems, or take those of some seconds ago."""
    return console.results.begin(
        "health", lambda: _health(console), for_s=_SLOW_S, stale_s=_STALE_S
    )


async def _health(console: Console) -> Seen[Problem]:
    return Seen(await find_problems(console.cluster, await _held_back(console)), now_ms())


def begin_stuck(console: Console) -> "asyncio.Future[Seen[StuckPartition]]":
    """Begin to find the partitions that a transaction holds back, and why."""
    return console.results.begin("stuck", lambda: _stuck(console), for_s=_SLOW_S, stale_s=_STALE_S)


async def _stuck(console: Console) -> Seen[StuckPartition]:
    held, at_ms = await _held_back(console), now_ms()
    return Seen(await stuck_partitions(console.cluster, held, now_ms=at_ms), at_ms)


async def _held_back(console: Console) -> Mapping[TopicPartition, object]:
    """Return the partitions that a transaction held back at the last look at all of them: to look
    at these again costs little."""
    await console.cluster.refresh()
    every = readable_partitions(console.cluster)
    return await console.results.get(
        "held back",
        lambda: held_back(console.cluster, every),
        for_s=_FEW_S,
        rows=lambda _: len(every),
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000
