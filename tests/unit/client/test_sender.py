"""The sender of a producer whose session cannot get its identity."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.connection import BrokerUnreachable
from barnabas.client.producing.partition_queue import (
    Limits,
    PartitionQueue,
    PendingRecord,
    ProducerIdAndEpoch,
)
from barnabas.client.producing.sender import Sender
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
    loop = asyncio.get_running_loop()
    delivered = loop.create_future()
    sender.append("t", 0, PendingRecord(0, None, b"v", (), 10, loop.time(), delivered))
    async with asyncio.timeout(5):
        await sender.flush()
    assert delivered.exception() is failure
    for _ in range(10):
        await asyncio.sleep(0)
    assert session.requests == 1
    await sender.abandon()
