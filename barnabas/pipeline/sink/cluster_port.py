"""The requests of a sink's driver, sent to a cluster."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from barnabas.client.admin import Admin
from barnabas.client.batches import FetchedBatches, FetchSettings, fetch_batches
from barnabas.client.cluster import TRANSACTION, Cluster, check
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.client.transaction_admin import ONGOING, TransactionAdmin, client_of
from barnabas.client.transactions.requests import TransactionCalls
from barnabas.client.two_phase import end_transaction, init_producer_id, keep_transaction
from barnabas.operations.sinks.decisions import key_of
from barnabas.pipeline.sink.port import (
    End,
    Fate,
    FirstRecord,
    Identity,
    OpenTransaction,
    Pinned,
    Place,
    StoredDecision,
)
from barnabas.pipeline.sink.protocol import decisions_topic, driver_id
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import describe_transactions, produce
from barnabas.protocol.records.batch import BatchHeader, iter_headers
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import read_marker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.topic_partition import TopicPartition

A = TypeVar("A")
T = TypeVar("T")

DRIVER_TIMEOUT_MS: Final = 60_000
"""The transaction timeout of the driver's id: a decision takes much less."""
_AT_ONCE: Final = 200
"""The largest number of requests of one call that are in flight."""
_FETCHES_AT_ONCE: Final = 20
_IMPLICIT_PARTITIONS: Final = 12
"""The first version of Produce with which a leader adds its partition to the transaction."""
_FIRST_STEP: Final = 8
"""Offsets before the own decision that are read first: the last one is there, and its marker."""
_WAIT: Final = 0.02
_ONE_BATCH: Final = FetchSettings(partition_max_bytes=1, max_wait=0.0)
_WRITTEN: Final = _ONE_BATCH._replace(read_committed=False)
_DECISIONS: Final = FetchSettings(max_wait=0.0)
_UNCOMMITTED: Final = FetchSettings(max_wait=0.0, read_committed=False)


class ClusterPort:
    """A `SinkPort` on a cluster; one driver makes one for each batch.

    The decisions topic gets the replication of the topic `like`, or the brokers' default. No call
    takes much longer than the timeout of the cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        sink_id: str,
        *,
        like: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._sink_id = sink_id
        self._like = like
        self._now = now
        self._admin = TransactionAdmin(cluster)
        self._driver = driver_id(sink_id)
        self._decisions = TopicPartition(decisions_topic(sink_id), 0)
        self._producer = ProducerIdAndEpoch(-1, -1)

    # -- transactions ----------------------------------------------------------------------------

    async def list_open(self) -> list[OpenTransaction]:
        with errors_of_protocol():
            rows = await self._admin.open_under(f"{self._sink_id}.")
        return [_open_transaction(row) for row in rows]

    async def describe(self, transactional_ids: Sequence[str]) -> list[OpenTransaction | None]:
        with errors_of_protocol():
            rows = await self._admin.describe_all(transactional_ids)
        return [
            _open_transaction(row)
            if (row := rows.get(each)) is not None and row.transaction_state == ONGOING
            else None
            for each in transactional_ids
        ]

    async def fence(self) -> None:
        with errors_of_protocol():
            await self._ensure_topic()
            answer = await init_producer_id(self._cluster, self._driver, DRIVER_TIMEOUT_MS)
        self._producer = answer.client

    async def pin(self, transactional_ids: Sequence[str]) -> list[Pinned | KafkaError]:
        async def pin(transactional_id: str) -> Pinned | KafkaError:
            try:
                with errors_of_protocol():
                    client, ongoing = await keep_transaction(
                        self._cluster, transactional_id, DRIVER_TIMEOUT_MS
                    )
            except KafkaError as error:
                return error
            return Pinned(Identity(*client), None if ongoing is None else Identity(*ongoing))

        await self._find_coordinators(transactional_ids)
        return await _all(pin, transactional_ids, _AT_ONCE)

    async def end(self, ends: Sequence[End]) -> list[KafkaError | None]:
        async def end(each: End) -> KafkaError | None:
            try:
                with errors_of_protocol():
                    await end_transaction(
                        self._cluster,
                        each.transactional_id,
                        ProducerIdAndEpoch(*each.producer),
                        committed=each.committed,
                    )
            except KafkaError as error:
                return error
            return None

        await self._find_coordinators([each.transactional_id for each in ends])
        return await _all(end, ends, _AT_ONCE)

    async def _find_coordinators(self, transactional_ids: Sequence[str]) -> None:
        """Look up all coordinators at once; a request alone would look up its own."""
        with errors_of_protocol():
            await self._cluster.retrying(
                lambda: self._cluster.coordinators(transactional_ids, TRANSACTION)
            )

    # -- decisions -------------------------------------------------------------------------------

    async def write_decision(self, value: bytes) -> int:
        record = Record(0, self.now_ms(), key_of(self._sink_id), value)
        with errors_of_protocol():
            return await self._append(self._driver, self._producer, self._decisions, record)

    async def _append(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partition: TopicPartition,
        record: Record,
    ) -> int:
        """Write the first record of a producer in a transaction; return its offset."""
        batch = build_batch(
            [record],
            compression=Compression.GZIP,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        calls = TransactionCalls(self._cluster, transactional_id, classified=False)
        newer = await calls.is_newer()
        if not newer:
            await calls.add_partitions(producer, [partition])
        data = produce.PartitionProduceData(index=partition.partition, records=batch)

        async def attempt() -> int:
            connection = await self._cluster.connection_to(await self._cluster.leader(*partition))
            version = connection.version_for(produce.API)
            if not newer:
                version = min(version, _IMPLICIT_PARTITIONS - 1)
            topic = produce.TopicProduceData(
                name=partition.topic,
                topic_id=(await self._cluster.topic(partition.topic)).topic_id,
                partition_data=[data],
            )
            request = produce.ProduceRequest(
                transactional_id=transactional_id,
                acks=-1,
                timeout_ms=int(self._cluster.request_timeout * 1000),
                topic_data=[topic],
            )
            response = await connection.request(
                produce.API, request, version=version, timeout=self._cluster.request_timeout
            )
            row = response.responses[0].partition_responses[0]
            check(row.error_code, row.error_message or f"{partition.topic}-{partition.partition}")
            return int(row.base_offset)

        # A batch that is sent again is written once, and answered with its offset.
        return await self._cluster.retrying(attempt)

    async def end_decision(self, *, committed: bool) -> None:
        with errors_of_protocol():
            await end_transaction(self._cluster, self._driver, self._producer, committed=committed)

    async def decision_fate(self, offset: int) -> Fate:
        place = Place(*self._decisions, offset)
        return (await self.fates([FirstRecord(place, Identity(*self._producer))]))[0]

    async def last_decision(self, before: int | None) -> StoredDecision | None:
        with errors_of_protocol():
            async with asyncio.timeout(self._cluster.timeout):
                return await self._last_decision(before)

    async def _last_decision(self, before: int | None) -> StoredDecision | None:
        if before is not None:
            return await self._last_between(await self._show_own(before), before)
        # Before the first batch of a sink it is missing: the client would wait for it.
        if not await self._has_topic():
            return None
        return await self._last_between(*await self._bounds())

    async def _bounds(self) -> tuple[int, int]:
        first = await find_offsets(self._cluster, {self._decisions: EARLIEST})
        last = await find_offsets(self._cluster, {self._decisions: LATEST}, read_committed=True)
        return first[self._decisions].offset, last[self._decisions].offset

    async def _show_own(self, offset: int) -> int:
        """Wait for a leader that shows the own record, with a log that is committed up to there.

        Every replica has the same committed log: with this record it has all that stands before.
        Returns the first offset of its log.
        """
        own = Identity(*self._producer)
        while True:
            try:
                fetched = await fetch_batches(self._cluster, self._decisions, offset, _WRITTEN)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
            else:
                shown = _batch_at(fetched, offset)
                if shown is not None and _producer_of(shown) != own:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        f"offset {offset} of {self._decisions.topic} has lost the record of this "
                        "driver: the topic was deleted, or lost data",
                    )
                if shown is not None and fetched.last_stable_offset >= offset:
                    return fetched.log_start_offset
            # A deposed leader does not know it.
            self._cluster.topics.pop(self._decisions.topic, None)
            await asyncio.sleep(_WAIT)

    async def _last_between(self, first: int, before: int) -> StoredDecision | None:
        """Return the newest committed record in these offsets, read backwards in growing steps."""
        step = _FIRST_STEP
        end = before
        while end > first:
            start = max(first, end - step)
            found = await self._newest(start, end)
            if found is not None:
                return found
            end, step = start, step * 8
        return None

    async def _newest(self, start: int, end: int) -> StoredDecision | None:
        found = None
        offset = start
        while offset < end:
            fetched = await fetch_batches(self._cluster, self._decisions, offset, _DECISIONS)
            for pos, header in fetched.visible:
                for record in iter_records(fetched.data, pos, header):
                    if start <= record.offset < end and record.value is not None:
                        found = StoredDecision(record.offset, record.value)
            if fetched.next_offset == offset:
                if fetched.last_stable_offset >= end:
                    return found
                self._cluster.topics.pop(self._decisions.topic, None)
                await asyncio.sleep(_WAIT)
            offset = fetched.next_offset
        return found

    # -- the log ---------------------------------------------------------------------------------

    async def fates(self, records: Sequence[FirstRecord]) -> list[Fate]:
        with errors_of_protocol():
            return await _all(self._fate, records, _FETCHES_AT_ONCE)

    async def _fate(self, record: FirstRecord) -> Fate:
        place, producer = record
        partition = TopicPartition(place.topic, place.partition)
        try:
            fetched = await fetch_batches(self._cluster, partition, place.offset, _ONE_BATCH)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return Fate.GONE
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            first = await find_offsets(self._cluster, {partition: EARLIEST})
            return Fate.GONE if place.offset < first[partition].offset else Fate.OPEN
        if fetched.last_stable_offset <= place.offset:
            return await self._fate_of_marker(partition, place.offset, producer)
        written = _batch_at(fetched, place.offset)
        if written is None or _producer_of(written) != producer:
            return Fate.GONE
        visible = any(header.base_offset == written.base_offset for _, header in fetched.visible)
        return Fate.COMMITTED if visible else Fate.ABORTED

    async def _fate_of_marker(
        self, partition: TopicPartition, offset: int, producer: Identity
    ) -> Fate:
        """Return the fate of a record that the last stable offset does not show.

        Another transaction, which is open before it, may hold the last stable offset back. A
        marker below the high watermark is final.
        """
        for each in await self._admin.open_in([partition]):
            written_by = Identity(each.producer_id, each.producer_epoch)
            if written_by == producer and each.start_offset <= offset:
                return Fate.OPEN
        while True:
            try:
                fetched = await fetch_batches(self._cluster, partition, offset, _UNCOMMITTED)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                # A new leader may know less.
                return Fate.OPEN
            for pos, header in iter_headers(fetched.data):
                if header.is_control and header.producer_id == producer.producer_id:
                    marker = read_marker(fetched.data, pos, header)
                    if marker is not None and marker.producer_epoch >= producer.epoch:
                        return Fate.COMMITTED if marker.committed else Fate.ABORTED
            if fetched.next_offset == offset:
                return Fate.OPEN
            offset = fetched.next_offset

    # -- the topic, the clock --------------------------------------------------------------------

    async def _ensure_topic(self) -> None:
        """Create the decisions topic if it is missing, with the replication of the output."""
        name = self._decisions.topic
        if name in self._cluster.topics:
            return
        if await self._has_topic():
            await self._cluster.retrying(lambda: self._cluster.topic(name))
            return
        replicas, configs = -1, {"cleanup.policy": "compact"}
        admin = Admin(self._cluster)
        if self._like is not None:
            info = await self._cluster.topic(self._like)
            replicas = min(len(row.replica_nodes) for row in info.description.partitions)
            for row in await admin.describe_configs(ConfigResourceType.TOPIC, self._like):
                if row.name == "min.insync.replicas" and row.value is not None:
                    configs[row.name] = row.value
        try:
            await admin.create_topic(
                name, partitions=1, replication_factor=replicas, configs=configs
            )
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await self._cluster.retrying(lambda: self._cluster.leader(name, 0))

    async def _has_topic(self) -> bool:
        """Return whether the broker that answers knows the decisions topic."""
        response = await self._cluster.retrying(
            lambda: self._cluster.refresh([self._decisions.topic])
        )
        return all(
            row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for row in response.topics
        )

    def now_ms(self) -> int:
        return int(self._now() * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@contextmanager
def errors_of_protocol() -> Iterator[None]:
    """Turn a missing response into the KafkaError REQUEST_TIMED_OUT."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error) or None) from error


async def _all(call: Callable[[A], Awaitable[T]], arguments: Sequence[A], at_once: int) -> list[T]:
    """Return the results in the order of the arguments; some calls run at the same time."""
    limit = asyncio.Semaphore(at_once)

    async def one(argument: A) -> T:
        async with limit:
            return await call(argument)

    return list(await asyncio.gather(*(one(each) for each in arguments)))


def _open_transaction(row: describe_transactions.TransactionState) -> OpenTransaction:
    return OpenTransaction(
        row.transactional_id,
        Identity(row.producer_id, row.producer_epoch),
        Identity(*client_of(row)),
        row.transaction_start_time_ms,
    )


def _batch_at(fetched: FetchedBatches, offset: int) -> BatchHeader | None:
    """Return the data batch with an offset, visible or not; None if the log does not have it."""
    for _, header in iter_headers(fetched.data):
        if header.base_offset <= offset <= header.last_offset and not header.is_control:
            return header
    return None


def _producer_of(header: BatchHeader) -> Identity:
    return Identity(header.producer_id, header.producer_epoch)
