"""The log directories of brokers, as rows."""

from collections.abc import Iterable

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.operations.answers.log_dirs import LogDir
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.topic_partition import TopicPartition

ONLINE = "online"
"""The state of a log directory without a failure."""


async def broker_ids(cluster: Cluster, broker: int | None) -> list[int]:
    """Return the id of one broker, or of all."""
    if broker is not None:
        return [broker]
    await cluster.refresh()
    return sorted(cluster.nodes)


async def directories(
    cluster: Cluster, broker: int | None, partitions: Iterable[TopicPartition] | None = None
) -> list[LogDir]:
    """Return a row for each log directory, of one broker or of all; its replicas and bytes are
    those of all partitions, or of some."""
    return [
        LogDir(
            broker=node,
            log_dir=each.log_dir,
            state=ErrorCode.of(each.error_code).text if each.error_code else ONLINE,
            replicas=sum(len(topic.partitions) for topic in each.topics),
            bytes=sum(row.partition_size for topic in each.topics for row in topic.partitions),
            total_bytes=each.total_bytes,
            usable_bytes=each.usable_bytes,
        )
        for node in await broker_ids(cluster, broker)
        for each in await Admin(cluster).describe_log_dirs(node, partitions)
    ]
