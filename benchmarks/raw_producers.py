"""Requests of idempotent and transactional producers, for the raw client."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import crc32c

from barnabas.protocol.codec import decode
from barnabas.protocol.header import decode_response_header
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    produce,
)
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.record import Record, build_batch
from benchmarks import raw

PRODUCE, ADD, END = 11, 3, 3
"""Versions of Produce, AddPartitionsToTxn and EndTxn."""
_READY_WITHIN_S = 180.0
_RETRY_S = 0.01
GROUP, TRANSACTION = 0, 1
"""The kinds of coordinators."""
_CORRELATION_AT = 8
_CRC_AT, _CHECKED_AT, _SEQUENCE_AT = 17, 21, 53
"""Positions in a batch: its CRC, the first byte that the CRC covers, and the base sequence."""


class Producer(NamedTuple):
    """The transactional id, the producer id and the epoch of batches."""

    transactional_id: str | None
    id: int = -1
    epoch: int = -1


class Batch(NamedTuple):
    """A Produce of one batch for partition 0, and the batch's position in it."""

    frame: bytes
    at: int
    size: int
    records: int


def batch_of(topic: str, producer: Producer, *, records: int, record_bytes: int) -> Batch:
    """Return a Produce of the producer's first batch, acks=all."""
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch(
        [Record(at, now_ms, None, bytes(record_bytes), ()) for at in range(records)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=-1 if producer.id < 0 else 0,
        transactional=producer.transactional_id is not None,
    )
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        transactional_id=producer.transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    frame = raw.frame(produce.API, PRODUCE, request)
    return Batch(frame, frame.index(batch), len(batch), records)


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


def coordinator_port(client: raw.Client, key: str, kind: int = TRANSACTION) -> int:
    """Return the port of the coordinator of a transactional id or group, as soon as there is
    one."""
    asked = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)

    def found() -> int:
        answer = client.call(find_coordinator.API, 4, asked).coordinators[0]
        return 0 if answer.error_code else int(answer.port)

    return int(until(found))


def initialised(client: raw.Client, transactional_id: str | None) -> Producer:
    """Return a new producer; with a transactional id the client is one of its coordinator's."""
    if transactional_id is not None:
        coordinator_port(client, transactional_id)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=900_000
    )

    def given() -> Any:
        answer = client.call(init_producer_id.API, 4, request)
        return None if answer.error_code else answer

    answer = until(given)
    return Producer(transactional_id, answer.producer_id, answer.producer_epoch)


def added(topic: str, producer: Producer) -> bytes:
    """Return an AddPartitionsToTxn of partition 0."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id or "",
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    return raw.frame(add_partitions_to_txn.API, ADD, request)


def ended(producer: Producer) -> bytes:
    """Return an EndTxn that commits."""
    request = EndTxnRequest(
        transactional_id=producer.transactional_id or "",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    return raw.frame(end_txn.API, END, request)


def error_of(request: bytes | bytearray, answer: bytes) -> int:
    """Return the error in the answer to a Produce, an AddPartitionsToTxn or an EndTxn."""
    key = int.from_bytes(request[4:6], "big")
    module: Any = {each.API.key: each for each in (produce, add_partitions_to_txn, end_txn)}[key]
    version = int.from_bytes(request[6:8], "big")
    _, body = decode_response_header(key, version, answer)
    response = decode(module.API.response, version, answer, body)
    if module is produce:
        return int(response.responses[0].partition_responses[0].error_code)
    if module is end_txn:
        return int(response.error_code)
    (topic,) = response.results_by_topic_v3_and_below
    return int(topic.results_by_partition[0].partition_error_code)


def accepted(client: raw.Client, request: bytes) -> None:
    """Send a request until its answer has no error."""
    until(lambda: not error_of(request, client.exchange(request)))


def until(ready: Callable[[], Any]) -> Any:
    """Return what the function returns as soon as it is true. Raises TimeoutError."""
    end = time.monotonic() + _READY_WITHIN_S
    while not (found := ready()):
        if time.monotonic() > end:
            raise TimeoutError("the broker does not accept a request")
        time.sleep(_RETRY_S)
    return found
