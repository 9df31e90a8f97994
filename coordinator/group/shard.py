"""The state machine over one partition of `__consumer_offsets`: its groups and their offsets."""

from collections import Counter
from collections.abc import Callable, Mapping

from barnabas.coordinator.decision import Decision, Turn
from barnabas.coordinator.group.committing import Committing
from barnabas.coordinator.group.counts import OffsetCounts
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group
from barnabas.coordinator.group.joining import Client, Joining
from barnabas.coordinator.group.membership import Membership
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.group.rebalance import Rebalance
from barnabas.coordinator.group.records import (
    GroupCoordinatorRecord,
    GroupRecord,
    decode_record,
    encode_record,
    restored,
)
from barnabas.coordinator.group.sessions import Sessions
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.group.states import GroupState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.protocol.messages.list_groups import ListedGroup
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

CLASSIC = "classic"
"""The type of every group here, as ListGroups names it."""


class GroupShard:
    """Pure: it is asked, decides, and changes what is logged only when that is replayed."""

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        counts: OffsetCounts | None = None,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._settings = settings
        self._counts = counts or OffsetCounts()
        self._live = False
        sessions = Sessions(self._expired)
        rebalance = Rebalance(self.groups, settings, sessions)
        self._joining = Joining(self.groups, settings, sessions, rebalance, new_id)
        self._membership = Membership(self.groups, rebalance, sessions)
        self._committing = Committing(self.groups, settings, sessions, self._counts)

    # -- what the runtime needs ------------------------------------------------------------------

    def encode(self, record: GroupCoordinatorRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupCoordinatorRecord | None:
        return decode_record(key, value)

    def replay(self, record: GroupCoordinatorRecord, producer_id: int) -> None:
        """Apply what is committed, live and after a fail-over alike."""
        if isinstance(record, GroupRecord):
            self._replay_group(record)
            return
        if record.committed is not None and record.group_id not in self.groups:
            # A simple consumer's group exists through its offsets alone.
            self.groups[record.group_id] = Group(record.group_id, record.committed.commit_timestamp)
        self.offsets.replay(record, producer_id)

    def replay_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:  # noqa: ARG002
        """A transaction has ended: what it committed for groups counts, or is forgotten."""
        self.offsets.replay_marker(producer_id, committed)

    def _replay_group(self, record: GroupRecord) -> None:
        group = self.groups.get(record.group_id)
        value = record.value
        if value is None:
            if group is not None:
                group.transition(GroupState.DEAD, group.state_timestamp_ms)
                del self.groups[record.group_id]
        elif group is not None and self._live:
            assignments = {each.member_id: each.assignment for each in value.members}
            group.adopt(value.generation, assignments, value.current_state_timestamp)
        else:
            self.groups[record.group_id] = restored(record.group_id, value)

    def loaded(self, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        self._live = True
        return self._membership.resume(turn)

    def _expired(
        self, group_id: str, member_id: str, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        return self._membership.expired(group_id, member_id, turn)

    # -- members ---------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client: Client, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        return self._joining.join(request, client, turn)

    def sync(self, request: SyncGroupRequest, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        return self._membership.sync(request, turn)

    def heartbeat(self, request: HeartbeatRequest, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        return self._membership.heartbeat(request, turn)

    def leave(self, request: LeaveGroupRequest, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        return self._membership.leave(request, turn)

    # -- offsets ---------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        return self._committing.commit(request, turn)

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, guard: object | None, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        return self._committing.commit_transactional(request, guard, turn)

    def delete_offsets(
        self, request: OffsetDeleteRequest, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        """Forget offsets of topics that no member reads (KIP-496)."""
        group = self._require(request.group_id)
        if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        draft = Draft(turn)
        topics = []
        for topic in request.topics:
            wanted = [each.partition_index for each in topic.partitions]
            error = ErrorCode.NONE
            if group.is_subscribed(topic.name):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                draft.records += self.offsets.forget(group.group_id, topic.name, wanted)
            partitions = [
                OffsetDeleteResponsePartition(partition_index=each, error_code=error)
                for each in wanted
            ]
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        self._counts.deleted += len(draft.records)
        return draft.decision(OffsetDeleteResponse(topics=topics))

    def topics_deleted(
        self, group_id: str, topics: Mapping[str, bytes], turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        """Forget a group's offsets of topics that are no more, by name and id."""
        draft = Draft(turn)
        draft.records += self.offsets.forget_topics(group_id, topics)
        return draft.decision()

    def expire(self, group_id: str, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        """Forget a group's expired offsets, and the group where nothing of it is left."""
        draft = Draft(turn)
        group = self.groups.get(group_id)
        if group is None:
            return draft.decision()
        retention_ms = self._settings.offsets_retention_ms
        expired = self.offsets.expired(group, turn.now_ms, retention_ms)
        draft.records += expired
        self._counts.expired += len(expired)
        kept = sum(map(len, self.offsets.of_group(group_id).values())) - len(expired)
        empty = group.state is GroupState.EMPTY and not group.pending_joins
        if empty and not kept and group_id not in self.offsets.pending:
            draft.records.append(GroupRecord(group_id, None))
        return draft.decision()

    # -- groups ----------------------------------------------------------------------------------

    def delete(self, group_id: str, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        """Delete an empty group with its offsets."""
        group = self._require(group_id)
        if group.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        draft = Draft(turn)
        draft.records += self.offsets.forget_all(group_id)
        draft.records.append(GroupRecord(group_id, None))
        return draft.decision()

    def describe(self, group_id: str) -> DescribedGroup:
        """A group for people; raises GROUP_ID_NOT_FOUND."""
        group = self._require(group_id)
        stable = group.state is GroupState.STABLE
        protocol = (group.protocol_name or "") if stable else ""
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol,
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(protocol) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def listing(self, states: frozenset[str], types: frozenset[str]) -> list[ListedGroup]:
        """Groups in these states and of these types, in lower case; empty sets mean all."""
        if types and CLASSIC not in types:
            return []
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            for group in self.groups.values()
            if not states or group.state.value.lower() in states
        ]

    def states(self) -> Counter[str]:
        """How many groups are in each state."""
        return Counter(group.state.value for group in self.groups.values())

    def _require(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group
