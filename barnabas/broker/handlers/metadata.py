"""Metadata (key 3): the leaders of partitions, and the addresses of brokers.

v1 can request no topic, v4 can forbid creation, v5 has offline replicas, v7 leader epochs, v8
authorized operations (KIP-430; v11 leaves the cluster's to DescribeCluster), v10 returns topic ids,
v12 accepts them, v13 has an error of the whole response. Errors by topic:
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION; by partition:
LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND.

A topic that the request creates exists when the response leaves. Kafka answers at once that the
topic is unknown, and its clients retry.

A topic is encoded once for all requests of the same kind, until it changes.
"""

from collections.abc import Callable, Container, Coroutine, Iterable
from typing import Any, Final

from barnabas.broker.cluster.cache import (
    NO_LEADER,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)
from barnabas.broker.cluster.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from barnabas.broker.cluster.topic_names import INTERNAL_TOPICS, why_unknown
from barnabas.broker.security.rights import (
    CLUSTER,
    CREATE,
    DESCRIBE,
    HIDDEN_OF_ALL,
    TOPIC,
    Each,
    Need,
    Operations,
    Rights,
)
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import freed
from barnabas.coordinator.soon import in_task
from barnabas.protocol.compile import Form
from barnabas.protocol.compile_encode import encoder
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.metadata import (
    API,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import Encoded
from barnabas.protocol.steps import Steps, in_steps
from barnabas.protocol.types import ZERO_UUID
from barnabas.security.acl.rules import CLUSTER_NAME

__all__ = ["API", "RIGHTS", "handle"]

_IDS_SINCE = 12
_OPERATIONS = range(8, 11)
_AT_ONCE: Final = 16
"""The encoded topics of one step."""
_KINDS: Final = 4
"""The kinds of requests for which a topic stays encoded."""
Kind = tuple[int, str, int, bool]
"""The kind of a request: the brokers, the listener, the version, and whether operations are asked
for."""


def _refused(topic: MetadataRequestTopic, code: ErrorCode, version: int) -> MetadataResponseTopic:
    # v10 and v11 have ids, but no answer without a name.
    name = "" if topic.name is None and version < _IDS_SINCE else topic.name
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic.topic_id, partitions=[])


RIGHTS = Rights(
    each=Each("topics", (), _refused, "topics"),
    inside=(
        Need(DESCRIBE, TOPIC, "name", "topic_id", without=HIDDEN_OF_ALL),
        Need(CREATE, TOPIC, "name", unless=Need(CREATE, CLUSTER)),
    ),
    operations=(
        Operations("topic_authorized_operations", TOPIC, "topics", "name"),
        Operations("cluster_authorized_operations", CLUSTER),
    ),
)


def handle(
    cache: MetadataCache,
    auto_create: Callable[[], bool],
    create: Callable[[Iterable[str]], Coroutine[Any, Any, None]],
    request: MetadataRequest,
    context: RequestContext,
) -> Steps[MetadataResponse]:
    """Answer from the metadata cache, once it has been filled.

    `auto_create` returns `auto.create.topics.enable`. `create` creates topics with default
    settings; a topic that it cannot create stays unknown.
    """
    version = context.api_version
    yield from _check(request, version)
    if not cache.ready:
        # An error "unknown topic" would make producers forget their sequence numbers.
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    asked = _Asked(cache, request, context)
    if request.topics is None or (version == 0 and not request.topics):
        return _answer(asked, request, (yield from asked.all()))
    ids: dict[bytes, None] = {}
    names: dict[str, None] = {}
    for topic in request.topics:
        ids[topic.topic_id] = names[topic.name or ""] = None
        yield None
    topics: list[Any] = []
    if ids.keys() - {ZERO_UUID}:
        # As in Kafka, a request with one topic id is a request by ids.
        ids.pop(ZERO_UUID, None)
        for topic_id in ids:
            found = yield from asked.by_id(topic_id)
            topics.append(found)
        return _answer(asked, request, topics)
    refused: set[str] = set()
    if request.allow_auto_topic_creation and auto_create():
        missing = []
        for name in names:
            if (
                cache.topic(name) is None
                and why_unknown(name) is not _INVALID
                and context.allows(DESCRIBE, TOPIC, name)
            ):
                if _may_create(name, context):
                    missing.append(name)
                else:
                    refused.add(name)
            yield None
        if missing:
            yield in_task(create(missing))
    for name in names:
        found = yield from asked.by_name(name, refused)
        topics.append(found)
    return _answer(asked, request, topics)


def _may_create(name: str, context: RequestContext) -> bool:
    return context.allows(CREATE, CLUSTER, CLUSTER_NAME, log_denied=False) or context.allows(
        CREATE, TOPIC, name
    )


def _answer(asked: "_Asked", request: MetadataRequest, topics: list[Any]) -> MetadataResponse:
    cache, context = asked.cache, asked.context
    wants_operations = (
        context.api_version in _OPERATIONS and request.include_cluster_authorized_operations
    )
    return MetadataResponse(
        brokers=_brokers(cache, context.listener),
        cluster_id=cache.cluster_id,
        controller_id=cache.controller_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
    )


def _brokers(cache: MetadataCache, listener: str) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(
            node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
        )
        for broker in cache.brokers.values()
        if (endpoint := broker.endpoints.get(listener)) is not None
    ]


class _Asked:
    """The topics of the cache, as a request asks for them."""

    def __init__(
        self, cache: MetadataCache, request: MetadataRequest, context: RequestContext
    ) -> None:
        self.cache = cache
        self.context = context
        asks_operations = request.include_topic_authorized_operations
        self._operations = TOPIC_OPERATIONS if asks_operations else NOT_ASKED
        self._kind: Kind | None = None
        """None if the response is for this client alone: the gate changes its operations."""
        if context.asker is None or not asks_operations:
            self._kind = (
                cache.broker_changes, context.listener, context.api_version, asks_operations
            )  # fmt: skip

    def all(self) -> Steps[list[MetadataResponseTopic | Encoded]]:
        """Return all topics that the client may see."""
        topics = []
        for number, each in enumerate(list(self.cache.topics.values())):
            if self.context.allows(DESCRIBE, TOPIC, each.name, log_denied=False):
                known = each.encoded.get(self._kind)
                topics.append(known or (yield from self._topic(each)))
            if not number % _AT_ONCE:
                yield None
        return topics

    def by_id(self, topic_id: bytes) -> Steps[MetadataResponseTopic | Encoded]:
        yield None
        topic = self.cache.topic_by_id(topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=[]
            )
        if not self.context.allows(DESCRIBE, TOPIC, topic.name):
            return MetadataResponseTopic(
                error_code=_REFUSED, name=None, topic_id=topic_id, partitions=[]
            )
        return (yield from self._topic(topic))

    def by_name(self, name: str, refused: Container[str]) -> Steps[MetadataResponseTopic | Encoded]:
        """`refused` has the missing topics that the client may not create."""
        yield None
        if not self.context.allows(DESCRIBE, TOPIC, name):
            # The name is all that the response has, whether or not the topic exists.
            return MetadataResponseTopic(error_code=_REFUSED, name=name, partitions=[])
        if name in refused:
            return MetadataResponseTopic(
                error_code=_REFUSED, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[]
            )
        topic = self.cache.topic(name)
        if topic is not None:
            return (yield from self._topic(topic))
        return MetadataResponseTopic(
            error_code=why_unknown(name),
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[],
            topic_authorized_operations=self._operations,
        )

    def _topic(self, topic: TopicMetadata) -> Steps[MetadataResponseTopic | Encoded]:
        known = topic.encoded.get(self._kind)
        if known is not None:
            return known
        described = list(topic.partitions.values())
        found = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=(yield from in_steps(self._partition, described)),
            topic_authorized_operations=self._operations,
        )
        if self._kind is None:
            return found
        encode = encoder(MetadataResponseTopic, self.context.api_version, Form.SLICED)
        body = b"".join((yield from encode(found)))
        codes = tuple(each.error_code for each in found.partitions if each.error_code)
        # In one go, that of many partitions takes long.
        yield from freed(found.partitions)
        known = Encoded(body, codes)
        if described == list(topic.partitions.values()):
            topic.encoded[self._kind] = known
            if len(topic.encoded) > _KINDS:
                del topic.encoded[next(iter(topic.encoded))]
        return known

    def _partition(self, partition: PartitionMetadata) -> MetadataResponsePartition:
        cache, context = self.cache, self.context
        listener, version = context.listener, context.api_version
        replicas, isr = list(partition.replicas), list(partition.isr)
        error, leader = ErrorCode.NONE, partition.leader
        if cache.endpoint(leader, listener) is None:
            if leader in cache.brokers:
                error = downgrade(API.key, version, ErrorCode.LISTENER_NOT_FOUND)
            else:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        if version == 0:
            # Clients of v0 assume that every replica in the response is alive.
            replicas = [each for each in replicas if self._reachable(each)]
            isr = [each for each in isr if self._reachable(each)]
            fewer = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
            if fewer and error is ErrorCode.NONE:
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=partition.partition_index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=list(partition.offline_replicas),
        )

    def _reachable(self, broker_id: int) -> bool:
        return self.cache.endpoint(broker_id, self.context.listener) is not None


_INVALID = ErrorCode.INVALID_TOPIC_EXCEPTION
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _check(request: MetadataRequest, version: int) -> Steps[None]:
    if version < _IDS_SINCE:
        for topic in request.topics or ():
            if topic.name is None or topic.topic_id != ZERO_UUID:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            yield None
