"""What waits to be sent to one broker, newer news over older; pure.

A broker that is slow or silent would otherwise make a queue without end: two messages of a kind
become one, in which each partition has its last state. What a broker hears stays in the order in
which it became true: leaders before the metadata that names them, and nothing passes a StopReplica.
"""

from asyncio import Future
from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from barnabas.broker.metadata.cache import FULL, LEADER_DURING_DELETE
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
"""Done when the broker has answered."""
_Topic = tuple[str, bytes]


class _Indexed(Protocol):
    partition_index: int


S = TypeVar("S", bound=_Indexed)


class Parcel(NamedTuple):
    """A message as it leaves, and what was handed in with those that it is made of."""

    message: Message
    receipts: list[Receipt]


class Gathered:
    """Messages for one broker that have not left yet."""

    def __init__(self) -> None:
        self._rounds: list[_Round] = []

    def __bool__(self) -> bool:
        return bool(self._rounds)

    def add(self, message: Message, receipt: Receipt) -> None:
        """Send it when those before it are gone, or as part of one of them."""
        if not self._rounds or self._rounds[-1].stop is not None:
            self._rounds.append(_Round())
        self._rounds[-1].add(message, receipt)

    def take(self) -> Parcel:
        """What is to be sent next, which is no longer here; there must be something."""
        parcel = self._rounds[0].take()
        if self._rounds[0].is_empty:
            del self._rounds[0]
        return parcel

    def clear(self) -> list[Receipt]:
        """Send nothing of it."""
        receipts = []
        while self:
            receipts += self.take().receipts
        return receipts


class _Round:
    """Up to one message of each kind, in the order in which they are sent."""

    __slots__ = ("lead", "receipts", "stop", "update")

    def __init__(self) -> None:
        self.lead: _Leads | None = None
        self.update: _Updates | None = None
        self.stop: StopReplicaRequest | None = None
        self.receipts: dict[type, list[Receipt]] = {}

    @property
    def is_empty(self) -> bool:
        return self.lead is None and self.update is None and self.stop is None

    def add(self, message: Message, receipt: Receipt) -> None:
        self.receipts.setdefault(type(message), []).append(receipt)
        match message:
            case LeaderAndIsrRequest():
                if self.lead is None or message.type == FULL:
                    self.lead = _Leads(message)
                else:
                    self.lead.add(message)
            case UpdateMetadataRequest():
                if self.update is None or message.type == FULL:
                    self.update = _Updates(message)
                else:
                    self.update.add(message)
            case StopReplicaRequest():
                self.stop = message

    def take(self) -> Parcel:
        message: Message
        if self.lead is not None:
            message, self.lead = self.lead.message(), None
        elif self.update is not None:
            message, self.update = self.update.message(), None
        else:
            assert self.stop is not None
            message, self.stop = self.stop, None
        return Parcel(message, self.receipts.pop(type(message)))


class _States(Generic[S]):
    """The last state of each partition, topics in the order in which they were first named."""

    def __init__(self) -> None:
        self._topics: dict[_Topic, dict[int, S]] = {}

    def put(self, topic: _Topic, states: Iterable[S]) -> None:
        self._topics.setdefault(topic, {}).update((each.partition_index, each) for each in states)

    def of(self, topic: _Topic) -> dict[int, S]:
        return self._topics.get(topic, {})

    def drop(self, topic: _Topic) -> None:
        del self._topics[topic]

    def items(self) -> Iterable[tuple[str, bytes, list[S]]]:
        for (name, topic_id), states in self._topics.items():
            yield name, topic_id, list(states.values())


class _Leads:
    """LeaderAndIsr messages as one, the first of which may be full."""

    def __init__(self, first: LeaderAndIsrRequest) -> None:
        self._first = first
        self._states: _States[LeaderAndIsrPartitionState] = _States()
        self.add(first)

    def add(self, later: LeaderAndIsrRequest) -> None:
        self._last = later
        for topic in later.topic_states:
            key = (topic.topic_name, topic.topic_id)
            known = self._states.of(key)
            for state in topic.partition_states:
                before = known.get(state.partition_index)
                # Of a replica that the broker has not heard of yet, it must hear that it is new.
                state.is_new = state.is_new or (before is not None and before.is_new)
            self._states.put(key, topic.partition_states)

    def message(self) -> LeaderAndIsrRequest:
        last = self._last
        if last is self._first:
            return last
        return LeaderAndIsrRequest(
            controller_id=last.controller_id,
            controller_epoch=last.controller_epoch,
            broker_epoch=last.broker_epoch,
            type=self._first.type,
            topic_states=[
                LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id, partition_states=states)
                for name, topic_id, states in self._states.items()
            ],
            live_leaders=last.live_leaders,
        )


class _Updates:
    """UpdateMetadata messages as one, the first of which may be full."""

    def __init__(self, first: UpdateMetadataRequest) -> None:
        self._first = first
        self._states: _States[UpdateMetadataPartitionState] = _States()
        self.add(first)

    def add(self, later: UpdateMetadataRequest) -> None:
        self._last = later
        full = self._first.type == FULL
        for topic in later.topic_states:
            key = (topic.topic_name, topic.topic_id)
            self._states.put(key, topic.partition_states)
            states = self._states.of(key).values()
            if full and all(each.leader == LEADER_DURING_DELETE for each in states):
                # In a full message, what is not there does not exist.
                self._states.drop(key)

    def message(self) -> UpdateMetadataRequest:
        last = self._last
        if last is self._first:
            return last
        return UpdateMetadataRequest(
            controller_id=last.controller_id,
            controller_epoch=last.controller_epoch,
            broker_epoch=last.broker_epoch,
            type=self._first.type,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=name, topic_id=topic_id, partition_states=states
                )
                for name, topic_id, states in self._states.items()
            ],
            live_brokers=last.live_brokers,
        )
