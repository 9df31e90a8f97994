"""The figures of a topic's newest records: rates, sizes, keys, batches and compression."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from barnabas.client.batches import FetchSettings, fetch_next
from barnabas.client.cluster import Cluster
from barnabas.client.last_records import find_last
from barnabas.client.offsets import LATEST, find_offsets
from barnabas.operations.answers.topics import AnalyzedTopic, FrequentKey, SampledPartition
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import iter_fields
from barnabas.protocol.topic_partition import TopicPartition

_SETTINGS: Final = FetchSettings()
_FREQUENT: Final = 5
"""Keys that are named, the most frequent first."""


class PartitionSample:
    """The newest committed records of a partition, as they are read."""

    def __init__(self, partition: TopicPartition, end: int) -> None:
        self.partition = partition
        self.end = end
        """The last stable offset, or the high watermark without an open transaction."""
        self.key_sizes: list[int] = []
        self.value_sizes: list[int] = []
        self.without_key = self.tombstones = 0
        self.keys: Counter[bytes] = Counter()
        self.payload_bytes = 0
        """Keys, values and headers of the sampled records, as clients give them."""
        self.batches: list[BatchHeader] = []
        self.times: list[int] = []
        """The timestamps in ms of the sampled records that have one."""

    @property
    def records(self) -> int:
        return len(self.value_sizes)

    @property
    def records_per_s(self) -> float | None:
        """The records in a second between the first and the last timestamp; None without a span."""
        span_ms = max(self.times) - min(self.times) if self.times else 0
        return (len(self.times) - 1) * 1000 / span_ms if span_ms else None

    @property
    def stored_bytes(self) -> int:
        return sum(each.size for each in self.batches)

    async def read(self, cluster: Cluster, start: int) -> None:
        """Read the batches from that of an offset to the end; raises KafkaError."""
        position = start
        while position < self.end:
            fetched = await fetch_next(cluster, self.partition, position, _SETTINGS)
            for at, header in fetched.visible:
                if header.base_offset < self.end:
                    self.batches.append(header)
                    for offset, time, key, value, headers in iter_fields(fetched.data, at, header):
                        if offset < self.end:
                            self._add(time, key, value)
                            self.payload_bytes += sum(
                                len(name) + len(text or b"") for name, text in headers
                            )
            position = fetched.next_offset

    def _add(self, time: int, key: bytes | None, value: bytes | None) -> None:
        self.without_key += key is None
        self.tombstones += value is None
        if key is not None:
            self.key_sizes.append(len(key))
            self.keys[bytes(key)] += 1
        self.value_sizes.append(len(value or b""))
        self.payload_bytes += len(key or b"") + len(value or b"")
        if time >= 0:
            self.times.append(time)


async def sample(cluster: Cluster, topic: str, records: int) -> list[PartitionSample]:
    """Read the newest committed records of a topic: at least so many, if it has them, in whole
    batches, and as many of each partition."""
    known = (await cluster.topic(topic)).leaders
    wanted = [TopicPartition(topic, each) for each in sorted(known)]
    each = -(-records // max(1, len(wanted)))
    starts = await find_last(cluster, wanted, each, _SETTINGS)
    ends = await find_offsets(cluster, dict.fromkeys(wanted, LATEST), read_committed=True)
    samples = [PartitionSample(partition, ends[partition].offset) for partition in wanted]
    # One after another: the memory does not grow with the number of partitions.
    for part in samples:
        await part.read(cluster, starts[part.partition])
    return samples


def analyzed(topic: str, samples: Sequence[PartitionSample]) -> AnalyzedTopic:
    """Return the figures of a topic, and those of each partition."""
    keys: Counter[bytes] = Counter()
    for each in samples:
        keys += each.keys
    batches = [header for each in samples for header in each.batches]
    values = sorted(size for each in samples for size in each.value_sizes)
    key_sizes = sorted(size for each in samples for size in each.key_sizes)
    times = [time for each in samples for time in each.times]
    rates = [each.records_per_s for each in samples if each.records_per_s is not None]
    codecs = Counter(Compression(header.compression).name.lower() for header in batches)
    stored = sum(each.stored_bytes for each in samples)
    payload = sum(each.payload_bytes for each in samples)
    per_record = stored / len(values) if values else 0.0
    return AnalyzedTopic(
        topic=topic,
        records=len(values),
        first_at_ms=min(times, default=None),
        last_at_ms=max(times, default=None),
        records_per_s=round(sum(rates), 1) if rates else None,
        bytes_per_s=round(sum(rates) * per_record) if rates else None,
        value_bytes_p50=_share(values, 50),
        value_bytes_p99=_share(values, 99),
        value_bytes_max=_share(values, 100),
        key_bytes_p50=_share(key_sizes, 50),
        key_bytes_max=_share(key_sizes, 100),
        without_key=sum(each.without_key for each in samples),
        tombstones=sum(each.tombstones for each in samples),
        distinct_keys=len(keys),
        frequent_keys=[
            FrequentKey(key=key.decode(errors="backslashreplace"), records=count)
            for key, count in keys.most_common(_FREQUENT)
            if count > 1
        ],
        batches=len(batches),
        records_per_batch_p50=_share(sorted(each.record_count for each in batches), 50),
        bytes_per_batch_p50=_share(sorted(each.size for each in batches), 50),
        codecs=dict(codecs.most_common()),
        transactional_batches=sum(each.is_transactional for each in batches),
        stored_to_payload=round(stored / payload, 3) if payload else None,
        partitions=[_sampled(each) for each in samples],
    )


def _sampled(part: PartitionSample) -> SampledPartition:
    rate = part.records_per_s
    return SampledPartition(
        partition=part.partition.partition,
        records=part.records,
        records_per_s=None if rate is None else round(rate, 1),
        batches=len(part.batches),
        stored_bytes=part.stored_bytes,
        distinct_keys=len(part.keys),
    )


def _share(ascending: Sequence[int], percent: int) -> int | None:
    """Return the value that so many percent of the values do not exceed; None without any."""
    return ascending[(len(ascending) - 1) * percent // 100] if ascending else None
