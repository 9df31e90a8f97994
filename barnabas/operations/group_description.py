"""The description of a consumer group: its state, its members, and the lag of its partitions."""

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_lag import UNBOUNDED, GroupLag, find_lags
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
from barnabas.protocol.messages import consumer_group_describe, describe_groups
from barnabas.protocol.records.group_lag import OutOfRange, out_of_range
from barnabas.protocol.topic_partition import TopicPartition

_MEMBER_TYPES: Final = {0: "classic", 1: "consumer"}

Members = Mapping[str, tuple[Member, list[TopicPartition]]]
"""Members by id, each with the partitions assigned to it."""


async def describe_group(cluster: Cluster, group: str, *, exact: bool = False) -> DescribedGroup:
    """Return the description of a group.

    A partition is there if it has a committed offset or is assigned to a member. With `exact` all
    records are counted, however many there are.
    """
    admin = GroupAdmin(cluster)
    found = await admin.describe_either(group)
    epoch: int | None = None
    assignment_epoch: int | None = None
    if isinstance(found, describe_groups.DescribedGroup):
        protocol, members, assignor = "classic", _classic_members(found), found.protocol_data
    else:
        protocol, members, assignor = "consumer", _modern_members(found), found.assignor_name
        epoch, assignment_epoch = found.group_epoch, found.assignment_epoch
    node = cluster.nodes[await cluster.retrying(lambda: cluster.coordinator(group))]
    rows = await _partitions(cluster, members, await admin.offsets(group), exact=exact)
    lagging = [row for row in rows if row.lag is not None]
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
        members=[member for member, _ in members.values()],
        partitions=rows,
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
    found, others = [], []
    for listed in await GroupAdmin(cluster).groups():
        try:
            found.append(await describe_group(cluster, listed.group_id, exact=exact))
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            if listed.group_type not in ("", "classic", "consumer"):
                others.append(listed.group_id)
    return found, others


def _classic_members(described: describe_groups.DescribedGroup) -> Members:
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
    members: Members,
    committed: Mapping[TopicPartition, int],
    *,
    exact: bool,
) -> list[GroupPartition]:
    readers = {each: member for member, assigned in members.values() for each in assigned}
    wanted = sorted({*readers, *committed})
    # The offset of a deleted topic may still exist: it has no end and no lag.
    there = await existing(cluster, wanted)
    begun = {each: committed[each] for each in there if each in committed}
    starts = await find_offsets(cluster, dict.fromkeys(begun, EARLIEST)) if begun else {}
    lags = await find_lags(cluster, begun, UNBOUNDED if exact else None) if begun else {}
    others = dict.fromkeys((each for each in there if each not in begun), LATEST)
    ends = await find_offsets(cluster, others) if others else {}
    ids = await _transactional_ids(cluster, lags.values())
    rows = []
    for each in wanted:
        lag, reader = lags.get(each), readers.get(each)
        by = None if lag is None else lag.held_back_by
        out: OutOfRange | None = OutOfRange.GONE
        if each in begun:
            out = out_of_range(begun[each], starts[each].offset, lags[each].end)
        elif each in others:
            out = None
        rows.append(
            GroupPartition(
                topic=each.topic,
                partition=each.partition,
                offset=committed.get(each),
                end=lag.end if lag is not None else ends[each].offset if each in ends else None,
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
        )
    return rows


async def _transactional_ids(cluster: Cluster, lags: Iterable[GroupLag]) -> dict[int, str]:
    """Return the ids of the transactions that hold records back, if the client may know them."""
    producers = {each.held_back_by for each in lags if each.held_back_by is not None}
    try:
        return await TransactionAdmin(cluster).transactional_ids(producers)
    except KafkaError as error:
        if error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return {}
        raise
