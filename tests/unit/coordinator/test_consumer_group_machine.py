"""Members of a group that come, go, stall and repeat, with fail-overs at any record.

Some speak the classic protocol: with those that do not, they are in a consumer group, and alone in
a classic one, if consumer groups may become one.

At no time do two members use one partition, a table that is loaded from any prefix of the log fits,
and one loaded from all of it equals the live one, compacted or not. In the end every partition is
used.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.group.consumer.group import LEAVE_STATIC, ConsumerGroup
from barnabas.coordinator.group.consumer.settings import MigrationPolicy
from barnabas.coordinator.group.consumer.states import TRANSITIONS, ConsumerGroupState
from barnabas.coordinator.group.coordinator import GroupShard
from barnabas.coordinator.group.group import Group
from barnabas.coordinator.group.states import GroupState
from tests.support.coordinator.classic_members import ClassicMember
from tests.support.coordinator.consumers import Consumers, Member, check_group
from tests.support.coordinator.harness import GROUP

MEMBERS, CLASSIC = 4, 2
TOPICS = ("t", "u")

ALL_CLASSIC = [("classic", number) for number in range(CLASSIC)]

POLICIES = st.sampled_from([MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE])

member = st.integers(0, MEMBERS - 1)
classic = st.integers(0, CLASSIC - 1)
OFTEN = ["join", "beat", "tell", "beat", "tell"]
STEPS = st.one_of(
    # Three strategies: of one that is given three times, Hypothesis takes one.
    *(st.tuples(st.sampled_from(OFTEN), member) for _ in range(3)),
    st.tuples(st.sampled_from(["pass"]), st.sampled_from([1_000, 1_000, 10_000])),
    st.tuples(st.just("classic"), classic),
    st.tuples(st.just("classic"), classic),
    st.tuples(st.just("classic leaves"), classic),
    st.tuples(st.just("leave"), member),
    st.tuples(st.just("away"), member),
    st.tuples(st.just("forget answer"), member),
    st.tuples(st.just("subscribe"), member, st.sets(st.sampled_from(TOPICS))),
    st.tuples(st.just("expression"), member, st.sampled_from(["", "t|u", "u.*"])),
    st.tuples(st.just("grow"), st.sampled_from(TOPICS), st.integers(1, 6)),
    st.tuples(st.just("pass"), st.sampled_from([1, 1_000, 10_000, 40_000])),
    st.tuples(st.just("crash")),
)


Log = list[tuple[bytes | None, bytes | None]]


class Story:
    """The members, and what they use."""

    def __init__(self, policy: MigrationPolicy) -> None:
        self.host = Consumers(assignment_interval_ms=1_000, migration_policy=policy)
        self.state = ConsumerGroupState.EMPTY
        self.host.topics.create("t", 3)
        # The first and the second are static members.
        self.members = [
            Member(self.host, f"m{number}", instance_id=f"i{number}" if number < 2 else None)
            for number in range(MEMBERS)
        ]
        # The second may be the second one above in the other protocol.
        self.classic = [
            ClassicMember(self.host, instance_id=f"i{number}" if number else None)
            for number in range(CLASSIC)
        ]

    async def take(self, step: tuple[Any, ...]) -> None:
        name, *values = step
        if name == "grow":
            topic, partitions = values
            known = self.host.topics.topics.get(topic)
            self.host.topics.create(topic, max(partitions, known.partitions if known else 0))
        elif name == "pass":
            self.host.time.pass_ms(values[0])
            self.close_fenced()
        elif name == "crash":
            self.host.time.forget()
            await self.host.load()
            await asyncio.sleep(0)
        elif name == "classic":
            self.beat(self.classic[values[0]])
        elif name == "classic leaves":
            each = self.classic[values[0]]
            if each.generation:
                each.leave()
        else:
            self.of_member(name, self.members[values[0]], *values[1:])

    def beat(self, each: ClassicMember) -> None:
        twin = self.members[1] if each.instance_id else None
        if twin is not None and twin.epoch and not each.alive:
            twin.stop()
        each.beat()

    def of_member(self, name: str, each: Member, value: Any = None) -> None:
        if name == "join":
            twin = self.classic[1] if each is self.members[1] else None
            if twin is not None and twin.alive:
                twin.stop()
            # A client that starts again has another id.
            each.member_id += "'" if each.epoch else ""
            self.join(each)
            return
        if not each.epoch:
            return
        is_served = self.is_served(each)
        if name == "beat":
            each.beat()
        elif name == "tell":
            each.tell()
        elif name == "leave":
            each.leave()
        elif name == "away":
            each.leave(-1 if each.instance_id is None else -2)
        elif name == "forget answer":
            epoch, owned = each.epoch, each.owned
            each.tell()
            each.epoch, each.owned, each.lost = epoch, owned, True
            each.used = {topic_id: list(indexes) for topic_id, indexes in owned.items()}
        elif name == "subscribe":
            each.topics = tuple(sorted(value))
            each.beat(subscribed_topic_names=list(each.topics))
        else:
            each.expression = value
            each.beat(subscribed_topic_regex=value)
        self.take_fences(each, is_served=is_served)

    def join(self, each: Member) -> None:
        """Let a member join: only the instance id of another one that has not left is refused."""
        known = self.host.table.consumers.get(GROUP)
        holder = None if known is None else known.static_ids.get(each.instance_id or "")
        is_free = holder is None or known is None or known.members[holder].epoch == LEAVE_STATIC
        each.join()
        self.take_fences(each, is_served=is_free)

    def take_fences(self, each: Member, *, is_served: bool) -> None:
        """Stop a member that is fenced, and fail if it had to be served."""
        if each.fences:
            assert not is_served, each.fences
            each.fences.clear()
            each.stop()

    def is_served(self, each: Member) -> bool:
        """Return whether a member is not to be fenced: as in Kafka it is, if it has missed two
        answers with a new epoch, or one and uses what it has lost by now."""
        known = self.host.table.consumers[GROUP].members.get(each.member_id)
        if not each.lost or (known is not None and each.epoch == known.epoch):
            return True
        return (
            known is not None
            and each.epoch == known.previous_epoch
            and all(
                known.assigned.get(topic_id, {}).keys() >= set(indexes)
                for topic_id, indexes in each.owned.items()
            )
        )

    def close_fenced(self) -> None:
        """A client whose session has ended uses nothing: it knows its timeouts too."""
        known = self.host.table.consumers.get(GROUP)
        for each in self.members:
            if known is None or each.member_id not in known.members:
                each.stop()
        group = known or self.host.table.groups.get(GROUP)
        for client in self.classic:
            if client.generation and (group is None or client.member_id not in group.members):
                client.stop()

    def check_transition(self, *, one: bool) -> None:
        """Check that the group goes from state to state as docs/groups.md draws it."""
        group = self.host.table.consumers.get(GROUP)
        state = ConsumerGroupState.EMPTY if group is None else group.state
        if group is None and self.state is not ConsumerGroupState.EMPTY:
            assert ConsumerGroupState.DEAD in TRANSITIONS[self.state]
        elif one and state is not self.state:
            assert state in TRANSITIONS[self.state]
        self.state = state

    def check(self) -> None:
        used = [(topic_id, index) for topic_id, indexes in self.in_use() for index in indexes]
        assert len(used) == len(set(used)), "two members use a partition"
        live = self.host.table
        for log in (self.host.log.records, compacted(self.host.log.records)):
            fresh = self.loaded(log).state
            assert of_next(fresh.consumers) == of_next(live.consumers)
            group = live.groups.get(GROUP)
            if group is None:
                assert GROUP not in fresh.groups
            elif group.state is GroupState.STABLE:
                assert logged(fresh.groups[GROUP]) == logged(group)
        for consumers in live.consumers.values():
            check_group(consumers)

    def in_use(self) -> Iterator[tuple[bytes, list[int]]]:
        for each in self.members:
            yield from each.used.items()
        for old in self.classic:
            yield from old.owned.items()

    def loaded(self, log: Log) -> GroupShard:
        """Return a shard that is loaded from a log."""
        shard = self.host.new_shard()
        for key, value in log:
            assert key is not None
            record = shard.decode(key, value)
            assert record is not None
            shard.replay(record, -1)
        return shard


def of_next(groups: dict[str, ConsumerGroup]) -> dict[str, ConsumerGroup]:
    """Return groups as the next coordinator has them, which counts versions of topics anew."""
    found = {name: group.copy() for name, group in groups.items()}
    for group in found.values():
        group.forget_versions()
    return found


def logged(group: Group) -> tuple[Any, ...]:
    """Return what a loaded group has to have of a live one."""
    members = [
        (each.member_id, each.instance_id, each.assignment) for each in group.members.values()
    ]
    return group.generation, group.protocol_name, group.leader_id, members


def compacted(log: Log) -> Log:
    """Return the log after its compaction: of each key the last record, without tombstones."""
    last = {key: number for number, (key, _) in enumerate(log)}
    return [each for n, each in enumerate(log) if last[each[0]] == n and each[1] is not None]


async def play(steps: list[tuple[Any, ...]], was_classic: bool, policy: MigrationPolicy) -> None:
    story = Story(policy)
    await story.host.load()
    if was_classic:
        for step in (*ALL_CLASSIC, ("pass", 6_000), *ALL_CLASSIC):
            await story.take(step)
    else:
        for number in range(MEMBERS // 2):
            await story.take(("join", number))
    for step in steps:
        await story.take(step)
        assert not story.host.faults
        story.check()
        # In a long time several members may expire, one after the other.
        story.check_transition(one=step[0] != "pass")
    for count in range(len(story.host.log.records) + 1):
        for group in story.loaded(story.host.log.records[:count]).state.consumers.values():
            check_group(group)
    converge(story)


def converge(story: Story) -> None:
    """Every member that lives gets its part, and all partitions are used."""
    alive = [each for each in story.members if each.epoch > 0]
    classic = [each for each in story.classic if each.alive]
    for second in range(120):
        story.host.time.pass_ms(1_000)
        for old in classic:
            old.beat()
            if second == 30:
                # The leader of a classic group has to see new partitions itself. A static member
                # that comes back has the assignment of before (KIP-345).
                old.rejoin()
        for each in alive:
            # A static member that is fenced has to wait until its session ends.
            story.of_member("tell" if each.epoch else "join", each)
    assert all(each.epoch for each in alive)
    group = story.host.table.consumers.get(GROUP) or story.host.table.groups.get(GROUP)
    if not alive and not classic:
        assert group is None or not group.members
        return
    assert group is not None
    assert isinstance(group, ConsumerGroup) or not alive
    assert group.state.value == "Stable"
    wanted = {
        (topic.topic_id, index)
        for name in (group.subscribed() if isinstance(group, ConsumerGroup) else ("t",))
        if (topic := story.host.topics.find(name)) is not None
        for index in range(topic.partitions)
    }
    used = {(topic_id, index) for topic_id, indexes in story.in_use() for index in indexes}
    assert used == wanted


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, min_size=15, max_size=60), st.booleans(), POLICIES)
def test_members_share_partitions_through_anything(
    steps: list[tuple[Any, ...]], was_classic: bool, policy: MigrationPolicy
) -> None:
    asyncio.run(play(steps, was_classic, policy))
