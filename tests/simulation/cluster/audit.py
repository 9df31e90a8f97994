"""What must hold at every moment, seen from outside of all brokers at once."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.records.batch import iter_headers
from tests.simulation.cluster.node import Node

_READ_AT_ONCE = 1 << 20


class Place(NamedTuple):
    topic: str
    partition: int


class _Batch(NamedTuple):
    next_offset: int
    data: bytes


class Audit:
    """Looks into the brokers. Raises AssertionError where a promise is broken."""

    def __init__(self) -> None:
        self._leaders: dict[tuple[Place, int], int] = {}
        self._committed: dict[Place, dict[int, _Batch]] = {}
        self._looked: dict[tuple[int, Place, int], int] = {}
        self._glanced: dict[Partition, tuple[int, tuple[int, ...]]] = {}
        self._heard: set[tuple[int, int]] = set()
        self._regressions: list[str] = []
        self.turns = 0

    def glance(self, nodes: Sequence[Node]) -> None:
        """After every turn: an epoch has one leader, and its offsets are in their order; no broker
        tells of an older leader than before; when a leader has a new epoch or another in-sync set,
        all members have what is committed."""
        self.turns += 1
        changed = False
        assert not self._regressions, f"older metadata than before: {self._regressions}"
        for node in nodes:
            if node.running:
                self._listen(node)
                for partition in partitions_of(node):
                    if partition.is_leader:
                        log = partition.log
                        assert log.high_watermark <= log.log_end_offset, partition.topic
                        seen = partition.leader_epoch, partition.in_sync.isr
                        if self._glanced.get(partition) != seen:
                            self._glanced[partition] = seen
                            self._check_leader(node, partition)
                            changed = True
        if changed:
            self.compare(nodes)

    def _check_leader(self, node: Node, partition: Partition) -> None:
        place, epoch = Place(partition.topic, partition.index), partition.leader_epoch
        known = self._leaders.setdefault((place, epoch), node.id)
        assert known == node.id, f"{place}: {known} and {node.id} lead epoch {epoch}"

    def compare(self, nodes: Sequence[Node]) -> None:
        """Now and then: every replica holds what was committed first, as far as it knows that it is
        committed, and a replica in sync as far as its leader knows."""
        leaders: dict[Place, Partition] = {}
        for node in nodes:
            for partition in partitions_of(node) if node.running else ():
                place = Place(partition.topic, partition.index)
                known = leaders.get(place)
                if partition.is_leader and (
                    known is None or known.leader_epoch < partition.leader_epoch
                ):
                    leaders[place] = partition
        for node in nodes:
            for partition in partitions_of(node) if node.running else ():
                end = partition.log.high_watermark
                leader = leaders.get(Place(partition.topic, partition.index))
                if leader is not None and node.id in leader.isr and _is_settled(leader, partition):
                    assert partition.log.log_end_offset >= leader.high_watermark, (
                        f"{node.name} is in sync and lacks what is committed of {partition.topic}"
                    )
                    end = max(end, leader.high_watermark)
                self._compare(node, partition, end)

    def _listen(self, node: Node) -> None:
        """What a broker tells of leaders is never older than what it has told."""
        life = node.id, len(node.hosts)
        if life in self._heard or not node.ready:
            return
        self._heard.add(life)
        cache, told = node.cache, dict[tuple[bytes, int], tuple[int, int]]()

        def look() -> None:
            for topic in cache.topics.values():
                for index, partition in topic.partitions.items():
                    epochs = partition.leader_epoch, partition.partition_epoch
                    if epochs < told.get((topic.topic_id, index), epochs):
                        self._regressions.append(f"{node.name} of {topic.name}-{index}")
                    told[topic.topic_id, index] = epochs

        cache.on_change(look)

    def _compare(self, node: Node, partition: Partition, end: int) -> None:
        place = Place(partition.topic, partition.index)
        log = partition.log
        if log.truncating or log.log_dir.failure is not None:
            # It is between two states, and says so to everybody; or its disk has failed.
            return
        committed = self._committed.setdefault(place, {})
        key = node.id, place, len(node.hosts)
        offset = max(self._looked.get(key, 0), log.log_start_offset)
        while offset < end:
            found = log.read(offset, _READ_AT_ONCE, limit=end)
            if not found:
                break
            data = found.read_bytes()
            for position, header in iter_headers(data):
                batch = _Batch(header.next_offset, data[position : position + header.size])
                first = committed.setdefault(header.base_offset, batch)
                assert first == batch, (
                    f"{place}: {node.name} has something else at {header.base_offset}"
                )
                offset = header.next_offset
        self._looked[key] = offset


def _is_settled(leader: Partition, follower: Partition) -> bool:
    """Whether both know of the same leader, and it has heard all that the other has."""
    return (
        follower.leader_epoch == leader.leader_epoch
        and follower.partition_epoch <= leader.partition_epoch
    )


def partitions_of(node: Node) -> Iterable[Partition]:
    """The replicas on a broker; none while it starts or has stopped."""
    replication = getattr(node.broker, "_replication", None)
    return () if replication is None else replication.replicas
