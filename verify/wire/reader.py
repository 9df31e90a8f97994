"""A reader of its own: it filters aborted data by itself, and tells all that it was told."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.batch import crc_matches, iter_headers
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.records.record import iter_records
from barnabas.verify.history import COMMITTED, OK, UNCOMMITTED, History, Place
from barnabas.verify.wire.batches import unpack
from barnabas.verify.wire.fetching import Fetched, fetch_from, leader_epoch

REPEAT: Final = 0.2
"""After so many seconds a read is written down that tells nothing new: that is told, too."""


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
        self._noted: dict[Place, float] = {}

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Begins a new assignment."""
        self._assignment += 1
        self.positions = dict(positions)
        self._last.clear()

    async def poll(self, *, max_wait: float = 0.1, txn: str | None = None) -> list[Found]:
        """One Fetch to each leader; `txn` is the transaction that reads, if one does."""
        found: list[Found] = []
        left = set(self.positions)

        async def ask() -> None:
            for leader, epochs in (await self._led(left)).items():
                asked = self._history.now()
                for each in await self._fetch(leader, epochs, max_wait):
                    found.extend(self._take(each, asked, txn=txn))
                left.difference_update(epochs)

        await self._cluster.retrying(ask)
        return found

    async def _led(self, places: Iterable[Place]) -> dict[int, dict[Place, int]]:
        """By leader, the partitions and the epoch in which it leads them.

        In a later epoch it may follow, and answer all the same.
        """
        found: dict[int, dict[Place, int]] = defaultdict(dict)
        for at in sorted(places):
            leader = await self._cluster.leader(*at)
            found[leader][at] = leader_epoch(self._cluster, at)
        return found

    async def poll_from(self, node: int, *, max_wait: float = 0.1) -> list[Found]:
        """One Fetch to one broker that has a replica of every partition, whoever leads; no retry.

        Raises KafkaError where it has none, or is behind; BrokerUnreachable; TimeoutError.
        """
        asked = self._history.now()
        fetched = await fetch_from(
            self._cluster, node, self.positions, committed=self._committed, max_wait=max_wait
        )
        return [record for each in fetched for record in self._take(each, asked, node=node)]

    async def _fetch(
        self, leader: int, epochs: Mapping[Place, int], max_wait: float
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
    ) -> list[Found]:
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
                self.name, "read", OK, {**self._said(fetched, start, records), **about}
            )
        return [Found(at, int(offset), str(value)) for offset, value in records]

    def _said(self, fetched: Fetched, start: int, records: list[Any]) -> dict[str, Any]:
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
