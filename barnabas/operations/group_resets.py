"""The reset of a group's offsets in the ways of kafka-consumer-groups.sh (KIP-122)."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.operations.partitions import PartitionArgument, existing, partitions_of
from barnabas.protocol.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]


class Reset(NamedTuple):
    """The committed offsets of a group, and those that take their place."""

    before: Offsets
    after: Offsets
    gone: Sequence[TopicPartition] = ()
    """Partitions with an offset that do not exist any more; they are left out."""


async def plan_reset(
    cluster: Cluster, group: str, way: str, value: Any, named: Sequence[PartitionArgument]
) -> Reset:
    """Return the reset of a group's partitions, or of the named ones, within their logs.

    `way` is the name of the option that gives the target, and `value` its value. Raises ValueError
    if there is no offset to reset.
    """
    admin = GroupAdmin(cluster)
    before = await admin.offsets(group)
    given = await _given(admin, way, value, before)
    known = before if given is None else given
    wanted = await partitions_of(cluster, named) if named else sorted(known)
    if given is not None:
        wanted = [each for each in wanted if each in given]
    if not wanted:
        raise ValueError(_nothing(group, way, value, named))
    if way == "to_current":
        # The offsets as they are, even outside of the log or if the log is gone.
        return Reset(before, {each: before[each] for each in wanted})
    there = await existing(cluster, wanted)
    gone, wanted = sorted({*wanted} - {*there}), there
    if not wanted:
        raise ValueError("no partition that has an offset exists any more")
    low = await _bounds(cluster, wanted, EARLIEST)
    high = await _bounds(cluster, wanted, LATEST)
    after: Mapping[TopicPartition, int]
    match way:
        case "to_earliest":
            after = low
        case "to_latest":
            after = high
        case "to_offset":
            after = dict.fromkeys(wanted, value)
        case "shift_by":
            after = {each: _committed(group, before, each) + value for each in wanted}
        case "to_time" | "by_duration":
            found = await _bounds(cluster, wanted, value)
            # Without a record that late, the group continues at the end.
            after = {each: found[each] if found[each] >= 0 else high[each] for each in wanted}
        case _:
            after = given or {}
    within = {each: min(max(after[each], low[each]), high[each]) for each in wanted}
    return Reset(before, within, gone)


def _committed(group: str, offsets: Offsets, partition: TopicPartition) -> int:
    """Return the committed offset from which to shift. Raises ValueError as Kafka's tool."""
    if partition not in offsets:
        topic, index = partition
        raise ValueError(f"group {group} has no committed offset in {topic}-{index} to shift")
    return offsets[partition]


async def _given(admin: GroupAdmin, way: str, value: Any, before: Offsets) -> Offsets | None:
    """Return offsets that are stored already: of the group, of another group, or in a file."""
    match way:
        case "to_current":
            return before
        case "to_group":
            return await admin.offsets(value)
        case "from_file":
            return dict(value)
    return None


def _nothing(group: str, way: str, value: Any, named: Sequence[PartitionArgument]) -> str:
    if way == "to_group":
        return f"group {value} has no committed offset" + (" there" if named else "")
    if named:
        return "there is no offset for the named partitions"
    return f"group {group} has no committed offset; name topics with --topic"


async def _bounds(cluster: Cluster, wanted: Sequence[TopicPartition], timestamp: int) -> Offsets:
    found = await find_offsets(cluster, dict.fromkeys(wanted, timestamp))
    return {partition: row.offset for partition, row in found.items()}


def parse_offsets(text: str) -> Offsets:
    """Parse the lines `topic,partition,offset` of a file; raises ValueError.

    They are the CSV that Kafka's tool exports for one group.
    """
    offsets: Offsets = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row:
            continue
        match [cell.strip() for cell in row]:
            case [topic, partition, offset] if topic and _are_numbers(partition, offset):
                offsets[TopicPartition(topic, int(partition))] = int(offset)
            case _:
                raise ValueError(f"line {number} is not TOPIC,PARTITION,OFFSET")
    if not offsets:
        raise ValueError("the file has no offset")
    return offsets


def _are_numbers(*cells: str) -> bool:
    return all(cell.isascii() and cell.isdigit() for cell in cells)


def offsets_text(offsets: Offsets) -> str:
    """Return offsets as the lines that `parse_offsets` reads."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerows((*each, offset) for each, offset in sorted(offsets.items()))
    return text.getvalue()
