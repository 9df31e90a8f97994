"""The reader of the transaction log: partitions that it reads, records that it selects."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, cast

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import OpenTransaction
from barnabas.coordinator.transaction.metadata import Producer, TransactionMetadata
from barnabas.coordinator.transaction.outcome import TransactionOutcome
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.operations.transactions import log as transaction_log
from barnabas.operations.transactions.hanging import verdict_of
from barnabas.operations.transactions.log import TOPIC, History, _Unreadable, histories
from barnabas.protocol.java_hash import partition_for

PARTITIONS = 50
X = TransactionMetadata("x", 7, 0, 60_000, 1)
Y = TransactionMetadata("y", 8, 0, 60_000, 2)
ROTATED = X._replace(producer_id=9, epoch=0, previous_producer_id=7)
KEPT = X._replace(producer_id=9, epoch=4, previous_producer_id=9, ended=Producer(7, 0))


class FakeCluster:
    async def topic(self, name: str) -> Any:
        assert name == TOPIC
        return type("Topic", (), {"leaders": dict.fromkeys(range(PARTITIONS), 0)})


async def read(
    monkeypatch: pytest.MonkeyPatch,
    records: Iterable[TransactionMetadata | _Unreadable],
    wanted: Iterable[int],
    known: Mapping[int, str],
) -> tuple[dict[int, History], set[int]]:
    """Return the histories, and the partitions that were read."""
    asked: set[int] = set()

    async def scripted(
        _: Cluster, partitions: Iterable[tuple[str, int]]
    ) -> AsyncIterator[TransactionMetadata | _Unreadable]:
        asked.update(index for _, index in partitions)
        for each in records:
            yield each

    monkeypatch.setattr(transaction_log, "_records", scripted)
    found = await histories(cast(Cluster, FakeCluster()), wanted, known)
    return found, asked


async def test_histories_reads_only_partitions_of_known_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, asked = await read(monkeypatch, [Y, X, Y, X], [7], {7: "x"})
    assert found == {7: History([X, X])}
    assert asked == {partition_for("x", PARTITIONS)}


async def test_histories_reads_all_partitions_for_an_unknown_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, asked = await read(monkeypatch, [Y, X], [7, 8], {7: "x"})
    assert found == {7: History([X]), 8: History([Y])}
    assert asked == set(range(PARTITIONS))


@pytest.mark.parametrize("records", [[ROTATED], [X, ROTATED], [KEPT], [X, KEPT]])
async def test_histories_finds_former_producer_id_by_its_successor(
    monkeypatch: pytest.MonkeyPatch, records: list[TransactionMetadata]
) -> None:
    found, _ = await read(monkeypatch, [Y, *records], [7], {})
    assert found == {7: History(records)}


async def test_unreadable_record_makes_verdicts_of_its_id_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record may be the decision: a verdict from the others could end half a transaction."""
    ended = X._replace(state=TransactionState.COMPLETE_ABORT, epoch=1, client_version=2)
    later = _Unreadable("x", "a transaction of version 2, which is newer than this broker")
    hangs = OpenTransaction("t", 0, 7, 0, 0, 0, 0)
    for records, is_known in (
        ([X, ended], True),
        ([X, ended, _Unreadable("y", "damaged")], True),
        ([X, ended, later], False),
        ([later, X, ended], False),
        ([X, ended, _Unreadable(None, "a record without its version")], False),
    ):
        found, _ = await read(monkeypatch, records, [7], {7: "x"})
        assert found[7].records == [X, ended]
        verdict = verdict_of(hangs, found[7])
        assert (verdict.outcome is TransactionOutcome.ABORTED) == is_known, verdict
        assert is_known or "cannot be read" in verdict.why
    found, _ = await read(monkeypatch, [later], [7], {7: "x"})
    assert verdict_of(hangs, found[7]).outcome is TransactionOutcome.UNKNOWN
