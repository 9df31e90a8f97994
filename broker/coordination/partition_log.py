"""What a coordinator is lent of a partition: its log, for as long as this broker leads it."""

from collections.abc import Callable
from typing import cast

from barnabas.broker.offload import Offload
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.claim import Claim
from barnabas.storage.validator import Origin
from barnabas.storage.verification import Guard

LANE = "coordinators"
"""Reads of a load wait for the disk here."""


class LedPartition:
    """`coordinator.ports.PartitionLog` over a partition in one leader epoch.

    Every replica's log below the end at election is part of what the leader decides on; the high
    watermark says when it may be told.
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

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Off the loop: a log that is loaded has seldom been read before."""
        log = self._partition.log
        found = log.read(offset, max_bytes, limit=log.log_end_offset)
        return await self._offload.submit(LANE, found.read_bytes)

    def begin_verification(self, claim: Claim) -> Guard | None:
        self._require_led()
        return self._partition.begin_verification(claim)

    def append(
        self,
        batch: bytes,
        now_ms: int,
        guard: object | None = None,
        transaction_version: int = 0,
    ) -> int:
        self._require_led()
        appended = self._partition.append_as_leader(
            bytearray(batch),
            now_ms=now_ms,
            origin=Origin.COORDINATOR,
            guard=cast("Guard | None", guard),
            transaction_version=transaction_version,
        )
        return appended.last_offset + 1

    def _require_led(self) -> None:
        if self._partition.leader_epoch != self._leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def when_committed(self, offset: int, waiter: Callable[[KafkaError | None], None]) -> None:
        self._partition.add_waiter(offset, waiter)
