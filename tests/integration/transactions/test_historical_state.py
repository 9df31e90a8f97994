"""State of transactions that other brokers lost or restored wrongly, replayed over restarts.

Each test names the report of its bug.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.records.record import Record, build_batch
from barnabas.testing import Broker
from tests.integration.transactions import on_disk
from tests.integration.transactions.metered import Figures
from tests.integration.transactions.on_disk import UNMARKED
from tests.support.brokers.process import BrokerProcess
from tests.support.transactor import (
    TV1,
    TV2,
    Protocol,
    Transactor,
    Wire,
    settled,
    until,
)

KEYS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
PROTOCOLS = pytest.mark.parametrize("protocol", [TV1, TV2], ids=["older", "newer"])
NONE = ErrorCode.NONE
ALL = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
DAY_MS = 86_400_000


@contextmanager
def running(data: Path, **keys: str) -> Iterator[Wire]:
    """Start a broker on these data; yield a connection. Keys have underscores for Kafka's dots."""
    dotted = {key.replace("_", "."): value for key, value in keys.items()}
    with Broker(KEYS | dotted, data_dir=data) as broker, Wire(broker.bootstrap_servers) as wire:
        yield wire


def mark(wire: Wire, x: Transactor, coordinator_epoch: int, epoch: int) -> ErrorCode:
    """Write an abort marker as a coordinator of this epoch does; return the error."""
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=x.producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=coordinator_epoch,
    )
    answer = wire.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    return ErrorCode.of(answer.markers[0].topics[0].partitions[0].error_code)


def silent_since(wire: Wire, ms: int) -> None:
    """Write the only record of a producer without transactions, `ms` old."""
    record = Record(0, time.time_ns() // 1_000_000 - ms, None, b"silent")
    batch = build_batch([record], producer_id=12_345, producer_epoch=0, base_sequence=0)
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
    assert wire.ask(request, 11).responses[0].partition_responses[0].error_code == 0


@PROTOCOLS
def test_kafka_19999_repeated_markers_after_a_crash_are_accepted(
    tmp_path: Path, protocol: Protocol
) -> None:
    """The markers survived, the COMPLETE record that the coordinator wrote after them did not."""
    with running(tmp_path) as wire:
        wire.create("t")
        x = Transactor(wire, "x", protocol)
        x.init()
        x.transact("t", b"first", sequence=0)
        settled(wire, ("t", 0))
        end = wire.end_offset("t", committed=False)
    on_disk.cut_last(tmp_path, "x")
    assert on_disk.transactions(tmp_path)["x"].state is TransactionState.PREPARE_COMMIT
    with running(tmp_path) as wire:
        x.wire = wire
        until(lambda: wire.end_offset("t", committed=False), lambda it: it == end + 1)
        settled(wire, ("t", 0))
        x.transact("t", b"second", sequence=1 if protocol is TV1 else 0)
        settled(wire, ("t", 0))
        assert wire.read("t") == ([b"first", b"second"], [])
    assert on_disk.transactions(tmp_path)["x"].state is TransactionState.COMPLETE_COMMIT


def test_kafka_9144_a_producer_of_old_records_keeps_its_coordinator_epoch(tmp_path: Path) -> None:
    """Its records are older than producer ids are kept, its marker is not."""
    with running(tmp_path) as wire:
        wire.create("t", retention_ms="-1")
        x = Transactor(wire, "x", TV1)
        x.behind_ms = 2 * DAY_MS
        x.init()
        x.transact("t", b"old", sequence=0)
        settled(wire, ("t", 0))
        silent_since(wire, 2 * DAY_MS)
        assert mark(wire, x, coordinator_epoch=7, epoch=x.epoch) is NONE
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    figures = Figures()
    often = {"producer_id_expiration_check_interval_ms": "50"}
    with running(tmp_path, **often, **figures.keys) as wire:
        # The producer without a marker has expired, the other has not.
        figures.wait_for("kafka_server_replicamanager_produceridcount", 1)
        assert mark(wire, x, 6, x.epoch) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert mark(wire, x, 7, x.epoch) is NONE


@PROTOCOLS
def test_kip_360_producer_whose_records_expired_continues(
    tmp_path: Path, protocol: Protocol
) -> None:
    with running(tmp_path) as wire:
        wire.create("t")
        x = Transactor(wire, "x", protocol)
        x.init()
        if protocol is TV1:
            assert x.add(("t", 0)) is NONE
        assert x.send("t", b"gone", sequence=0) == (NONE, 0)
        assert x.send("t", b"first", sequence=1) == (NONE, 1)
        place = DeleteRecordsPartition(partition_index=0, offset=1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[place])], timeout_ms=5000
        )
        assert wire.ask(request, 2).topics[0].partitions[0].error_code == 0
    with running(tmp_path) as wire:
        x.wire = wire
        assert x.send("t", b"second", sequence=2) == (NONE, 2)
        x.end()
        settled(wire, ("t", 0))
        assert wire.read("t", 1) == ([b"first", b"second"], [])


def test_redpanda_7043_aborted_records_stay_hidden_after_segments_are_deleted(
    tmp_path: Path,
) -> None:
    """Small segments, the first of which are deleted, and a restart; read by librdkafka."""
    kept = []
    with running(tmp_path) as wire:
        wire.create("t", segment_bytes="1048576")
        producers = [Transactor(wire, name, TV2) for name in ("x", "y")]
        for x in producers:
            x.init()
        for number in range(12):
            x = producers[number % 2]
            value = b"%d " % number + bytes(400_000)
            x.transact("t", value, sequence=0, committed=number % 3 == 0)
            if number >= 6 and number % 3 == 0:
                kept.append(number)
            settled(wire, ("t", 0))
        place = DeleteRecordsPartition(partition_index=0, offset=12)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[place])], timeout_ms=5000
        )
        assert wire.ask(request, 2).topics[0].partitions[0].error_code == 0
    for _ in range(2):
        with Broker(KEYS, data_dir=tmp_path) as broker:
            assert read_committed(broker.bootstrap_servers, 12, len(kept)) == kept
        (tmp_path / ".kafka_cleanshutdown").unlink()


def read_committed(servers: str, offset: int, count: int) -> list[int]:
    """Return the numbers that librdkafka reads from an offset to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("t", 0, offset)])
    numbers = []
    while True:
        record = consumer.poll(20)
        assert record is not None, numbers
        if record.error() is not None:
            break
        numbers.append(int(record.value().split()[0]))
    consumer.close()
    assert len(numbers) >= count
    return numbers


def test_kafka_9307_load_after_interrupted_ones_is_complete(tmp_path: Path) -> None:
    ids = 3000
    with BrokerProcess(tmp_path, program=UNMARKED, **KEYS) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            x = Transactor(wire, "x", TV1)
            x.init()
        broker.kill()
        names = [f"id-{number}" for number in range(ids)]
        copies = [partial(TransactionMetadata._replace, transactional_id=name) for name in names]
        on_disk.go_on(tmp_path / "data", "x", *copies)
        for pause in (0.0, 0.01, 0.03):
            broker.start()
            time.sleep(pause)
            broker.kill()
        broker.start()
        with Wire(broker.bootstrap_servers) as wire:
            told = until(lambda: wire.ask(ALL, 0), lambda answer: answer.error_code == 0)
            assert len(told.transaction_states) == ids + 1


def test_librdkafka_1_8_first_metadata_response_after_a_restart_has_every_topic(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path, **KEYS) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            for number in range(20):
                wire.create(f"t{number}")
        broker.kill()
        broker.launch()
        deadline = time.monotonic() + 20
        while True:
            # As soon as the broker accepts connections.
            try:
                socket.create_connection(("127.0.0.1", broker.port), 5).close()
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
        asked = [MetadataRequestTopic(name=f"t{number}") for number in range(20)]
        with Wire(broker.bootstrap_servers) as wire:
            answer = wire.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 8)
        assert [topic.error_code for topic in answer.topics] == [0] * 20
        assert {each.leader_id for topic in answer.topics for each in topic.partitions} == {0}
        broker.wait_until_serving()


@PROTOCOLS
def test_kafka_18019_producer_whose_transactional_id_expired_is_refused(
    tmp_path: Path, protocol: Protocol
) -> None:
    keys = {
        "transaction_max_timeout_ms": "100",
        "transactional_id_expiration_ms": "300",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "50",
    }
    with running(tmp_path, **keys) as wire:
        wire.create("t")
        instances = []
        for _ in range(2):
            x = Transactor(wire, "x", protocol, timeout_ms=100)
            x.init()
            instances.append(x)
        until(
            lambda: wire.ask(ALL, 0).transaction_states,
            lambda states: not states,
        )
        for x in instances:
            late = x.send("t", b"late", sequence=0).error if protocol is TV2 else x.add(("t", 0))
            assert late is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert wire.end_offset("t", committed=False) == 0


def test_kafka_8069_loading_expires_no_offset_or_transactional_id(tmp_path: Path) -> None:
    """A transactional id and a group's offset that were written in a transaction, long ago and
    now."""
    with running(tmp_path) as wire:
        wire.create("t")
        for name in ("old", "new"):
            x = Transactor(wire, name, TV2)
            x.init()
            assert x.commit_offset(name, "t", 5) is NONE
            x.end()
            until(lambda name=name: wire.committed(name, "t"), lambda it: it == (NONE, 5))
    eight_days_ago = int(time.time() * 1000) - 8 * DAY_MS
    on_disk.go_on(tmp_path, "old", lambda it: it._replace(updated_ms=eight_days_ago))
    often = {
        "transaction_remove_expired_transaction_cleanup_interval_ms": "20",
        "offsets_retention_check_interval_ms": "20",
    }
    with running(tmp_path, **often) as wire:
        known = until(
            lambda: wire.ask(ALL, 0).transaction_states,
            lambda states: len(states) == 1,
        )
        assert known[0].transactional_id == "new"
        for name in ("old", "new"):
            told = until(lambda name=name: wire.committed(name, "t"), lambda it: it[0] is NONE)
            assert told == (NONE, 5)
