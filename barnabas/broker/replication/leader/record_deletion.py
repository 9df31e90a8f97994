"""DeleteRecords: the deletion of records before retention is due.

The leader deletes first, its followers follow. Records count as deleted when every replica has
deleted them: a follower that still has them may lead next.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import Waiter
from barnabas.protocol.errors import ErrorCode, KafkaError

HIGH_WATERMARK: Final = -1
"""The requested offset that stands for all committed records."""


class Deletion(NamedTuple):
    """A partition whose leader has moved its log start to `offset`, and whose followers will."""

    partition: Partition
    offset: int


def delete_records(partition: Partition, offset: int) -> Deletion:
    """Move the start of the leader's log to `offset`, -1 for the high watermark.

    Raises KafkaError: OFFSET_OUT_OF_RANGE, or POLICY_VIOLATION where cleanup.policy has no delete.
    """
    log = partition.log
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.delete_records_before(offset)
    partition.tell_followers()
    return Deletion(partition, offset)


async def await_deletions(
    deletions: Iterable[Deletion], timeout: float
) -> dict[Deletion, KafkaError]:
    """Wait until all replicas that are alive have deleted; return the errors of the others.

    The errors are REQUEST_TIMED_OUT after `timeout` seconds, and NOT_LEADER_OR_FOLLOWER where this
    broker has lost the leadership.
    """
    loop = asyncio.get_running_loop()
    waits: dict[Deletion, asyncio.Future[KafkaError | None]] = {}
    for deletion in deletions:
        partition, offset = deletion
        if partition.low_watermark < offset:
            waits[deletion] = done = loop.create_future()
            partition.deleted.add(offset, _waiter(done))
    if waits:
        await asyncio.wait(waits.values(), timeout=timeout)
    errors = {
        deletion: done.result() if done.done() else KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        for deletion, done in waits.items()
    }
    return {deletion: error for deletion, error in errors.items() if error is not None}


def _waiter(done: "asyncio.Future[KafkaError | None]") -> Waiter:
    def tell(error: KafkaError | None) -> None:
        if not done.done():
            done.set_result(error)

    return tell
