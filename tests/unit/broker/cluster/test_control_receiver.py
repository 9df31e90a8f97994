"""The receiving end of the controller's messages."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import pytest

from barnabas.broker.cluster import broker_epochs, control_receiver
from barnabas.broker.cluster.cache import FULL, MetadataCache
from barnabas.broker.cluster.control_receiver import ControlReceiver
from barnabas.broker.cluster.registration import Epochs
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.store.metadata_store import StoreUnavailable
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest


class NoReplicas:
    async def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        raise AssertionError(request)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        raise AssertionError(request)


class NoConfigs:
    async def load_topics(self, names: Iterable[str]) -> None:
        raise AssertionError(names)

    def forget_topic(self, name: str) -> None:
        raise AssertionError(name)


def leader_and_isr(broker_epoch: int) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=broker_epoch,
        type=FULL,
        topic_states=[],
        live_leaders=[],
    )


def update_metadata(broker_epoch: int, controller_epoch: int = 1) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        type=FULL,
        topic_states=[],
        live_brokers=[],
    )


def stop_replica(broker_epoch: int) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=1, controller_epoch=1, broker_epoch=broker_epoch, topic_states=[]
    )


class Stored:
    """The metadata store's epochs, which can be unavailable or late."""

    def __init__(self, controller: int, broker: int) -> None:
        self.epochs = Epochs(controller, broker)
        self.failures = 0
        self.reads = 0

    async def read(self) -> Epochs:
        self.reads += 1
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable
        return self.epochs


def make(stored: Stored) -> tuple[ControlReceiver, MetadataCache]:
    cache = MetadataCache("cluster")
    slicer = Slicer(time.monotonic)
    return ControlReceiver(NoReplicas(), cache, NoConfigs(), stored.read, slicer), cache


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("message", ["leader_and_isr", "update_metadata", "stop_replica"])
async def test_message_for_an_earlier_run_waits_for_the_registration_and_is_refused(
    message: str,
) -> None:
    receiver, cache = make(Stored(1, 5))
    requests = {
        "leader_and_isr": lambda: receiver.leader_and_isr(leader_and_isr(4)),
        "update_metadata": lambda: receiver.update_metadata(update_metadata(4)),
        "stop_replica": lambda: receiver.stop_replica(stop_replica(4)),
    }
    answer: Any = asyncio.ensure_future(requests[message]())
    await turns()
    assert not answer.done()
    receiver.broker_registered(BrokerInfo(1, (), epoch=5))
    assert (await answer).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not cache.ready


async def test_one_forged_controller_epoch_does_not_make_the_broker_deaf() -> None:
    stored = Stored(controller=3, broker=5)
    receiver, cache = make(stored)
    receiver.broker_registered(BrokerInfo(1, (), epoch=5))
    forged = await receiver.update_metadata(update_metadata(5, controller_epoch=2**31 - 1))
    assert forged.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert not cache.ready
    true = await receiver.update_metadata(update_metadata(5, controller_epoch=3))
    assert true.error_code == ErrorCode.NONE
    assert cache.ready


@pytest.mark.parametrize("broker_epoch", [4, 6, 2**63 - 1])
async def test_only_the_epoch_of_this_registration_counts(broker_epoch: int) -> None:
    receiver, cache = make(Stored(controller=1, broker=5))
    receiver.broker_registered(BrokerInfo(1, (), epoch=5))
    refused = await receiver.update_metadata(update_metadata(broker_epoch))
    assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not cache.ready


async def test_registration_that_the_controller_sees_first_is_waited_for() -> None:
    """Otherwise it would reset what the controller's message had just made true."""
    receiver, _ = make(Stored(controller=1, broker=9))
    receiver.broker_registered(BrokerInfo(1, (), epoch=5))
    answer = asyncio.ensure_future(receiver.update_metadata(update_metadata(9)))
    await turns()
    assert not answer.done()
    receiver.broker_registered(BrokerInfo(1, (), epoch=9))
    assert (await answer).error_code == ErrorCode.NONE
    assert receiver.has_full_metadata


async def test_new_controller_is_believed_once_the_store_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_receiver, "RETRY_S", 0)
    monkeypatch.setattr(broker_epochs, "PAUSE_S", 0)
    stored = Stored(controller=2, broker=5)
    stored.failures = 3
    receiver, _ = make(stored)
    receiver.broker_registered(BrokerInfo(1, (), epoch=5))
    new = await receiver.update_metadata(update_metadata(5, controller_epoch=2))
    assert new.error_code == ErrorCode.NONE
    former = await receiver.update_metadata(update_metadata(5, controller_epoch=1))
    assert former.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_thousand_forged_requests_cost_the_store_two_reads() -> None:
    stored = Stored(controller=1, broker=5)
    receiver, _ = make(stored)
    receiver.broker_registered(BrokerInfo(1, (), epoch=5))
    forged = (
        receiver.update_metadata(update_metadata(5, controller_epoch=each + 2))
        for each in range(1000)
    )
    answers = await asyncio.gather(*forged)
    assert {answer.error_code for answer in answers} == {ErrorCode.STALE_CONTROLLER_EPOCH}
    assert stored.reads <= 2
