"""Records that are deleted before retention would: first by the leader, then by its followers.

They are gone when they are gone everywhere: a follower that has them still might lead next.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import Waiter
from barnabas.protocol.errors import ErrorCode, KafkaError

HIGH_WATERMARK: Final = -1
"""Asked for as an offset: everything that is committed."""


class Deletion(NamedTuple):
    """A partition whose log is to start at `offset`; the leader's does already."""

    partition: Partition
    offset: int


def delete_records(partition: Partition, offset: int) -> Deletion:
    """Let the leader's log start at `offset`, -1 for the high watermark.

    Raises KafkaError: OFFSET_OUT_OF_RANGE, or POLICY_VIOLATION on a log that is not deleted.
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


async def followed(deletions: Iterable[Deletion], timeout: float) -> dict[Deletion, KafkaError]:
    """Wait until all replicas that are alive have deleted; errors where that is not so.

    REQUEST_TIMED_OUT after `timeout` seconds, NOT_LEADER_OR_FOLLOWER from who leads no more.
    """
    loop = asyncio.get_running_loop()
    waits: dict[Deletion, asyncio.Future[KafkaError | None]] = {}
    for deletion in deletions:
        partition, offset = deletion
        if partition.low_watermark < offset:
            waits[deletion] = done = loop.create_future()
            partition.deleted.add(offset, _teller(done))
    if waits:
        await asyncio.wait(waits.values(), timeout=timeout)
    errors = {
        deletion: done.result() if done.done() else KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        for deletion, done in waits.items()
    }
    return {deletion: error for deletion, error in errors.items() if error is not None}


def _teller(done: "asyncio.Future[KafkaError | None]") -> Waiter:
    def tell(error: KafkaError | None) -> None:
        if not done.done():
            done.set_result(error)

    return tell
