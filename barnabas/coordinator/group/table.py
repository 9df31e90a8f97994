"""The groups of one partition of `__consumer_offsets`: the state on which decisions are made."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from barnabas.coordinator.decision import Decision
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.consumer.settings import ConsumerGroupSettings
from barnabas.coordinator.group.consumer.topics import NoTopics, Topics
from barnabas.coordinator.group.counts import GroupCounts
from barnabas.coordinator.group.group import Group, MemberMemory
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.group.records import GroupCoordinatorRecord
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.steps import Future

A = TypeVar("A")
GroupDecision = Decision[GroupCoordinatorRecord, A]
Rebalances = Callable[[str, str, str], None]
"""Called at a rebalance with the group, CLASSIC or CONSUMER, and the reason."""
_FEW: Final = 3


def named(members: Sequence[str]) -> str:
    """Return the names of members for a reason; of many the first."""
    more = "" if len(members) <= _FEW else f" and {len(members) - _FEW} more"
    return f"member {', '.join(members[:_FEW])}{more}"


def said(reason: str | None) -> str:
    """Return what a client said of its JoinGroup or LeaveGroup (KIP-800)."""
    return f" ({reason})" if reason else ""


def _not_told(group_id: str, protocol: str, reason: str) -> None:
    """Do nothing."""


class GroupTable:
    """Groups by id, and their committed offsets. Logged state changes by replay only."""

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        counts: GroupCounts,
        memory: MemberMemory,
        topics: Topics | None = None,
        settings_of: Callable[[str], ConsumerGroupSettings] = lambda _: ConsumerGroupSettings(),
        offload: Callable[[Callable[[], Any]], Future] | None = None,
        rebalances: Rebalances = _not_told,
    ) -> None:
        """`new_id` returns the random part of a member id, `settings_of` the settings of a consumer
        group. `offload` runs work outside of the event loop. `rebalances` is called when a group
        begins a rebalance, or its next epoch."""
        self.settings = settings
        self.new_id = new_id
        self.counts = counts
        self.memory = memory
        self.topics = NoTopics() if topics is None else topics
        self.settings_of = settings_of
        self.offload = offload
        self.rebalances = rebalances
        self.groups: dict[str, Group] = {}
        """Classic groups, and those that have offsets only."""
        self.consumers: dict[str, ConsumerGroup] = {}
        """Consumer groups (KIP-848). No id is in both."""
        self.offsets = Offsets()

    def every_group(self) -> list[Group | ConsumerGroup]:
        """Return the groups of both kinds."""
        return [*self.groups.values(), *self.consumers.values()]

    def require(self, group_id: str) -> Group:
        """Return a group; raises GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group_id} is not a classic group."
                if group_id in self.consumers
                else f"Group {group_id} not found.",
            )
        return group

    def require_consumers(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group of a member; raises UNKNOWN_MEMBER_ID."""
        group = self.consumers.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group
