"""Any sequence of requests to a group: invariants hold after every step, and a reload restores the
same state."""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.coordinator.group.coordinator import GroupShard
from barnabas.coordinator.group.counts import GroupCounts
from barnabas.coordinator.group.group import Group, MemberMemory
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.group.states import GroupState
from barnabas.coordinator.group.table import GroupTable
from barnabas.coordinator.soon import wait
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import NO_PRODUCER_ID, iter_headers
from barnabas.protocol.records.record import iter_records
from tests.support.coordinator.harness import GROUP, Groups

INSTANCES = st.sampled_from([None, None, "i1", "i2"])
PROTOCOLS = st.sampled_from(
    [(("range", b"a"),), (("range", b"b"),), (("sticky", b"c"), ("range", b"d"))]
)


def logged(group: Group) -> tuple[Any, ...]:
    """Return the part of a group that a reload must restore."""
    protocol = group.protocol_name or ""
    return (
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        group.state_timestamp_ms if group.state is GroupState.EMPTY else None,
        [
            (each.member_id, each.instance_id, each.metadata(protocol), each.assignment)
            for each in group.members.values()
        ],
    )


def reloaded(groups: Groups) -> GroupTable:
    """Return the state of a fresh shard that has replayed the committed log."""
    shard = GroupShard(GroupTable(GroupSettings(), lambda: "unused", GroupCounts(), MemberMemory()))
    for batch in groups.log.batches:
        for position, header in iter_headers(batch):
            for record in iter_records(batch, position, header):
                if record.offset < groups.log.committed and record.key is not None:
                    decoded = shard.decode(record.key, record.value)
                    assert decoded is not None
                    shard.replay(decoded, NO_PRODUCER_ID)
    return shard.state


class GroupMachine(RuleBasedStateMachine):
    """A group with clients that send any request at any time, on a log that may lag or refuse."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.groups = self.loop.run_until_complete(Groups(max_size=4).load())
        self.ids: list[str] = ["stranger"]
        self.last_acked: int | None = None
        self.parked: list[asyncio.Future[Any]] = []

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    def ask(self, request: Any) -> Any:
        """Return the answer; None if it is an error or still to come."""

        async def run() -> Any:
            answer = request()
            await asyncio.sleep(0)
            return answer

        try:
            answer = self.loop.run_until_complete(run())
        except KafkaError:
            return None
        if not isinstance(answer, asyncio.Future):
            return answer
        if not answer.done():
            self.wait(answer)
            return None
        return None if answer.exception() else answer.result()

    def wait(self, answer: asyncio.Future[Any]) -> None:
        answer.add_done_callback(lambda done: done.exception())
        self.parked.append(answer)

    @property
    def live(self) -> Group | None:
        return self.groups.table.groups.get(GROUP)

    @property
    def generation(self) -> int:
        return self.live.generation if self.live else 1

    # -- what clients do -----------------------------------------------------------------------

    @rule(instance=INSTANCES, protocols=PROTOCOLS, version=st.sampled_from([3, 4, 9]))
    def join(self, instance: str | None, protocols: Any, version: int) -> None:
        answer = self.ask(
            lambda: self.groups.join(instance=instance, protocols=protocols, version=version)
        )
        if answer is not None:
            self.ids.append(answer.member_id)

    @rule(data=st.data(), protocols=PROTOCOLS)
    def rejoin(self, data: st.DataObject, protocols: Any) -> None:
        member_id = data.draw(st.sampled_from(self.ids))
        member = self.live.members.get(member_id) if self.live else None
        instance = member.instance_id if member else None
        self.ask(lambda: self.groups.join(member_id, instance=instance, protocols=protocols))

    @rule(data=st.data(), stale=st.booleans())
    def sync(self, data: st.DataObject, stale: bool) -> None:
        member_id = data.draw(st.sampled_from(self.ids))
        given = {each.replace("-", "_"): f"to {each}" for each in self.ids}
        generation = self.generation - stale
        answer = self.ask(lambda: self.groups.sync(member_id, generation, **given))
        if answer is not None:
            assert self.live is not None
            assert answer.assignment == self.live.members[member_id].assignment

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(self.ids))
        self.ask(lambda: self.groups.heartbeat(member_id, self.generation))

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(self.ids))
        self.ask(lambda: self.groups.leave(member_id))

    @rule(instance=st.sampled_from(["i1", "i2"]))
    def remove_instance(self, instance: str) -> None:
        self.ask(lambda: self.groups.leave("", instance=instance))

    @rule(data=st.data(), offset=st.integers(0, 9), simple=st.booleans())
    def commit(self, data: st.DataObject, offset: int, simple: bool) -> None:
        if simple:
            answer = self.ask(lambda: self.groups.commit(offset))
        else:
            member_id = data.draw(st.sampled_from(self.ids))
            answer = self.ask(
                lambda: self.groups.commit(offset, member_id=member_id, generation=self.generation)
            )
        if answer is not None:
            assert self.groups.offset() == offset

    @rule()
    def delete(self) -> None:
        async def run() -> None:
            await wait(self.groups.coordinator.delete(GROUP))

        async def begin() -> None:
            self.wait(asyncio.ensure_future(run()))
            await asyncio.sleep(0)

        self.loop.run_until_complete(begin())

    # -- what the world does -------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([1, 1_000, 3_000, 10_000, 60_000, 300_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.act(lambda: self.groups.time.pass_ms(milliseconds))

    @precondition(lambda self: not self.groups.log.held)
    @rule()
    def hold(self) -> None:
        self.groups.log.held = True

    @rule()
    def release(self) -> None:
        self.act(self.groups.log.release)

    @rule(refuse=st.booleans())
    def refuse(self, refuse: bool) -> None:
        self.groups.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS) if refuse else None

    @rule()
    def expire_offsets(self) -> None:
        async def begin() -> None:
            self.wait(asyncio.ensure_future(self.groups.coordinator.expire()))
            await asyncio.sleep(0)

        self.loop.run_until_complete(begin())

    @precondition(lambda self: not self.groups.log.held and self.groups.log.refusal is None)
    @rule()
    def fail_over(self) -> None:
        """Let another broker take over: requests that wait are refused, and logged state stays."""
        self.loop.run_until_complete(self.groups.load())
        live = self.live
        assert live is None or live.state in (GroupState.EMPTY, GroupState.STABLE)
        assert all(each.done() or isinstance(each, asyncio.Task) for each in self.parked)

    def act(self, deed: Any) -> None:
        async def run() -> None:
            deed()
            for _ in range(3):
                await asyncio.sleep(0)

        self.loop.run_until_complete(run())

    # -- what always holds ---------------------------------------------------------------------

    @invariant()
    def nothing_has_failed(self) -> None:
        if hasattr(self, "groups"):
            assert self.groups.faults == []

    @invariant()
    def a_group_is_consistent(self) -> None:
        if not hasattr(self, "groups") or self.live is None:
            return
        group = self.live
        members = group.members
        assert len(members) <= 4 or group.state is GroupState.PREPARING_REBALANCE
        assert (group.leader_id in members) if members else group.leader_id is None
        assert group.supporters == Counter(
            name for each in members.values() for name in dict(each.protocols)
        )
        assert {key: each for each, key in group.static_ids.items()} == {
            key: each.instance_id for key, each in members.items() if each.instance_id
        }
        assert group.pending_joins.keys().isdisjoint(members)
        assert group.pending_syncs <= set(members)
        if group.state is GroupState.EMPTY:
            assert not members
        else:
            gathering = group.state is GroupState.PREPARING_REBALANCE
            from_empty = gathering and group.previous_state is GroupState.EMPTY
            assert members or group.pending_joins or from_empty
        for member in members.values():
            if group.state is not GroupState.PREPARING_REBALANCE:
                assert member.joining is None
            if group.state is not GroupState.COMPLETING_REBALANCE:
                assert member.syncing is None
            # No member can be silent for ever: a timer runs, or the group waits for the member.
            waits = member.joining is not None or member.syncing is not None
            key = ("session", GROUP, member.member_id)
            assert key in self.groups.timers or waits

    @invariant()
    def a_reload_ends_in_the_same_state(self) -> None:
        if not hasattr(self, "groups"):
            return
        table, again = self.groups.table, reloaded(self.groups)
        assert sorted(again.offsets) == sorted(table.offsets)
        assert again.offsets.count == table.offsets.count
        live, logged_group = self.live, again.groups.get(GROUP)
        if live is not None and live.state is GroupState.STABLE:
            assert logged_group is not None
            assert logged(logged_group) == logged(live)
        if logged_group is None:
            assert live is None or live.state is not GroupState.STABLE


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestGroupMachine = GroupMachine.TestCase
