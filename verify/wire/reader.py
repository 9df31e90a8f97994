"""A reader of its own: it filters aborted data by itself, and tells all that it was told."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas.client.cluster import Cluster, check
from barnabas.client.consumer import whole_batches
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.batch import crc_matches, iter_headers
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.records.record import iter_records
from barnabas.verify.history import COMMITTED, OK, UNCOMMITTED, History, Place
from barnabas.verify.wire.batches import unpack

_HIGHEST_WITH_NAMES: Final = 12


class Found(NamedTuple):
    """A record, and where it was."""

    at: Place
    offset: int
    value: str


class Reader:
    """Reads partitions from given offsets on."""

    def __init__(
        self, history: History, cluster: Cluster, name: str, *, committed: bool, final: bool = False
    ) -> None:
        self._history = history
        self._cluster = cluster
        self.name = name
        self._committed = committed
        self._final = final
        self._assignment = 0
        self.positions: dict[Place, int] = {}
        self._last: dict[Place, tuple[int, ...]] = {}

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Begins a new assignment."""
        self._assignment += 1
        self.positions = dict(positions)
        self._last.clear()

    async def poll(self, *, max_wait: float = 0.1, txn: str | None = None) -> list[Found]:
        """One Fetch to each leader; `txn` is the transaction that reads, if one does."""
        by_leader: dict[int, list[Place]] = defaultdict(list)

        async def spread() -> None:
            by_leader.clear()
            for at in self.positions:
                by_leader[await self._cluster.leader(*at)].append(at)

        await self._cluster.retrying(spread)
        found: list[Found] = []
        for leader, places in by_leader.items():
            rows = await self._cluster.retrying(
                lambda leader=leader, places=places: self._fetch(leader, places, max_wait)  # type: ignore[misc]
            )
            for topic, row in rows:
                found += self._take((topic, row.partition_index), row, txn)
        return found

    def _epoch(self, at: Place) -> int:
        for row in self._cluster.topics[at[0]].description.partitions:
            if row.partition_index == at[1]:
                return int(row.leader_epoch)
        return -1

    async def _fetch(
        self, leader: int, places: list[Place], max_wait: float
    ) -> list[tuple[str, fetch.PartitionData]]:
        connection = await self._cluster.connection_to(leader)
        topics: dict[str, fetch.FetchTopic] = {}
        for at in places:
            await self._cluster.topic(at[0])
            topic = topics.setdefault(at[0], fetch.FetchTopic(topic=at[0], partitions=[]))
            topic.partitions.append(
                fetch.FetchPartition(
                    partition=at[1],
                    current_leader_epoch=self._epoch(at),
                    fetch_offset=self.positions[at],
                    partition_max_bytes=1024 * 1024,
                )
            )
        request = fetch.FetchRequest(
            max_wait_ms=int(max_wait * 1000),
            min_bytes=1,
            max_bytes=16 * 1024 * 1024,
            isolation_level=int(self._committed),
            topics=list(topics.values()),
        )
        response = await connection.request(
            fetch.API,
            request,
            version=min(connection.version_for(fetch.API), _HIGHEST_WITH_NAMES),
            timeout=self._cluster.timeout + max_wait,
        )
        check(response.error_code)
        rows = [(topic.topic, row) for topic in response.responses for row in topic.partitions]
        for topic_name, row in rows:
            check(row.error_code, f"{topic_name}-{row.partition_index}")
        return rows

    def _take(self, at: Place, row: fetch.PartitionData, txn: str | None) -> list[Found]:
        start = self.positions[at]
        data = row.records if isinstance(row.records, bytes | memoryview) else b""
        records: list[list[Any]] = []
        end = start
        for following, batch in self._batches(row, whole_batches(data)):
            end = max(end, following)
            records += [[offset, value] for offset, value in batch if offset >= start]
        self.positions[at] = end
        seen = (end, row.high_watermark, row.last_stable_offset)
        if seen != self._last.get(at):
            self._last[at] = seen
            self._history.note(self.name, "read", OK, self._said(at, row, start, records, txn))
        return [Found(at, int(offset), str(value)) for offset, value in records]

    def _said(
        self, at: Place, row: fetch.PartitionData, start: int, records: list[Any], txn: str | None
    ) -> dict[str, Any]:
        stable = row.last_stable_offset
        return {
            "reader": self.name,
            "isolation": COMMITTED if self._committed else UNCOMMITTED,
            "assignment": self._assignment,
            "at": at,
            "from": start,
            "to": self.positions[at],
            "records": records,
            "hw": row.high_watermark,
            "lso": stable if stable >= 0 else row.high_watermark,
            "epoch": self._epoch(at),
            "txn": txn,
            "final": self._final,
        }

    def _batches(
        self, row: fetch.PartitionData, data: memoryview
    ) -> Iterator[tuple[int, list[tuple[int, str]]]]:
        """The offset behind each batch, and what is visible of it."""
        aborted = deque(
            sorted((t.first_offset, t.producer_id) for t in row.aborted_transactions or ())
        )
        hidden: set[int] = set()
        for pos, header in iter_headers(data):
            if not crc_matches(data, pos, header):
                text = f"the batch at offset {header.base_offset} does not match its CRC"
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
            while aborted and aborted[0][0] <= header.last_offset:
                hidden.add(aborted.popleft()[1])
            records: list[tuple[int, str]] = []
            if header.is_control:
                marker = read_marker(data, pos, header)
                if marker is not None and marker.type is ControlType.ABORT:
                    hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                records = [
                    (record.offset, unpack(record.value))
                    for record in iter_records(data, pos, header)
                ]
            yield header.next_offset, records
