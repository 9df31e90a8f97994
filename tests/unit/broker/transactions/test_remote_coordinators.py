"""Requests to other brokers' coordinators are batched, and each gets its own answer."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.cluster.topic_names import TRANSACTION_STATE
from barnabas.broker.transactions.remote_coordinators import (
    TRANSACTIONS_PER_REQUEST,
    RemoteCoordinators,
)
from barnabas.broker.transactions.verification_request import Answers, VerificationRequest
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import add_partitions_to_txn as words
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.broker.transactions.fake_peer import FakeCluster, FakePeer, turns

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
        request = VerificationRequest(key, Producer(7, epoch), [A, B], adds)
        return self.others.ask(request, 0)

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


async def test_request_goes_to_leader_of_partition_of_transactional_id(rig: Rig) -> None:
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
async def test_request_without_known_coordinator_fails_at_once(
    rig: Rig, leader: int | None, code: ErrorCode
) -> None:
    rig.cluster.leaders = {} if leader is None else {(TRANSACTION_STATE, 0): leader}
    assert rig.ask() == all_(code)
    assert rig.cluster.peers == {}


async def test_requests_gather_while_one_is_in_flight(rig: Rig) -> None:
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


async def test_number_of_transactions_in_request_is_limited(rig: Rig) -> None:
    waiting = [rig.ask(f"x{number}") for number in range(TRANSACTIONS_PER_REQUEST + 1)]
    await turns()
    rig.peer.answer(answer({}))
    await turns()
    assert [len(each.transactions) for each in rig.peer.requests] == [TRANSACTIONS_PER_REQUEST, 1]
    rig.peer.break_()
    await asyncio.gather(*waiting)


async def test_newer_epoch_replaces_waiting_request_of_older_one(rig: Rig) -> None:
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


async def test_second_waiting_request_of_producer_replaces_first(rig: Rig) -> None:
    rig.ask("other")
    await turns()
    older, newer = rig.ask(), rig.ask(adds=False)
    assert await older == all_(ErrorCode.NETWORK_EXCEPTION)
    rig.peer.break_()
    await turns()
    assert [each.verify_only for each in rig.peer.requests[1].transactions] == [True]
    rig.peer.answer(answer({"x": all_(ErrorCode.NONE)}))
    assert await newer == all_(ErrorCode.NONE)


async def test_request_in_flight_is_not_replaced(rig: Rig) -> None:
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


async def test_coordinator_that_does_not_know_topic_is_not_available(rig: Rig) -> None:
    """A client that gets OPERATION_NOT_ATTEMPTED would give up."""
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
async def test_error_of_whole_request_applies_to_every_partition(
    rig: Rig, code: ErrorCode, told: ErrorCode
) -> None:
    waiting = rig.ask(), rig.ask("y")
    await turns()
    rig.peer.answer(words.AddPartitionsToTxnResponse(error_code=code))
    assert [await each for each in waiting] == [all_(told), all_(told)]


async def test_cancelled_request_is_not_sent(rig: Rig) -> None:
    rig.ask("other")
    await turns()
    rig.ask().cancel()
    rig.peer.break_()
    await turns()
    assert len(rig.peer.requests) == 1


async def test_death_of_broker_fails_its_requests_at_once(rig: Rig) -> None:
    waiting = rig.ask()
    await turns()
    rig.cluster.dies(OTHER)
    assert await waiting == all_(ErrorCode.NETWORK_EXCEPTION)


async def test_close_fails_every_request(rig: Rig) -> None:
    on_its_way = rig.ask()
    await turns()
    waiting = rig.ask("y")
    await rig.others.close()
    assert await on_its_way == all_(ErrorCode.NETWORK_EXCEPTION)
    assert await waiting == all_(ErrorCode.NETWORK_EXCEPTION)
