"""What must hold at every moment, seen from outside of all brokers at once."""

from collections.abc import Iterable
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
        self._glanced: dict[Partition, int] = {}
        self.turns = 0

    def glance(self, nodes: Iterable[Node]) -> None:
        """After every turn: an epoch has one leader, and its offsets are in their order."""
        self.turns += 1
        for node in nodes:
            if node.running:
                for partition in partitions_of(node):
                    if partition.is_leader:
                        log = partition.log
                        assert log.high_watermark <= log.log_end_offset, partition.topic
                        if self._glanced.get(partition) != partition.leader_epoch:
                            self._check_leader(node, partition)

    def _check_leader(self, node: Node, partition: Partition) -> None:
        place, epoch = Place(partition.topic, partition.index), partition.leader_epoch
        known = self._leaders.setdefault((place, epoch), node.id)
        assert known == node.id, f"{place}: {known} and {node.id} lead epoch {epoch}"
        self._glanced[partition] = epoch

    def compare(self, nodes: Iterable[Node]) -> None:
        """Now and then: below its high watermark every replica holds what was committed first."""
        for node in nodes:
            if node.running:
                for partition in partitions_of(node):
                    self._compare(node, partition)

    def _compare(self, node: Node, partition: Partition) -> None:
        place = Place(partition.topic, partition.index)
        log = partition.log
        committed = self._committed.setdefault(place, {})
        key = node.id, place, len(node.hosts)
        offset = max(self._looked.get(key, 0), log.log_start_offset)
        while offset < log.high_watermark:
            found = log.read(offset, _READ_AT_ONCE, limit=log.high_watermark)
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


def partitions_of(node: Node) -> Iterable[Partition]:
    """The replicas on a broker; none while it starts or has stopped."""
    replication = getattr(node.broker, "_replication", None)
    return () if replication is None else replication.replicas
