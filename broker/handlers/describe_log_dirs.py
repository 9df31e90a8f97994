"""DescribeLogDirs (key 35): what lies in which directory, and how much room is left.

v3 an error of the whole request, v4 sizes of the volume, v5 cordoned directories (none here).
"""

from collections.abc import Sequence

from barnabas.broker.offload import Offload
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_log_dirs import (
    API,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.storage.log import Log
from barnabas.storage.log_dir import LogDir
from barnabas.storage.log_manager import LogManager

__all__ = ["API", "SERVES", "DescribeLogDirsHandler", "error_response"]

SERVES = range(1, 6)
_UNKNOWN_LAG = -1


class DescribeLogDirsHandler:
    """Answers from the logs; only the volumes' sizes must be asked of the disk."""

    def __init__(self, logs: LogManager, offload: Offload) -> None:
        self._logs = logs
        self._offload = offload

    async def handle(
        self, request: DescribeLogDirsRequest, _context: RequestContext
    ) -> DescribeLogDirsResponse:
        wanted = None
        if request.topics is not None:
            wanted = {
                (topic.topic, index) for topic in request.topics for index in topic.partitions
            }
        results = []
        for log_dir in self._logs.dirs:
            logs = [
                log
                for log in self._logs.logs_in(log_dir)
                if wanted is None or (log.topic, log.partition) in wanted
            ]
            results.append(await self._describe(log_dir, logs))
        return DescribeLogDirsResponse(results=results)

    async def _describe(self, log_dir: LogDir, logs: Sequence[Log]) -> DescribeLogDirsResult:
        try:
            total, free = await self._offload.submit("logs", lambda: self._logs.space(log_dir))
        except KafkaError as error:
            return DescribeLogDirsResult(error_code=error.code, log_dir=log_dir.path, topics=[])
        topics: dict[str, DescribeLogDirsTopic] = {}
        for log in logs:
            if log.topic not in topics:
                topics[log.topic] = DescribeLogDirsTopic(name=log.topic, partitions=[])
            topics[log.topic].partitions.append(
                DescribeLogDirsPartition(
                    partition_index=log.partition,
                    partition_size=log.size,
                    offset_lag=self._lag(log),
                    is_future_key=self._logs.is_future(log),
                )
            )
        return DescribeLogDirsResult(
            log_dir=log_dir.path,
            topics=list(topics.values()),
            total_bytes=total,
            usable_bytes=free,
        )

    def _lag(self, log: Log) -> int:
        """Of a replica on its way, behind the one that is copied."""
        if not self._logs.is_future(log):
            return max(0, log.high_watermark - log.log_end_offset)
        current = self._logs.get(log.topic, log.partition)
        return _UNKNOWN_LAG if current is None else current.log_end_offset - log.log_end_offset


def error_response(
    _request: DescribeLogDirsRequest, code: ErrorCode, _version: int
) -> DescribeLogDirsResponse:
    """An error of the whole request (v3); older versions tell of no directory."""
    return DescribeLogDirsResponse(error_code=code, results=[])
