"""A partition's name: its topic and its index in the topic."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic, by name; equal to the plain tuple of both."""

    topic: str
    partition: int


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the indexes of each topic; topics and indexes keep the order of `partitions`."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        topics[topic].append(index)
    return topics
