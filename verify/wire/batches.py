"""Values on the wire: each can be told from every other, and from one that was damaged."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster, check
from barnabas.client.connection import Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce
from barnabas.protocol.records.record import Record, build_batch
from barnabas.verify.history import Place

OLDER_PRODUCE: Final = 11
NEWER_PRODUCE: Final = 12
"""From here on the leader adds partitions to the transaction (KIP-890 part 2)."""

_PADDING: Final = b"abcdefghijklmnopqrstuvwxyz" * 40


class Sent(NamedTuple):
    """A record to be sent. `extra` is what its value was made from, or its amount."""

    value: str
    key: str | None = None
    extra: str | int | None = None


class Identity(NamedTuple):
    """Producer id and epoch."""

    producer_id: int
    epoch: int


def pack(value: str, size: int) -> bytes:
    """A value of at least `size` bytes, with a filling that follows from it."""
    head = value.encode() + b"|"
    start = sum(head) % 26
    return head + _PADDING[start : start + max(0, size - len(head))]


def unpack(data: bytes | None) -> str:
    """The value that was packed; something that nobody has sent, where it was damaged."""
    if data is None:
        return "null"
    head, bar, _ = data.partition(b"|")
    value = head.decode(errors="replace")
    if not bar or pack(value, len(data)) != data:
        return "damaged " + data[:60].hex()
    return value


def batch(
    records: Sequence[Sent],
    identity: Identity,
    sequence: int,
    *,
    transactional: bool,
    now_ms: int,
    size: int,
) -> bytes:
    """The batch that holds them."""
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
    at: Place,
    data: bytes,
    *,
    transactional_id: str | None,
    newer: bool,
    timeout: float,
) -> int:
    """Sends one batch once; where it went. Raises KafkaError and what the connection raises."""
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


async def leader_connection(cluster: Cluster, at: Place) -> Connection:
    """The connection to who leads a partition now."""
    return await cluster.connection_to(await cluster.leader(*at))
