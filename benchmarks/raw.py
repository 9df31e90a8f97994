"""A client that costs nearly nothing: a plain blocking socket and prepared request bytes.

It measures the broker: requests are encoded before the clock starts, and of a response it reads
only the size, and the error code if an error would go unnoticed.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import crc32c

from barnabas.protocol.messages import (
    add_partitions_to_txn,
    delete_topics,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    metadata,
    produce,
)
from barnabas.protocol.records.record import Record, build_batch
from tests.support.frames import Client, Talk, converse, frame, message, response

__all__ = ["Client", "Talk", "converse", "frame", "message", "response"]

PRODUCE, FETCH, ADD, END = 11, 12, 3, 3
"""The versions of Produce, Fetch, AddPartitionsToTxn and EndTxn. They name topics by name, so that
a request can be built once."""
GROUP, TRANSACTION = 0, 1
"""The kinds of coordinators."""
_METADATA, _DELETE, _INIT = 9, 5, 4
_READY_WITHIN_S = 180.0
_SOON_S = 0.002
_CORRELATION_AT = 8
_CRC_AT, _CHECKED_AT, _SEQUENCE_AT = 17, 21, 53
"""Positions in a batch: its CRC, the first byte that the CRC covers, and the base sequence."""


def until(ready: Callable[[], Any], every_s: float = 0.01) -> Any:
    """Return the first true result of the function. Raises TimeoutError."""
    end = time.monotonic() + _READY_WITHIN_S
    while not (found := ready()):
        if time.monotonic() > end:
            raise TimeoutError("the broker does not accept a request")
        time.sleep(every_s)
    return found


# -- topics and coordinators -----------------------------------------------------------------------


def connect(port: int) -> Client:
    """Connect to a broker that is about to start. Raises TimeoutError if it does not."""

    def connected() -> Client | None:
        try:
            return Client(port)
        except ConnectionRefusedError:
            return None

    client: Client = until(connected, _SOON_S)
    return client


def create_topic(client: Client, topic: str) -> None:
    """Create a topic of one partition; return when it has a leader."""
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}

    def led() -> bool:
        found = client.call(metadata.API, _METADATA, asked).topics[0]
        return bool(
            not found.error_code and found.partitions and not found.partitions[0].error_code
        )

    until(led, _SOON_S)


def leader_port(client: Client, topic: str) -> int:
    """Return the port of the broker that leads partition 0."""
    found = client.call(metadata.API, _METADATA, {"topics": [{"name": topic}]})
    leader = found.topics[0].partitions[0].leader_id
    return next(int(node.port) for node in found.brokers if node.node_id == leader)


def delete_topic(client: Client, topic: str) -> None:
    """Free the disk for the next measurement."""
    client.call(delete_topics.API, _DELETE, {"topic_names": [topic], "timeout_ms": 30_000})


def coordinator_ports(
    client: Client, keys: Iterable[str], kind: int = TRANSACTION
) -> dict[str, int]:
    """Return the ports of the coordinators of transactional ids or groups, as soon as all have
    one."""
    asked = {"coordinator_keys": [*keys], "key_type": kind}

    def found() -> dict[str, int] | None:
        coordinators = client.call(find_coordinator.API, 4, asked).coordinators
        if any(each.error_code for each in coordinators):
            return None
        return {each.key: each.port for each in coordinators}

    ports: dict[str, int] = until(found)
    return ports


# -- producers -------------------------------------------------------------------------------------


class Producer(NamedTuple):
    """The transactional id, the producer id and the epoch of batches."""

    transactional_id: str | None
    id: int = -1
    epoch: int = -1


PLAIN = Producer(None)


class Batch(NamedTuple):
    """A Produce of one batch, and the batch's position in it."""

    frame: bytes
    at: int
    size: int
    records: int


def init_request(transactional_id: str | None) -> bytes:
    """Return an InitProducerId."""
    request = {"transactional_id": transactional_id, "transaction_timeout_ms": 900_000}
    return frame(init_producer_id.API, _INIT, request)


def initialised(client: Client, transactional_id: str | None) -> Producer:
    """Return a new producer; with a transactional id the client is one of its coordinator's."""
    if transactional_id is not None:
        coordinator_ports(client, [transactional_id])
    request = init_request(transactional_id)

    def given() -> Any:
        answer = response(init_producer_id.API, _INIT, client.exchange(request))
        return None if answer.error_code else answer

    answer = until(given)
    return Producer(transactional_id, answer.producer_id, answer.producer_epoch)


def batch_of(
    topic: str, producer: Producer, *, records: int, record_bytes: int, partition: int = 0
) -> Batch:
    """Return a Produce of the producer's first batch, acks=all."""
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch(
        [Record(at, now_ms, None, bytes(record_bytes), ()) for at in range(records)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=-1 if producer.id < 0 else 0,
        transactional=producer.transactional_id is not None,
    )
    frame = _produce(topic, batch, producer.transactional_id, partition)
    return Batch(frame, frame.index(batch), len(batch), records)


def produce_request(topic: str, *, records: int, record_bytes: int, partition: int = 0) -> bytes:
    """Return a Produce with one batch, acks=all."""
    size = {"records": records, "record_bytes": record_bytes}
    return batch_of(topic, PLAIN, **size, partition=partition).frame


def keyed_request(topic: str, keys: Iterable[int], value: bytes, *, partition: int) -> bytes:
    """Return a Produce with one batch that has a record for each key."""
    now_ms = time.time_ns() // 1_000_000
    records = [Record(at, now_ms, b"%d" % key, value, ()) for at, key in enumerate(keys)]
    return _produce(topic, build_batch(records), partition=partition)


def _produce(
    topic: str, batch: bytes, transactional_id: str | None = None, partition: int = 0
) -> bytes:
    request = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }
    return frame(produce.API, PRODUCE, request)


def successors(first: Batch, producer: Producer, count: int) -> Iterator[bytearray]:
    """Return `count` frames behind the first one, each with its correlation id and sequence.

    They are the same buffer, which changes with each step. What takes time is done before the
    first one is returned.
    """
    frame = bytearray(first.frame)
    ordered = producer.id >= 0
    sequences = [first.records * number if ordered else -1 for number in range(1, count + 1)]
    crcs = [_crc(frame, first, sequence) for sequence in sequences] if ordered else [None] * count
    return _filled(frame, first.at, sequences, crcs)


def _crc(frame: bytearray, batch: Batch, sequence: int) -> int:
    _put(frame, batch.at + _SEQUENCE_AT, sequence)
    with memoryview(frame) as view:
        crc: int = crc32c.crc32c(view[batch.at + _CHECKED_AT : batch.at + batch.size])
    return crc


def _filled(
    frame: bytearray, at: int, sequences: list[int], crcs: list[int] | list[None]
) -> Iterator[bytearray]:
    for number, (sequence, crc) in enumerate(zip(sequences, crcs, strict=True), 2):
        _put(frame, _CORRELATION_AT, number)
        if crc is not None:
            _put(frame, at + _CRC_AT, crc)
            _put(frame, at + _SEQUENCE_AT, sequence)
        yield frame


def _put(frame: bytearray, at: int, value: int) -> None:
    frame[at : at + 4] = value.to_bytes(4, "big")


def added(topic: str, producer: Producer) -> bytes:
    """Return an AddPartitionsToTxn of partition 0."""
    request = {
        "v3_and_below_transactional_id": producer.transactional_id or "",
        "v3_and_below_producer_id": producer.id,
        "v3_and_below_producer_epoch": producer.epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
    }
    return frame(add_partitions_to_txn.API, ADD, request)


def ended(producer: Producer) -> bytes:
    """Return an EndTxn that commits."""
    request = {
        "transactional_id": producer.transactional_id or "",
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "committed": True,
    }
    return frame(end_txn.API, END, request)


def fetch_request(topic: str, *, offset: int, max_bytes: int) -> bytes:
    """Return a Fetch from partition 0 that does not wait, without a session."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    request = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 64 * 1024 * 1024,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }
    return frame(fetch.API, FETCH, request)


def error_of(request: bytes | bytearray, answer: bytes) -> int:
    """Return the error in the answer to a Produce, an AddPartitionsToTxn or an EndTxn."""
    key, version = (int.from_bytes(request[at : at + 2], "big") for at in (4, 6))
    module: Any = {each.API.key: each for each in (produce, add_partitions_to_txn, end_txn)}[key]
    found = response(module.API, version, answer)
    if module is produce:
        return int(found.responses[0].partition_responses[0].error_code)
    if module is end_txn:
        return int(found.error_code)
    (topic,) = found.results_by_topic_v3_and_below
    return int(topic.results_by_partition[0].partition_error_code)


def accepted(client: Client, request: bytes) -> None:
    """Send a request until its answer has no error: a leader may not know of its election yet."""
    until(lambda: not error_of(request, client.exchange(request)), _SOON_S)
