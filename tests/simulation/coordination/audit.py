"""The invariants of `transactions.audit` for partitions on several brokers, checked on the
committed records instead of a leader's log."""

from collections import Counter
from typing import TYPE_CHECKING, cast

from barnabas.broker.cluster.topic_names import TRANSACTION_STATE
from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.records import decode_record
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import iter_records
from tests.simulation.transactions.audit import Audit
from tests.simulation.transactions.broker import Brokers, DataPartition

if TYPE_CHECKING:
    from barnabas.protocol.topic_partition import TopicPartition
    from tests.simulation.coordination.partitions import Replicated
    from tests.simulation.coordination.world import World


class _Committed:
    """The part of `Brokers` that `Audit` uses."""

    def __init__(self, world: "World") -> None:
        self._world = world

    @property
    def partitions(self) -> "dict[TopicPartition, DataPartition]":
        partitions = self._world.partitions
        return {
            place: partitions[place].replayed(partitions[place].committed)
            for place in self._world.places
        }


class ClusterAudit(Audit):
    """The audit of the committed records, which no broker of the simulation sees."""

    def __init__(self, world: "World") -> None:
        super().__init__(cast(Brokers, _Committed(world)))
        self._world = world
        self._read: Counter[TopicPartition] = Counter()

    def look(self, partition: "Replicated | None" = None) -> None:
        """Check the records of a partition that were committed since the last call."""
        if partition is None or partition.place[0] != TRANSACTION_STATE:
            return
        try:
            self._look(partition)
        except AssertionError as error:
            self._world.faults.append(error)

    def _look(self, partition: "Replicated") -> None:
        while self._read[partition.place] < len(partition.batches):
            batch = partition.batches[self._read[partition.place]]
            header = read_header(batch)
            if header.next_offset > partition.committed:
                return
            self._read[partition.place] += 1
            for record in iter_records(batch, 0, header):
                decoded = decode_record(record.key or b"", record.value)
                assert decoded is not None
                assert decoded.value is not None
                self._step(decoded.value)

    @property
    def transactions(self) -> dict[str, TransactionMetadata]:
        return self._known
