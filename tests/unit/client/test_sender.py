"""The sender of a producer whose session cannot get its identity."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.connection import BrokerUnreachable
from barnabas.client.producing.partition_queue import (
    EncodedBatch,
    Limits,
    PartitionQueue,
    ProducerIdAndEpoch,
)
from barnabas.client.producing.sender import Sender, _Answer
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.records.compression import Compression


class Anonymous:
    """A session without an identity: each request for one fails."""

    transactional_id = None
    adds_partitions_implicitly = False
    error = None

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.requests = 0

    def identity(self) -> ProducerIdAndEpoch | None:
        return None

    async def request_identity(self) -> None:
        self.requests += 1
        raise self.failure

    def may_send(self, queue: PartitionQueue) -> bool:  # noqa: ARG002
        return True

    def on_failure(self, error: Exception) -> Exception:
        return error


@pytest.mark.parametrize(
    "failure",
    [
        KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        BrokerUnreachable("gone"),
        ProtocolError("a response without a request"),
        OSError("no files left"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_flush_ends_if_the_identity_cannot_be_had(failure: Exception) -> None:
    """It waited for ever after an error that is no KafkaError, and asked again without records."""
    session = Anonymous(failure)
    limits = Limits(1000, 0.0, 120.0, idempotent=True, transactional=False)
    cluster: Any = SimpleNamespace(topics={}, nodes={})
    sender = Sender(cluster, session, limits, acks=-1, compression=Compression.NONE)
    delivered = sender.append("t", 0, None, b"v", 0, ())
    async with asyncio.timeout(5):
        await sender.flush()
    assert delivered.exception() is failure
    for _ in range(10):
        await asyncio.sleep(0)
    assert session.requests == 1
    await sender.abandon()


async def test_buffer_holds_the_bytes_of_unfinished_records_only() -> None:
    """Batches in flight count too, and those that are dropped no more."""
    cluster: Any = SimpleNamespace(topics={}, nodes={})
    session = Anonymous(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    limits = Limits(400, 0.0, 120.0, idempotent=True, transactional=False)
    sender = Sender(cluster, session, limits, acks=-1, compression=Compression.NONE)
    futures = [sender.append("t", 0, None, b"v" * 100, 0, ()) for _ in range(5)]
    futures.append(sender.append_batch("t", 1, EncodedBatch(bytearray(90), 1)))
    (queue, _) = sender._busy
    assert [each.count for each in queue.pending] == [3, 2]
    assert sender.buffered == sum(each.size for each in queue.pending) + 90
    queue.set_producer(ProducerIdAndEpoch(1, 0))
    batch = queue.next_batch(0.0)
    assert batch is not None
    assert sender.buffered == sum(each.size for each in (batch, *queue.pending)) + 90
    sender._complete(queue, batch, _Answer(ErrorCode.NONE, None, 7))
    assert [future.result().offset for future in futures[:3]] == [7, 8, 9]
    assert sender.buffered == sum(each.size for each in queue.pending) + 90
    sender.drop(None)
    assert all(future.cancelled() for future in futures[3:])
    assert sender.buffered == 0
    await sender.abandon()


async def test_future_that_the_application_has_cancelled_holds_back_no_other() -> None:
    cluster: Any = SimpleNamespace(topics={}, nodes={})
    session = Anonymous(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    limits = Limits(400, 0.0, 120.0, idempotent=True, transactional=False)
    sender = Sender(cluster, session, limits, acks=-1, compression=Compression.NONE)
    futures = [sender.append("t", 0, None, b"v", 0, ()) for _ in range(3)]
    futures[1].cancel()
    (queue,) = sender._busy
    queue.set_producer(ProducerIdAndEpoch(1, 0))
    batch = queue.next_batch(0.0, flushing=True)
    assert batch is not None
    sender._complete(queue, batch, _Answer(ErrorCode.NONE, None, 7))
    assert [future.result().offset for future in (futures[0], futures[2])] == [7, 9]
    assert sender.buffered == 0
    await sender.abandon()
