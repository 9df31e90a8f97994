"""OffsetCommit: who may commit for a group, and what becomes a record."""

from barnabas.coordinator.decision import Decision, Turn
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


class Committing:
    """Decides about OffsetCommit."""

    def __init__(
        self, groups: dict[str, Group], settings: GroupSettings, sessions: Sessions
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._sessions = sessions

    def commit(self, request: OffsetCommitRequest, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        """Offsets as records; topics come by name. Raises KafkaError where the sender may not."""
        draft = Draft(turn)
        group = self._groups.get(request.group_id)
        if group is not None:
            self._check(group, request)
            if group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
                self._sessions.extend(draft, group, group.members[request.member_id])
        elif request.generation_id_or_member_epoch >= 0:
            # Clients before KIP-848 know no GROUP_ID_NOT_FOUND here: see `downgrade`.
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        topics = [self._commit_topic(draft, request, topic) for topic in request.topics]
        return draft.decision(OffsetCommitResponse(topics=topics))

    @staticmethod
    def _check(group: Group, request: OffsetCommitRequest) -> None:
        generation, member_id = request.generation_id_or_member_epoch, request.member_id
        if group.state is GroupState.EMPTY and generation < 0:
            # A consumer that assigns partitions itself, or an administrator.
            return
        if generation < 0 and not member_id and request.group_instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        group.require_member(member_id, request.group_instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _commit_topic(
        self, draft: Draft, request: OffsetCommitRequest, topic: OffsetCommitRequestTopic
    ) -> OffsetCommitResponseTopic:
        answers = []
        for partition in topic.partitions:
            error = ErrorCode.NONE
            if len(partition.committed_metadata or "") > self._settings.offset_metadata_max_bytes:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                draft.records.append(_record(draft.turn, request, topic, partition))
            answers.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
            )
        return OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=answers
        )


def _record(
    turn: Turn,
    request: OffsetCommitRequest,
    topic: OffsetCommitRequestTopic,
    partition: OffsetCommitRequestPartition,
) -> OffsetRecord:
    retention_ms = request.retention_time_ms
    return OffsetRecord(
        request.group_id,
        topic.name,
        partition.partition_index,
        OffsetAndMetadata(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            turn.now_ms,
            -1 if retention_ms < 0 else turn.now_ms + retention_ms,
            topic.topic_id,
        ),
    )
