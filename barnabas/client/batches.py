"""Fetch whole record batches of partitions; `Consumer` reads its records from them."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.cluster import FETCH, GENERAL, Cluster, check
from barnabas.client.offsets import LATEST
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.batch import BatchHeader, crc_matches, iter_headers, read_prefix
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.topic_partition import TopicPartition

_PREFIX_SIZE = 12
_ATTEMPTS = 5
"""The times that an empty answer is asked for again."""


class FetchSettings(NamedTuple):
    """The settings of a consumer; sizes in bytes, `max_wait` in s."""

    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    max_wait: float = 0.5
    read_committed: bool = True
    offset_reset: int | None = LATEST
    """The new position if a position is out of range: EARLIEST or LATEST; None raises an error."""


class FetchedBatches(NamedTuple):
    """The batches in the Fetch response of one partition, whose records are not decoded yet."""

    data: memoryview
    """Whole batches, markers and aborted ones included."""
    visible: list[tuple[int, BatchHeader]]
    """Position in `data` and header of each data batch, whose CRC matches.

    With read_committed, batches of aborted transactions are left out. The first batch may begin
    before the offset that was asked for.
    """
    next_offset: int
    """The offset behind the last batch; the requested offset if there is no batch."""
    last_stable_offset: int
    high_watermark: int
    log_start_offset: int


async def fetch_batches(
    cluster: Cluster, partition: TopicPartition, offset: int, settings: FetchSettings
) -> FetchedBatches:
    """Return the batches from `offset` on that arrive within `settings.max_wait`.

    A batch that is larger than `partition_max_bytes` is returned alone and whole. Retriable errors
    are retried until the timeout of the cluster. Raises KafkaError: OFFSET_OUT_OF_RANGE at once
    (`settings.offset_reset` is ignored), CORRUPT_MESSAGE if no leader has an intact batch.
    """

    async def attempt() -> FetchedBatches:
        leader = await cluster.leader(*partition)
        for found, row in await fetch_rows(cluster, leader, {partition: offset}, settings):
            if found == partition:
                check(row.error_code, f"offset {offset} of {partition[0]}-{partition[1]}")
                return read_batches(row, offset, read_committed=settings.read_committed)
        text = f"the broker's answer lacks {partition[0]}-{partition[1]}"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)

    return await cluster.retrying(attempt)


async def fetch_next(
    cluster: Cluster, partition: TopicPartition, offset: int, settings: FetchSettings
) -> FetchedBatches:
    """Return the next batches from `offset` on, at least one: there must be some.

    Raises KafkaError as `fetch_batches` does, and REQUEST_TIMED_OUT if none arrives.
    """
    for _ in range(_ATTEMPTS):
        fetched = await fetch_batches(cluster, partition, offset, settings)
        if fetched.data:
            return fetched
        # A broker that throttles the client sends no records.
    text = f"{partition[0]}-{partition[1]} has no records at {offset}, below its end"
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)


async def fetch_rows(
    cluster: Cluster, leader: int, offsets: Mapping[TopicPartition, int], settings: FetchSettings
) -> list[tuple[TopicPartition, fetch.PartitionData]]:
    """Send one Fetch request to the leader of all partitions in `offsets`; return their rows."""
    purpose = FETCH if settings.max_wait else GENERAL
    connection = await cluster.connection_to(leader, purpose=purpose)
    version = connection.version_for(fetch.API)
    by_id = version >= 13
    names: dict[bytes, str] = {}
    topics: dict[str, fetch.FetchTopic] = {}
    for (topic, partition), offset in offsets.items():
        topic_id = (await cluster.topic(topic)).topic_id
        names[topic_id] = topic
        if topic not in topics:
            name = {"topic_id": topic_id} if by_id else {"topic": topic}
            topics[topic] = fetch.FetchTopic(**name, partitions=[])
        topics[topic].partitions.append(
            fetch.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=settings.partition_max_bytes,
            )
        )
    request = fetch.FetchRequest(
        max_wait_ms=int(settings.max_wait * 1000),
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=int(settings.read_committed),
        topics=list(topics.values()),
    )
    timeout = cluster.request_timeout + settings.max_wait
    response = await connection.request(fetch.API, request, version=version, timeout=timeout)
    check(response.error_code)
    rows = [
        (
            TopicPartition(
                names.get(each.topic_id, "") if by_id else each.topic, row.partition_index
            ),
            row,
        )
        for each in response.responses
        for row in each.partitions
    ]
    return [(partition, row) for partition, row in rows if partition in offsets]


def read_batches(row: fetch.PartitionData, offset: int, *, read_committed: bool) -> FetchedBatches:
    """Return the batches in the row of a partition without an error, fetched from `offset` on.

    Raises CORRUPT_MESSAGE for a batch that does not match its CRC, and ProtocolError for bytes
    that are no batch.
    """
    records = row.records if isinstance(row.records, bytes | memoryview) else b""
    data = whole_batches(records)
    aborted = deque(sorted((t.first_offset, t.producer_id) for t in row.aborted_transactions or ()))
    ignored: set[int] = set()
    visible: list[tuple[int, BatchHeader]] = []
    next_offset = offset
    for pos, header in iter_headers(data):
        if not crc_matches(data, pos, header):
            text = f"the batch at offset {header.base_offset} does not match its CRC"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
        last = header.last_offset
        if last >= next_offset:
            next_offset = last + 1
        while aborted and aborted[0][0] <= last:
            ignored.add(aborted.popleft()[1])
        if header.is_control:
            marker = read_marker(data, pos, header)
            if marker is not None and marker.type is ControlType.ABORT:
                ignored.discard(header.producer_id)
        elif not (
            ignored and read_committed and header.is_transactional and header.producer_id in ignored
        ):
            visible.append((pos, header))
    return FetchedBatches(
        data,
        visible,
        next_offset,
        row.last_stable_offset,
        row.high_watermark,
        row.log_start_offset,
    )


def whole_batches(data: bytes | memoryview) -> memoryview:
    """Return `data` without an incomplete batch at its end (a size limit cuts batches off)."""
    view = memoryview(data)
    pos = 0
    while len(view) - pos >= _PREFIX_SIZE:
        _, size = read_prefix(view, pos)
        if not _PREFIX_SIZE < size <= len(view) - pos:
            break
        pos += size
    return view[:pos]
