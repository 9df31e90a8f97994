"""The description of a consumer group for people: cards, columns and rows."""

from typing import Final

from barnabas.operations.group_description import COUNTS, OUT_OF_RANGE, Row

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
UNREADABLE: Final = "cannot be read"
_EPOCHS: Final = ("epoch", "assignment_epoch")


def card(group: Row) -> Row:
    """Return the fields of a group for people, without its partitions."""
    idle = sum(member["assigned"] == [] for member in group["members"])
    count = len(group["members"])
    hidden = {"exact", "partitions", *(name for name in _EPOCHS if group[name] is None)}
    fields = {name: group[name] for name in group if name not in hidden}
    without = f"{count} ({idle} without partitions)" if idle else count
    return {**fields, **_bounds(group), "members": without}


def partition_columns(group: Row) -> list[str]:
    """Return the columns of the partitions; an offset outside of its log adds one."""
    named = any(row[OUT_OF_RANGE] for row in group["partitions"])
    return [*PARTITIONS, OUT_OF_RANGE] if named else PARTITIONS


def partition_rows(group: Row) -> list[Row]:
    """Return a row for people of each partition.

    Lower bounds are marked, and a producer id stands for an unknown transactional id.
    """
    rows = []
    for row in group["partitions"]:
        by = row["held_back_by"]
        if by is None and row["producer_id"] is not None:
            by = f"producer {row['producer_id']}"
        rows.append({**row, **_bounds(row), "held_back_by": by})
    return rows


def member_columns(group: Row) -> list[str]:
    """Return the columns of the members; the consumer protocol adds some."""
    modern = [] if group["epoch"] is None else ["epoch", "target"]
    named = any(member["expression"] for member in group["members"])
    return [*MEMBERS, *modern, *(["expression"] if named else [])]


def member_rows(group: Row) -> list[Row]:
    """Return a row for people of each member."""
    return [
        member if member["error"] is None else {**member, "assigned": UNREADABLE}
        for member in group["members"]
    ]


def _bounds(counts: Row) -> Row:
    """Return the counts of records; a lower bound ends in +."""
    mark = "" if counts["exact"] else "+"
    return {
        name: f"{counts[name]}{mark}" if mark and counts[name] is not None else counts[name]
        for name in COUNTS
    }
