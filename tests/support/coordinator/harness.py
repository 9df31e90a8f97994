"""A clock, timers and a log that a test controls, and a group coordinator on top of them."""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.loop.slices import Slicer
from barnabas.coordinator.decision import TransactionWriter
from barnabas.coordinator.group.client import Client
from barnabas.coordinator.group.committing import CommitOffsets, NewOffset
from barnabas.coordinator.group.coordinator import GroupCoordinator, GroupShard
from barnabas.coordinator.group.counts import GroupCounts
from barnabas.coordinator.group.group import MemberMemory
from barnabas.coordinator.group.records import GroupCoordinatorRecord
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.group.table import GroupTable
from barnabas.coordinator.ports import Shard, Slices
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.types import ZERO_UUID
from tests.support.coordinator.fake_log import FakeLog

UNCHANGED: Any = SimpleNamespace(topic_changes=0, partition=lambda *_: "known")
"""Metadata that know each partition."""
WALL_MS = 1_700_000_000_000
GROUP = "g"
PRODUCER, EPOCH = 9, 3


class Time:
    """Clock and timers at once."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self._order = count()
        self._timers: list[tuple[int, int, Timer]] = []

    def now_ms(self) -> int:
        return WALL_MS + self.passed_ms

    def monotonic(self) -> float:
        return self.passed_ms / 1000

    def call_later(self, seconds: float, callback: Callable[[], None]) -> "Timer":
        timer = Timer(callback)
        at_ms = self.passed_ms + round(seconds * 1000)
        heapq.heappush(self._timers, (at_ms, next(self._order), timer))
        return timer

    async def pause(self) -> None:
        await asyncio.sleep(0)

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass; each timer fires at its own time."""
        end_ms = self.passed_ms + milliseconds
        while self._timers and self._timers[0][0] <= end_ms:
            self.passed_ms, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.callback()
        self.passed_ms = end_ms

    def forget(self) -> None:
        """Drop all timers, as if their process had ended."""
        self._timers.clear()

    @property
    def running(self) -> int:
        return sum(not timer.cancelled for _, _, timer in self._timers)


@dataclass
class Timer:
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Groups:
    """A group coordinator over one partition, with a short method for each request."""

    def __init__(self, *, slices: Slices | None = None, **settings: int) -> None:
        """Work in slices is done at once without `slices`."""
        self.time = Time()
        self.log = FakeLog()
        self.faults: list[BaseException] = []
        self.in_touch = True
        ids = (str(number) for number in count(1))
        self._settings = GroupSettings(**settings)
        self.counts = GroupCounts()
        self.memory = MemberMemory()
        self.runtime = CoordinatorRuntime(
            lambda *_: GroupShard(
                GroupTable(self._settings, ids.__next__, self.counts, self.memory)
            ),
            clock=self.time,
            timers=self.time,
            slices=slices or Slicer(self.time.monotonic),
            write_timeout_ms=5000,
            load_buffer_bytes=1 << 20,
            in_touch=lambda: self.in_touch,
            report=lambda _, error: self.faults.append(error),
        )
        self.coordinator = GroupCoordinator(self.runtime, self.time, lambda _: 0)

    async def load(self) -> "Groups":
        self.runtime.elected(0, self.log)
        while self.runtime.loading:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return self

    @property
    def table(self) -> GroupTable:
        return self.runtime.read(0, lambda table: table)

    @property
    def shard(self) -> Shard[GroupTable, GroupCoordinatorRecord]:
        return self.runtime._hosted[0].shard

    @property
    def timers(self) -> set[tuple[str, ...]]:
        """The keys of the timers that run."""
        return set(self.runtime._hosted[0]._timers)

    @property
    def group(self) -> Any:
        return self.table.groups[GROUP]

    @property
    def state(self) -> str:
        return str(self.group.state.value)

    # -- requests --------------------------------------------------------------------------------

    def join(self, member_id: str = "", *, version: int = 3, **options: Any) -> Any:
        request = join_request(member_id, **options)
        protocols = tuple((each.name, each.metadata) for each in request.protocols)
        client = Client(version, "client", "/127.0.0.1", protocols)
        return self.coordinator.join(request, client)

    def sync(self, member_id: str, generation: int, **assignments: str) -> Any:
        return self.coordinator.sync(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=generation,
                member_id=member_id,
                assignments=[
                    SyncGroupRequestAssignment(
                        member_id=key.replace("_", "-"), assignment=value.encode()
                    )
                    for key, value in assignments.items()
                ],
            )
        )

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> int:
        return self.coordinator.heartbeat(
            HeartbeatRequest(
                group_id=GROUP,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
            )
        ).error_code

    def leave(self, *members: str, instance: str | None = None) -> Any:
        """Answered with the code of each member."""
        leaving = [MemberIdentity(member_id=each, group_instance_id=instance) for each in members]
        return self.coordinator.leave(GROUP, leaving)

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation: int = -1,
        group_id: str = GROUP,
        topic: str = "t",
        metadata: str | None = None,
        retention_ms: int = -1,
        topic_id: bytes = ZERO_UUID,
    ) -> Any:
        """Answered with the code of the partition."""
        offset_of = NewOffset(topic, 0, offset, metadata=metadata, topic_id=topic_id)
        return self.coordinator.commit_offsets(
            CommitOffsets(group_id, generation, member_id, None, [offset_of], retention_ms)
        )

    def commit_transactional(
        self,
        offset: int,
        producer_id: int = PRODUCER,
        *,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        group_id: str = GROUP,
        topic: str = "t",
        metadata: str | None = None,
        guard: object | None = None,
    ) -> Any:
        """Answered with the code of the partition."""
        return self.coordinator.commit_offsets(
            CommitOffsets(
                group_id,
                generation,
                member_id,
                instance,
                [NewOffset(topic, 0, offset, metadata=metadata)],
                producer=TransactionWriter(producer_id, EPOCH, guard),
            )
        )

    def delete_offset(self, topic: str = "t", group_id: str = GROUP) -> Any:
        """Delete the offset of partition 0; answered with the topics that keep theirs."""
        return self.coordinator.delete_offsets(group_id, {topic: [0]})

    def end(self, producer_id: int = PRODUCER, *, committed: bool = True) -> Any:
        """Write the marker of a producer's transaction."""
        return self.runtime.write_marker(0, TxnMarker(producer_id, EPOCH, 0, committed, 2))

    def is_pending(self, group_id: str = GROUP, topic: str = "t") -> bool:
        return self.table.offsets.pending.has(group_id, topic, 0)

    def offset(self, group_id: str = GROUP, topic: str = "t") -> int | None:
        found = self.table.offsets.find(group_id, topic, 0)
        return None if found is None else found.offset

    # -- whole stories ---------------------------------------------------------------------------

    async def stable(self, members: int = 1, **options: Any) -> list[str]:
        """Form a stable group of new members in its first generation; return their ids, the leader
        first."""
        joins = [self.join(**options) for _ in range(members)]
        self.time.pass_ms(self._settings.initial_rebalance_delay_ms * (members + 1))
        ids = [(await each).member_id for each in joins]
        syncs = [self.sync(each, 1) for each in ids[1:]]
        first = self.sync(ids[0], 1, **{each.replace("-", "_"): each for each in ids})
        assert not isinstance(first, asyncio.Future)
        for each in syncs:
            await each
        assert self.state == "Stable"
        return ids


def code_of(call: Callable[[], Any]) -> str:
    """Return the name of the error that a request raises at once."""
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code.name


def join_request(
    member_id: str = "",
    *,
    group_id: str = GROUP,
    instance: str | None = None,
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
    protocol_type: str = "consumer",
    protocols: tuple[tuple[str, bytes], ...] = (("range", b"metadata"),),
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
    )


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata, version 0."""
    names = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def delete(groups: Groups, topic: str = "t", group_id: str = GROUP) -> ErrorCode:
    """Delete the offset of partition 0, and return its error."""
    kept = topic in groups.delete_offset(topic, group_id)
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if kept else ErrorCode.NONE
