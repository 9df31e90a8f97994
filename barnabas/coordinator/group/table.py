"""The groups of one partition of `__consumer_offsets`: the state on which decisions are made."""

from collections.abc import Callable
from typing import TypeVar

from barnabas.coordinator.decision import Decision
from barnabas.coordinator.group.counts import OffsetCounts
from barnabas.coordinator.group.group import Group, MemberMemory
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.group.records import GroupCoordinatorRecord
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.protocol.errors import ErrorCode, KafkaError

A = TypeVar("A")
GroupDecision = Decision[GroupCoordinatorRecord, A]


class GroupTable:
    """Groups by id, and their committed offsets. Logged state changes by replay only."""

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        counts: OffsetCounts,
        memory: MemberMemory,
    ) -> None:
        """`new_id` returns the random part of a member id."""
        self.settings = settings
        self.new_id = new_id
        self.counts = counts
        self.memory = memory
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    def require(self, group_id: str) -> Group:
        """Return a group; raises GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def require_of_member(self, group_id: str) -> Group:
        """Return the group of a member; raises UNKNOWN_MEMBER_ID."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group
