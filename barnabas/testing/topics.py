"""Topics, records and groups, as the helpers of `Broker` and `Cluster` create and read them."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster, TopicInfo, check
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.consumer import Consumer, FetchSettings, Message
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_lag import UNBOUNDED, find_lags
from barnabas.client.groups.protocol import read_assignment
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.producer import Producer
from barnabas.client.producing.partition_queue import Delivered
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages import metadata
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.records.group_lag import offset_lag
from barnabas.protocol.records.record import Headers
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing.configs import Configs, texts

Data = bytes | str | None
"""A key or a value; a text is sent as UTF-8."""
Header = tuple[str, Data]
_POLL = 0.02
"""Seconds between two looks at a group."""
_ANSWER_TIMEOUT = 2.0
_WRONG_TOPIC = {
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
}


async def create_topic(
    cluster: Cluster, name: str, partitions: int, replication_factor: int, configs: Configs | None
) -> str:
    """Create a topic, and return its name once every broker knows the leader of each partition.

    Raises ValueError if the topic exists, or name, numbers or configurations are wrong.
    """
    try:
        await Admin(cluster).create_topic(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=texts(configs),
        )
    except KafkaError as error:
        if error.code in _WRONG_TOPIC:
            raise ValueError(f"topic {name}: {error}") from error
        raise

    async def is_known() -> None:
        # A client may ask any broker, and some report an unknown topic as an error.
        for row in await _rows(cluster, name):
            if row.error_code or min((p.leader_id for p in row.partitions), default=-1) < 0:
                check(ErrorCode.LEADER_NOT_AVAILABLE, name)

    await cluster.refresh([name])
    await cluster.retrying(is_known)
    return name


def encode_values(values: Iterable[Data]) -> list[bytes | None]:
    """Return the bytes of values. Raises TypeError for a value of another type."""
    return [_encode("value", each, "; json= sends a value as JSON") for each in values]


def encode_json(value: Any) -> bytes:
    """Return a value as JSON. Raises TypeError or ValueError if JSON has no such value."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def encode_key(key: Data) -> bytes | None:
    """Return the bytes of a key. Raises TypeError."""
    return _encode("key", key)


def encode_headers(headers: Iterable[Header]) -> Headers:
    """Return headers with the bytes of their values. Raises TypeError."""
    pairs = list(headers)
    for each in pairs:
        if not (isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str)):
            raise TypeError(f'headers are pairs such as ("trace", b"7"), not {each!r}')
    return tuple((name, _encode(f"value of the header {name}", value)) for name, value in pairs)


def _encode(what: str, data: Data, hint: str = "") -> bytes | None:
    if isinstance(data, str):
        return data.encode()
    if data is None or isinstance(data, bytes):
        return data
    raise TypeError(f"a {what} is bytes, text or None, not {type(data).__name__}{hint}")


async def produce(
    cluster: Cluster,
    topic: str,
    values: Sequence[bytes | None],
    key: bytes | None,
    partition: int | None,
    headers: Headers,
) -> list[Delivered]:
    """Send values in this order, and return their partitions and offsets once they are committed.

    Raises ValueError if the topic or the partition does not exist.
    """
    info = await _topic(cluster, topic)
    if partition is not None and partition not in info.leaders:
        raise ValueError(f"there is no partition {topic}-{partition}")
    async with Producer(cluster) as producer:
        sent = [
            await producer.send(topic, value, key=key, partition=partition, headers=headers)
            for value in values
        ]
        await producer.flush()
    return [each.result() for each in sent]


async def records(
    cluster: Cluster,
    topic: str,
    count: int,
    partition: int | None,
    seen: list[str],
    *,
    read_committed: bool,
) -> list[Message]:
    """Return all records of a topic, by partition and offset; wait until there are so many.

    `seen` holds the state that was seen last. Raises ValueError if the topic or the partition does
    not exist.
    """
    info = await _topic(cluster, topic)
    wanted = [TopicPartition(topic, each) for each in sorted(info.leaders)]
    if partition is not None:
        wanted = [each for each in wanted if each.partition == partition]
    if not wanted:
        raise ValueError(f"there is no partition {topic}-{partition}")
    settings = FetchSettings(read_committed=read_committed, offset_reset=EARLIEST, max_wait=0.1)
    consumer = Consumer(cluster, settings)
    starts = await find_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    consumer.assign({each: starts[each].offset for each in wanted})
    ends = await find_offsets(cluster, dict.fromkeys(wanted, LATEST), read_committed=read_committed)
    found: list[Message] = []
    while len(found) < count or any(
        consumer.positions[each] < ends[each].offset for each in wanted
    ):
        seen[:] = [f"{topic} has {len(found)} records, not {count}"]
        found += await consumer.poll()
    return sorted(found, key=lambda each: (each.partition, each.offset))


async def lag(cluster: Cluster, group: str, topic: str | None) -> int:
    """Return the offsets between the committed ones of a group and the ends of the logs.

    Each end is the high watermark, as in Kafka's tools. Raises as `_committed`.
    """
    offsets = await _committed(cluster, group, topic)
    ends = await find_offsets(cluster, dict.fromkeys(offsets, LATEST))
    return sum(offset_lag(offset, ends[each].offset) for each, offset in offsets.items())


async def to_read(cluster: Cluster, group: str, topic: str | None) -> int:
    """Return the records that read_committed consumers of a group will still be given now.

    Raises as `_committed`.
    """
    offsets = await _committed(cluster, group, topic)
    found = await find_lags(cluster, offsets, UNBOUNDED)
    return sum(each.to_read or 0 for each in found.values())


async def _committed(cluster: Cluster, group: str, topic: str | None) -> dict[TopicPartition, int]:
    """Return the committed offset of a group in each partition of its topics, or of one topic.

    A partition without a committed offset counts from its start. Raises ValueError if the group or
    the topic does not exist, or if the group has no topic.
    """
    described = await _described(cluster, group)
    committed = await GroupAdmin(cluster).offsets(group)
    if described is None and not committed:
        raise ValueError(f"there is no group {group}")
    found = _lag_topics(described, committed) if topic is None else {topic}
    if not found:
        raise ValueError(f"group {group} reads no topic and has committed no offset")
    if topic is not None:
        await _topic(cluster, topic)
    await cluster.refresh(found)
    # The offset of a deleted topic may still exist: it has no end.
    wanted = [
        TopicPartition(name, each)
        for name in sorted(found)
        if name in cluster.topics
        for each in cluster.topics[name].leaders
    ]
    starts = await find_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    return {each: committed.get(each, starts[each].offset) for each in wanted}


async def wait_for_group(
    cluster: Cluster, group: str, members: int | None, most_lag: int | None, seen: list[str]
) -> None:
    """Wait until a group is settled, with so many members, or until its lag is small enough.

    `seen` holds the state that was seen last.
    """
    while True:
        described = await _described(cluster, group)
        settled, text = _settled(described, members, most_lag)
        if most_lag is not None:
            try:
                behind = await lag(cluster, group, None)
            except ValueError:
                # The group has not committed yet.
                settled = False
            else:
                text.append(f"has lag {behind}")
                settled = settled and behind <= most_lag
        seen[:] = [f"group {group} {' and '.join(text)}"]
        if settled:
            return
        await asyncio.sleep(_POLL)


class _Group(NamedTuple):
    """A group of either protocol, as it was seen."""

    state: str
    members: int
    topics: frozenset[str]
    """The topics that its members read."""


def _settled(
    group: _Group | None, members: int | None, most_lag: int | None
) -> tuple[bool, list[str]]:
    """Return whether a group has the members that are waited for, and a text of its state."""
    if group is None:
        return members == 0, ["does not exist"]
    count, state = group.members, group.state
    text = [f"is {state} with {count} members"]
    if members is None:
        return most_lag is not None or (state == "Stable" and count > 0), text
    return count == members and state == ("Stable" if members else "Empty"), text


async def _described(cluster: Cluster, group: str) -> _Group | None:
    """Return state and members of a group, None if it does not exist."""
    try:
        found = (await GroupAdmin(cluster).describe([group]))[group]
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    if found.group_state == "Dead":
        return None
    if isinstance(found, DescribedGroup):
        topics = _topics_of_classic_members(found)
    else:
        rows = (row for each in found.members for row in each.assignment.topic_partitions)
        topics = {row.topic_name for row in rows}
    return _Group(found.group_state, len(found.members), frozenset(topics))


def _topics_of_classic_members(described: DescribedGroup) -> set[str]:
    topics: set[str] = set()
    for member in described.members if described.protocol_type == "consumer" else ():
        # The assignment of a foreign member may be unreadable.
        with suppress(ProtocolError):
            topics |= {each.topic for each in read_assignment(member.member_assignment)}
    return topics


def _lag_topics(group: _Group | None, committed: dict[TopicPartition, int]) -> set[str]:
    """Return the topics that a group has committed, and those that its members read."""
    return {each.topic for each in committed} | (group.topics if group else frozenset())


async def _topic(cluster: Cluster, name: str) -> TopicInfo:
    """Return a topic. Raises ValueError if no broker knows it."""

    async def attempt() -> TopicInfo:
        await cluster.refresh([name])
        if name not in cluster.topics:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if all(row.error_code == unknown for row in await _rows(cluster, name)):
                raise ValueError(f"there is no topic {name}")
            # One broker learns of a new topic before another.
            check(ErrorCode.LEADER_NOT_AVAILABLE, name)
        return cluster.topics[name]

    return await cluster.retrying(attempt)


async def _rows(cluster: Cluster, name: str) -> list[metadata.MetadataResponseTopic]:
    """Return the topic in the Metadata of each broker that answers soon."""
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )

    async def ask(node: int) -> list[metadata.MetadataResponseTopic]:
        # A broker may be paused or cut off.
        with suppress(BrokerUnreachable, TimeoutError):
            async with asyncio.timeout(_ANSWER_TIMEOUT):
                response = await cluster.ask(metadata.API, request, node=node)
                rows: list[metadata.MetadataResponseTopic] = response.topics
                return rows
        return []

    answers = await asyncio.gather(*map(ask, list(cluster.nodes)))
    return [row for rows in answers for row in rows]
