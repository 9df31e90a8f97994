"""From broker to broker: messages that must arrive, questions that fail fast, leave to stop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.controller.handover import Handover
from barnabas.broker.controller.link import BrokerLink
from barnabas.broker.controller.reach import ToController
from barnabas.broker.controller.remote import RemoteChannel
from barnabas.broker.controller.topics import CreatedTopic, NewTopic
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.broker.peers.peer import PeerUnreachable
from barnabas.config.broker import BrokerConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from barnabas.protocol.schema import Api
from tests.unit.broker.controller.harness import FakeCluster, open_cluster, until

ME = 1


class FakePeer:
    """Answers what it is told to; None is no answer, ever."""

    backoff = 0.0

    def __init__(self, answers: "list[Any]") -> None:
        self.answers = answers
        self.asked: list[Any] = []
        self.closed = False
        self._aborted = asyncio.Event()

    async def request(self, api: Api, request: object, **_: Any) -> Any:  # noqa: ARG002
        self.asked.append(request)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            await self._aborted.wait()
            raise PeerUnreachable("dropped")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def abort(self) -> None:
        self._aborted.set()

    async def close(self) -> None:
        self.closed = True
        self._aborted.set()


class Reaching:
    """A broker that is not the controller, and whom it asks."""

    def __init__(self) -> None:
        self.cache = MetadataCache("c")
        self.answers: list[Any] = []
        self.made: list[tuple[int, FakePeer]] = []
        self.controller: Any = SimpleNamespace(active=False)
        peers: Any = SimpleNamespace(to=self._to)
        self.in_touch = True
        self.reach = ToController(ME, self.controller, self.cache, peers, lambda: self.in_touch)

    def _to(self, broker_id: int) -> FakePeer:
        peer = FakePeer(self.answers)
        self.made.append((broker_id, peer))
        return peer

    def know(self, controller: int, *brokers: int, replicas: tuple[int, ...] = ()) -> None:
        """An update by a controller; `replicas` are those of the only partition."""
        self.cache.apply(
            UpdateMetadataRequest(
                controller_id=controller,
                controller_epoch=1,
                type=2,
                live_brokers=[UpdateMetadataBroker(id=each, endpoints=[]) for each in brokers],
                topic_states=[
                    UpdateMetadataTopicState(
                        topic_name="t",
                        topic_id=bytes(16),
                        partition_states=[
                            UpdateMetadataPartitionState(
                                partition_index=0,
                                controller_epoch=1,
                                leader=ME,
                                leader_epoch=0,
                                isr=[ME],
                                zk_version=0,
                                replicas=list(replicas),
                                offline_replicas=[each for each in replicas if each not in brokers],
                            )
                        ],
                    )
                ],
            )
        )


@pytest.fixture
async def reaching() -> AsyncIterator[Reaching]:
    found = Reaching()
    yield found
    await found.reach.close()
    assert all(peer.closed for _, peer in found.made)


def proposal() -> AlterPartitionRequest:
    return AlterPartitionRequest(broker_id=ME, broker_epoch=5, topics=[])


async def refusal(work: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await work
    return caught.value.code


async def test_without_a_controller_a_question_fails_at_once(reaching: Reaching) -> None:
    assert await refusal(reaching.reach.alter_partition(proposal())) is ErrorCode.NOT_CONTROLLER
    # It was this broker, which has lost the office and does not know of another.
    reaching.know(ME, ME)
    assert await refusal(reaching.reach.alter_partition(proposal())) is ErrorCode.NOT_CONTROLLER


async def test_what_the_controller_refuses_is_raised(reaching: Reaching) -> None:
    reaching.know(2, ME, 2)
    reaching.answers = [
        AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        PeerUnreachable("gone"),
        AlterPartitionResponse(),
    ]
    reach = reaching.reach
    assert await refusal(reach.alter_partition(proposal())) is ErrorCode.STALE_BROKER_EPOCH
    assert await refusal(reach.alter_partition(proposal())) is ErrorCode.BROKER_NOT_AVAILABLE
    assert await reach.alter_partition(proposal()) == AlterPartitionResponse()
    assert [broker for broker, _ in reaching.made] == [2]


async def test_nobody_waits_for_the_controller_before(reaching: Reaching) -> None:
    reaching.know(2, ME, 2, 3)
    waiting = asyncio.ensure_future(reaching.reach.alter_partition(proposal()))
    await until(lambda: reaching.made and reaching.made[0][1].asked)
    reaching.know(3, ME, 2, 3)
    assert await refusal(waiting) is ErrorCode.BROKER_NOT_AVAILABLE
    reaching.answers = [AlterPartitionResponse()]
    await reaching.reach.alter_partition(proposal())
    assert [broker for broker, _ in reaching.made] == [2, 3]


async def test_topics_are_created_by_another_broker(reaching: Reaching) -> None:
    reaching.know(2, ME, 2)
    exists = CreatableTopicResult(
        name="b", error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="there"
    )
    made = CreatableTopicResult(
        name="a", topic_id=bytes(15) + b"1", num_partitions=3, replication_factor=2
    )
    reaching.answers = [CreateTopicsResponse(topics=[made, exists])]
    new = [
        NewTopic("a", 3, 2, configs={"cleanup.policy": "compact"}, internal=True),
        NewTopic("b", assignments=[(0, (2, 1))]),
    ]
    answers = await reaching.reach.create_topics(new, timeout=5)
    assert answers["a"] == CreatedTopic(bytes(15) + b"1", 3, 2)
    refused = answers["b"]
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.TOPIC_ALREADY_EXISTS
    (asked,) = reaching.made[0][1].asked
    assert isinstance(asked, CreateTopicsRequest)
    assert asked.timeout_ms == 5000
    assert asked.topics[0].configs[0].value == "compact"
    assert asked.topics[1].assignments[0].broker_ids == [2, 1]


# -- messages that must arrive ---------------------------------------------------------------------


async def test_a_message_is_sent_until_it_is_answered_or_the_broker_is_gone() -> None:
    peer = FakePeer([PeerUnreachable("away"), UpdateMetadataResponse()])
    link = BrokerLink(
        BrokerInfo(2, ()), RemoteChannel(_as_peer(peer)), lambda *_: None, pytest.fail
    )
    update = UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=[])
    await asyncio.wait_for(link.send(update), 5)
    assert len(peer.asked) == 2
    unanswered = link.send(update)
    await until(lambda: len(peer.asked) == 3)
    assert not unanswered.done()
    await link.close()
    await asyncio.wait_for(unanswered, 5)
    assert peer.closed


async def test_a_broker_that_could_not_do_it_hears_it_again() -> None:
    failed = UpdateMetadataResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    peer = FakePeer([failed, UpdateMetadataResponse()])
    channel = RemoteChannel(_as_peer(peer))
    update = UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=[])
    assert (await channel.update_metadata(update)).error_code == 0
    assert len(peer.asked) == 2


def _as_peer(peer: Any) -> Any:
    return peer


# -- leave to stop ---------------------------------------------------------------------------------


def handover(reaching: Reaching, **keys: str) -> Handover:
    properties = {f"controlled.shutdown.{key.replace('_', '.')}": keys[key] for key in keys}
    config = BrokerConfig.from_properties(properties)
    return Handover(ME, reaching.reach, reaching.cache, lambda: config)


def remaining(*indexes: int) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name="t", partition_index=each) for each in indexes
        ]
    )


def asked(reaching: Reaching) -> list[ControlledShutdownRequest]:
    return [request for _, peer in reaching.made for request in peer.asked]


async def test_a_broker_stops_when_it_leads_nothing_more(reaching: Reaching) -> None:
    reaching.know(2, ME, 2, replicas=(ME, 2))
    reaching.answers = [remaining()]
    await handover(reaching).run(7)
    assert asked(reaching) == [ControlledShutdownRequest(broker_id=ME, broker_epoch=7)]


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda it: it.know(2, ME, replicas=(ME, 2)), id="alone"),
        pytest.param(lambda it: it.know(2, ME, 2, replicas=(ME, 3)), id="nobody to take it"),
    ],
)
async def test_a_broker_does_not_wait_for_what_cannot_move(
    reaching: Reaching, prepare: Callable[[Reaching], None]
) -> None:
    prepare(reaching)
    reaching.answers = [remaining(0)]
    await asyncio.wait_for(handover(reaching).run(7), 5)
    assert len(asked(reaching)) <= 1


async def test_a_broker_asks_again_while_something_may_move(reaching: Reaching) -> None:
    reaching.know(2, ME, 2, replicas=(ME, 2))
    reaching.answers = [remaining(0), remaining(0), remaining(0), remaining()]
    await handover(reaching, retry_backoff_ms="1").run(7)
    assert len(asked(reaching)) == 3


async def test_a_broker_asks_the_next_controller_as_soon_as_it_hears_of_it(
    reaching: Reaching,
) -> None:
    reaching.know(2, ME, 2, 3, replicas=(ME, 2))
    reaching.answers = [PeerUnreachable("gone"), remaining()]
    stopping = asyncio.ensure_future(handover(reaching, retry_backoff_ms="3600000").run(7))
    await until(lambda: asked(reaching))
    reaching.know(3, ME, 2, 3, replicas=(ME, 2))
    await asyncio.wait_for(stopping, 5)
    assert [broker for broker, _ in reaching.made] == [2, 3]


async def test_a_broker_that_is_told_not_to_asks_nobody(reaching: Reaching) -> None:
    reaching.know(2, ME, 2, replicas=(ME, 2))
    await handover(reaching, enable="false").run(7)
    assert not reaching.made


async def test_the_controller_itself_hands_over() -> None:
    cluster: FakeCluster = await open_cluster()
    first, second = await cluster.start(1), await cluster.start(2)
    new = NewTopic("t", assignments=[(0, (1, 2))])
    await first.controller.create_topics([new], timeout=5)
    nobody: Any = None
    reach = ToController(1, first.controller, first.cache, nobody)
    config = BrokerConfig()
    await Handover(1, reach, first.cache, lambda: config).run(first.info.epoch)
    await until(lambda: second.cache.partition("t", 0).leader == 2)  # type: ignore[union-attr]
    await cluster.close()


@pytest.mark.parametrize("active", [False, True])
async def test_who_is_out_of_touch_with_the_metadata_proposes_nothing(
    reaching: Reaching, active: bool
) -> None:
    reaching.know(2, 1, 2)
    reaching.controller.active = active
    reaching.in_touch = False
    with pytest.raises(KafkaError) as refused:
        await reaching.reach.alter_partition(proposal())
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert reaching.made == []
