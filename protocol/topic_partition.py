"""Partitions by name: a topic and an index, which messages tell by topic."""

from collections import defaultdict
from collections.abc import Iterable

TopicPartition = tuple[str, int]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The indexes under their topics, both in the order in which they come."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        topics[topic].append(index)
    return topics
