"""A broker that coordinates a transaction and leads its partition asks itself nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.repeats import Repeats
from barnabas.broker.transactions.verifier import TransactionVerifier
from barnabas.protocol.messages import delete_topics
from barnabas.storage.producers.state import ProducerStateManager
from tests.support.data_path import connected, running
from tests.unit.broker.transactions.transactor import ONE_PARTITION, Transactor

VERSION = 11


class Asked:
    """Counts the questions to the coordinator, and the requests on fast paths."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.questions = 0
        self.fast: list[str] = []
        ask = TransactionVerifier.ask

        def count(verifier: TransactionVerifier, *args: Any, **options: Any) -> Any:
            self.questions += 1
            return ask(verifier, *args, **options)

        monkeypatch.setattr(TransactionVerifier, "ask", count)
        serve = Repeats.serve

        def served(repeats: Repeats, *request: Any) -> Any:
            answer = serve(repeats, *request)
            if answer is not None:
                self.fast.append(repeats._api.name)
            return answer

        monkeypatch.setattr(Repeats, "serve", served)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


async def transaction(producer: Transactor) -> list[str]:
    """Commit a transaction of one record in the older protocol; return the errors."""
    answers = await producer.add(("t", 0))
    answers.append(await producer.produce(version=VERSION))
    answers.append(await producer.end(version=3))
    return [*answers, await producer.settled()]


DONE = ["NONE", "NONE", "NONE", "CompleteCommit"]


@pytest.fixture
async def producer(tmp_path: Path) -> AsyncIterator[Transactor]:
    async with running(tmp_path, **ONE_PARTITION) as broker, connected(broker) as client:
        await client.create("t")
        producer = await Transactor(client).init()
        producer.partition = broker._replication.replicas.partition("t", 0)  # type: ignore[attr-defined]
        yield producer


def partition_of(producer: Transactor) -> Partition:
    return cast(Any, producer).partition  # type: ignore[no-any-return]


async def test_repeated_transactions_are_served_fast_and_without_questions(
    producer: Transactor, asked: Asked
) -> None:
    for _ in range(3):
        assert await transaction(producer) == DONE
    assert asked.questions == 0
    assert asked.fast == 2 * ["AddPartitionsToTxn", "Produce", "EndTxn"]
    log = partition_of(producer).log
    assert (log.log_end_offset, log.last_stable_offset) == (6, 6)


async def test_record_after_the_end_of_its_transaction_is_asked_for_and_refused(
    producer: Transactor, asked: Asked
) -> None:
    assert await transaction(producer) == DONE
    assert await producer.produce(version=VERSION) == "TRANSACTION_ABORTABLE"
    assert asked.questions == 1
    assert partition_of(producer).log.log_end_offset == 2


async def test_record_without_a_transaction_is_asked_for_after_an_unused_expectation(
    producer: Transactor, asked: Asked
) -> None:
    assert await producer.add(("t", 0)) == ["NONE"]
    assert await producer.end(version=3) == "NONE"
    await producer.settled()
    assert await producer.produce(version=VERSION) == "TRANSACTION_ABORTABLE"
    assert asked.questions == 1


async def test_new_leader_epoch_asks(producer: Transactor, asked: Asked) -> None:
    assert await transaction(producer) == DONE
    assert await producer.add(("t", 0)) == ["NONE"]
    partition = partition_of(producer)
    partition.leader_epoch += 1
    partition._lead(new_epoch=True)
    assert await producer.produce(version=VERSION) == "NONE"
    assert asked.questions == 1


async def test_record_of_another_id_is_asked_for(producer: Transactor, asked: Asked) -> None:
    assert await transaction(producer) == DONE
    assert await producer.add(("t", 0)) == ["NONE"]
    producer.id = "other"
    assert await producer.produce(version=VERSION) == "INVALID_PRODUCER_ID_MAPPING"
    assert asked.questions == 1


async def test_restarted_broker_asks(tmp_path: Path, asked: Asked) -> None:
    async with running(tmp_path, **ONE_PARTITION) as broker, connected(broker) as client:
        await client.create("t")
        first = await Transactor(client).init()
        assert await first.add(("t", 0)) == ["NONE"]
    async with running(tmp_path, **ONE_PARTITION) as broker, connected(broker) as client:
        again = Transactor(client)
        again.producer_id, again.epoch = first.producer_id, first.epoch
        await settled(again)
        assert await again.produce(version=VERSION) == "NONE"
    assert asked.questions >= 1


async def settled(producer: Transactor) -> None:
    """Wait until the coordinator has loaded its log."""
    await producer.settled()


@pytest.mark.parametrize(
    "switch", ["transaction_partition_verification_enable", "fast_paths_enable"]
)
async def test_switched_off_ways_are_not_taken(
    tmp_path: Path, asked: Asked, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    expect = ProducerStateManager.expect
    monkeypatch.setattr(
        ProducerStateManager,
        "expect",
        lambda state, *told_of: told.append(told_of) or expect(state, *told_of),
    )
    config: dict[str, Any] = {**ONE_PARTITION, switch: "false"}
    async with running(tmp_path, **config) as broker, connected(broker) as client:
        await client.create("t")
        producer = await Transactor(client).init()
        for _ in range(2):
            assert await transaction(producer) == DONE
    assert told == []
    assert asked.questions == (2 if switch == "fast_paths_enable" else 0)
    assert ("EndTxn" in asked.fast) is (switch != "fast_paths_enable")


async def test_deleted_partition_is_not_added_on_the_fast_path(
    producer: Transactor, asked: Asked
) -> None:
    assert await transaction(producer) == DONE
    request = delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
    await producer.ask(delete_topics, request, 4)
    assert await producer.add(("t", 0)) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert asked.fast == []


async def test_fenced_producer_is_refused_after_its_fast_requests(
    producer: Transactor, asked: Asked
) -> None:
    for _ in range(2):
        assert await transaction(producer) == DONE
    fast = len(asked.fast)
    await Transactor(producer.client).init()
    assert await producer.add(("t", 0)) == ["PRODUCER_FENCED"]
    assert await producer.end(version=3) == "PRODUCER_FENCED"
    assert len(asked.fast) == fast
