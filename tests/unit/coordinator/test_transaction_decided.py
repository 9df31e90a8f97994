"""What the transaction log says of an open transaction: never more than it can know."""

import pytest

from barnabas.coordinator.transaction.decided import Outcome, Verdict, verdict
from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    TV0,
    TV2,
    Producer,
    Transaction,
)

A, B = ("a", 0), ("b", 0)
PRODUCER = Producer(7, 3)
NOW = 1_000


class Log:
    """Records of one transactional id, as its coordinator writes them."""

    def __init__(self, version: int, epoch: int = PRODUCER.epoch) -> None:
        self.version = version
        self.records: list[Transaction] = []
        self._write(Transaction("x", PRODUCER.producer_id, epoch - 1, 60_000, NOW))
        self._write(self.last.incremented(60_000, None, NOW))

    @property
    def last(self) -> Transaction:
        return self.records[-1]

    def _write(self, txn: Transaction) -> None:
        self.records.append(txn)

    def begin(self, *partitions: tuple[str, int]) -> "Log":
        self._write(self.last.with_partitions(partitions, self.version, NOW))
        return self

    def prepare(self, *, committed: bool = True, next_id: int = -1) -> "Log":
        self._write(self.last.prepared(committed, self.version, NOW, next_producer_id=next_id))
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

    def says(self, producer: Producer = PRODUCER) -> Verdict:
        return verdict(self.records, producer, A)


def said(log: Log, producer: Producer = PRODUCER) -> tuple[str, bool]:
    outcome, _, own_epoch = log.says(producer)
    return outcome.value, own_epoch


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("keeps", [1, 2, 3, 4])
def test_an_epoch_of_its_own_is_decided_however_much_is_compacted(
    committed: bool, keeps: int
) -> None:
    log = Log(TV2).begin(A, B).end(committed=committed).compacted(keeps)
    assert said(log) == ("committed" if committed else "aborted", True)


def test_later_transactions_change_nothing() -> None:
    log = Log(TV2).begin(A).end().begin(A).end(committed=False).begin(A, B)
    assert said(log) == ("committed", True)
    assert said(log, PRODUCER._replace(epoch=4)) == ("aborted", True)
    assert said(log, PRODUCER._replace(epoch=5)) == ("open", False)


@pytest.mark.parametrize("version", [TV0, TV2])
def test_what_is_open_or_on_its_way_is_left_to_its_coordinator(version: int) -> None:
    log = Log(version).begin(A, B)
    assert said(log) == ("open", False)
    assert said(log.prepare()) == ("open", False)


def test_who_was_fenced_aborted() -> None:
    log = Log(TV2).begin(A).fence(TV2).complete()
    assert said(log) == ("aborted", True)


def test_later_epochs_do_not_mind_who_was_fenced_before() -> None:
    log = Log(TV2).begin(A).fence(TV2).complete().compacted().begin(A).end()
    assert said(log, PRODUCER._replace(epoch=4)) == ("committed", True)


def test_partitions_that_a_client_registered_itself_are_of_its_protocol_too() -> None:
    log = Log(TV0).begin(A)
    log.version = TV2
    assert said(log.end()) == ("committed", True)


def test_an_older_client_fenced_by_a_newer_coordinator_may_have_committed_before() -> None:
    log = Log(TV0).begin(A).end().begin(A).fence(TV2).complete()
    assert said(log) == ("unknown", False)
    assert said(log.compacted()) == ("unknown", False)


def test_a_commit_that_used_up_the_epochs_is_of_the_producer_id_before() -> None:
    log = Log(TV2, LAST_CLIENT_EPOCH).begin(A).prepare(next_id=8).complete()
    used = PRODUCER._replace(epoch=LAST_CLIENT_EPOCH)
    assert said(log, used) == ("committed", True)
    assert said(log.compacted(), used) == ("committed", True)
    assert said(log.compacted(), Producer(8, 0)) == ("unknown", False)


def test_a_committed_partition_that_got_no_marker_is_not_told() -> None:
    log = Log(TV2).begin(B).end()
    assert said(log) == ("unknown", False)
    assert "not among those" in log.says().why


def test_many_transactions_in_an_epoch_cannot_be_told_apart_once_one_committed() -> None:
    log = Log(TV0).begin(A).end(committed=False).begin(A).end().begin(A).end(committed=False)
    assert said(log) == ("unknown", False)
    assert "older protocol" in log.says().why


def test_an_epoch_without_a_commit_here_aborted() -> None:
    log = Log(TV0).begin(A).end(committed=False).begin(B).end()
    assert said(log) == ("aborted", False)
    assert said(log.begin(B)) == ("aborted", False)


def test_of_an_older_epoch_that_is_compacted_nothing_is_certain() -> None:
    log = Log(TV0).begin(A).end(committed=False).compacted(3)
    assert said(log) == ("unknown", False)
    assert "no longer has" in log.says().why


def test_a_client_that_was_upgraded_within_an_epoch_is_one_of_many() -> None:
    log = Log(TV0).begin(A).end(committed=False)
    log.version = TV2
    assert said(log.begin(A).end()) == ("unknown", False)


def test_of_an_empty_log_nothing_is_known() -> None:
    assert verdict([], PRODUCER, A).outcome is Outcome.UNKNOWN
