"""A transactional producer of `transaction.version` 2 for tests without an event loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from barnabas.client.cluster import TRANSACTION, Cluster, check
from barnabas.protocol.messages import end_txn, init_producer_id, produce, txn_offset_commit
from barnabas.protocol.records.record import Record, build_batch

_TIMEOUT_MS = 60_000
_ADDS_PARTITIONS = 12
"""The first version of Produce that adds partitions, and the last that names topics."""


class NewerProducer:
    """A producer whose calls are one request each, retried while the coordinator is busy."""

    def __init__(
        self, servers: str, transactional_id: str, version: int = _ADDS_PARTITIONS
    ) -> None:
        """`version` is that of Produce."""
        self._servers = servers
        self._id = transactional_id
        self._version = version
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self) -> "NewerProducer":
        return self._initialise(keeps=False)

    def keep(self) -> "NewerProducer":
        """Go on as another process, which only ends the transaction (KIP-939)."""
        return self._initialise(keeps=True)

    def _initialise(self, *, keeps: bool) -> "NewerProducer":
        async def attempt(cluster: Cluster) -> None:
            request = init_producer_id.InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=_TIMEOUT_MS,
                enable_two_phase_commit=keeps,
                keep_prepared_txn=keeps,
            )
            answer = await cluster.ask_coordinator(
                init_producer_id.API, request, self._id, TRANSACTION
            )
            check(answer.error_code)
            self._goes_on(answer)

        self._do(attempt)
        return self

    def send(self, topic: str, partition: int, value: bytes) -> None:
        """Append one record."""
        place = topic, partition
        sequence = self.sequences.get(place, 0)
        made_ms = time.time_ns() // 1_000_000

        async def attempt(cluster: Cluster) -> None:
            records = build_batch(
                [Record(0, made_ms, None, value, ())],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                transactional=True,
            )
            data = produce.PartitionProduceData(index=partition, records=records)
            request = produce.ProduceRequest(
                transactional_id=self._id,
                acks=-1,
                timeout_ms=_TIMEOUT_MS,
                topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
            )
            leader = await cluster.connection_to(await cluster.leader(topic, partition))
            answer = await leader.request(produce.API, request, version=self._version)
            check(answer.responses[0].partition_responses[0].error_code)

        self._do(attempt)
        self.sequences[place] = sequence + 1

    def commit_offset(self, group: str, topic: str, offset: int) -> None:
        """Commit an offset of partition 0 for a group without members."""

        async def attempt(cluster: Cluster) -> None:
            partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata=None
            )
            request = txn_offset_commit.TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[
                    txn_offset_commit.TxnOffsetCommitRequestTopic(
                        name=topic, partitions=[partition]
                    )
                ],
            )
            coordinator = await cluster.coordinator_connection(group)
            answer = await coordinator.request(
                txn_offset_commit.API, request, version=txn_offset_commit.LAST_WITH_NAMES
            )
            check(answer.topics[0].partitions[0].error_code)

        self._do(attempt)

    def end(self, *, committed: bool) -> None:
        async def attempt(cluster: Cluster) -> None:
            request = end_txn.EndTxnRequest(
                transactional_id=self._id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=committed,
            )
            answer = await cluster.ask_coordinator(end_txn.API, request, self._id, TRANSACTION)
            check(answer.error_code)
            self._goes_on(answer)

        self._do(attempt)

    def _goes_on(self, answer: Any) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def _do(self, attempt: Callable[[Cluster], Awaitable[None]]) -> None:
        async def connected() -> None:
            async with Cluster(self._servers) as cluster:
                await cluster.retrying(lambda: attempt(cluster))

        asyncio.run(connected())
