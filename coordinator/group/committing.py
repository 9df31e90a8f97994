"""OffsetCommit and TxnOffsetCommit: who may commit for a group, and what becomes a record."""

from barnabas.coordinator.decision import Decision, Transaction, Turn
from barnabas.coordinator.group.counts import OffsetCounts
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group
from barnabas.coordinator.group.records import (
    GroupCoordinatorRecord,
    OffsetAndMetadata,
    OffsetRecord,
)
from barnabas.coordinator.group.sessions import Sessions
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.group.states import GroupState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.types import ZERO_UUID


class Committing:
    """Decides about OffsetCommit and TxnOffsetCommit."""

    def __init__(
        self,
        groups: dict[str, Group],
        settings: GroupSettings,
        sessions: Sessions,
        counts: OffsetCounts,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._sessions = sessions
        self._counts = counts

    def commit(self, request: OffsetCommitRequest, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        """Offsets as records; topics come by name. Raises KafkaError where the sender may not."""
        draft = Draft(turn)
        group = self._groups.get(request.group_id)
        if group is not None:
            self._check(
                group,
                request.generation_id_or_member_epoch,
                request.member_id,
                request.group_instance_id,
            )
            if group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
                self._sessions.extend(draft, group, group.members[request.member_id])
        elif request.generation_id_or_member_epoch >= 0:
            # Clients before KIP-848 know no GROUP_ID_NOT_FOUND here: see `downgrade`.
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        topics = [self._commit_topic(draft, request, topic) for topic in request.topics]
        self._counts.committed += len(draft.records)
        return draft.decision(OffsetCommitResponse(topics=topics))

    @staticmethod
    def _check(
        group: Group,
        generation: int,
        member_id: str,
        instance_id: str | None,
        *,
        in_transaction: bool = False,
    ) -> None:
        """A transaction may come between join and assignment, and from outside the group, as it
        does from all clients before KIP-447."""
        if group.state is GroupState.EMPTY and generation < 0:
            # A consumer that assigns partitions itself, or an administrator.
            return
        if generation < 0 and not member_id and instance_id is None:
            if in_transaction:
                return
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        group.require_member(member_id, instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is GroupState.COMPLETING_REBALANCE and not in_transaction:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _commit_topic(
        self, draft: Draft, request: OffsetCommitRequest, topic: OffsetCommitRequestTopic
    ) -> OffsetCommitResponseTopic:
        answers = []
        for partition in topic.partitions:
            error = ErrorCode.NONE
            if self._is_too_large(partition.committed_metadata):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                committed = _committed(
                    partition, draft.turn.now_ms, request.retention_time_ms, topic.topic_id
                )
                draft.records.append(
                    OffsetRecord(request.group_id, topic.name, partition.partition_index, committed)
                )
            answers.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
            )
        return OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=answers
        )

    def _is_too_large(self, metadata: str | None) -> bool:
        return len(metadata or "") > self._settings.offset_metadata_max_bytes

    # -- in a transaction ------------------------------------------------------------------------

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, guard: object | None, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        """Offsets as records of a transaction. Raises KafkaError where the sender may not."""
        group = self._groups.get(request.group_id)
        if group is not None:
            self._check(
                group,
                request.generation_id,
                request.member_id,
                request.group_instance_id,
                in_transaction=True,
            )
        elif request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        records: list[OffsetRecord] = []
        topics = [self._add_topic(records, request, topic, turn) for topic in request.topics]
        self._counts.committed += len(records)
        return Decision(
            records,
            TxnOffsetCommitResponse(topics=topics),
            transaction=Transaction(request.producer_id, request.producer_epoch, guard),
        )

    def _add_topic(
        self,
        records: list[OffsetRecord],
        request: TxnOffsetCommitRequest,
        topic: TxnOffsetCommitRequestTopic,
        turn: Turn,
    ) -> TxnOffsetCommitResponseTopic:
        answers = []
        for partition in topic.partitions:
            error = ErrorCode.NONE
            if self._is_too_large(partition.committed_metadata):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                committed = _committed(partition, turn.now_ms)
                records.append(
                    OffsetRecord(request.group_id, topic.name, partition.partition_index, committed)
                )
            answers.append(
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
            )
        return TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)


def _committed(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now_ms: int,
    retention_ms: int = -1,
    topic_id: bytes = ZERO_UUID,
) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms,
        -1 if retention_ms < 0 else now_ms + retention_ms,
        topic_id,
    )
