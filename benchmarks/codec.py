"""Our codec and kafka-python's compiled one: the same messages, the same bytes, both directions.

    python benchmarks/codec.py

Prints microseconds of CPU time per message, the minimum of several alternating rounds, the ratios,
and their geometric mean in each direction. Exits with code 1 if a mean is below 2.
"""

import sys
import timeit
from collections.abc import Callable
from importlib import import_module
from statistics import geometric_mean
from time import process_time
from typing import Any, NamedTuple

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages import (
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)

GOAL = 2.0
ROUNDS = 7
SECONDS_PER_ROUND = 0.02

RECORDS = bytes(range(256)) * 64
TOPIC_ID = bytes(range(16))


class Case(NamedTuple):
    """One message in one version, and its module of kafka-python."""

    message: Any
    version: int
    foreign: str


def produce_cases() -> list[Case]:
    partitions = [produce.PartitionProduceData(index=i, records=RECORDS) for i in range(2)]
    answers = [
        produce.PartitionProduceResponse(index=i, base_offset=1000 + i, log_start_offset=0)
        for i in range(2)
    ]
    request = produce.ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[produce.TopicProduceData(name="orders", partition_data=partitions)],
    )
    response = produce.ProduceResponse(
        responses=[produce.TopicProduceResponse(name="orders", partition_responses=answers)]
    )
    where = "kafka.protocol.producer.produce"
    return [Case(message, v, where) for v in (7, 9) for message in (request, response)]


def fetch_cases() -> list[Case]:
    wanted = [
        fetch.FetchPartition(partition=i, fetch_offset=10**6, partition_max_bytes=2**20)
        for i in range(8)
    ]
    found = [
        fetch.PartitionData(
            partition_index=i,
            high_watermark=10**6,
            last_stable_offset=10**6,
            log_start_offset=0,
            aborted_transactions=None,
            records=RECORDS,
        )
        for i in range(8)
    ]
    request = fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[fetch.FetchTopic(topic="orders", partitions=wanted)],
    )
    response = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic="orders", partitions=found)]
    )
    where = "kafka.protocol.consumer.fetch"
    return [Case(message, v, where) for v in (11, 12) for message in (request, response)]


def metadata_cases() -> list[Case]:
    brokers = [
        metadata.MetadataResponseBroker(node_id=i, host=f"broker-{i}.example.org", port=9092)
        for i in range(3)
    ]
    partitions = [
        metadata.MetadataResponsePartition(
            partition_index=i, leader_id=i % 3, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )
        for i in range(12)
    ]
    topics = [
        metadata.MetadataResponseTopic(name=f"topic-{i}", partitions=partitions) for i in range(10)
    ]
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=f"topic-{i}") for i in range(10)]
    )
    response = metadata.MetadataResponse(brokers=brokers, cluster_id="c", topics=topics)
    where = "kafka.protocol.metadata.metadata"
    return [Case(message, v, where) for v in (8, 12) for message in (request, response)]


def group_cases() -> list[Case]:
    subscription = bytes(120)
    join = join_group.JoinGroupRequest(
        group_id="billing",
        session_timeout_ms=45000,
        rebalance_timeout_ms=300000,
        member_id="",
        protocol_type="consumer",
        protocols=[
            join_group.JoinGroupRequestProtocol(name=name, metadata=subscription)
            for name in ("range", "cooperative-sticky")
        ],
    )
    joined = join_group.JoinGroupResponse(
        generation_id=3,
        protocol_type="consumer",
        protocol_name="range",
        leader="m-0",
        member_id="m-0",
        members=[
            join_group.JoinGroupResponseMember(member_id=f"m-{i}", metadata=subscription)
            for i in range(10)
        ],
    )
    sync = sync_group.SyncGroupRequest(
        group_id="billing",
        generation_id=3,
        member_id="m-0",
        assignments=[
            sync_group.SyncGroupRequestAssignment(member_id=f"m-{i}", assignment=subscription)
            for i in range(10)
        ],
    )
    beat = heartbeat.HeartbeatRequest(group_id="billing", generation_id=3, member_id="m-0")
    where = "kafka.protocol.consumer.group"
    return [
        Case(join, 7, where),
        Case(joined, 7, where),
        Case(sync, 4, where),
        Case(beat, 4, where),
        Case(heartbeat.HeartbeatResponse(), 4, where),
    ]


def offset_cases() -> list[Case]:
    commit = offset_commit.OffsetCommitRequest(
        group_id="billing",
        generation_id_or_member_epoch=3,
        member_id="m-0",
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=i, committed_offset=10**6, committed_metadata=""
                    )
                    for i in range(12)
                ],
            )
        ],
    )
    committed = offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                name="orders",
                partitions=[
                    offset_commit.OffsetCommitResponsePartition(partition_index=i)
                    for i in range(12)
                ],
            )
        ]
    )
    where = "kafka.protocol.consumer.group"
    return [Case(commit, 8, where), Case(committed, 8, where)]


def lookup_cases() -> list[Case]:
    fetched = offset_fetch.OffsetFetchResponse(
        topics=[
            offset_fetch.OffsetFetchResponseTopic(
                name="orders",
                partitions=[
                    offset_fetch.OffsetFetchResponsePartition(
                        partition_index=i, committed_offset=10**6
                    )
                    for i in range(12)
                ],
            )
        ]
    )
    wanted = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            list_offsets.ListOffsetsTopic(
                name="orders",
                partitions=[
                    list_offsets.ListOffsetsPartition(partition_index=i, timestamp=-1)
                    for i in range(12)
                ],
            )
        ],
    )
    coordinator = find_coordinator.FindCoordinatorRequest(coordinator_keys=["billing"])
    return [
        Case(fetched, 7, "kafka.protocol.consumer.group"),
        Case(wanted, 7, "kafka.protocol.consumer.offsets"),
        Case(coordinator, 4, "kafka.protocol.metadata.find_coordinator"),
    ]


def best(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Return microseconds of each: the minimum of alternating rounds, so that neither is
    favoured."""
    times = []
    for call in (ours, theirs):
        timer = timeit.Timer(call, timer=process_time)
        once = max(timer.timeit(50) / 50, 1e-8)
        times.append((timer, max(1, int(SECONDS_PER_ROUND / once))))
    rounds = [[timer.timeit(n) / n * 1e6 for timer, n in times] for _ in range(ROUNDS)]
    return min(r[0] for r in rounds), min(r[1] for r in rounds)


class Row(NamedTuple):
    """Microseconds of one message, ours and kafka-python's."""

    size: int
    decode: tuple[float, float]
    encode: tuple[float, float]

    @property
    def ratios(self) -> tuple[float, float]:
        """Return the ratio of the speeds of decoding and encoding, ours over theirs."""
        return self.decode[1] / self.decode[0], self.encode[1] / self.encode[0]


def measure(case: Case) -> Row:
    """Measure both codecs on one message, after a check that they encode the same bytes."""
    message, version, where = case
    cls = type(message)
    foreign_cls = getattr(import_module(where), cls.__name__)
    data = encode(message, version)
    view = memoryview(data)
    foreign = foreign_cls.decode(view, version=version)
    foreign._header = None  # which its decoder leaves unset and its encoder looks at
    assert bytes(foreign.encode(version=version)) == data, cls.__name__
    return Row(
        len(data),
        best(lambda: decode(cls, version, view), lambda: foreign_cls.decode(view, version=version)),
        best(lambda: encode(message, version), lambda: foreign.encode(version=version)),
    )


def main() -> int:
    print(f"{'message':32}{'bytes':>7}{'decode us':>21}{'ratio':>7}{'encode us':>21}{'ratio':>7}")
    cases = [
        *produce_cases(),
        *fetch_cases(),
        *metadata_cases(),
        *group_cases(),
        *offset_cases(),
        *lookup_cases(),
    ]
    ratios = []
    for case in cases:
        name, row = f"{type(case.message).__name__} v{case.version}", measure(case)
        cells = [
            f"{ours:10.2f} /{theirs:8.2f}{ratio:8.1f}"
            for (ours, theirs), ratio in zip((row.decode, row.encode), row.ratios, strict=True)
        ]
        print(f"{name:32}{row.size:7}{cells[0]}{cells[1]}")
        ratios.append(row.ratios)
    means = [geometric_mean(column) for column in zip(*ratios, strict=True)]
    least = [min(column) for column in zip(*ratios, strict=True)]
    print(f"geometric mean: decode {means[0]:.2f}x, encode {means[1]:.2f}x")
    print(f"least: decode {least[0]:.2f}x, encode {least[1]:.2f}x")
    return 1 if min(means) < GOAL else 0


if __name__ == "__main__":
    sys.exit(main())
