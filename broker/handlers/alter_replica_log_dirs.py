"""AlterReplicaLogDirs (key 34): replicas move between log directories of this broker (KIP-113).

Answers once the moves have begun; DescribeLogDirs shows how far they are. A replica that is not
here yet is remembered, and made in that directory when it comes.
"""

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_replica_log_dirs import (
    API,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

__all__ = ["API", "SERVES", "AlterReplicaLogDirsHandler", "error_response"]

SERVES = range(1, 3)


class AlterReplicaLogDirsHandler:
    """Each replica moves or not on its own; of one that is named twice the last place counts."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def handle(
        self, request: AlterReplicaLogDirsRequest, _context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        codes = {place: await self._place(*place, path) for place, path in _wanted(request).items()}
        return _response(codes)

    async def _place(self, topic: str, index: int, path: str) -> ErrorCode:
        try:
            await self._replicas.place(topic, index, path)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


def _wanted(request: AlterReplicaLogDirsRequest) -> dict[tuple[str, int], str]:
    return {
        (topic.name, index): each.path
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    }


def _response(codes: dict[tuple[str, int], ErrorCode]) -> AlterReplicaLogDirsResponse:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (topic, index), code in codes.items():
        if topic not in results:
            results[topic] = AlterReplicaLogDirTopicResult(topic_name=topic, partitions=[])
        results[topic].partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def error_response(
    request: AlterReplicaLogDirsRequest, code: ErrorCode, _version: int
) -> AlterReplicaLogDirsResponse:
    """The answer where the whole request fails."""
    return _response(dict.fromkeys(_wanted(request), code))
