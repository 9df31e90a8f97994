"""The batches of the load; each value is unique, and a damaged value is recognised."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster, check
from barnabas.client.connection import Connection
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce
from barnabas.protocol.records.record import Record, build_batch
from barnabas.verify.history import Partition

OLDER_PRODUCE: Final = 11
NEWER_PRODUCE: Final = 12
"""From this version on the leader adds partitions to the transaction (KIP-890 part 2)."""

_PADDING: Final = b"abcdefghijklmnopqrstuvwxyz" * 40


class Sent(NamedTuple):
    """A record to be sent; `extra` is the value of its input, or its amount."""

    value: str
    key: str | None = None
    extra: str | int | None = None


def pack(value: str, size: int) -> bytes:
    """Return a value of at least `size` bytes, with a padding that is derived from it."""
    head = value.encode() + b"|"
    start = sum(head) % 26
    return head + _PADDING[start : start + max(0, size - len(head))]


def unpack(data: bytes | None) -> str:
    """Return the packed value; for damaged data a text that no producer has sent."""
    if data is None:
        return "null"
    head, bar, _ = data.partition(b"|")
    value = head.decode(errors="replace")
    if not bar or pack(value, len(data)) != data:
        return "damaged " + data[:60].hex()
    return value


def batch(
    records: Sequence[Sent],
    identity: ProducerIdAndEpoch,
    sequence: int,
    *,
    transactional: bool,
    now_ms: int,
    size: int,
) -> bytes:
    """Return the encoded batch of the records."""
    return build_batch(
        [
            Record(i, now_ms, sent.key.encode() if sent.key else None, pack(sent.value, size), ())
            for i, sent in enumerate(records)
        ],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


async def send(
    connection: Connection,
    at: Partition,
    data: bytes,
    *,
    transactional_id: str | None,
    newer: bool,
    timeout: float,
) -> int:
    """Send one batch once and return its base offset.

    Raises KafkaError and the errors of the connection.
    """
    highest = NEWER_PRODUCE if newer else OLDER_PRODUCE
    request = produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=int(timeout * 1000),
        topic_data=[
            produce.TopicProduceData(
                name=at[0],
                partition_data=[produce.PartitionProduceData(index=at[1], records=data)],
            )
        ],
    )
    response = await connection.request(
        produce.API,
        request,
        version=min(connection.version_for(produce.API), highest),
        timeout=timeout + 5.0,
    )
    row = response.responses[0].partition_responses[0]
    if row.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        check(row.error_code, row.error_message or f"{at[0]}-{at[1]}")
    return int(row.base_offset)


async def leader_connection(cluster: Cluster, at: Partition) -> Connection:
    """Return the connection to the current leader of a partition."""
    return await cluster.connection_to(await cluster.leader(*at))
