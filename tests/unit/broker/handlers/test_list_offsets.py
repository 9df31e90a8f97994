"""ListOffsets where there are several replicas: who is told which end, and when nobody is yet."""

from barnabas.broker.handlers.list_offsets import (
    API,
    EARLIEST,
    LATEST,
    ListOffsetsHandler,
)
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.records.record import Record, build_batch
from tests.unit.broker.replication.replicas import Replicas

BATCH = build_batch([Record(0, 1, b"k", b"v", ())])
CONSUMER, DEBUGGER, FOLLOWER = -1, -2, 1
PAIR = {"isr": (0, 1), "replicas": (0, 1)}


class Asking:
    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.partition = replicas.manager.partition("t", 0)
        self._handler = ListOffsetsHandler(replicas.manager)

    def append(self) -> None:
        self.partition.append_as_leader(BATCH, now_ms=1)

    def ask(self, replica_id: int, timestamp: int = LATEST, version: int = 7) -> tuple[int, int]:
        """Error and offset."""
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[asked])]
        )
        context = RequestContext(API.key, version, 1, "c", "User:ANONYMOUS", "L", "h", 1, 0)
        answer = self._handler.handle(request, context).topics[0].partitions[0]
        return answer.error_code, answer.offset


async def asking() -> Asking:
    replicas = Replicas()
    await replicas.lead(**PAIR)
    return Asking(replicas)


async def test_consumers_are_told_what_is_committed_and_followers_what_there_is() -> None:
    there = await asking()
    there.append()
    there.append()
    there.replicas.fetched(1, 1)
    assert there.ask(CONSUMER) == (ErrorCode.NONE, 1)
    assert there.ask(FOLLOWER) == (ErrorCode.NONE, 2)
    assert there.ask(CONSUMER, 1) == (ErrorCode.NONE, 0)


async def test_a_new_leader_tells_consumers_no_end_before_it_is_sure_of_it() -> None:
    """KIP-207: an earlier leader may have told a later one."""
    there = await asking()
    there.append()
    await there.replicas.lead(**PAIR, epoch=1)
    assert there.ask(CONSUMER) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert there.ask(CONSUMER, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert there.ask(CONSUMER, 1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert there.ask(CONSUMER, EARLIEST) == (ErrorCode.NONE, 0)
    assert there.ask(FOLLOWER) == (ErrorCode.NONE, 1)
    there.replicas.fetched(1, 1)
    assert there.ask(CONSUMER) == (ErrorCode.NONE, 1)


async def test_who_follows_is_asked_by_debuggers_alone() -> None:
    there = await asking()
    there.append()
    await there.replicas.lead(**PAIR, leader=1, epoch=1)
    for asker in (CONSUMER, FOLLOWER):
        assert there.ask(asker) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert there.ask(DEBUGGER) == (ErrorCode.NONE, 1)
    await there.replicas.fetchers.stop()
