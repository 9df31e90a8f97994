"""Requests between brokers: repeated from the controller, failing fast to it, and the shutdown."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.controlled_shutdown import ControlledShutdown
from barnabas.broker.cluster.controller_client import ControllerClient
from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.broker.cluster.peers import PeerUnreachable
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.controller.controller_channel import ControllerChannel, RemoteBrokerClient
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
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from barnabas.protocol.schema import Api
from tests.support.steps import taken
from tests.unit.broker.controller.harness import FakeCluster, open_cluster, until

ME = 1


class FakePeer:
    """A peer with prepared answers; without one it never answers."""

    backoff = 0.0
    announced: Any = True

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

    async def announces(self, _api: Api) -> bool:
        found = self.announced.pop(0) if isinstance(self.announced, list) else self.announced
        if isinstance(found, Exception):
            raise found
        return bool(found)

    def abort(self) -> None:
        self._aborted.set()

    async def close(self) -> None:
        self.closed = True
        self._aborted.set()


class ClientSetup:
    """A broker that is not the controller, and its client of the controller."""

    def __init__(self) -> None:
        self.cache = MetadataCache("c")
        self.answers: list[Any] = []
        self.made: list[tuple[int, FakePeer]] = []
        self.controller: Any = SimpleNamespace(active=False)
        peers: Any = SimpleNamespace(to=self._to)
        self.is_connected = True
        self.epoch = 7
        self.client = ControllerClient(
            ME, self.controller, self.cache, peers, lambda: self.is_connected
        )

    def _to(self, broker_id: int) -> FakePeer:
        peer = FakePeer(self.answers)
        self.made.append((broker_id, peer))
        return peer

    def know(self, controller: int, *brokers: int, replicas: tuple[int, ...] = ()) -> None:
        """Apply an update of a controller; `replicas` are those of the only partition."""
        taken(
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
                                    offline_replicas=[
                                        each for each in replicas if each not in brokers
                                    ],
                                )
                            ],
                        )
                    ],
                )
            )
        )


@pytest.fixture
async def setup() -> AsyncIterator[ClientSetup]:
    found = ClientSetup()
    yield found
    await found.client.close()
    assert all(peer.closed for _, peer in found.made)


def proposal() -> AlterPartitionRequest:
    return AlterPartitionRequest(broker_id=ME, broker_epoch=5, topics=[])


async def refusal(work: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await work
    return caught.value.code


async def test_request_without_a_known_controller_fails_at_once(setup: ClientSetup) -> None:
    assert await refusal(setup.client.alter_partition(proposal())) is ErrorCode.NOT_CONTROLLER
    # This broker was controller, has lost the election and does not know the winner.
    setup.know(ME, ME)
    assert await refusal(setup.client.alter_partition(proposal())) is ErrorCode.NOT_CONTROLLER


async def test_error_of_the_controller_is_raised(setup: ClientSetup) -> None:
    setup.know(2, ME, 2)
    setup.answers = [
        AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        PeerUnreachable("gone"),
        AlterPartitionResponse(),
    ]
    client = setup.client
    assert await refusal(client.alter_partition(proposal())) is ErrorCode.STALE_BROKER_EPOCH
    assert await refusal(client.alter_partition(proposal())) is ErrorCode.BROKER_NOT_AVAILABLE
    assert await client.alter_partition(proposal()) == AlterPartitionResponse()
    assert [broker for broker, _ in setup.made] == [2]


async def test_request_to_a_former_controller_fails(setup: ClientSetup) -> None:
    setup.know(2, ME, 2, 3)
    waiting = asyncio.ensure_future(setup.client.alter_partition(proposal()))
    await until(lambda: setup.made and setup.made[0][1].asked)
    setup.know(3, ME, 2, 3)
    assert await refusal(waiting) is ErrorCode.BROKER_NOT_AVAILABLE
    setup.answers = [AlterPartitionResponse()]
    await setup.client.alter_partition(proposal())
    assert [broker for broker, _ in setup.made] == [2, 3]


async def test_topics_are_created_by_another_broker(setup: ClientSetup) -> None:
    setup.know(2, ME, 2)
    exists = CreatableTopicResult(
        name="b", error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="there"
    )
    made = CreatableTopicResult(
        name="a", topic_id=bytes(15) + b"1", num_partitions=3, replication_factor=2
    )
    setup.answers = [CreateTopicsResponse(topics=[made, exists])]
    new = [
        NewTopic("a", 3, 2, configs={"cleanup.policy": "compact"}, internal=True),
        NewTopic("b", assignments=[(0, (2, 1))]),
    ]
    answers = await setup.client.create_topics(new, timeout=5)
    assert answers["a"] == CreatedTopic(bytes(15) + b"1", 3, 2)
    refused = answers["b"]
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.TOPIC_ALREADY_EXISTS
    (asked,) = setup.made[0][1].asked
    assert isinstance(asked, CreateTopicsRequest)
    assert asked.timeout_ms == 5000
    assert asked.topics[0].configs[0].value == "compact"
    assert asked.topics[1].assignments[0].broker_ids == [2, 1]


# -- requests from the controller -----------------------------------------------------------------


async def test_message_is_repeated_until_answered_or_the_broker_is_gone() -> None:
    peer = FakePeer([PeerUnreachable("away"), UpdateMetadataResponse()])
    link = ControllerChannel(
        BrokerInfo(2, ()), RemoteBrokerClient(_as_peer(peer)), lambda *_: None, pytest.fail
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


async def test_message_is_repeated_after_an_unknown_error() -> None:
    failed = UpdateMetadataResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    peer = FakePeer([failed, UpdateMetadataResponse()])
    channel = RemoteBrokerClient(_as_peer(peer))
    update = UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=[])
    assert (await channel.update_metadata(update)).error_code == 0
    assert len(peer.asked) == 2


def _as_peer(peer: Any) -> Any:
    return peer


# -- controlled shutdown --------------------------------------------------------------------------


def handover(setup: ClientSetup, **keys: str) -> ControlledShutdown:
    properties = {f"controlled.shutdown.{key.replace('_', '.')}": keys[key] for key in keys}
    config = BrokerConfig.from_properties(properties)
    return ControlledShutdown(ME, setup.client, setup.cache, lambda: config, lambda: setup.epoch)


def remaining(*indexes: int) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name="t", partition_index=each) for each in indexes
        ]
    )


def asked(setup: ClientSetup) -> list[ControlledShutdownRequest]:
    return [request for _, peer in setup.made for request in peer.asked]


async def test_shutdown_ends_when_no_leadership_is_left(setup: ClientSetup) -> None:
    setup.know(2, ME, 2, replicas=(ME, 2))
    setup.answers = [remaining()]
    await handover(setup).run()
    assert asked(setup) == [ControlledShutdownRequest(broker_id=ME, broker_epoch=7)]


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda it: it.know(2, ME, replicas=(ME, 2)), id="alone"),
        pytest.param(lambda it: it.know(2, ME, 2, replicas=(ME, 3)), id="no other replica"),
    ],
)
async def test_shutdown_does_not_wait_for_leaderships_that_cannot_move(
    setup: ClientSetup, prepare: Callable[[ClientSetup], None]
) -> None:
    prepare(setup)
    setup.answers = [remaining(0)]
    await asyncio.wait_for(handover(setup).run(), 5)
    assert len(asked(setup)) <= 1


async def test_shutdown_retries_while_a_leadership_can_move(setup: ClientSetup) -> None:
    setup.know(2, ME, 2, replicas=(ME, 2))
    setup.answers = [remaining(0), remaining(0), remaining(0), remaining()]
    await handover(setup, retry_backoff_ms="1").run()
    assert len(asked(setup)) == 3


async def test_shutdown_asks_the_next_controller_at_once(
    setup: ClientSetup,
) -> None:
    setup.know(2, ME, 2, 3, replicas=(ME, 2))
    setup.answers = [PeerUnreachable("gone"), remaining()]
    stopping = asyncio.ensure_future(handover(setup, retry_backoff_ms="3600000").run())
    await until(lambda: asked(setup))
    setup.know(3, ME, 2, 3, replicas=(ME, 2))
    await asyncio.wait_for(stopping, 5)
    assert [broker for broker, _ in setup.made] == [2, 3]


async def test_broker_that_registers_again_while_it_stops_asks_with_its_new_epoch(
    setup: ClientSetup,
) -> None:
    setup.know(2, ME, 2, replicas=(ME, 2))
    refusal = ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    setup.answers = [refusal, remaining()]
    stopping = asyncio.ensure_future(handover(setup, retry_backoff_ms="3600000").run())
    await until(lambda: asked(setup))
    setup.epoch = 8
    # The controller has seen the new registration.
    setup.know(2, ME, 2, replicas=(ME, 2))
    await asyncio.wait_for(stopping, 5)
    assert [request.broker_epoch for request in asked(setup)] == [7, 8]


async def test_disabled_controlled_shutdown_sends_nothing(setup: ClientSetup) -> None:
    setup.know(2, ME, 2, replicas=(ME, 2))
    await handover(setup, enable="false").run()
    assert not setup.made


async def test_active_controller_moves_its_own_leaderships() -> None:
    cluster: FakeCluster = await open_cluster()
    first, second = await cluster.start(1), await cluster.start(2)
    new = NewTopic("t", assignments=[(0, (1, 2))])
    await first.controller.create_topics([new], timeout=5)
    no_peers: Any = None
    client = ControllerClient(1, first.controller, first.cache, no_peers)
    config = BrokerConfig()
    epoch = first.info.epoch
    await ControlledShutdown(1, client, first.cache, lambda: config, lambda: epoch).run()
    await until(lambda: second.cache.partition("t", 0).leader == 2)  # type: ignore[union-attr]
    await cluster.close()


@pytest.mark.parametrize("active", [False, True])
async def test_broker_without_the_store_proposes_no_isr(setup: ClientSetup, active: bool) -> None:
    setup.know(2, 1, 2)
    setup.controller.active = active
    setup.is_connected = False
    with pytest.raises(KafkaError) as refused:
        await setup.client.alter_partition(proposal())
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert setup.made == []


ENVELOPE = EnvelopeRequest(request_data=b"r", request_principal=None, client_host_address=bytes(4))


async def forwarded(setup: ClientSetup, timeout: float = 5.0) -> bytes | ErrorCode:
    try:
        return await setup.client.forward(ENVELOPE, kind=19, timeout=timeout)
    except KafkaError as error:
        return error.code


async def test_forwarded_request_is_sent_again_only_if_no_controller_has_begun_with_it(
    setup: ClientSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.know(2, 1, 2)
    unreachable = PeerUnreachable("not opened")
    monkeypatch.setattr(FakePeer, "announced", [unreachable, True, True])
    setup.answers += [
        EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER),
        EnvelopeResponse(response_data=b"done"),
    ]
    assert await forwarded(setup) == b"done"
    assert [len(peer.asked) for _, peer in setup.made] == [2]


async def test_forwarded_request_without_a_response_has_an_unknown_outcome(
    setup: ClientSetup,
) -> None:
    setup.know(2, 1, 2)
    setup.answers += [PeerUnreachable("cut"), EnvelopeResponse(response_data=b"twice")]
    assert await forwarded(setup) is ErrorCode.REQUEST_TIMED_OUT
    assert len(setup.made[0][1].asked) == 1


@pytest.mark.parametrize(
    "code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION]
)
async def test_envelope_that_the_controller_does_not_open_is_not_sent_again(
    setup: ClientSetup, code: ErrorCode
) -> None:
    setup.know(2, 1, 2)
    setup.answers += [EnvelopeResponse(error_code=code)]
    assert await forwarded(setup) is ErrorCode.NOT_CONTROLLER


async def test_controller_that_does_not_announce_envelopes_is_sent_none(
    setup: ClientSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.know(2, 1, 2)
    monkeypatch.setattr(FakePeer, "announced", False)
    assert await forwarded(setup) is ErrorCode.NOT_CONTROLLER
    assert setup.made[0][1].asked == []


async def test_request_is_forwarded_to_the_controller_that_becomes_known(
    setup: ClientSetup,
) -> None:
    assert await forwarded(setup, timeout=0) is ErrorCode.NOT_CONTROLLER
    waiting = asyncio.ensure_future(forwarded(setup))
    await asyncio.sleep(0)
    setup.answers += [EnvelopeResponse(response_data=b"done")]
    setup.know(2, 1, 2)
    assert await waiting == b"done"
    # A broker that has become the controller serves the request itself.
    setup.know(ME, 1, 2)
    setup.controller.active = True
    assert await forwarded(setup) is ErrorCode.NOT_CONTROLLER
