"""A reader that filters aborted records itself and writes every response to the history."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.batch import crc_matches, iter_headers
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.records.record import iter_fields
from barnabas.verify.history import COMMITTED, OK, UNCOMMITTED, History, Partition
from barnabas.verify.wire.batches import unpack
from barnabas.verify.wire.fetching import Fetched, fetch_from, leader_epoch

REPEAT: Final = 0.2
"""Seconds after which a read without news is written to the history as well."""


class ReadRecord(NamedTuple):
    """A record with its partition and offset."""

    at: Partition
    offset: int
    value: str


class Reader:
    """A reader of partitions from given offsets on."""

    def __init__(
        self, history: History, cluster: Cluster, name: str, *, committed: bool, final: bool = False
    ) -> None:
        self._history = history
        self._cluster = cluster
        self.name = name
        self._committed = committed
        self._final = final
        self._assignment = 0
        self.positions: dict[Partition, int] = {}
        self._last: dict[Partition, tuple[int, ...]] = {}
        self._noted: dict[Partition, float] = {}

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Start a new assignment."""
        self._assignment += 1
        self.positions = dict(positions)
        self._last.clear()

    async def poll(self, *, max_wait: float = 0.1, txn: str | None = None) -> list[ReadRecord]:
        """Send one Fetch to each leader; `txn` is the transaction that reads, if any."""
        found: list[ReadRecord] = []
        left = set(self.positions)

        async def ask() -> None:
            for leader, epochs in (await self._led(left)).items():
                asked = self._history.now()
                for each in await self._fetch(leader, epochs, max_wait):
                    found.extend(self._take(each, asked, txn=txn))
                left.difference_update(epochs)

        await self._cluster.retrying(ask)
        return found

    async def _led(self, partitions: Iterable[Partition]) -> dict[int, dict[Partition, int]]:
        """Return by leader the partitions and their leader epochs.

        The epochs go into the Fetch, since a broker that is a follower by then answers as well.
        """
        found: dict[int, dict[Partition, int]] = defaultdict(dict)
        for at in sorted(partitions):
            leader = await self._cluster.leader(*at)
            found[leader][at] = leader_epoch(self._cluster, at)
        return found

    async def poll_from(self, node: int, *, max_wait: float = 0.1) -> list[ReadRecord]:
        """Send one Fetch to a broker with a replica of every partition, leader or not; no retry.

        Raises KafkaError if it has no replica or lags; BrokerUnreachable; TimeoutError.
        """
        asked = self._history.now()
        fetched = await fetch_from(
            self._cluster, node, self.positions, committed=self._committed, max_wait=max_wait
        )
        return [record for each in fetched for record in self._take(each, asked, node=node)]

    async def _fetch(
        self, leader: int, epochs: Mapping[Partition, int], max_wait: float
    ) -> list[Fetched]:
        return await fetch_from(
            self._cluster,
            leader,
            {at: self.positions[at] for at in epochs},
            epochs=epochs,
            committed=self._committed,
            max_wait=max_wait,
        )

    def _take(
        self, fetched: Fetched, asked: float, *, txn: str | None = None, node: int | None = None
    ) -> list[ReadRecord]:
        at, row = fetched.at, fetched.row
        start = self.positions[at]
        records: list[list[Any]] = []
        end = start
        for following, batch in self._batches(row, fetched.batches):
            end = max(end, following)
            records += [[offset, value] for offset, value in batch if offset >= start]
        self.positions[at] = end
        seen = (end, row.high_watermark, row.last_stable_offset)
        if seen != self._last.get(at) or asked - self._noted[at] > REPEAT:
            self._last[at], self._noted[at] = seen, asked
            about = {"txn": txn, "node": node, "asked": asked}
            self._history.note(
                self.name, "read", OK, {**self._history_value(fetched, start, records), **about}
            )
        return [ReadRecord(at, int(offset), str(value)) for offset, value in records]

    def _history_value(self, fetched: Fetched, start: int, records: list[Any]) -> dict[str, Any]:
        at, row = fetched.at, fetched.row
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
            "epoch": fetched.epoch,
            "final": self._final,
        }

    def _batches(
        self, row: fetch.PartitionData, data: memoryview
    ) -> Iterator[tuple[int, list[tuple[int, str]]]]:
        """Yield for each batch its next offset and its visible records."""
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
                    (offset, unpack(value))
                    for offset, _, _, value, _ in iter_fields(data, pos, header)
                ]
            yield header.next_offset, records
