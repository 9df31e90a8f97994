"""UpdateMetadata (key 6): the controller updates the brokers' metadata caches. Brokers only.

The versions of Kafka 3.9: v1 endpoints; v2 rack; v3 listener names; v4 offline replicas; v5 grouped
by topic, broker epochs (KIP-380); v6 flexible; v7 topic ids (KIP-516); v8 both types of controllers
(KIP-866).

Errors: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import MAX_CONTROLLER_ELEMENTS, field, message, since, tagged
from barnabas.protocol.types import (
    ZERO_UUID,
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    String,
    Uuid,
)


@message
class UpdateMetadataPartitionState:
    """One partition; leader -1: no leader, -2: the topic is being deleted."""

    topic_name: String = field(until=4, default="", ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: Array[Int32]
    zk_version: Int32
    replicas: Array[Int32]
    offline_replicas: Array[Int32] = since(4, default_factory=list, ignorable=True)


@message
class UpdateMetadataTopicState:
    """Partitions of one topic."""

    topic_name: String = since(5, default="")
    topic_id: Uuid = since(7, default=ZERO_UUID, ignorable=True)
    partition_states: Array[UpdateMetadataPartitionState] = since(5, default_factory=list)


@message
class UpdateMetadataEndpoint:
    """The address of a broker on one listener."""

    port: Int32 = since(1, default=0)
    host: String = since(1, default="")
    listener: String = since(3, default="", ignorable=True)
    security_protocol: Int16 = since(1, default=0)


@message
class UpdateMetadataBroker:
    """A live broker with all its endpoints."""

    id: Int32
    v0_host: String = field(until=0, default="", ignorable=True)
    v0_port: Int32 = field(until=0, default=0, ignorable=True)
    endpoints: Array[UpdateMetadataEndpoint] = since(1, default_factory=list, ignorable=True)
    rack: NullableString = since(2, default="", ignorable=True)


@message
class UpdateMetadataRequest:
    """All live brokers, and the partitions that changed."""

    controller_id: Int32
    is_kraft_controller: Bool = since(8, default=False)
    type: Int8 = tagged(0, since=8, default=0)
    controller_epoch: Int32
    broker_epoch: Int64 = since(5, default=-1, ignorable=True)
    ungrouped_partition_states: Array[UpdateMetadataPartitionState] = field(
        until=4, default_factory=list
    )
    topic_states: Array[UpdateMetadataTopicState] = since(5, default_factory=list)
    live_brokers: Array[UpdateMetadataBroker]


@message
class UpdateMetadataResponse:
    """The error code of the broker."""

    error_code: Int16 = field(default=0)


API = declare(
    __name__,
    flexible=6,
    request=UpdateMetadataRequest,
    response=UpdateMetadataResponse,
    max_elements=MAX_CONTROLLER_ELEMENTS,
)
