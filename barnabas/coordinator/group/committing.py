"""Commits of offsets, by OffsetCommit and by TxnOffsetCommit."""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.coordinator.decision import AT_ONCE, Decision, Instant, TransactionWriter
from barnabas.coordinator.group.consumer.offsets import check_commit
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group
from barnabas.coordinator.group.rebalance import extend_session
from barnabas.coordinator.group.records import OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.group.states import GroupState
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.steps import Steps
from barnabas.protocol.types import ZERO_UUID


class NewOffset(NamedTuple):
    """An offset to commit for one partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: bytes = ZERO_UUID


class CommitOffsets(NamedTuple):
    """A request to commit offsets for a group."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: Sequence[NewOffset]
    retention_ms: int = -1
    """The client's own retention (OffsetCommit v2 to v4); -1 for the broker's."""
    producer: TransactionWriter | None = None
    """The producer in whose transaction the offsets are committed (TxnOffsetCommit)."""
    knows_epochs: bool = True
    """Whether the version of the request has member epochs (KIP-848)."""


def commit_offsets(
    table: GroupTable, request: CommitOffsets, now: Instant
) -> GroupDecision[list[ErrorCode]]:
    """Commit offsets; answered with one code for each of them.

    In a transaction, they count once the producer commits it. Raises UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, GROUP_ID_NOT_FOUND, and outside of a
    transaction REBALANCE_IN_PROGRESS and UNSUPPORTED_VERSION.
    """
    draft = Draft(table, now)
    in_transaction = request.producer is not None
    group = table.groups.get(request.group_id)
    if group is not None:
        _check(group, request, in_transaction=in_transaction)
        may_extend = group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        if may_extend and not in_transaction:
            extend_session(draft, group, group.members[request.member_id])
    elif (consumers := table.consumers.get(request.group_id)) is not None:
        check_commit(
            consumers,
            request.member_id,
            request.generation_id,
            ((each.topic_id, each.partition) for each in request.offsets),
            has_instance=request.group_instance_id is not None,
            in_transaction=in_transaction,
            knows_epochs=request.knows_epochs,
        )
    elif request.generation_id >= 0:
        # Older clients do not know this error here: see `downgrade`.
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    codes: list[ErrorCode] = []
    steps = _add_records(draft, request, codes)
    return Decision(codes, draft.records, draft.effects, producer=request.producer, steps=steps)


def _add_records(draft: Draft, request: CommitOffsets, codes: list[ErrorCode]) -> Steps[None]:
    table, wall_ms = draft.table, draft.now.wall_ms
    for number, each in enumerate(request.offsets):
        if number and not number % AT_ONCE:
            yield None
        if len(each.metadata or "") > table.settings.offset_metadata_max_bytes:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        codes.append(ErrorCode.NONE)
        committed = _committed(each, wall_ms, request.retention_ms)
        draft.records.append(OffsetRecord(request.group_id, each.topic, each.partition, committed))
    table.counts.committed += len(draft.records)


def _check(group: Group, request: CommitOffsets, *, in_transaction: bool) -> None:
    """Check the member and its generation.

    A transaction may commit between join and assignment, and from outside the group, as it does
    from all clients before KIP-447.
    """
    generation_id, member_id = request.generation_id, request.member_id
    if group.state is GroupState.EMPTY and generation_id < 0:
        # A consumer that assigns partitions itself, or an administrator.
        return
    if generation_id < 0 and not member_id and request.group_instance_id is None:
        if in_transaction:
            return
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    group.require_member(member_id, request.group_instance_id)
    if generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is GroupState.COMPLETING_REBALANCE and not in_transaction:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def _committed(new: NewOffset, now_ms: int, retention_ms: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        new.offset,
        new.leader_epoch,
        new.metadata or "",
        now_ms,
        -1 if retention_ms < 0 else now_ms + retention_ms,
        new.topic_id,
    )
