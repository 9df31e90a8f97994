"""What compaction must know of transactions: whose data is void, and which markers still matter.

Nothing past the last stable offset is compacted, so every transaction it meets is decided: it was
aborted if the index of aborted transactions says so, committed otherwise.
"""

from collections import deque
from collections.abc import Iterable

from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.txn_index import AbortedTxn


class CleanedTransactions:
    """Transactions in the order of the log, as batch after batch is read from its beginning."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = deque(sorted(aborted, key=lambda txn: txn.first_offset))
        self._aborted: dict[int, AbortedTxn] = {}
        self._with_data: set[int] = set()
        """Producers whose open transaction has shown data, void or not, since its beginning."""

    def is_void(self, header: BatchHeader) -> bool:
        """Whether a batch of data belongs to a transaction that was aborted."""
        self._advance(header)
        if not header.is_transactional:
            return False
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborted

    def marker(self, batch: Buffer, header: BatchHeader) -> tuple[bool, AbortedTxn | None]:
        """Whether a control batch has lost its meaning, for nothing of its transaction was met; and
        the aborted transaction it ends, where that has to stay in the index."""
        self._advance(header)
        control = read_marker(batch, 0, header) if header.record_count else None
        if control is None:
            return False, None
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        aborted = None
        if control.type is ControlType.ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
        return not had_data, aborted if had_data else None

    def _advance(self, header: BatchHeader) -> None:
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            txn = self._coming.popleft()
            self._aborted[txn.producer_id] = txn
