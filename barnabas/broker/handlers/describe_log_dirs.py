"""DescribeLogDirs (key 35): the replicas of each log directory, and its free space.

v3 an error of the whole request, v4 sizes of the volume, v5 cordoned directories (none here).
"""

from collections.abc import Iterable

from barnabas.broker.loop.offload import Offload
from barnabas.broker.security.rights import CLUSTER, DESCRIBE, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.describe_log_dirs import (
    API,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.protocol.steps import Steps
from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.log.log import Log
from barnabas.storage.opening.log_manager import LogManager

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(whole=(Need(DESCRIBE, CLUSTER),))

_UNKNOWN_LAG = -1


def handle(
    logs: LogManager,
    offload: Offload,
    request: DescribeLogDirsRequest,
    _context: RequestContext,
) -> Steps[DescribeLogDirsResponse]:
    """Answer from the logs; only the sizes of the volumes are asked of the disk."""
    wanted: dict[tuple[str, int], None] | None = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            yield None
            for index in topic.partitions:
                wanted[topic.topic, index] = None
                yield None
    results = []
    for log_dir in logs.dirs:
        results.append((yield from _describe(logs, offload, log_dir, wanted)))
        yield None
    return DescribeLogDirsResponse(results=results)


def _describe(
    logs: LogManager, offload: Offload, log_dir: LogDir, wanted: Iterable[tuple[str, int]] | None
) -> Steps[DescribeLogDirsResult]:
    try:
        total, free = yield offload.submit("logs", lambda: logs.space(log_dir))
    except KafkaError as error:
        return DescribeLogDirsResult(error_code=error.code, log_dir=log_dir.path, topics=[])
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in _found(logs, wanted):
        yield None
        if log is None or log.log_dir is not log_dir:
            continue
        if log.topic not in topics:
            topics[log.topic] = DescribeLogDirsTopic(name=log.topic, partitions=[])
        topics[log.topic].partitions.append(
            DescribeLogDirsPartition(
                partition_index=log.partition,
                partition_size=log.size,
                offset_lag=_lag(logs, log),
                is_future_key=logs.is_future(log),
            )
        )
    return DescribeLogDirsResult(
        log_dir=log_dir.path,
        topics=list(topics.values()),
        total_bytes=total,
        usable_bytes=free,
    )


def _found(logs: LogManager, wanted: Iterable[tuple[str, int]] | None) -> Iterable[Log | None]:
    """Return the wanted logs, or all, future logs included; None stands for one that is missing."""
    if wanted is None:
        return [*logs.logs, *logs.futures.values()]
    return (log for each in wanted for log in (logs.get(*each), logs.futures.get(each)))


def _lag(logs: LogManager, log: Log) -> int:
    """Return the lag of a log: a future log lags behind the log from which it is copied."""
    if not logs.is_future(log):
        return max(0, log.high_watermark - log.log_end_offset)
    current = logs.get(log.topic, log.partition)
    return _UNKNOWN_LAG if current is None else current.log_end_offset - log.log_end_offset
