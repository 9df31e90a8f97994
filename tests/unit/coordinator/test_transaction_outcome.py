"""The outcome of an open transaction according to the transaction log, or "unknown"."""

import pytest

from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    TV0,
    TV2,
    NextClient,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.outcome import ReasonedOutcome, TransactionOutcome, verdict

A, B = ("a", 0), ("b", 0)
PRODUCER = Producer(7, 3)
NOW = 1_000


class Log:
    """Records of one transactional id, as its coordinator writes them."""

    def __init__(self, version: int, epoch: int = PRODUCER.epoch) -> None:
        self.version = version
        self.records: list[TransactionMetadata] = []
        self._write(TransactionMetadata("x", PRODUCER.producer_id, epoch - 1, 60_000, NOW))
        self._write(self.last.initialised(self.last.next_client(None), 60_000, NOW))

    @property
    def last(self) -> TransactionMetadata:
        return self.records[-1]

    def _write(self, txn: TransactionMetadata) -> None:
        self.records.append(txn)

    def begin(self, *partitions: tuple[str, int]) -> "Log":
        self._write(self.last.with_partitions(partitions, self.version, NOW))
        return self

    def prepare(self, *, committed: bool = True, next_id: int = -1) -> "Log":
        self._write(self.last.prepared(committed, self.version, NOW, next_producer_id=next_id))
        return self

    def keep(self) -> "Log":
        self._write(self.last.kept(self.last.next_client(None), NOW, pins=True))
        return self

    def fence(self, version: int) -> "Log":
        self._write(self.last.fenced(version, NOW))
        return self

    def complete(self) -> "Log":
        self._write(self.last.completed(NOW))
        return self

    def end(self, *, committed: bool = True) -> "Log":
        return self.prepare(committed=committed).complete()

    def compacted(self, keeps: int = 1) -> "Log":
        self.records = self.records[-keeps:]
        return self

    def says(self, producer: Producer = PRODUCER) -> ReasonedOutcome:
        return verdict(self.records, producer, A)


def said(log: Log, producer: Producer = PRODUCER) -> tuple[str, bool]:
    outcome, _, own_epoch = log.says(producer)
    return outcome.value, own_epoch


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("keeps", [1, 2, 3, 4])
def test_transaction_with_own_epoch_is_decided_after_compaction(
    committed: bool, keeps: int
) -> None:
    log = Log(TV2).begin(A, B).end(committed=committed).compacted(keeps)
    assert said(log) == ("committed" if committed else "aborted", True)


def test_outcome_ignores_later_transactions() -> None:
    log = Log(TV2).begin(A).end().begin(A).end(committed=False).begin(A, B)
    assert said(log) == ("committed", True)
    assert said(log, PRODUCER._replace(epoch=4)) == ("aborted", True)
    assert said(log, PRODUCER._replace(epoch=5)) == ("open", False)


@pytest.mark.parametrize("version", [TV0, TV2])
def test_open_or_prepared_transaction_is_left_to_coordinator(version: int) -> None:
    log = Log(version).begin(A, B)
    assert said(log) == ("open", False)
    assert said(log.prepare()) == ("open", False)


def test_transaction_of_fenced_producer_is_aborted() -> None:
    log = Log(TV2).begin(A).fence(TV2).complete()
    assert said(log) == ("aborted", True)


def test_outcome_ignores_fencing_before_its_epoch() -> None:
    log = Log(TV2).begin(A).fence(TV2).complete().compacted().begin(A).end()
    assert said(log, PRODUCER._replace(epoch=4)) == ("committed", True)


def test_newer_client_that_registered_partitions_itself_has_own_epoch() -> None:
    log = Log(TV0).begin(A)
    log.version = TV2
    assert said(log.end()) == ("committed", True)


def test_an_older_client_fenced_by_a_newer_coordinator_may_have_committed_before() -> None:
    log = Log(TV0).begin(A).end().begin(A).fence(TV2).complete()
    assert said(log) == ("unknown", False)
    assert said(log.compacted()) == ("unknown", False)


def test_commit_at_last_epoch_belongs_to_previous_producer_id() -> None:
    log = Log(TV2, LAST_CLIENT_EPOCH).begin(A).prepare(next_id=8).complete()
    used = PRODUCER._replace(epoch=LAST_CLIENT_EPOCH)
    assert said(log, used) == ("committed", True)
    assert said(log.compacted(), used) == ("committed", True)
    assert said(log.compacted(), Producer(8, 0)) == ("unknown", False)


def test_outcome_is_unknown_for_partition_that_commit_left_unmarked() -> None:
    log = Log(TV2).begin(B).end()
    assert said(log) == ("unknown", False)
    assert "not among those" in log.says().why


def test_outcome_is_unknown_once_one_of_many_in_epoch_committed() -> None:
    log = Log(TV0).begin(A).end(committed=False).begin(A).end().begin(A).end(committed=False)
    assert said(log) == ("unknown", False)
    assert "older protocol" in log.says().why


def test_epoch_without_commit_in_partition_is_aborted() -> None:
    log = Log(TV0).begin(A).end(committed=False).begin(B).end()
    assert said(log) == ("aborted", False)
    assert said(log.begin(B)) == ("aborted", False)


def test_outcome_is_unknown_for_compacted_epoch_of_older_protocol() -> None:
    log = Log(TV0).begin(A).end(committed=False).compacted(3)
    assert said(log) == ("unknown", False)
    assert "no longer has" in log.says().why


def test_outcome_is_unknown_for_client_upgraded_within_epoch() -> None:
    log = Log(TV0).begin(A).end(committed=False)
    log.version = TV2
    assert said(log.begin(A).end()) == ("unknown", False)


def test_outcome_is_unknown_for_empty_log() -> None:
    assert verdict([], PRODUCER, A).outcome is TransactionOutcome.UNKNOWN


# -- kept transactions (KIP-939)


def test_kept_transaction_is_left_to_its_client() -> None:
    log = Log(TV2).begin(A).keep().keep()
    assert said(log) == ("open", False)
    assert "only its client, 7:5" in log.says().why
    assert said(log.prepare()) == ("open", False)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("keeps", [1, 2, 3, 4, 5])
def test_kept_transaction_is_decided_by_the_producer_of_its_records(
    committed: bool, keeps: int
) -> None:
    log = Log(TV2).begin(A, B).keep().end(committed=committed).compacted(keeps)
    assert said(log) == ("committed" if committed else "aborted", True)


def test_producer_of_kept_transaction_is_forgotten_with_the_next_one() -> None:
    log = Log(TV2).begin(A).keep().end()
    assert log.last.ended == PRODUCER
    assert log.begin(A).last.ended is None
    assert log.end(committed=False).last.ended is None
    log = Log(TV2).begin(A).keep().end()
    log.records.append(log.last.initialised(log.last.next_client(None), 60_000, NOW))
    assert log.last.ended is None


def test_kept_transaction_that_ends_at_the_last_epoch_of_its_client() -> None:
    log = Log(TV2).begin(A)
    client = NextClient(Producer(8, LAST_CLIENT_EPOCH), -1)
    log.records.append(log.last.kept(client, NOW, pins=True))
    log.prepare(next_id=9)
    assert log.last.previous_producer_id == 8
    log.complete()
    assert log.last.producer == Producer(9, 0)
    assert said(log) == ("committed", True)
    assert said(log, Producer(7, LAST_CLIENT_EPOCH)) == ("unknown", False)


def test_kept_transaction_of_an_older_client_shares_its_epoch() -> None:
    """The newer client that ends it did not write it."""
    log = Log(TV0).begin(A).end(committed=False).begin(A).keep()
    log.version = TV2
    log.end()
    assert said(log) == ("unknown", False)
    assert said(log.compacted(3)) == ("unknown", False)


def test_kept_transaction_that_is_fenced_is_aborted() -> None:
    log = Log(TV2).begin(A).keep().fence(TV0).complete()
    assert said(log) == ("aborted", True)
    assert log.last.producer == Producer(7, 5)
