"""The changes of a group: the reset of its offsets, which shows before and after, and its end."""

from typing import Any

from starlette.requests import Request

from barnabas.client.group_admin import GroupAdmin
from barnabas.console.changes import Change, Done, Plan, changed
from barnabas.console.console import Console, parameter
from barnabas.console.render import NONE
from barnabas.operations.group_resets import plan_reset
from barnabas.operations.partitions import PartitionArgument
from barnabas.operations.quantities import parse_time
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

_WITHOUT_VALUE = ("to_earliest", "to_latest")


async def _plan(console: Console, request: Request) -> Plan:
    group, way = parameter(request, "id"), parameter(request, "way")
    value = _value(way, request.query_params.get("value", "").strip())
    reset = await plan_reset(console.cluster, group, way, value, _named(request))
    rows = [(each, reset.before.get(each), offset) for each, offset in sorted(reset.after.items())]
    changed = [row for row in rows if row[1] != row[2]]
    await _require_empty(console, group)
    if not changed:
        raise ValueError("every offset stands there already: there is nothing to reset")
    left_out = "".join(f" Left out, because it is gone: {t}-{p}." for t, p in reset.gone)
    return Plan(
        f"Group {group} will go on at other offsets in {len(changed)} partition(s): records may be "
        f"read again, or skipped.{left_out}",
        f"Reset the offsets of {len(changed)} partition(s)",
        ["Partition", "Offset before", "Offset after", "Change"],
        [
            [
                f"{each.topic}-{each.partition}",
                NONE if before is None else str(before),
                str(after),
                NONE if before is None else f"{after - before:+}",
            ]
            for each, before, after in changed
        ],
        [[*each, before, after] for each, before, after in changed],
    )


async def _require_empty(console: Console, group: str) -> None:
    """Raise ValueError while the group has members: its coordinator would refuse."""
    try:
        await _require_group(console, group)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise


async def _require_group(console: Console, group: str) -> None:
    """Raise what `_require_empty` does, and KafkaError for a group that does not exist."""
    described = (await GroupAdmin(console.cluster).describe([group]))[group]
    if described.members:
        raise ValueError(f"the group has {len(described.members)} member(s): stop them first")


def _value(way: str, text: str) -> Any:
    if way in _WITHOUT_VALUE:
        return True
    if way == "to_time":
        return parse_time(text)
    if way not in ("to_offset", "shift_by"):
        raise ValueError(f"{way} is no way to reset offsets")
    digits = text.removeprefix("-" if way == "shift_by" else "")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise ValueError(f"{text or 'nothing'} is not a number of offsets")
    return int(text)


def _named(request: Request) -> list[PartitionArgument]:
    topic = request.query_params.get("topic", "").strip()
    partition = request.query_params.get("partition", "").strip()
    if not topic:
        if partition:
            raise ValueError("a partition needs its topic")
        return []
    if partition and not (partition.isascii() and partition.isdigit() and len(partition) < 10):
        raise ValueError(f"{partition} is no partition")
    return [(topic, int(partition) if partition else None)]


async def _carry_out(console: Console, request: Request, facts: Any) -> Done:
    group, admin = parameter(request, "id"), GroupAdmin(console.cluster)
    now = await admin.offsets(group)
    if any(now.get(TopicPartition(topic, index)) != before for topic, index, before, _ in facts):
        raise changed()
    await _require_empty(console, group)
    offsets = {TopicPartition(topic, index): after for topic, index, _, after in facts}
    await admin.set_offsets(group, offsets)
    sentence = f"The offsets of group {group} were reset in {len(offsets)} partition(s)."
    return Done(sentence, "/group", {"id": group})


async def _plan_deletion(console: Console, request: Request) -> Plan:
    group = parameter(request, "id")
    await _require_group(console, group)
    offsets = sorted((await GroupAdmin(console.cluster).offsets(group)).items())
    return Plan(
        f"Group {group} will be deleted with its offsets in {len(offsets)} partition(s). Members "
        "that come later begin as if it had never been there.",
        "Delete the group",
        ["Partition", "Offset that is lost"],
        [[f"{each.topic}-{each.partition}", str(offset)] for each, offset in offsets],
        [[*each, offset] for each, offset in offsets],
    )


async def _delete(console: Console, request: Request, _facts: Any) -> Done:
    group = parameter(request, "id")
    await GroupAdmin(console.cluster).delete(group)
    return Done(f"Group {group} was deleted.", "/groups", {})


PAGES = (
    Change("/group/delete", "Delete a group", _plan_deletion, _delete).page(),
    # The end of a partition may move on meanwhile: only the offsets before have to be the same.
    Change(
        "/group/reset",
        "Reset of offsets",
        _plan,
        _carry_out,
        "reset.html",
        ("id", "way"),
        is_planned_again=False,
    ).page(),
)
