"""The description of a consumer group: its state, its members, and the lag of its partitions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from barnabas.client.cluster import Cluster, Node
from barnabas.client.group_admin import Description, GroupAdmin
from barnabas.client.group_lag import UNBOUNDED, GroupLag, find_lags, no_lag
from barnabas.client.groups.protocol import read_assignment
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.operations.answers.groups import (
    Coordinator,
    DescribedGroup,
    GroupPartition,
    Member,
)
from barnabas.operations.partitions import existing
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages import consumer_group_describe
from barnabas.protocol.messages.describe_groups import DescribedGroup as ClassicGroup
from barnabas.protocol.records.group_lag import OutOfRange, out_of_range
from barnabas.protocol.topic_partition import TopicPartition

DESCRIBED_TYPES: Final = ("", "classic", "consumer")
"""The types of groups that have a description; brokers before Kafka 3.8 give the empty one."""
GROUPS_AT_ONCE: Final = 50
"""The groups that are described together: each may have thousands of partitions."""
_MEMBER_TYPES: Final = {0: "classic", 1: "consumer"}

Members = Mapping[str, tuple[Member, list[TopicPartition]]]
"""Members by id, each with the partitions assigned to it."""


async def describe_group(cluster: Cluster, group: str, *, exact: bool = False) -> DescribedGroup:
    """Return the description of a group, as `describe_groups` does."""
    return (await describe_groups(cluster, [group], exact=exact))[group]


async def describe_groups(
    cluster: Cluster, groups: Sequence[str], *, exact: bool = False
) -> dict[str, DescribedGroup]:
    """Return the descriptions of groups, by group, or raise the first error.

    A partition is there if it has a committed offset or is assigned to a member. With `exact` all
    records are counted, however many there are.
    """
    admin = GroupAdmin(cluster)
    described = await admin.describe(groups)
    coordinators = await cluster.retrying(lambda: cluster.coordinators(groups))
    committed = await admin.offsets_of(groups)
    members = {
        group: _classic_members(row) if isinstance(row, ClassicGroup) else _modern_members(row)
        for group, row in described.items()
    }
    partitions = await _partitions(cluster, members, committed, exact=exact)
    return {
        group: _description(
            group,
            described[group],
            cluster.nodes[coordinators[group]],
            [member for member, _ in members[group].values()],
            partitions[group],
        )
        for group in groups
    }


def _description(
    group: str,
    found: Description,
    node: Node,
    members: list[Member],
    partitions: list[GroupPartition],
) -> DescribedGroup:
    epoch: int | None = None
    assignment_epoch: int | None = None
    if isinstance(found, ClassicGroup):
        protocol, assignor = "classic", found.protocol_data
    else:
        protocol, assignor = "consumer", found.assignor_name
        epoch, assignment_epoch = found.group_epoch, found.assignment_epoch
    lagging = [row for row in partitions if row.lag is not None]
    return DescribedGroup(
        group=group,
        state=found.group_state,
        type=protocol,
        coordinator=Coordinator(broker=node.id, address=f"{node.host}:{node.port}"),
        assignor=assignor or None,
        epoch=epoch,
        assignment_epoch=assignment_epoch,
        lag=sum(row.lag or 0 for row in lagging),
        to_read=_sum(row.to_read for row in lagging),
        held_back=_sum(row.held_back for row in lagging),
        exact=all(row.exact for row in lagging),
        members=members,
        partitions=partitions,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts; None if one is unknown."""
    known = list(counts)
    return None if None in known else sum(each or 0 for each in known)


async def describe_all(
    cluster: Cluster, *, exact: bool = False
) -> tuple[list[DescribedGroup], list[str]]:
    """Return the description of every group, and the groups whose protocol has none here.

    A group that is deleted meanwhile is in neither list.
    """
    known: list[str] = []
    others: list[str] = []
    for listed in await GroupAdmin(cluster).groups():
        (known if listed.group_type in DESCRIBED_TYPES else others).append(listed.group_id)
    found: list[DescribedGroup] = []
    for first in range(0, len(known), GROUPS_AT_ONCE):
        some = known[first : first + GROUPS_AT_ONCE]
        found += await _present(cluster, some, exact=exact)
    return found, others


async def _present(cluster: Cluster, groups: Sequence[str], *, exact: bool) -> list[DescribedGroup]:
    """Return the descriptions of those groups that exist."""
    try:
        return list((await describe_groups(cluster, groups, exact=exact)).values())
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    if len(groups) == 1:
        return []
    return [row for each in groups for row in await _present(cluster, [each], exact=exact)]


def _classic_members(described: ClassicGroup) -> Members:
    reads = described.protocol_type == "consumer"
    members = {}
    for each in described.members:
        assigned: list[TopicPartition] = []
        error = None
        try:
            if reads:
                assigned = read_assignment(each.member_assignment)
        except ProtocolError as raised:
            # The client of one member must not hide the others.
            error = str(raised)
        row = Member(
            member=each.group_instance_id or each.member_id,
            client_id=each.client_id,
            host=each.client_host,
            assigned=None if error else _texts(assigned),
            error=error,
            protocol=None,
            epoch=None,
            target=None,
            subscribed=None,
            expression=None,
            rack=None,
        )
        members[each.member_id] = (row, assigned)
    return members


def _modern_members(described: consumer_group_describe.DescribedGroup) -> Members:
    members = {}
    for each in described.members:
        assigned = _assigned(each.assignment)
        row = Member(
            member=each.instance_id or each.member_id,
            client_id=each.client_id,
            host=each.client_host,
            assigned=_texts(assigned),
            error=None,
            protocol=_MEMBER_TYPES.get(each.member_type),
            epoch=each.member_epoch,
            target=_texts(_assigned(each.target_assignment)),
            subscribed=sorted(each.subscribed_topic_names),
            expression=each.subscribed_topic_regex or None,
            rack=each.rack_id,
        )
        members[each.member_id] = (row, assigned)
    return members


def _assigned(assignment: consumer_group_describe.Assignment) -> list[TopicPartition]:
    return sorted(
        TopicPartition(row.topic_name, partition)
        for row in assignment.topic_partitions
        for partition in row.partitions
    )


def _texts(partitions: Iterable[TopicPartition]) -> list[str]:
    return [f"{topic}:{index}" for topic, index in partitions]


async def _partitions(
    cluster: Cluster,
    members: Mapping[str, Members],
    committed: Mapping[str, Mapping[TopicPartition, int]],
    *,
    exact: bool,
) -> dict[str, list[GroupPartition]]:
    """Return the partitions of each group."""
    readers = {
        group: {each: member for member, assigned in rows.values() for each in assigned}
        for group, rows in members.items()
    }
    wanted = {group: sorted({*readers[group], *committed[group]}) for group in members}
    # The offset of a deleted topic may still exist: it has no end and no lag.
    there = await existing(cluster, {each for rows in wanted.values() for each in rows})
    begun = {each for offsets in committed.values() for each in offsets}
    starts = await _offsets(cluster, (each for each in there if each in begun), EARLIEST)
    ends = await _offsets(cluster, there, LATEST)
    bound = UNBOUNDED if exact else None
    lags: dict[str, dict[TopicPartition, GroupLag]] = {}
    for group, offsets in committed.items():
        ended = {each: ends[each] for each in offsets if each in ends}
        behind = {each: offsets[each] for each, end in ended.items() if offsets[each] < end}
        counted = await find_lags(cluster, behind, bound) if behind else {}
        lags[group] = {each: counted.get(each) or no_lag(end) for each, end in ended.items()}
    ids = await _transactional_ids(
        cluster, (row for rows in lags.values() for row in rows.values())
    )
    return {
        group: [
            _partition(
                each,
                committed[group].get(each),
                readers[group].get(each),
                lags[group].get(each),
                ids,
                starts.get(each),
                ends.get(each),
            )
            for each in rows
        ]
        for group, rows in wanted.items()
    }


async def _offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], which: int
) -> dict[TopicPartition, int]:
    found = await find_offsets(cluster, dict.fromkeys(partitions, which))
    return {each: row.offset for each, row in found.items()}


def _partition(
    place: TopicPartition,
    offset: int | None,
    reader: Member | None,
    lag: GroupLag | None,
    ids: Mapping[int, str],
    start: int | None,
    end: int | None,
) -> GroupPartition:
    """Return a partition of a group; `start` and `end` are those of the log, None without one."""
    by = None if lag is None else lag.held_back_by
    out: OutOfRange | None = OutOfRange.GONE
    if end is not None:
        end = end if lag is None else lag.end
        out = None if offset is None or start is None else out_of_range(offset, start, end)
    return GroupPartition(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        end=end,
        lag=None if lag is None else lag.lag,
        to_read=None if lag is None else lag.to_read,
        held_back=None if lag is None else lag.held_back,
        exact=None if lag is None else lag.is_exact,
        held_back_by=None if by is None else ids.get(by),
        producer_id=by,
        out_of_range=out,
        member=None if reader is None else reader.member,
        host=None if reader is None else reader.host,
    )


async def _transactional_ids(cluster: Cluster, lags: Iterable[GroupLag]) -> dict[int, str]:
    """Return the ids of the transactions that hold records back, if the client may know them."""
    producers = {each.held_back_by for each in lags if each.held_back_by is not None}
    try:
        return await TransactionAdmin(cluster).transactional_ids(producers)
    except KafkaError as error:
        if error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return {}
        raise
