"""The questions to the cluster before a sink writes anything."""

from typing import Final, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster, check
from barnabas.client.two_phase import init_producer_id
from barnabas.pipeline.sink.cluster_port import DRIVER_TIMEOUT_MS
from barnabas.pipeline.sink.options import Delivery, SinkOptions
from barnabas.pipeline.sink.protocol import SinkError, decisions_topic
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import init_producer_id as init_message

_TWO_PHASE_VERSION: Final = 6
"""The version of InitProducerId with KIP-939."""
_MAX_TIMEOUT_KEY: Final = "transaction.max.timeout.ms"
_DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
"""Kafka's default, if the brokers do not show their configuration."""


class SinkPlan(NamedTuple):
    """The sink as its driver has checked it; each task gets a copy."""

    options: SinkOptions
    transaction_timeout_ms: int
    two_phase_tasks: bool
    """Whether transactions of tasks never time out, see `exactly-once-bounded`."""


async def make_plan(cluster: Cluster, options: SinkOptions) -> SinkPlan:
    """Check that the cluster can serve a sink. Raises SinkError."""
    if options.topic is not None:
        await partitions_of(cluster, options.topic)
    if not options.is_transactional:
        return SinkPlan(options, 0, False)
    longest = await _longest_timeout_ms(cluster)
    timeout = options.transaction_timeout_ms or longest
    if timeout > longest:
        raise SinkError(
            f"transactionTimeout={timeout} ms is more than the brokers allow, {longest} ms: lower"
            f" it, or raise {_MAX_TIMEOUT_KEY} on every broker"
        )
    if longest < DRIVER_TIMEOUT_MS:
        raise SinkError(
            f"{_MAX_TIMEOUT_KEY}={longest} ms is too short for the transactions of a sink's driver:"
            f" set it to {DRIVER_TIMEOUT_MS} or more on every broker"
        )
    await _check_decisions(cluster, decisions_topic(options.sink_id))
    error = await _probe(cluster, options.sink_id, timeout, keep=True)
    if options.delivery is Delivery.EXACTLY_ONCE:
        _require_two_phase(error)
        return SinkPlan(options, timeout, False)
    never_time_out = (
        error is ErrorCode.UNSUPPORTED_VERSION
        and await _probe(cluster, options.sink_id, timeout, keep=False) is ErrorCode.NONE
    )
    return SinkPlan(options, timeout, never_time_out)


async def partitions_of(cluster: Cluster, topic: str) -> int:
    """Return the number of a topic's partitions now. Raises SinkError.

    A missing topic is not created: its name may have a typing error.
    """

    async def attempt() -> int:
        response = await cluster.refresh([topic])
        for row in response.topics:
            check(row.error_code, f"topic {topic}")
        return len(cluster.topics[topic].leaders)

    try:
        return await cluster.retrying(attempt)
    except KafkaError as error:
        raise SinkError(f"topic {topic} cannot be written: {error}; create it first") from error


async def _longest_timeout_ms(cluster: Cluster) -> int:
    node = min(cluster.nodes)
    try:
        rows = await cluster.retrying(
            lambda: Admin(cluster).describe_configs(ConfigResourceType.BROKER, str(node))
        )
    except KafkaError:
        return _DEFAULT_MAX_TIMEOUT_MS
    found = {row.name: row.value for row in rows}.get(_MAX_TIMEOUT_KEY)
    return int(found) if found else _DEFAULT_MAX_TIMEOUT_MS


async def _check_decisions(cluster: Cluster, topic: str) -> None:
    """Check that an existing topic keeps the last decision of a sink. Raises SinkError."""
    response = await cluster.retrying(lambda: cluster.refresh([topic]))
    partitions = len(response.topics[0].partitions)
    if response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return
    if partitions > 1:
        raise SinkError(
            f"topic {topic} has {partitions} partitions, a sink has its decisions in one: choose"
            " another sinkId"
        )
    rows = await cluster.retrying(
        lambda: Admin(cluster).describe_configs(ConfigResourceType.TOPIC, topic)
    )
    policy = {row.name: row.value for row in rows}.get("cleanup.policy")
    if policy not in (None, "compact"):
        raise SinkError(
            f"topic {topic} has cleanup.policy={policy}, which deletes the last decision: set"
            " cleanup.policy=compact, or choose another sinkId"
        )


async def _probe(cluster: Cluster, sink_id: str, timeout_ms: int, *, keep: bool) -> ErrorCode:
    """Return the response to a two-phase InitProducerId, of an id that writes nothing.

    UNSUPPORTED_VERSION if the brokers do not know the request, or cannot keep a transaction.
    """
    connection = await cluster.any_connection()
    if connection.version_for(init_message.API) < _TWO_PHASE_VERSION:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    try:
        await init_producer_id(
            cluster, f"{sink_id}.probe", timeout_ms, two_phase=not keep, keep_prepared=keep
        )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _require_two_phase(error: ErrorCode) -> None:
    if error is ErrorCode.NONE:
        return
    ways = {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
            "set transaction.two.phase.commit.enable=true on every broker"
        ),
        ErrorCode.UNSUPPORTED_VERSION: (
            "finalize transaction.version 2 on Barnabas (Apache Kafka keeps no transactions)"
        ),
    }
    way = ways.get(error, f"see the brokers' logs for {error.name}")
    raise SinkError(
        "delivery=exactly-once needs brokers that keep prepared transactions (KIP-939):"
        f" {way}, or choose delivery=exactly-once-bounded"
    )
