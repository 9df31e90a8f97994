"""The log of a partition for its coordinator, while this broker leads the partition.

The runtime of coordinators (`barnabas/coordinator/hosted_shard.py`) makes its decisions durable
through it.
"""

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from barnabas.broker.loop.offload import Offload
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import HeaderFields
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import TxnMarker
from barnabas.storage.files.errors import OutOfDescriptors
from barnabas.storage.origin import Origin
from barnabas.storage.producers.verification import VerificationGuard

_QUEUE: Final = "coordinators"
"""The queue of `Offload` for the reads of a coordinator that loads the log."""
_COORDINATOR: Final = Origin.COORDINATOR
_RETRY_S: Final = 0.1
"""The time in seconds after which a read without a descriptor is repeated."""


class LedPartition:
    """A partition in one leader epoch, in the interface of `coordinator.ports.PartitionLog`.

    A new leader decides on its whole log; the high watermark says which part is committed.
    """

    def __init__(self, partition: Partition, offload: Offload) -> None:
        self._partition = partition
        self._offload = offload
        self._leader_epoch = partition.leader_epoch

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    @property
    def start_offset(self) -> int:
        return self._partition.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._partition.log.log_end_offset

    # Each step of a transaction asks: a getter in C takes a third of the time.
    commits_at_once: Any = property(attrgetter("_partition.standing.commits_at_once"))

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Read in a thread, because the log of a load is seldom in the page cache.

        A load that failed would not be repeated: without a descriptor it waits.
        """
        while True:
            log = self._partition.log
            try:
                found = log.read(offset, max_bytes, limit=log.log_end_offset)
            except OutOfDescriptors:
                await asyncio.sleep(_RETRY_S)
            else:
                return await self._offload.submit(_QUEUE, found.read_bytes)

    def begin_verification(self, claim: Claim) -> VerificationGuard | None:
        self._require_led()
        return self._partition.begin_verification(claim)

    def append(
        self,
        batch: bytearray,
        now_ms: int,
        header: HeaderFields | None = None,
        guard: object | None = None,
        marker: TxnMarker | None = None,
    ) -> int:
        partition = self._partition
        if partition.leader_epoch != self._leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert guard is None or isinstance(guard, VerificationGuard)
        return partition.append(batch, now_ms, header, guard, _COORDINATOR, marker)[1] + 1

    def _require_led(self) -> None:
        if self._partition.leader_epoch != self._leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def when_committed(self, offset: int, waiter: Callable[[KafkaError | None], None]) -> None:
        self._partition.add_waiter(offset, waiter)
