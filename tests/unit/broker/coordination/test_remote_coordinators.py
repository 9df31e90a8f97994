"""Leaders ask other brokers' coordinators together, and nobody hears another's answer."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.coordination.question import Answers, Question
from barnabas.broker.coordination.remote_coordinators import (
    TRANSACTIONS_PER_REQUEST,
    RemoteCoordinators,
)
from barnabas.broker.metadata.topic_names import TRANSACTION_STATE
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import add_partitions_to_txn as words
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.broker.coordination.fake_peer import FakeCluster, FakePeer, turns

US, OTHER = 1, 2
A, B = ("a", 0), ("b", 1)


class Rig:
    def __init__(self) -> None:
        self.cluster = FakeCluster(US, OTHER)
        self.cluster.leaders = {(TRANSACTION_STATE, 0): OTHER}
        self.others = RemoteCoordinators(
            US,
            self.cluster,  # type: ignore[arg-type]
            self.cluster.connect,
        )

    def ask(self, key: str = "x", *, epoch: int = 4, adds: bool = True) -> Any:
        question = Question(key, Producer(7, epoch), [A, B], adds)
        return self.others.ask(question, 0)

    @property
    def peer(self) -> FakePeer:
        return self.cluster.peers[OTHER]


@pytest.fixture
async def rig() -> Rig:
    return Rig()


def all_(code: ErrorCode) -> Answers:
    return {A: code, B: code}


def answer(codes: dict[str, dict[TopicPartition, ErrorCode]]) -> Any:
    return words.AddPartitionsToTxnResponse(
        results_by_transaction=[
            words.AddPartitionsToTxnResult(
                transactional_id=key,
                topic_results=[
                    words.AddPartitionsToTxnTopicResult(
                        name=topic,
                        results_by_partition=[
                            words.AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=code
                            )
                        ],
                    )
                    for (topic, index), code in places.items()
                ],
            )
            for key, places in codes.items()
        ]
    )


async def test_a_question_goes_to_the_leader_of_the_transactional_ids_partition(rig: Rig) -> None:
    waiting = rig.ask()
    await turns()
    assert rig.peer.sent == [(words.API, 5)]
    (asked,) = rig.peer.requests[0].transactions
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("x", 7, 4)
    assert not asked.verify_only
    assert [(each.name, each.partitions) for each in asked.topics] == [("a", [0]), ("b", [1])]
    rig.peer.answer(answer({"x": all_(ErrorCode.NONE)}))
    assert await waiting == all_(ErrorCode.NONE)


@pytest.mark.parametrize(
    ("leader", "code"),
    [
        (None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (9, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (US, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_where_there_is_nobody_to_ask_that_is_said_at_once(
    rig: Rig, leader: int | None, code: ErrorCode
) -> None:
    rig.cluster.leaders = {} if leader is None else {(TRANSACTION_STATE, 0): leader}
    assert rig.ask() == all_(code)
    assert rig.cluster.peers == {}


async def test_whoever_asks_meanwhile_goes_with_the_next_request(rig: Rig) -> None:
    first = rig.ask()
    await turns()
    later = {f"y{number}": rig.ask(f"y{number}", adds=number % 2 == 0) for number in range(9)}
    await turns()
    assert len(rig.peer.requests) == 1
    rig.peer.answer(answer({"x": all_(ErrorCode.NONE)}))
    await turns()
    asked = rig.peer.requests[1].transactions
    assert [each.transactional_id for each in asked] == list(later)
    assert [each.verify_only for each in asked] == [number % 2 == 1 for number in range(9)]
    rig.peer.answer(
        answer({"y3": all_(ErrorCode.TRANSACTION_ABORTABLE), "y1": all_(ErrorCode.NONE)})
    )
    assert await first == all_(ErrorCode.NONE)
    assert await later["y1"] == all_(ErrorCode.NONE)
    assert await later["y3"] == all_(ErrorCode.TRANSACTION_ABORTABLE)
    assert await later["y0"] == all_(ErrorCode.NETWORK_EXCEPTION), "the answer has left it out"


async def test_a_request_has_a_bound(rig: Rig) -> None:
    waiting = [rig.ask(f"x{number}") for number in range(TRANSACTIONS_PER_REQUEST + 1)]
    await turns()
    rig.peer.answer(answer({}))
    await turns()
    assert [len(each.transactions) for each in rig.peer.requests] == [TRANSACTIONS_PER_REQUEST, 1]
    rig.peer.break_()
    await asyncio.gather(*waiting)


async def test_a_newer_producer_takes_the_place_of_an_older_one_that_waits(rig: Rig) -> None:
    first = rig.ask("other")
    await turns()
    older, newer = rig.ask(epoch=4), rig.ask(epoch=5)
    assert await older == all_(ErrorCode.INVALID_PRODUCER_EPOCH)
    zombie = rig.ask(epoch=4)
    assert await zombie == all_(ErrorCode.INVALID_PRODUCER_EPOCH)
    rig.peer.answer(answer({"other": all_(ErrorCode.NONE)}))
    await first
    await turns()
    assert [each.producer_epoch for each in rig.peer.requests[1].transactions] == [5]
    rig.peer.answer(answer({"x": all_(ErrorCode.NONE)}))
    assert await newer == all_(ErrorCode.NONE)


async def test_of_two_requests_of_one_producer_the_older_is_let_go(rig: Rig) -> None:
    rig.ask("other")
    await turns()
    older, newer = rig.ask(), rig.ask(adds=False)
    assert await older == all_(ErrorCode.NETWORK_EXCEPTION)
    rig.peer.break_()
    await turns()
    assert [each.verify_only for each in rig.peer.requests[1].transactions] == [True]
    rig.peer.answer(answer({"x": all_(ErrorCode.NONE)}))
    assert await newer == all_(ErrorCode.NONE)


async def test_what_is_on_its_way_already_is_nobodys_to_replace(rig: Rig) -> None:
    first = rig.ask(epoch=4)
    await turns()
    second = rig.ask(epoch=5)
    rig.peer.answer(answer({"x": all_(ErrorCode.PRODUCER_FENCED)}))
    assert await first == all_(ErrorCode.PRODUCER_FENCED)
    await turns()
    rig.peer.answer(answer({"x": all_(ErrorCode.NONE)}))
    assert await second == all_(ErrorCode.NONE)


async def test_each_partition_has_an_answer_of_its_own(rig: Rig) -> None:
    waiting = rig.ask(adds=False)
    await turns()
    told = {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE, ("c", 0): ErrorCode.NONE}
    rig.peer.answer(answer({"x": told}))
    assert await waiting == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}


async def test_a_coordinator_that_has_not_heard_of_the_topic_yet_is_asked_later(rig: Rig) -> None:
    """A client that is told OPERATION_NOT_ATTEMPTED would give up."""
    waiting = rig.ask()
    await turns()
    codes = {A: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, B: ErrorCode.OPERATION_NOT_ATTEMPTED}
    rig.peer.answer(answer({"x": codes}))
    assert await waiting == all_(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_the_error_of_a_whole_request_is_everybodys(
    rig: Rig, code: ErrorCode, told: ErrorCode
) -> None:
    waiting = rig.ask(), rig.ask("y")
    await turns()
    rig.peer.answer(words.AddPartitionsToTxnResponse(error_code=code))
    assert [await each for each in waiting] == [all_(told), all_(told)]


async def test_who_went_away_is_not_asked_for(rig: Rig) -> None:
    rig.ask("other")
    await turns()
    rig.ask().cancel()
    rig.peer.break_()
    await turns()
    assert len(rig.peer.requests) == 1


async def test_nobody_waits_for_a_broker_that_died(rig: Rig) -> None:
    waiting = rig.ask()
    await turns()
    rig.cluster.dies(OTHER)
    assert await waiting == all_(ErrorCode.NETWORK_EXCEPTION)


async def test_who_stops_tells_everybody(rig: Rig) -> None:
    on_its_way = rig.ask()
    await turns()
    waiting = rig.ask("y")
    await rig.others.close()
    assert await on_its_way == all_(ErrorCode.NETWORK_EXCEPTION)
    assert await waiting == all_(ErrorCode.NETWORK_EXCEPTION)
