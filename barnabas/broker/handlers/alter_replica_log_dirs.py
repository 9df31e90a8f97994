"""AlterReplicaLogDirs (key 34): move replicas between log directories of this broker (KIP-113).

The response leaves when the moves have begun; DescribeLogDirs shows their progress. The directory
of a replica that does not exist yet is remembered, and the replica is created there.
"""

from collections.abc import Mapping

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.security.rights import ALTER, CLUSTER, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_replica_log_dirs import (
    API,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "error_response", "handle"]

RIGHTS = Rights(whole=(Need(ALTER, CLUSTER),))


def handle(
    replicas: ReplicaManager, request: AlterReplicaLogDirsRequest, _context: RequestContext
) -> Steps[AlterReplicaLogDirsResponse]:
    """Move each replica on its own; for a replica that is named twice the last directory counts."""
    wanted = yield from _wanted(request)
    return (yield from _response((yield in_task(_moved(replicas, wanted)))))


async def _moved(
    replicas: ReplicaManager, wanted: Mapping[tuple[str, int], str]
) -> dict[tuple[str, int], ErrorCode]:
    codes = {}
    async for place, path in replicas.slicer.each(wanted.items()):
        codes[place] = await _place(replicas, *place, path)
    return codes


async def _place(replicas: ReplicaManager, topic: str, index: int, path: str) -> ErrorCode:
    try:
        await replicas.alter_log_dir(topic, index, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _wanted(request: AlterReplicaLogDirsRequest) -> Steps[dict[tuple[str, int], str]]:
    wanted = {}
    for each in request.dirs:
        yield None
        for topic in each.topics:
            yield None
            for index in topic.partitions:
                wanted[topic.name, index] = each.path
                yield None
    return wanted


def _response(codes: Mapping[tuple[str, int], ErrorCode]) -> Steps[AlterReplicaLogDirsResponse]:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (topic, index), code in codes.items():
        if topic not in results:
            results[topic] = AlterReplicaLogDirTopicResult(topic_name=topic, partitions=[])
        results[topic].partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        )
        yield None
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def error_response(
    request: AlterReplicaLogDirsRequest, code: ErrorCode, _version: int
) -> Steps[AlterReplicaLogDirsResponse]:
    """Answer every partition with the error."""
    wanted = yield from _wanted(request)
    return (yield from _response(dict.fromkeys(wanted, code)))
