"""The description of a consumer group: its state, its members, and the lag of its partitions."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_lag import UNBOUNDED, GroupLag, find_lags
from barnabas.client.groups.protocol import read_assignment
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.operations.partitions import existing
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages import consumer_group_describe
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.records.group_lag import OutOfRange, out_of_range
from barnabas.protocol.topic_partition import TopicPartition

OUT_OF_RANGE: Final = "out_of_range"
COUNTS: Final = ("to_read", "held_back")
"""The fields that count records."""

_OF_MODERN: Final = ("protocol", "epoch", "target", "subscribed", "expression", "rack")
"""Fields of members in the consumer protocol (KIP-848); None for the others."""
_MEMBER_TYPES: Final = {0: "classic", 1: "consumer"}

Row = dict[str, Any]
Members = Mapping[str, tuple[Row, list[TopicPartition]]]
"""Members by id, each with the partitions assigned to it."""


async def describe_group(cluster: Cluster, group: str, *, exact: bool = False) -> Row:
    """Return state, coordinator, epochs, total lag, `members` and `partitions` of a group.

    A partition is there if it has a committed offset or is assigned to a member. With `exact` all
    records are counted, however many there are.
    """
    admin = GroupAdmin(cluster)
    state, members = await _described(admin, group)
    node = cluster.nodes[await cluster.retrying(lambda: cluster.coordinator(group))]
    rows = await _partitions(cluster, members, await admin.offsets(group), exact=exact)
    return {
        "group": group,
        **state,
        "coordinator": {"broker": node.id, "address": f"{node.host}:{node.port}"},
        **_total(rows),
        "members": [member for member, _ in members.values()],
        "partitions": rows,
    }


async def _described(admin: GroupAdmin, group: str) -> tuple[Row, Members]:
    """Return the fields of a group of either protocol, and its members."""
    found = await admin.describe_either(group)
    if not isinstance(found, DescribedGroup):
        return _of_modern(found), _modern_members(found)
    fields = {
        "state": found.group_state,
        "type": "classic",
        "assignor": found.protocol_data or None,
        "epoch": None,
        "assignment_epoch": None,
    }
    return fields, _classic_members(found)


def _of_modern(described: consumer_group_describe.DescribedGroup) -> Row:
    return {
        "state": described.group_state,
        "type": "consumer",
        "assignor": described.assignor_name or None,
        "epoch": described.group_epoch,
        "assignment_epoch": described.assignment_epoch,
    }


async def describe_all(cluster: Cluster, *, exact: bool = False) -> tuple[list[Row], list[str]]:
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


def _classic_members(described: DescribedGroup) -> Members:
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
        row = {
            "member": each.group_instance_id or each.member_id,
            "client_id": each.client_id,
            "host": each.client_host,
            "assigned": None if error else _texts(assigned),
            "error": error,
            **dict.fromkeys(_OF_MODERN),
        }
        members[each.member_id] = (row, assigned)
    return members


def _modern_members(described: consumer_group_describe.DescribedGroup) -> Members:
    members = {}
    for each in described.members:
        assigned = _assigned(each.assignment)
        row = {
            "member": each.instance_id or each.member_id,
            "client_id": each.client_id,
            "host": each.client_host,
            "assigned": _texts(assigned),
            "error": None,
            "protocol": _MEMBER_TYPES.get(each.member_type),
            "epoch": each.member_epoch,
            "target": _texts(_assigned(each.target_assignment)),
            "subscribed": sorted(each.subscribed_topic_names),
            "expression": each.subscribed_topic_regex or None,
            "rack": each.rack_id,
        }
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
) -> list[Row]:
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
    unassigned = {"member": None, "host": None}
    return [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": committed.get(each),
            "end": ends[each].offset if each in ends else None,
            **_lag_fields(lags.get(each), ids),
            OUT_OF_RANGE: (
                out_of_range(begun[each], starts[each].offset, lags[each].end)
                if each in begun
                else None
                if each in others
                else OutOfRange.GONE
            ),
            **{name: readers.get(each, unassigned)[name] for name in unassigned},
        }
        for each in wanted
    ]


def _total(rows: Iterable[Row]) -> Row:
    """Return the sums over the partitions that have a lag; a count that lacks one is None."""
    lags = [row for row in rows if row["lag"] is not None]
    total: Row = {"lag": sum(row["lag"] for row in lags)}
    for name in COUNTS:
        counts = [row[name] for row in lags]
        total[name] = None if None in counts else sum(counts)
    return {**total, "exact": all(row["exact"] for row in lags)}


def _lag_fields(lag: GroupLag | None, ids: Mapping[int, str]) -> Row:
    """Return the fields of a partition's lag; without the end if the group has no offset."""
    if lag is None:
        fields = ["lag", "to_read", "held_back", "exact", "held_back_by", "producer_id"]
        return dict.fromkeys(fields)
    by = lag.held_back_by
    return {
        "end": lag.end,
        "lag": lag.lag,
        "to_read": lag.to_read,
        "held_back": lag.held_back,
        "exact": lag.is_exact,
        "held_back_by": None if by is None else ids.get(by),
        "producer_id": by,
    }


async def _transactional_ids(cluster: Cluster, lags: Iterable[GroupLag]) -> dict[int, str]:
    """Return those ids of the transactions that hold records back that the client may know."""
    producers = {each.held_back_by for each in lags if each.held_back_by is not None}
    try:
        return await TransactionAdmin(cluster).transactional_ids(producers)
    except KafkaError as error:
        if error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return {}
        raise
