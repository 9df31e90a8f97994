"""Two brokers get the same requests, one without fast paths: what consumers read is the same."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.broker.server.repeats import Repeats
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.fetch import API, FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import Record, build_batch
from barnabas.testing import Broker
from tests.support.raw import Connection
from tests.support.waiting import until

TOPIC = "t"
NOW_MS = 1_700_000_000_000
RECORDS = 300
SEGMENTS = 4
_ANY_TIME = {"log.message.timestamp.before.max.ms": str(2**62)}
_SIZES = st.sampled_from([0, 1, 90, 1_000, 16_384, 70_000, 1 << 20])
_RECORD_SIZES = [10, 900, 40, 5_000, 20_000, 3, 100, 200_000, 1, 7_000]
_hits: list[int] = []


class Ask(NamedTuple):
    """A Fetch; the offset is that of the record after the last answer, plus a leap."""

    version: int
    leap: int
    session: str
    read_committed: bool
    partition_bytes: int
    request_bytes: int
    min_bytes: int
    leader_epoch: int
    last_epoch: int


ASKS = st.builds(
    Ask,
    version=st.integers(7, 18),
    leap=st.one_of(st.just(0), st.integers(-RECORDS, RECORDS)),
    session=st.sampled_from(["none", "none", "new", "next", "next", "next", "wrong"]),
    read_committed=st.booleans(),
    partition_bytes=_SIZES,
    request_bytes=_SIZES,
    min_bytes=st.sampled_from([0, 1, 100, 1 << 20]),
    leader_epoch=st.sampled_from([-1, -1, 0, 1]),
    last_epoch=st.sampled_from([-1, -1, 0, 1]),
)


class Reader:
    """A consumer of one broker."""

    def __init__(self, broker: Broker) -> None:
        host, port = broker.bootstrap_servers.split(":")
        self.connection = Connection(host, int(port), "reader")
        self.topic_id = b""
        self.reached = 0
        self.session_id, self.epoch = 0, 0

    def ask(self, request: Any, version: int) -> Any:
        self.connection.post(request, version)
        return self.connection.take()

    def look_up(self) -> None:
        """Learn the id of the topic, once its leader is known."""

        def topic() -> Any:
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
            )
            (found,) = self.ask(asked, 12).topics
            led = not found.error_code and found.partitions[0].leader_id >= 0
            return found if led else None

        self.topic_id = until(topic).topic_id

    def fetch(self, asked: Ask) -> Any:
        """Return the answer, without what differs from broker to broker."""
        wanted = FetchPartition(
            partition=0,
            current_leader_epoch=asked.leader_epoch if asked.version >= 9 else -1,
            fetch_offset=self.reached + asked.leap,
            last_fetched_epoch=asked.last_epoch if asked.version >= 12 else -1,
            partition_max_bytes=asked.partition_bytes,
        )
        session_id, epoch = 0, -1
        if asked.session != "none":
            session_id, epoch = self.session_id, self.epoch + (asked.session == "wrong")
        if asked.session == "new":
            epoch = 0
        named = {"topic": TOPIC} if asked.version < 13 else {"topic_id": self.topic_id}
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=asked.min_bytes,
            max_bytes=asked.request_bytes,
            isolation_level=int(asked.read_committed),
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(**named, partitions=[wanted])],
        )
        answer = self.ask(request, asked.version)
        if asked.session != "none" and not answer.error_code:
            self.epoch = epoch + 1
            self.session_id = answer.session_id
        found: list[Any] = [answer.error_code, bool(answer.session_id)]
        for topic in answer.responses:
            found.append((topic.topic, topic.topic_id == self.topic_id))
            for each in topic.partitions:
                records = bytes(each.records or b"")
                whole = _headers(records)
                if whole:
                    self.reached = whole[-1][0] + whole[-1][1]
                aborted = [(a.producer_id, a.first_offset) for a in each.aborted_transactions or []]
                found.append(
                    (
                        each.partition_index,
                        each.error_code,
                        each.high_watermark,
                        each.last_stable_offset,
                        each.log_start_offset,
                        each.aborted_transactions is None,
                        aborted,
                        each.preferred_read_replica,
                        each.diverging_epoch.epoch,
                        len(records),
                        whole,
                    )
                )
        return found


def _headers(records: bytes) -> list[tuple[int, ...]]:
    """Return what identifies each batch; markers have the time at which they were written."""
    return [
        (each.base_offset, each.record_count, each.batch_length, each.attributes, each.producer_id)
        for _, each in iter_headers(records)
    ]


def _batch(
    count: int, size: int, producer: tuple[int, int] = (-1, -1), sequence: int = -1
) -> bytes:
    return build_batch(
        [Record(at, NOW_MS, None, bytes(size), ()) for at in range(count)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=sequence >= 0,
    )


def _fill(reader: Reader) -> None:
    """Write plain batches of many sizes, and a transaction of each outcome between them."""

    def produce(records: bytes, transactional_id: str | None = None) -> None:
        data = TopicProduceData(
            name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)]
        )
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[data]
        )
        (topic,) = reader.ask(request, 9).responses
        assert topic.partition_responses[0].error_code == 0

    asked = FindCoordinatorRequest(coordinator_keys=["x"], key_type=1)
    until(lambda: not reader.ask(asked, 4).coordinators[0].error_code)
    begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    given = until(lambda: None if (it := reader.ask(begin, 4)).error_code else it)
    producer, sequence = (given.producer_id, given.producer_epoch), 0
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    for number, size in enumerate(_RECORD_SIZES * 5):
        produce(_batch(1 + number % 4, size))
        if number % 7 == 3:
            for committed in (True, False):
                (added,) = until(lambda: _accepted(reader.ask(add, 3)))
                assert added.results_by_partition[0].partition_error_code == 0
                produce(_batch(2, 300, producer, sequence), "x")
                sequence += 2
                produce(_batch(1, 50))
                end = EndTxnRequest(
                    transactional_id="x",
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    committed=committed,
                )
                assert reader.ask(end, 3).error_code == 0
                # The markers of both brokers have the same place.
                until(lambda: _accepted(reader.ask(add, 3)))
                abort = EndTxnRequest(
                    transactional_id="x",
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    committed=False,
                )
                assert reader.ask(abort, 3).error_code == 0


def _accepted(answer: Any) -> Any:
    topics = answer.results_by_topic_v3_and_below
    return None if topics[0].results_by_partition[0].partition_error_code else topics


def _create(reader: Reader) -> None:
    configs = [
        CreatableTopicConfig(name="segment.bytes", value="1048576"),
        CreatableTopicConfig(name="index.interval.bytes", value="2000"),
    ]
    topic = CreatableTopic(
        name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=configs
    )
    (created,) = reader.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5).topics
    assert created.error_code == 0
    reader.look_up()


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[Broker, Broker]]:
    """A broker with fast paths and one without, with the same log of some segments."""
    served = Repeats.serve

    def counted(self: Repeats, frame: memoryview, now_ms: int) -> Any:
        answer = served(self, frame, now_ms)
        if answer is not None and self._api is API:
            _hits.append(1)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repeats, "serve", counted)
        with (
            Broker(_ANY_TIME) as fast,
            Broker({**_ANY_TIME, "fast.paths.enable": "false"}) as plain,
        ):
            for broker in (fast, plain):
                reader = Reader(broker)
                _create(reader)
                _fill(reader)
                reader.connection.close()
            yield fast, plain


@pytest.fixture
def readers(brokers: tuple[Broker, Broker]) -> Iterator[tuple[Reader, Reader]]:
    fast, plain = map(Reader, brokers)
    for each in (fast, plain):
        each.look_up()
    _hits.clear()
    yield fast, plain
    fast.connection.close()
    plain.connection.close()


def _same(readers: tuple[Reader, Reader], asked: Ask) -> Any:
    fast, plain = (each.fetch(asked) for each in readers)
    assert fast == plain
    return fast


PLAIN = Ask(12, 0, "none", False, 16_384, 1 << 20, 1, -1, -1)


@given(asks=st.lists(st.tuples(ASKS, st.integers(1, 6)), min_size=1, max_size=12))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_consumers_read_the_same(
    readers: tuple[Reader, Reader], asks: list[tuple[Ask, int]]
) -> None:
    for each in readers:
        each.reached, each.session_id, each.epoch = 0, 0, 0
    for asked, times in asks:
        for _ in range(times):
            _same(readers, asked)


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
@pytest.mark.parametrize("session", ["none", "next"])
@pytest.mark.parametrize("read_committed", [False, True])
@pytest.mark.parametrize("size", [1_000, 16_384, 1 << 20])
def test_the_whole_log_is_read_on_the_fast_path(
    readers: tuple[Reader, Reader], version: int, session: str, read_committed: bool, size: int
) -> None:
    asked = PLAIN._replace(
        version=version, read_committed=read_committed, partition_bytes=size, leap=0
    )
    if session == "next":
        _same(readers, asked._replace(session="new"))
    requests, before = 0, -1
    while readers[0].reached > before:
        before = readers[0].reached
        _same(readers, asked._replace(session=session))
        requests += 1
    # The first request is remembered, and the last one finds nothing. The handler reads across the
    # end of a segment, and what has aborted transactions.
    assert requests > 3
    assert len(_hits) >= (1 if read_committed else requests - 2 - SEGMENTS)


def test_an_old_session_epoch_is_refused_after_the_fast_path(
    readers: tuple[Reader, Reader],
) -> None:
    for asked in (PLAIN._replace(session="new"), *[PLAIN._replace(session="next")] * 3):
        _same(readers, asked)
    assert _hits
    assert _same(readers, PLAIN._replace(session="wrong"))[0] != 0
    assert _same(readers, PLAIN._replace(session="next"))[0] == 0


def test_records_that_are_deleted_between_two_requests_are_not_read(
    readers: tuple[Reader, Reader],
) -> None:
    for _ in range(3):
        _same(readers, PLAIN)
    assert _hits
    offset = readers[0].reached + 1
    for each in readers:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name=TOPIC, partitions=[partition])
        answer = each.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2)
        assert answer.topics[0].partitions[0].error_code == 0
    refused = _same(readers, PLAIN)
    assert refused[-1][1] != 0


def test_a_topic_that_is_made_anew_is_not_read_by_its_old_id(
    readers: tuple[Reader, Reader],
) -> None:
    by_id = PLAIN._replace(version=13)
    for each in readers:
        each.reached = 0
        _remake(each)
        _fill(each)
    for _ in range(3):
        _same(readers, by_id)
    assert _hits
    old = readers[0].topic_id
    for each in readers:
        kept = each.topic_id
        _remake(each)
        each.topic_id = kept
    assert _same(readers, by_id)[-1][1] != 0
    for each in readers:
        each.look_up()
        each.reached = 0
        _fill(each)
    assert readers[0].topic_id != old
    assert _same(readers, by_id)[-1][1] == 0


def _remake(reader: Reader) -> None:
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=5000)
    reader.ask(delete, 6)
    gone = MetadataRequest(
        topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
    )
    until(lambda: reader.ask(gone, 12).topics[0].error_code)
    until(lambda: _made(reader))
    reader.look_up()


def _made(reader: Reader) -> bool:
    try:
        _create(reader)
    except AssertionError:
        return False
    return True
