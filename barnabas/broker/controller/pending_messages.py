"""The messages that wait to be sent to one broker, merged; pure.

Two pending messages of one kind become one, in which each partition has its last state, so the
queue of a slow or silent broker stays bounded. A broker gets changes in the order in which the
controller decided them: leaders before the metadata that names them, and no message overtakes a
StopReplica.
"""

from asyncio import Future
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from barnabas.broker.cluster.cache import FULL, LEADER_DURING_DELETE
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

Message = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
Receipt = Future[None]
"""A future that is done when the broker has answered."""
_Mergeable = LeaderAndIsrRequest | UpdateMetadataRequest
_PartitionState = LeaderAndIsrPartitionState | UpdateMetadataPartitionState
S = TypeVar("S", LeaderAndIsrPartitionState, UpdateMetadataPartitionState)


class OutgoingMessage(NamedTuple):
    """A message to send now, with the receipts of all messages that were merged into it."""

    message: Message
    receipts: list[Receipt]


class PendingMessages:
    """The messages for one broker that have not been sent yet."""

    def __init__(self) -> None:
        self._batches: list[_Batch] = []

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, message: Message, receipt: Receipt) -> None:
        """Append a message, or merge it into a pending one of its kind."""
        if not self._batches or self._batches[-1].stop_replica is not None:
            self._batches.append(_Batch())
        self._batches[-1].add(message, receipt)

    def take(self) -> OutgoingMessage:
        """Remove and return the message to send next. There must be one."""
        message = self._batches[0].take()
        if self._batches[0].is_empty:
            del self._batches[0]
        return message

    def clear(self) -> list[Receipt]:
        """Remove all messages without sending them; return their receipts."""
        receipts = []
        while self:
            receipts += self.take().receipts
        return receipts


class _Batch:
    """At most one message of each kind, in the order in which they are sent."""

    __slots__ = ("leader_and_isr", "receipts", "stop_replica", "update_metadata")

    def __init__(self) -> None:
        self.leader_and_isr: _MergedRequest | None = None
        self.update_metadata: _MergedRequest | None = None
        self.stop_replica: StopReplicaRequest | None = None
        self.receipts: dict[type, list[Receipt]] = {}

    @property
    def is_empty(self) -> bool:
        return (
            self.leader_and_isr is None
            and self.update_metadata is None
            and self.stop_replica is None
        )

    def add(self, message: Message, receipt: Receipt) -> None:
        self.receipts.setdefault(type(message), []).append(receipt)
        match message:
            case LeaderAndIsrRequest():
                self.leader_and_isr = _merged(self.leader_and_isr, message)
            case UpdateMetadataRequest():
                self.update_metadata = _merged(self.update_metadata, message)
            case StopReplicaRequest():
                self.stop_replica = message

    def take(self) -> OutgoingMessage:
        message: Message
        if self.leader_and_isr is not None:
            message, self.leader_and_isr = self.leader_and_isr.message(), None
        elif self.update_metadata is not None:
            message, self.update_metadata = self.update_metadata.message(), None
        else:
            assert self.stop_replica is not None
            message, self.stop_replica = self.stop_replica, None
        return OutgoingMessage(message, self.receipts.pop(type(message)))


def _merged(pending: "_MergedRequest | None", message: _Mergeable) -> "_MergedRequest":
    if pending is None or message.type == FULL:
        return _MergedRequest(message)
    pending.add(message)
    return pending


class _MergedRequest:
    """A request merged from several of one kind. Only the first may be full.

    It has the last state of each partition, with topics in the order in which they first came.
    """

    def __init__(self, first: _Mergeable) -> None:
        self._first = first
        self._topics: dict[tuple[str, bytes], dict[int, _PartitionState]] = {}
        self.add(first)

    def add(self, request: _Mergeable) -> None:
        self._last = request
        for topic in request.topic_states:
            key = (topic.topic_name, topic.topic_id)
            states = self._topics.setdefault(key, {})
            for state in topic.partition_states:
                _keep_is_new(states.get(state.partition_index), state)
                states[state.partition_index] = state
            if self._is_full_metadata and _are_deleted(states.values()):
                # A full UpdateMetadata deletes a topic by leaving it out.
                del self._topics[key]

    @property
    def _is_full_metadata(self) -> bool:
        return isinstance(self._first, UpdateMetadataRequest) and self._first.type == FULL

    def message(self) -> _Mergeable:
        last = self._last
        if last is self._first:
            return last
        if isinstance(last, LeaderAndIsrRequest):
            return LeaderAndIsrRequest(
                controller_id=last.controller_id,
                controller_epoch=last.controller_epoch,
                broker_epoch=last.broker_epoch,
                type=self._first.type,
                topic_states=[
                    LeaderAndIsrTopicState(
                        topic_name=name,
                        topic_id=topic_id,
                        partition_states=_states(LeaderAndIsrPartitionState, states),
                    )
                    for (name, topic_id), states in self._topics.items()
                ],
                live_leaders=last.live_leaders,
            )
        return UpdateMetadataRequest(
            controller_id=last.controller_id,
            controller_epoch=last.controller_epoch,
            broker_epoch=last.broker_epoch,
            type=self._first.type,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=name,
                    topic_id=topic_id,
                    partition_states=_states(UpdateMetadataPartitionState, states),
                )
                for (name, topic_id), states in self._topics.items()
            ],
            live_brokers=last.live_brokers,
        )


def _keep_is_new(before: _PartitionState | None, state: _PartitionState) -> None:
    """Keep `is_new` of a replica whose first state has not been sent to the broker yet."""
    if isinstance(state, LeaderAndIsrPartitionState) and not state.is_new:
        state.is_new = isinstance(before, LeaderAndIsrPartitionState) and before.is_new


def _are_deleted(states: Iterable[_PartitionState]) -> bool:
    return all(each.leader == LEADER_DURING_DELETE for each in states)


def _states(kind: type[S], states: dict[int, _PartitionState]) -> list[S]:
    return [each for each in states.values() if isinstance(each, kind)]
