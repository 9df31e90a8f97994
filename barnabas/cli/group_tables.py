"""The description of a consumer group for people: cards, columns and rows."""

from dataclasses import replace
from typing import Any, Final

from barnabas.operations.answers.groups import DescribedGroup, GroupPartition, Member
from barnabas.operations.answers.model import fields_of

PARTITIONS: Final = [
    "topic",
    "partition",
    "offset",
    "end",
    "lag",
    "to_read",
    "held_back",
    "held_back_by",
]
MEMBERS: Final = ["member", "client_id", "host", "assigned"]
OUT_OF_RANGE: Final = "out_of_range"
UNREADABLE: Final = "cannot be read"
_CARD: Final = (
    "group",
    "state",
    "type",
    "assignor",
    "epoch",
    "assignment_epoch",
    "coordinator",
    "lag",
    "to_read",
    "held_back",
    "members",
)
_EPOCHS: Final = ("epoch", "assignment_epoch")
Row = dict[str, Any]


def card(group: DescribedGroup) -> Row:
    """Return the fields of a group for people, without its partitions."""
    idle = sum(member.assigned == [] for member in group.members)
    count = len(group.members)
    fields = {name: getattr(group, name) for name in _CARD}
    for name in _EPOCHS:
        if fields[name] is None:
            del fields[name]
    without = f"{count} ({idle} without partitions)" if idle else count
    return {**fields, **_bounds(group), "members": without}


def partition_columns(group: DescribedGroup) -> list[str]:
    """Return the columns of the partitions; an offset outside of its log adds one."""
    named = any(row.out_of_range for row in group.partitions)
    return [*PARTITIONS, OUT_OF_RANGE] if named else PARTITIONS


def partition_rows(group: DescribedGroup) -> list[Row]:
    """Return a row for people of each partition.

    Lower bounds are marked, and a producer id stands for an unknown transactional id.
    """
    rows = []
    for row in group.partitions:
        by = row.held_back_by
        if by is None and row.producer_id is not None:
            by = f"producer {row.producer_id}"
        rows.append({**fields_of(row), **_bounds(row), "held_back_by": by})
    return rows


def member_columns(group: DescribedGroup) -> list[str]:
    """Return the columns of the members; the consumer protocol adds some."""
    modern = [] if group.epoch is None else ["epoch", "target"]
    named = any(member.expression for member in group.members)
    return [*MEMBERS, *modern, *(["expression"] if named else [])]


def member_rows(group: DescribedGroup) -> list[Member]:
    """Return a row for people of each member."""
    return [
        member if member.error is None else replace(member, assigned=[UNREADABLE])
        for member in group.members
    ]


def _bounds(counts: DescribedGroup | GroupPartition) -> Row:
    """Return the counts of records; a lower bound ends in +."""
    found = {"to_read": counts.to_read, "held_back": counts.held_back}
    if counts.exact:
        return found
    return {name: count if count is None else f"{count}+" for name, count in found.items()}
