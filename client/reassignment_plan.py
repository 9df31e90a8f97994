"""Reassignment plans in the JSON format of Kafka's tool, and their throttled replicas. No I/O.

{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.partition_admin import Reassignment
from barnabas.protocol.topic_partition import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]
"""The target replicas of each partition, the preferred leader first."""


def parse_plan(text: str) -> Plan:
    """Parse a plan; raises ValueError with a message of one line."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the plan is not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("partitions"), list):
        raise ValueError('the plan has no list of "partitions"')
    if value.get("version", 1) != 1:
        raise ValueError(f"the plan has version {value['version']!r}; only 1 is known")
    plan: Plan = {}
    for row in value["partitions"]:
        partition, replicas = _row(row)
        if partition in plan:
            raise ValueError(f"the plan names {partition[0]}-{partition[1]} more than once")
        plan[partition] = replicas
    if not plan:
        raise ValueError("the plan names no partition")
    return plan


def _row(row: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    fields = row if isinstance(row, dict) else {}
    topic, index, replicas = fields.get("topic"), fields.get("partition"), fields.get("replicas")
    if not (isinstance(topic, str) and type(index) is int and isinstance(replicas, list)):
        raise ValueError(f"not a topic, a partition and its replicas: {json.dumps(row)}")
    if index < 0 or not replicas or len(set(map(str, replicas))) != len(replicas):
        raise ValueError(f"{topic}-{index} needs different broker ids: {json.dumps(replicas)}")
    if not all(type(each) is int and 0 <= each < 1 << 31 for each in replicas):
        raise ValueError(
            f"{topic}-{index} needs broker ids that are numbers: {json.dumps(replicas)}"
        )
    if any(each != "any" for each in fields.get("log_dirs") or ()):
        raise ValueError(f'{topic}-{index}: log_dirs other than "any" cannot be chosen here')
    return TopicPartition(topic, index), tuple(replicas)


def plan_text(plan: Mapping[TopicPartition, Iterable[int]]) -> str:
    """Return a plan as one line of JSON, in the format of Kafka's tool."""
    rows = [
        {
            "topic": topic,
            "partition": index,
            "replicas": (ids := list(replicas)),
            "log_dirs": ["any"] * len(ids),
        }
        for (topic, index), replicas in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


class Throttle(NamedTuple):
    """The throttled replicas (`partition:broker` by topic) and the brokers with a rate."""

    leaders: dict[str, list[str]]
    followers: dict[str, list[str]]
    brokers: list[int]


def throttle_for(
    plan: Plan,
    current: Mapping[TopicPartition, tuple[int, ...]],
    ongoing: Mapping[TopicPartition, Reassignment],
) -> Throttle:
    """Return the throttle of a plan: current replicas throttle as leaders, new ones as followers.

    `ongoing` are the running reassignments, so that a throttle can be changed during one.
    """
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for partition, wanted in sorted(plan.items()):
        topic, index = partition
        running = ongoing.get(partition)
        coming = running.adding if running is not None else ()
        sources = [each for each in current[partition] if each not in coming]
        targets = [each for each in wanted if each not in sources]
        if targets:
            leaders[topic] += [f"{index}:{each}" for each in sources]
            followers[topic] += [f"{index}:{each}" for each in targets]
            brokers.update(sources, targets)
    return Throttle(dict(leaders), dict(followers), sorted(brokers))
