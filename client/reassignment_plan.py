"""Plans of reassignments in the JSON of Kafka's tool, and what to throttle while one runs; pure.

{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.partition_admin import Reassignment
from barnabas.protocol.topic_partition import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]
"""The replicas that each partition shall have, the preferred leader first."""


def parse_plan(text: str) -> Plan:
    """Raises ValueError with one line that says what is wrong."""
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
        place, replicas = _row(row)
        if place in plan:
            raise ValueError(f"the plan names {place[0]}-{place[1]} more than once")
        plan[place] = replicas
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
        raise ValueError(f"{topic}-{index} needs numbers of brokers: {json.dumps(replicas)}")
    if any(each != "any" for each in fields.get("log_dirs") or ()):
        raise ValueError(f'{topic}-{index}: log_dirs other than "any" cannot be chosen here')
    return (topic, index), tuple(replicas)


def plan_text(plan: Mapping[TopicPartition, Iterable[int]]) -> str:
    """A plan as one line of JSON, as Kafka's tool writes it."""
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
    """Which replicas count against the rates: `partition:broker` by topic, and the brokers."""

    leaders: dict[str, list[str]]
    followers: dict[str, list[str]]
    brokers: list[int]


def throttle_for(
    plan: Plan,
    current: Mapping[TopicPartition, tuple[int, ...]],
    ongoing: Mapping[TopicPartition, Reassignment],
) -> Throttle:
    """Of each partition that moves: who has it sends, who shall have it and has not yet fetches.

    `ongoing` are the reassignments that run already, so that a throttle can be changed on the way.
    """
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for place, wanted in sorted(plan.items()):
        topic, index = place
        running = ongoing.get(place)
        coming = running.adding if running is not None else ()
        sources = [each for each in current[place] if each not in coming]
        targets = [each for each in wanted if each not in sources]
        if targets:
            leaders[topic] += [f"{index}:{each}" for each in sources]
            followers[topic] += [f"{index}:{each}" for each in targets]
            brokers.update(sources, targets)
    return Throttle(dict(leaders), dict(followers), sorted(brokers))
