"""A consumer group becomes a classic group when its last member of the newer protocol is gone."""

from collections.abc import Mapping, Sequence
from functools import partial

from barnabas.coordinator.decision import Instant
from barnabas.coordinator.group.consumer import records
from barnabas.coordinator.group.consumer.embedded import write_assignment
from barnabas.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
from barnabas.coordinator.group.consumer.timers import timers_of
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import (
    CONSUMER,
    NOT_SETTLED,
    Group,
    Member,
    MemoryShare,
    Protocols,
    member_bytes,
)
from barnabas.coordinator.group.rebalance import extend_session, prepare
from barnabas.coordinator.group.records import GroupRecord, group_record
from barnabas.coordinator.group.states import GroupState
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.protocol.errors import KafkaError


def may_downgrade(table: GroupTable, group: ConsumerGroup, kept: Sequence[ConsumerMember]) -> bool:
    """Return whether a group becomes a classic one with the members that are kept: all of them
    speak its protocol, and the configuration lets it."""
    return (
        bool(kept)
        and all(each.classic is not None for each in kept)
        and table.settings_of(group.group_id).migration_policy.downgrades
        and len(kept) <= table.settings.max_size
    )


def downgrade(
    draft: Draft,
    group: ConsumerGroup,
    kept: Sequence[ConsumerMember],
    *,
    rebalances: bool = True,
) -> None:
    """Make a classic group of the members that are kept, which it may become.

    If it `rebalances`, all of them are asked to join again.
    """
    record = _record(draft, group, kept, rebalances=rebalances)
    draft.records += [*records.deletion(group), record]
    draft.whole = True
    protocols = {each.member_id: each.protocols for each in kept}
    draft.afterwards(partial(_downgraded, draft.table, group.group_id, protocols, rebalances))


def _record(
    draft: Draft, group: ConsumerGroup, members: Sequence[ConsumerMember], *, rebalances: bool
) -> GroupRecord:
    """Return the record of the classic group.

    Assignments are what the members may still use: with their targets, as in Kafka, an upgrade
    that follows at once would give the difference to two members.
    """
    table = draft.table
    since_ms = NOT_SETTLED if rebalances else draft.now.wall_ms
    classic = Group(group.group_id, since_ms, GroupState.STABLE, generation=group.epoch)
    for each in members:
        classic.add(_member(table, each), CONSUMER)
    classic.protocol_name = classic.select_protocol()
    assignments = {
        member_id: write_assignment(
            table.topics,
            group.members[member_id].used,
            member.metadata(classic.protocol_name or ""),
        )
        for member_id, member in classic.members.items()
    }
    return group_record(classic, [*classic.members.values()], assignments, classic.leader_id)


def _member(table: GroupTable, member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.protocols,
        memory=MemoryShare(table.memory),
    )


def _downgraded(
    table: GroupTable,
    group_id: str,
    protocols: Mapping[str, Protocols],
    rebalances: bool,
    error: KafkaError | None,
    now: Instant,
) -> GroupDecision[None]:
    """Begin the sessions of the members, and ask all of them to join again if it `rebalances`."""
    draft = Draft(table, now)
    group = table.groups.get(group_id)
    if error is not None or group is None:
        return draft.decision(None)
    for member_id in protocols:
        for timer in timers_of(group_id, member_id):
            draft.cancel(timer)
    for member in group.members.values():
        # Its record has the chosen protocol alone.
        group.change_protocols(member, protocols[member.member_id])
        member.memory.keep(member_bytes(member.protocols, member.assignment))
        extend_session(draft, group, member)
    if rebalances:
        prepare(draft, group, "no member of the consumer protocol is left")
    return draft.decision(None)
