"""The pending messages of a slow broker are merged without a change of their effect."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.cluster.cache import MetadataCache, TopicMetadata
from barnabas.broker.controller.pending_messages import Message, PendingMessages
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.support.steps import taken

FULL, SOME = 2, 1
DELETED = -2
TOPICS = {"a": bytes(16), "b": bytes([1] * 16)}


def lead(epoch: int, *named: tuple[str, int], full: bool = False, is_new: bool = False) -> Message:
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=epoch,
        type=FULL if full else SOME,
        live_leaders=[],
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=name,
                topic_id=TOPICS[name],
                partition_states=[
                    LeaderAndIsrPartitionState(
                        partition_index=index,
                        controller_epoch=1,
                        leader=1,
                        leader_epoch=epoch,
                        isr=[1],
                        partition_epoch=epoch,
                        replicas=[1],
                        is_new=is_new,
                    )
                ],
            )
            for name, index in named
        ],
    )


def update(epoch: int, *named: tuple[str, int], full: bool = False, leader: int = 1) -> Message:
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=epoch,
        type=FULL if full else SOME,
        live_brokers=[],
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=TOPICS[name],
                partition_states=[
                    UpdateMetadataPartitionState(
                        partition_index=index,
                        controller_epoch=1,
                        leader=leader,
                        leader_epoch=epoch,
                        isr=[1],
                        zk_version=epoch,
                        replicas=[1],
                    )
                ],
            )
            for name, index in named
        ],
    )


def stop(name: str, index: int) -> Message:
    return StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=[
            StopReplicaTopicState(
                topic_name=name, partition_states=[StopReplicaPartitionState(partition_index=index)]
            )
        ],
    )


class Receiver:
    """The metadata that a broker has after the messages it received."""

    def __init__(self) -> None:
        self.epochs: dict[tuple[str, int], int] = {}
        self.heard: list[Message] = []
        self.cache = MetadataCache("c")

    def hear(self, message: Message) -> None:
        self.heard.append(message)
        match message:
            case LeaderAndIsrRequest():
                if message.type == FULL:
                    self.epochs.clear()
                for topic in message.topic_states:
                    for state in topic.partition_states:
                        at = (topic.topic_name, state.partition_index)
                        self.epochs[at] = state.leader_epoch
            case UpdateMetadataRequest():
                taken(self.cache.apply(message))
            case StopReplicaRequest():
                for stopped in message.topic_states:
                    for each in stopped.partition_states:
                        self.epochs.pop((stopped.topic_name, each.partition_index), None)

    @property
    def topics(self) -> dict[str, TopicMetadata]:
        return dict(self.cache.topics)


def gathered(*messages: Message) -> PendingMessages:
    waiting = PendingMessages()
    for message in messages:
        waiting.add(message, asyncio.get_running_loop().create_future())
    return waiting


def sent(waiting: PendingMessages) -> list[Message]:
    found = []
    while waiting:
        found.append(waiting.take().message)
    return found


partitions = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=3, unique=True
)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    found: list[Message] = []
    for epoch in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["lead", "update", "forget", "stop"]))
        named = draw(partitions)
        full = draw(st.integers(0, 4)) == 0
        match kind:
            case "lead":
                found.append(lead(epoch, *named, full=full))
            case "update":
                found.append(update(epoch, *named, full=full))
            case "forget":
                found.append(update(epoch, *named, leader=DELETED))
            case "stop":
                found.append(stop(*named[0]))
    return found


@given(histories(), st.data())
def test_merged_messages_have_the_same_effect(history: list[Message], data: st.DataObject) -> None:
    async def run() -> None:
        one_by_one, at_leisure = Receiver(), Receiver()
        waiting = PendingMessages()
        for message in history:
            one_by_one.hear(message)
            waiting.add(message, asyncio.get_running_loop().create_future())
            if data.draw(st.booleans()) and waiting:
                at_leisure.hear(waiting.take().message)
        for message in sent(waiting):
            at_leisure.hear(message)
        assert at_leisure.epochs == one_by_one.epochs
        assert at_leisure.topics == one_by_one.topics
        assert len(at_leisure.heard) <= len(history)

    asyncio.run(run())


async def test_at_most_two_mergeable_messages_wait() -> None:
    waiting = PendingMessages()
    for epoch in range(100):
        for message in (lead(epoch, ("a", epoch % 3)), update(epoch, ("a", epoch % 3))):
            waiting.add(message, asyncio.get_running_loop().create_future())
    first, second = sent(waiting)
    assert isinstance(first, LeaderAndIsrRequest)
    assert isinstance(second, UpdateMetadataRequest)
    assert [state.leader_epoch for state in first.topic_states[0].partition_states] == [99, 97, 98]


async def test_no_message_overtakes_stop_replica() -> None:
    messages = [lead(1, ("a", 0)), stop("a", 0), lead(2, ("a", 0)), update(2, ("a", 0))]
    assert sent(gathered(*messages)) == messages


async def test_full_message_replaces_earlier_ones() -> None:
    everything = lead(3, ("b", 0), full=True)
    (only,) = sent(gathered(lead(1, ("a", 0)), everything))
    assert only is everything
    (grown,) = sent(gathered(everything, lead(4, ("b", 1))))
    assert isinstance(grown, LeaderAndIsrRequest)
    assert grown.type == FULL
    assert [each.partition_index for each in grown.topic_states[0].partition_states] == [0, 1]


async def test_new_replica_stays_new_until_its_first_message_is_sent() -> None:
    (only,) = sent(gathered(lead(0, ("a", 0), is_new=True), lead(1, ("a", 0))))
    assert isinstance(only, LeaderAndIsrRequest)
    (state,) = only.topic_states[0].partition_states
    assert state.is_new
    assert state.leader_epoch == 1


async def test_every_receipt_is_in_the_message_that_answers_it() -> None:
    waiting = PendingMessages()
    receipts = [asyncio.get_running_loop().create_future() for _ in range(4)]
    for message, receipt in zip(
        [lead(1, ("a", 0)), update(1, ("a", 0)), lead(2, ("a", 0)), stop("a", 0)],
        receipts,
        strict=True,
    ):
        waiting.add(message, receipt)
    assert waiting.take().receipts == [receipts[0], receipts[2]]
    assert waiting.clear() == [receipts[1], receipts[3]]
    assert not waiting
