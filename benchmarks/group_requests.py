"""Small requests to a group coordinator from the raw client: the same ones, again and again."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Any

from barnabas.protocol.messages import (
    add_offsets_to_txn,
    heartbeat,
    join_group,
    offset_commit,
    sync_group,
    txn_offset_commit,
)
from benchmarks import raw
from benchmarks.raw_producers import GROUP, accepted, coordinator_port, ended, initialised, until
from benchmarks.requests import WINDOW, Round, measured
from benchmarks.systems import System

OFFSET_COMMIT, HEARTBEAT, TXN_OFFSET_COMMIT = "OffsetCommit", "Heartbeat", "TxnOffsetCommit"
NAMES = OFFSET_COMMIT, HEARTBEAT, TXN_OFFSET_COMMIT
TOPIC = "committed"
_MEMBER_ID_REQUIRED = 79


def offset_commits(system: System, count: int) -> Round:
    """Measure commits of one offset by a client that is no member."""
    group = f"commits-{time.time_ns()}"
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=42, committed_metadata=None
    )
    topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    request = offset_commit.OffsetCommitRequest(group_id=group, member_id="", topics=[topic])
    with _topic(system), _coordinator(system, group) as client:
        until(lambda: not _partition_error(client.call(offset_commit.API, 8, request)))
        frame = raw.frame(offset_commit.API, 8, request)
        return {OFFSET_COMMIT: measured(system.pid, client, repeat(frame, count), count, WINDOW)}


def heartbeats(system: System, count: int) -> Round:
    """Measure the heartbeats of the one member of a stable group of the classic protocol."""
    group = f"beats-{time.time_ns()}"
    with _coordinator(system, group) as client:
        member, generation = _joined(client, group)
        request = heartbeat.HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member
        )
        until(lambda: not client.call(heartbeat.API, 4, request).error_code)
        frame = raw.frame(heartbeat.API, 4, request)
        return {HEARTBEAT: measured(system.pid, client, repeat(frame, count), count, WINDOW)}


def txn_offset_commits(system: System, count: int) -> Round:
    """Measure commits of one offset in an open transaction."""
    name = f"txn-commits-{time.time_ns()}"
    with raw.connect(system.port) as client:
        port = coordinator_port(client, name)
    with _topic(system), raw.connect(port) as coordinator, _coordinator(system, name) as client:
        producer = initialised(coordinator, name)
        adds = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=name,
        )
        until(lambda: not coordinator.call(add_offsets_to_txn.API, 3, adds).error_code)
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=42, committed_metadata=None
        )
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
            ],
        )
        until(lambda: not _partition_error(client.call(txn_offset_commit.API, 3, request)))
        frame = raw.frame(txn_offset_commit.API, 3, request)
        figures = measured(system.pid, client, repeat(frame, count), count, WINDOW)
        accepted(coordinator, ended(producer))
        return {TXN_OFFSET_COMMIT: figures}


def loads(count: int) -> list[Callable[[System], Round]]:
    """Return the loads of one round."""
    return [partial(each, count=count) for each in (offset_commits, heartbeats, txn_offset_commits)]


@contextmanager
def _topic(system: System) -> Iterator[None]:
    with raw.connect(system.port) as client:
        raw.create_topic(client, TOPIC)
        yield
        raw.delete_topic(client, TOPIC)


def _coordinator(system: System, group: str) -> raw.Client:
    with raw.connect(system.port) as client:
        return raw.connect(coordinator_port(client, group, GROUP))


def _joined(client: raw.Client, group: str) -> tuple[str, int]:
    """Join as the one member, and share out nothing; return the member and the generation."""
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=45_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )

    def joined() -> Any:
        answer = client.call(join_group.API, 5, request)
        if answer.error_code == _MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
        return None if answer.error_code else answer

    answer = until(joined)
    share = sync_group.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"")
    shares = sync_group.SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=[share],
    )
    until(lambda: not client.call(sync_group.API, 3, shares).error_code)
    return answer.member_id, answer.generation_id


def _partition_error(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)
