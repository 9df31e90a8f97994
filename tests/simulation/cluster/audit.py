"""The invariants of the simulated cluster, checked from outside of all brokers."""

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
    """The invariants and the state of the brokers seen so far. Methods raise AssertionError."""

    def __init__(self) -> None:
        self._leaders: dict[tuple[Place, int], int] = {}
        self._committed: dict[Place, dict[int, _Batch]] = {}
        self._looked: dict[tuple[int, Place, int], int] = {}
        self._glanced: dict[Partition, tuple[int, tuple[int, ...]]] = {}
        self._heard: set[tuple[int, int]] = set()
        self._regressions: list[str] = []
        self.turns = 0

    def glance(self, nodes: Sequence[Node]) -> None:
        """Check after every iteration of the loop: an epoch has one leader, and its offsets are in
        order; no broker reports an older leader than before; when a leader has a new epoch or
        another ISR, all replicas of it have the committed records."""
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
                        seen = partition.leader_epoch, partition.isr_state.isr
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
        """Check at intervals: every replica holds the records that were committed first, up to its
        own high watermark, and a replica in sync up to the high watermark of its leader."""
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
                        f"{node.name} is in sync and lacks committed records of {partition.topic}"
                    )
                    end = max(end, leader.high_watermark)
                self._compare(node, partition, end)

    def _listen(self, node: Node) -> None:
        """Watch that a broker never reports an older leader than before."""
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
            # The log is being truncated and not served; or its disk has failed.
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
                    f"{place}: {node.name} has another batch at {header.base_offset}"
                )
                offset = header.next_offset
        self._looked[key] = offset


def _is_settled(leader: Partition, follower: Partition) -> bool:
    """Return whether both know of the same leader epoch, and the leader of the latest ISR."""
    return (
        follower.leader_epoch == leader.leader_epoch
        and follower.partition_epoch <= leader.partition_epoch
    )


def partitions_of(node: Node) -> Iterable[Partition]:
    """Return the replicas on a broker; none while it starts or after it has stopped."""
    replication = getattr(node.broker, "_replication", None)
    return () if replication is None else replication.replicas
