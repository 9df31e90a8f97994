"""A transactional producer that sends exactly the requests of a test, in either protocol."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import Record, build_batch, iter_records
from tests.support import raw

IN_TIME_S = 20.0
LATER = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""The errors on which a client retries."""

Place = tuple[str, int]
T = TypeVar("T")


class Protocol(NamedTuple):
    """Versions of the requests that differ between the transaction protocols."""

    produce: int
    offsets: int
    end: int


TV1 = Protocol(produce=11, offsets=4, end=4)
TV2 = Protocol(produce=12, offsets=5, end=5)


class Wire(raw.Connection):
    """A connection, with methods for the requests of the tests."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        super().__init__(host, int(port), "transactor", timeout_s=IN_TIME_S)

    def ask(self, request: Any, version: int) -> Any:
        self.post(request, version)
        return self.take()

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; keys have underscores for Kafka's dots."""
        entries = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=entries,
        )
        answer = self.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=5000), 7)
        assert answer.topics[0].error_code == 0, answer

    def read(
        self, topic: str, offset: int = 0, *, committed: bool = True, index: int = 0
    ) -> tuple[list[bytes], list[tuple[int, int]]]:
        """Return the values of data records from an offset on, and (producer id, first offset) of
        the aborted transactions among them."""
        partition = FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 24
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        answer = self.ask(request, 12).responses[0].partitions[0]
        assert answer.error_code == 0, answer
        log = bytes(answer.records or b"")
        values = [
            record.value
            for position, header in iter_headers(log)
            if not header.is_control
            for record in iter_records(log, position, header)
            if record.value is not None and record.offset >= offset
        ]
        aborted = answer.aborted_transactions or []
        return values, [(each.producer_id, each.first_offset) for each in aborted]

    def end_offset(self, topic: str, *, committed: bool, index: int = 0) -> int:
        """Return the last stable offset or the high watermark."""
        asked = ListOffsetsPartition(partition_index=index, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
        )
        answer = self.ask(request, 6).topics[0].partitions[0]
        assert answer.error_code == 0, answer
        return int(answer.offset)

    def committed(self, group: str, topic: str, version: int = 9) -> tuple[ErrorCode, int]:
        """Return the group's stable offset of the first partition, with the error code."""
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        asked = OffsetFetchRequestGroup(group_id=group, topics=topics)
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        answer = self.ask(request, version).groups[0]
        if answer.error_code:
            return ErrorCode.of(answer.error_code), -1
        partition = answer.topics[0].partitions[0]
        return ErrorCode.of(partition.error_code), partition.committed_offset


class Sent(NamedTuple):
    """The response of Produce."""

    error: ErrorCode
    offset: int


class Transactor:
    """A producer with a transactional id; every call but `init` and `end` returns the error
    code."""

    def __init__(self, wire: Wire, name: str, protocol: Protocol, timeout_ms: int = 60_000) -> None:
        self.wire = wire
        self.name = name
        self.protocol = protocol
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.behind_ms = 0
        """The age of the records, in ms."""

    def init(self) -> None:
        for kind in (0, 1):
            # The first FindCoordinator creates the coordinator's topic.
            finding = FindCoordinatorRequest(coordinator_keys=[self.name], key_type=kind)
            assert self.wire.ask(finding, 4).coordinators[0].key == self.name
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=self.timeout_ms
        )
        answer = self._insist(lambda: self.wire.ask(request, 4))
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self, *places: Place) -> ErrorCode:
        topics = [AddPartitionsToTxnTopic(name=name, partitions=[at]) for name, at in places]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )

        def error() -> ErrorCode:
            answer = self.wire.ask(request, 3)
            topic = answer.results_by_topic_v3_and_below[0]
            return ErrorCode.of(topic.results_by_partition[0].partition_error_code)

        return until(error, lambda code: code not in LATER)

    def post(self, topic: str, *values: bytes, sequence: int, index: int = 0) -> None:
        """Send Produce, whose response `sent` takes."""
        now_ms = time.time_ns() // 1_000_000 - self.behind_ms
        records = [Record(at, now_ms, None, value) for at, value in enumerate(values)]
        batch = build_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self.post_batch(topic, batch, index=index)

    def post_batch(self, topic: str, batch: bytes, *, index: int = 0) -> None:
        data = PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        self.wire.post(request, self.protocol.produce)

    def sent(self) -> Sent:
        answer = self.wire.take().responses[0].partition_responses[0]
        return Sent(ErrorCode.of(answer.error_code), answer.base_offset)

    def send(self, topic: str, *values: bytes, sequence: int, index: int = 0) -> Sent:
        def ask() -> Sent:
            self.post(topic, *values, sequence=sequence, index=index)
            return self.sent()

        return until(ask, lambda sent: sent.error not in LATER)

    def add_group(self, group: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        ask = lambda: ErrorCode.of(self.wire.ask(request, 3).error_code)  # noqa: E731
        return until(ask, lambda code: code not in LATER)

    def offset_commit(self, group: str, topic: str, offset: int) -> TxnOffsetCommitRequest:
        place = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        return TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
        )

    def commit_offset(self, group: str, topic: str, offset: int) -> ErrorCode:
        request = self.offset_commit(group, topic, offset)

        def ask() -> ErrorCode:
            answer = self.wire.ask(request, self.protocol.offsets)
            return ErrorCode.of(answer.topics[0].partitions[0].error_code)

        return until(ask, lambda code: code not in LATER)

    def ending(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    def end(self, *, committed: bool = True) -> None:
        request = self.ending(committed=committed)
        answer = self._insist(lambda: self.wire.ask(request, self.protocol.end))
        if self.protocol is TV2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def transact(self, topic: str, *values: bytes, sequence: int, committed: bool = True) -> None:
        """Write and end a transaction in the first partition of a topic."""
        if self.protocol is TV1:
            assert self.add((topic, 0)) is ErrorCode.NONE
        assert self.send(topic, *values, sequence=sequence).error is ErrorCode.NONE
        self.end(committed=committed)

    @staticmethod
    def _insist(ask: Callable[[], Any]) -> Any:
        answer = until(ask, lambda answer: ErrorCode.of(answer.error_code) not in LATER)
        assert answer.error_code == 0, ErrorCode.of(answer.error_code)
        return answer


def until(ask: Callable[[], T], good: Callable[[T], bool]) -> T:
    """Ask repeatedly until the answer is good, and return it."""
    deadline = time.monotonic() + IN_TIME_S
    while not good(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)
    return answer


def settled(wire: Wire, *places: Place) -> None:
    """Return when no transaction is open in these partitions."""
    for topic, index in places:

        def ends(topic: str = topic, index: int = index) -> set[int]:
            return {wire.end_offset(topic, committed=it, index=index) for it in (True, False)}

        until(ends, lambda ends: len(ends) == 1)
