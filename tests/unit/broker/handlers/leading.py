"""A leader, and the requests of a follower to its Fetch handler."""

from collections.abc import Awaitable, Callable
from typing import Any

from barnabas.broker.handlers.fetch import handle
from barnabas.broker.replication.leader.fetch_lookup import FetchLookup
from barnabas.broker.replication.leader.fetch_session import FetchedPartition, FetchSessionCache
from barnabas.broker.replication.leader.follower_read import FollowerServices
from barnabas.broker.replication.leader.replica_selector import ReplicaSelector
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.messages.fetch import (
    API,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.principal import ANONYMOUS
from tests.support.steps import all_taken
from tests.unit.broker.replication.replicas import Replicas

BATCH = build_batch([Record(0, 1, b"k", b"v" * 50, ())])


def topic_id(number: int) -> bytes:
    return (number + 1).to_bytes(16)


def collaborators(
    replicas: Replicas,
    *,
    lookup: FetchLookup | None = None,
    sessions: FetchSessionCache | None = None,
    selector: Callable[[], str | None] = lambda: None,
    max_bytes: Callable[[], int] = lambda: 1 << 20,
    is_present: Callable[[int, int], Any] = lambda *_: True,
) -> Any:
    """Return the collaborators of Fetch."""
    lookup = lookup or FetchLookup(replicas.manager, replicas.cache)
    if sessions is None:
        sessions = FetchSessionCache(10, iter(range(1, 100)).__next__)
    quota, metrics = replicas.quotas.leader, replicas.metrics.replication
    monotonic = replicas.clock.monotonic
    followers = FollowerServices(lookup, quota, metrics, monotonic, is_present)
    chosen = ReplicaSelector(0, replicas.cache, selector)
    return sessions, lookup, chosen, followers, max_bytes


class CountingLookup(FetchLookup):
    """A lookup that counts the partitions of a request."""

    looks = 0

    def find(self, fetched: FetchedPartition) -> Partition:
        self.looks += 1
        return super().find(fetched)


class Leader:
    """A broker that leads topics 0, 1, 2 ... of one partition, and a follower of them."""

    def __init__(self, topics: int, **configs: str) -> None:
        self.topics = range(topics)
        self.replicas = Replicas(**configs)
        self.lookup = CountingLookup(self.replicas.manager, self.replicas.cache)
        self.sessions = FetchSessionCache(10, iter(range(1, 100)).__next__)
        self.selector: str | None = None
        self.parts = collaborators(
            self.replicas,
            lookup=self.lookup,
            sessions=self.sessions,
            selector=lambda: self.selector,
            is_present=lambda *claim: self.registered(*claim),
        )
        self.registered: Callable[[int, int], bool | Awaitable[bool]] = lambda _id, _epoch: True
        self.session_id, self.session_epoch = 0, 0
        self.ends: dict[int, int] = {}

    async def lead(self, topic: int, **state: Any) -> None:
        state = {"isr": (0, 1), "replicas": (0, 1)} | state
        await self.replicas.lead(topic=f"t{topic}", topic_id=topic_id(topic), **state)
        self.replicas.cache._known.names[topic_id(topic)] = f"t{topic}"

    def partition(self, topic: int = 0) -> Partition:
        return self.replicas.manager.partition(f"t{topic}", 0)

    def append(self, topic: int = 0) -> None:
        self.partition(topic).append(BATCH, now_ms=1)

    def ask(self, *ends: dict[int, int], **options: Any) -> Any:
        """Do what `begin` does, and take all steps."""
        return all_taken(self.begin(*ends, **options))

    def begin(
        self,
        ends: dict[int, int] | None = None,
        *,
        replica: int = 1,
        broker_epoch: int = 1,
        inter_broker: bool = True,
        leader_epoch: int = 0,
        epochs: dict[int, int] | None = None,
        forget: tuple[int, ...] = (),
        **fields: Any,
    ) -> Any:
        """Send the next request of the follower's session; `ends` has its changed partitions."""
        ends = dict.fromkeys(self.topics, 0) if ends is None else ends
        request = FetchRequest(
            **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | fields,
            replica_state=ReplicaState(replica_id=replica, replica_epoch=broker_epoch),
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[
                FetchTopic(
                    topic_id=topic_id(topic),
                    partitions=[
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=end,
                            last_fetched_epoch=(epochs or {}).get(topic, -1),
                            log_start_offset=0,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
                for topic, end in ends.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id(topic), partitions=[0]) for topic in forget
            ],
        )
        context = RequestContext(API.key, 17, 1, "c", ANONYMOUS, "BROKERS", "h", 1, 0, inter_broker)
        self.lookup.looks = 0
        return handle(*self.parts, request, context)  # type: ignore[call-arg]

    def session(self, response: Any) -> dict[int, PartitionData]:
        """Continue the session of an answer; return its partitions by topic."""
        self.session_id = response.session_id
        self.session_epoch += 1
        return {
            int.from_bytes(topic.topic_id) - 1: topic.partitions[0] for topic in response.responses
        }


async def leading(topics: int = 1, **configs: str) -> Leader:
    leader = Leader(topics, **configs)
    for topic in leader.topics:
        await leader.lead(topic)
    return leader


def sizes(answers: dict[int, PartitionData]) -> dict[int, int]:
    return {topic: len(answer.records or b"") // len(BATCH) for topic, answer in answers.items()}
