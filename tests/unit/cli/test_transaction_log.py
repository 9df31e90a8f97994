"""What of the transaction log is read, and which records are of a producer id."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, cast

import pytest

from barnabas.cli import transaction_log
from barnabas.cli.transaction_log import TOPIC, histories
from barnabas.client.cluster import Cluster
from barnabas.coordinator.transaction.metadata import Transaction
from barnabas.protocol.java_hash import partition_for

PARTITIONS = 50
X = Transaction("x", 7, 0, 60_000, 1)
Y = Transaction("y", 8, 0, 60_000, 2)
ROTATED = X._replace(producer_id=9, epoch=0, previous_producer_id=7)


class FakeCluster:
    async def topic(self, name: str) -> Any:
        assert name == TOPIC
        return type("Topic", (), {"leaders": dict.fromkeys(range(PARTITIONS), 0)})


async def read(
    monkeypatch: pytest.MonkeyPatch,
    records: Iterable[Transaction],
    wanted: Iterable[int],
    known: Mapping[int, str],
) -> tuple[dict[int, list[Transaction]], set[int]]:
    """What is found, and in which partitions it was looked for."""
    asked: set[int] = set()

    async def scripted(
        _: Cluster, partitions: Iterable[tuple[str, int]]
    ) -> AsyncIterator[Transaction]:
        asked.update(index for _, index in partitions)
        for each in records:
            yield each

    monkeypatch.setattr(transaction_log, "_records", scripted)
    found = await histories(cast(Cluster, FakeCluster()), wanted, known)
    return found, asked


async def test_only_partitions_of_known_ids_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = await read(monkeypatch, [Y, X, Y, X], [7], {7: "x"})
    assert found == {7: [X, X]}
    assert asked == {partition_for("x", PARTITIONS)}


async def test_an_unknown_one_may_be_in_any(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = await read(monkeypatch, [Y, X], [7, 8], {7: "x"})
    assert found == {7: [X], 8: [Y]}
    assert asked == set(range(PARTITIONS))


@pytest.mark.parametrize("records", [[ROTATED], [X, ROTATED]])
async def test_a_producer_id_that_was_used_up_is_found_with_its_successor(
    monkeypatch: pytest.MonkeyPatch, records: list[Transaction]
) -> None:
    found, _ = await read(monkeypatch, [Y, *records], [7], {})
    assert found == {7: records}
